-- A request that ended before its reservation was made, because its client left, reserves nothing any more.
create or replace function dragoman.reserve(
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
    if fits and not exists (select 1 from dragoman.settled d where d.id = request) then
        insert into dragoman.reserved
            select request, u.a, u.p,
                case when cap then least(estimate, u.most - s.micros - s.reserved) else estimate end, lease, holder
            from unnest(accounts, periods, limits) as u(a, p, most)
            join dragoman.spent s on s.account = u.a and s.period = u.p;
        update dragoman.spent s set reserved = s.reserved + r.micros from dragoman.reserved r
            where r.id = request and r.account = s.account and r.period = s.period;
    end if;
end $$;

-- A whole batch in one round trip, so that the rows of `spent` are locked for a moment only. Line n belongs to the
-- request whose place in `requests` is lines[n]. Returns the thresholds that were passed for the first time.
create function dragoman.settle_all(
    requests text[], costs bigint[], lines integer[], accounts text[], periods bigint[], limits bigint[],
    softs integer[], moment double precision
) returns table (account text, period bigint, passed integer, spent_micros bigint) language plpgsql as $$
#variable_conflict use_column
declare
    fresh text[];
    names text[];
    begins bigint[];
    sums bigint[];
    mosts bigint[];
    marks integer[];
begin
    with added as (
        insert into dragoman.settled select distinct u.id, moment from unnest(requests) as u(id) order by 1
        on conflict do nothing returning id
    ) select array_agg(a.id) into fresh from added a;
    if fresh is null then
        return;
    end if;
    select coalesce(array_agg(c.a), '{}'), coalesce(array_agg(c.p), '{}'), array_agg(c.cost), array_agg(c.most),
            array_agg(c.soft) into names, begins, sums, mosts, marks
        from (select l.a, l.p, sum(u.cost)::bigint as cost, max(l.most) as most, max(l.soft) as soft
              from unnest(lines, accounts, periods, limits, softs) as l(place, a, p, most, soft)
              join (select distinct on (v.id) v.id, v.cost, v.place
                    from unnest(requests, costs) with ordinality as v(id, cost, place) order by v.id, v.place) u
                  on u.place = l.place
              where u.id = any(fresh) group by 1, 2 order by 1, 2) c;
    insert into dragoman.spent (account, period) select * from unnest(names, begins) on conflict do nothing;
    perform 1 from dragoman.spent s where (s.account, s.period) in (
            select * from unnest(names, begins)
            union select r.account, r.period from dragoman.reserved r where r.id = any(fresh))
        order by s.account, s.period for update;
    with mine as (delete from dragoman.reserved r where r.id = any(fresh) returning r.account, r.period, r.micros),
        given as (select m.account, m.period, sum(m.micros) as micros from mine m group by 1, 2)
    update dragoman.spent s set reserved = s.reserved - m.micros from given m
        where s.account = m.account and s.period = m.period;
    update dragoman.spent s set micros = s.micros + c.cost from unnest(names, begins, sums) as c(a, p, cost)
        where s.account = c.a and s.period = c.p;
    return query
        with reached as (
            select s.account, s.period, t.percent, s.micros
            from unnest(names, begins, mosts, marks) as c(a, p, most, soft)
            join dragoman.spent s on s.account = c.a and s.period = c.p
            cross join lateral (select distinct v.percent from (values (c.soft), (100)) as v(percent)) t
            where case when c.most > 0 then s.micros * 100 / c.most else 100 end >= t.percent
        ), told as (
            insert into dragoman.told select r.account, r.period, r.percent from reached r
            on conflict do nothing returning *
        )
        select r.account, r.period, max(r.percent), max(r.micros) from reached r
            join told t on t.account = r.account and t.period = r.period and t.percent = r.percent
            group by r.account, r.period order by 1, 2;
end $$;
