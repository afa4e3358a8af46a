-- Budgets in whole micro-units, and the ledger. A call of `reserve` or `settle` is one round trip and one transaction.
create table dragoman.spent (
    account text, period bigint, micros bigint not null default 0, reserved bigint not null default 0,
    primary key (account, period)
);
create table dragoman.reserved (
    id text, account text, period bigint, micros bigint not null, until double precision not null, owner text not null,
    primary key (id, account)
);
create index reserved_until on dragoman.reserved (until);
create index reserved_owner on dragoman.reserved (owner);
create table dragoman.settled (id text primary key, at double precision not null);
create index settled_at on dragoman.settled (at);
create table dragoman.told (account text, period bigint, percent integer, primary key (account, period, percent));

-- Gives back what dead processes have reserved. The rows of `spent` are locked in one order, so that nothing deadlocks.
create function dragoman.expire(moment double precision) returns bigint language plpgsql as $$
declare
    gone bigint;
begin
    perform 1 from dragoman.spent s
        where exists (select 1 from dragoman.reserved r
            where r.account = s.account and r.period = s.period and r.until < moment)
        order by s.account, s.period for update;
    with lost as (delete from dragoman.reserved r where r.until < moment returning r.account, r.period, r.micros),
        sums as (select l.account, l.period, sum(l.micros) as micros, count(*) as rows from lost l group by 1, 2),
        given as (update dragoman.spent s set reserved = s.reserved - u.micros from sums u
            where s.account = u.account and s.period = u.period)
    select coalesce(sum(u.rows), 0) into gone from sums u;
    return gone;
end $$;

create function dragoman.reserve(
    request text, holder text, accounts text[], periods bigint[], limits bigint[], estimate bigint,
    moment double precision, lease double precision, cap boolean
) returns table (was_micros bigint, was_reserved bigint, refused boolean) language plpgsql as $$
declare
    least_left bigint := case when cap then 1 else greatest(estimate, 1) end;
    fits boolean := true;
begin
    perform dragoman.expire(moment) where exists (select 1 from dragoman.reserved r where r.until < moment);
    insert into dragoman.spent (account, period)
        select u.a, u.p from unnest(accounts, periods) as u(a, p) order by 1, 2 on conflict do nothing;
    perform 1 from dragoman.spent s join unnest(accounts, periods) as u(a, p) on s.account = u.a and s.period = u.p
        order by s.account, s.period for update of s;
    return query select s.micros, s.reserved, u.most - s.micros - s.reserved < least_left
        from unnest(accounts, periods, limits) with ordinality as u(a, p, most, place)
        join dragoman.spent s on s.account = u.a and s.period = u.p order by u.place;
    select bool_and(u.most - s.micros - s.reserved >= least_left) into fits
        from unnest(accounts, periods, limits) as u(a, p, most)
        join dragoman.spent s on s.account = u.a and s.period = u.p;
    if fits then
        insert into dragoman.reserved
            select request, u.a, u.p,
                case when cap then least(estimate, u.most - s.micros - s.reserved) else estimate end, lease, holder
            from unnest(accounts, periods, limits) as u(a, p, most)
            join dragoman.spent s on s.account = u.a and s.period = u.p;
        update dragoman.spent s set reserved = s.reserved + r.micros from dragoman.reserved r
            where r.id = request and r.account = s.account and r.period = s.period;
    end if;
end $$;

-- Each id counts once. Returns the thresholds that were passed for the first time.
create function dragoman.settle(
    request text, accounts text[], periods bigint[], limits bigint[], softs integer[], cost bigint,
    moment double precision
) returns table (place bigint, passed integer, spent_micros bigint) language plpgsql as $$
begin
    insert into dragoman.settled values (request, moment) on conflict do nothing;
    if not found then
        return;
    end if;
    insert into dragoman.spent (account, period)
        select u.a, u.p from unnest(accounts, periods) as u(a, p) order by 1, 2 on conflict do nothing;
    perform 1 from dragoman.spent s where (s.account, s.period) in (
            select u.a, u.p from unnest(accounts, periods) as u(a, p)
            union select r.account, r.period from dragoman.reserved r where r.id = request)
        order by s.account, s.period for update;
    with mine as (delete from dragoman.reserved r where r.id = request returning r.account, r.period, r.micros)
    update dragoman.spent s set reserved = s.reserved - m.micros from mine m
        where s.account = m.account and s.period = m.period;
    update dragoman.spent s set micros = s.micros + cost from unnest(accounts, periods) as u(a, p)
        where s.account = u.a and s.period = u.p;
    return query
        with reached as (
            select u.n, u.a, u.p, t.percent, s.micros
            from unnest(accounts, periods, limits, softs) with ordinality as u(a, p, most, soft, n)
            join dragoman.spent s on s.account = u.a and s.period = u.p
            cross join lateral (select distinct v.percent from (values (u.soft), (100)) as v(percent)) t
            where case when u.most > 0 then s.micros * 100 / u.most else 100 end >= t.percent
        ), fresh as (
            insert into dragoman.told select r.a, r.p, r.percent from reached r on conflict do nothing returning *
        )
        select r.n, max(r.percent), max(r.micros) from reached r
            join fresh f on f.account = r.a and f.period = r.p and f.percent = r.percent group by r.n order by r.n;
end $$;

create table dragoman.requests (
    id text primary key, at double precision not null, key text, key_id text, team text, tags text, client text,
    door text, asked text, upstream text, model text, input bigint, cache_read bigint, cache_write bigint,
    output bigint, reasoning bigint, cost bigint, currency text, status integer, failure text, first_ms bigint,
    total_ms bigint, tries integer, harmless integer, changed integer, lost integer, estimated boolean, bodies text
);
create index requests_at on dragoman.requests (at, id);
create table dragoman.attempts (
    request text, number integer, upstream text, model text, status integer, failure text, waited_ms bigint,
    primary key (request, number)
);
create table dragoman.sums (
    hour bigint, key text, team text, door text, upstream text, model text, currency text,
    requests bigint not null default 0, failed bigint not null default 0, unpriced bigint not null default 0,
    input bigint not null default 0, cache_read bigint not null default 0, cache_write bigint not null default 0,
    output bigint not null default 0, reasoning bigint not null default 0, cost bigint not null default 0,
    total_ms bigint not null default 0, primary key (hour, key, team, door, upstream, model, currency)
);
