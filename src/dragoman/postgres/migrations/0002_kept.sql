-- Stored responses, and reasoning state that clients do not bring back. Every lookup names its owner.
create table dragoman.responses (
    owner text not null, id text not null, created double precision not null, row bytea not null,
    primary key (owner, id)
);
create index responses_by_age on dragoman.responses (created);
create table dragoman.reasoning_state (
    owner text not null, key text not null, created double precision not null, state bytea not null,
    primary key (owner, key)
);
create index state_by_age on dragoman.reasoning_state (created);
