-- Keys, teams and the log of changes to them. `revision` grows with every change, so that gateways see it.
create table dragoman.install (pepper text not null, revision bigint not null default 1);
create unique index one_install on dragoman.install ((true));
create table dragoman.keys (
    id text primary key, digest text not null, name text not null, admin boolean not null,
    created double precision not null, revoked double precision, team text not null default '',
    granted text not null default '{}', expires double precision, old_digest text not null default '',
    old_until double precision
);
create table dragoman.teams (name text primary key, granted text not null);
create table dragoman.audit (
    number bigint generated always as identity primary key, at double precision not null, who text not null,
    what text not null, subject text not null, before text not null, after text not null
);
create function dragoman.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is only added to';
end $$;
create trigger audit_stays before update or delete or truncate on dragoman.audit
    for each statement execute function dragoman.refuse_change();
