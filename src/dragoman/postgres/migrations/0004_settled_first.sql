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
