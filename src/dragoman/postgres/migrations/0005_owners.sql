-- Whose the things are that providers keep for our keys, by name. And rows by owner: each key has its share of them.
create table dragoman.owned (
    name text primary key, owner text not null, created double precision not null
);
create index owned_by_owner on dragoman.owned (owner, created);
create index responses_by_owner on dragoman.responses (owner, created);
create index responses_by_id on dragoman.responses (id);
create index state_by_owner on dragoman.reasoning_state (owner, created);
