"""Budgets and the ledger in PostgreSQL. The promises are those of SQLite. A DatabaseAwayError is an OSError."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dragoman.accounts.budgets import SETTLED_KEPT_S, Line, Passed, Refused, Settlement, Spent, make_spent
from dragoman.accounts.ledger import (
    COLUMNS,
    COUNTERS,
    DETAILS,
    MOST_ROWS,
    SUM_FIELDS,
    SUM_KEYS,
    AttemptRow,
    LedgerRow,
    Page,
    Sums,
    check_words,
    find_hours,
    read_cursor,
    with_tries,
)
from dragoman.postgres.database import Database, PgConnection

RESERVE_S = 1.0  # a request waits at most this long, and only once
WRITE_S = 30.0  # only the bookkeeper's thread waits
_TYPES = {
    **dict.fromkeys((*COUNTERS, "cost", "first_ms", "total_ms"), "bigint"),
    **dict.fromkeys(("status", "tries", "harmless", "changed", "lost"), "integer"),
    "at": "double precision",
    "estimated": "boolean",
}
_PLACES = ", ".join(f"${number}::{_TYPES.get(name, 'text')}[]" for number, name in enumerate(COLUMNS, 1))
_ADD_UP = ", ".join(f"{name} = sums.{name} + excluded.{name}" for name in SUM_FIELDS)
# One statement: a row that is there already adds nothing to the sums. The order prevents a deadlock of two writers.
_ADD = f"""
with fresh as (
    insert into dragoman.requests ({", ".join(COLUMNS)}) select * from unnest({_PLACES})
    on conflict (id) do nothing returning *
)
insert into dragoman.sums
select floor(at / 3600)::bigint, key, team, door, upstream,
    case when status between 1 and 399 or cost > 0 then model else '' end, currency,
    count(*), count(*) filter (where status >= 400), count(*) filter (where cost is null),
    {", ".join(f"coalesce(sum({name}), 0)" for name in (*COUNTERS, "cost", "total_ms"))}
from fresh group by 1, 2, 3, 4, 5, 6, 7 order by 1, 2, 3, 4, 5, 6, 7
on conflict ({", ".join(SUM_KEYS)}) do update set {_ADD_UP}
"""  # noqa: S608  # our own names
_TRY = """
insert into dragoman.attempts
select * from unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bigint[])
on conflict do nothing
"""
_TRIES = """
select request, upstream, model, status, failure, waited_ms from dragoman.attempts where request = any($1)
order by number
"""
_FORGET = """
delete from dragoman.requests where id in (select id from dragoman.requests where at < $1 order by at limit $2)
returning id
"""
_FORGET_AT_ONCE = 5000
_TIMES = {"day": "YYYY-MM-DD", "hour": "YYYY-MM-DD HH24:00"}


class PostgresBudgets:
    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        arguments = (request, owner, *_columns(lines), estimate, now, until, cap)
        return _judge(lines, self._database.run(_reserve(arguments), transaction=False))

    async def ask(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        arguments = (request, owner, *_columns(lines), estimate, now, until, cap)
        return _judge(lines, await self._database.ask(_reserve(arguments), RESERVE_S, transaction=False))

    def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
        placed = [(place, line) for place, one in enumerate(settlements, 1) for line in one.lines]
        lines = {(line.account, line.period): line for _, line in placed}
        arguments = (
            [one.id for one in settlements],
            [one.micros for one in settlements],
            [place for place, _ in placed],
            *_columns([line for _, line in placed]),
            [line.soft for _, line in placed],
            now,
        )

        async def work(connection: PgConnection) -> list[Any]:
            rows = await connection.fetch(
                "select * from dragoman.settle_all($1, $2, $3, $4, $5, $6, $7, $8)", *arguments
            )
            await connection.execute("delete from dragoman.settled where at < $1", now - SETTLED_KEPT_S)
            return list(rows)

        return [Passed(lines[row[0], row[1]], row[2], row[3]) for row in self._database.run(work, WRITE_S)]

    def renew(self, requests: Sequence[str], until: float) -> set[str]:
        async def work(connection: PgConnection) -> set[str]:
            statement = "update dragoman.reserved set until = $1 where id = any($2) returning id"
            return {row[0] for row in await connection.fetch(statement, until, list(requests))}

        return self._database.run(work, WRITE_S)

    def expire(self, now: float) -> int:
        async def work(connection: PgConnection) -> int:
            return int(await connection.fetchval("select dragoman.expire($1)", now))

        return self._database.run(work)

    def read(self, lines: Sequence[Line]) -> list[Spent]:
        async def work(connection: PgConnection) -> list[Spent]:
            statement = "select micros, reserved from dragoman.spent where account = $1 and period = $2"
            rows = [await connection.fetchrow(statement, line.account, line.period) or (0, 0) for line in lines]
            return [make_spent(line, row[0], row[1]) for line, row in zip(lines, rows, strict=True)]

        return self._database.run(work)

    def close(self) -> None:
        """The database is closed by the one that opened it."""


def _reserve(arguments: tuple[Any, ...]) -> Callable[[PgConnection], Awaitable[list[Any]]]:
    async def work(connection: PgConnection) -> list[Any]:
        return list(
            await connection.fetch("select * from dragoman.reserve($1, $2, $3, $4, $5, $6, $7, $8, $9)", *arguments)
        )

    return work


def _judge(lines: Sequence[Line], rows: Sequence[Any]) -> list[Spent] | Refused:
    found = [make_spent(line, row[0], row[1]) for line, row in zip(lines, rows, strict=True)]
    return next((Refused(spent) for spent, row in zip(found, rows, strict=True) if row[2]), found)


def _columns(lines: Sequence[Line]) -> tuple[list[str], list[int], list[int]]:
    return [line.account for line in lines], [line.period for line in lines], [line.limit for line in lines]


class PostgresLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, rows: Sequence[LedgerRow], lines: Sequence[bytes] = ()) -> None:
        columns = [[_plain(getattr(row, name)) for row in rows] for name in COLUMNS]
        tries = [
            (row.id, number, *(_plain(getattr(one, name)) for name in AttemptRow.__struct_fields__))
            for row in rows
            for number, one in enumerate(row.attempts, 1)
        ]

        async def work(connection: PgConnection) -> None:
            await connection.execute(_ADD, *columns)
            if tries:
                await connection.execute(_TRY, *map(list, zip(*tries, strict=True)))

        self._database.run(work, WRITE_S)

    def sum(self, by: Sequence[str], since: float, until: float, where: dict[str, str]) -> list[Sums]:
        check_words(by, where)
        details = any(word in DETAILS for word in (*by, *where))
        column, time = ("at", "at") if details else ("hour", "hour * 3600")
        names = [_show_time(word, time) if word in _TIMES else word for word in by]
        added = _DETAILED if details else [f"coalesce(sum({name}), 0)::bigint" for name in SUM_FIELDS]
        statement = f"select {', '.join((*names, *added))}"
        statement += " from dragoman.requests" if details else " from dragoman.sums"
        statement += f" where {column} >= $1 and {column} < $2"
        statement += "".join(f" and {word}::text = ${number}" for number, word in enumerate(where, 3))
        statement += f" group by {', '.join(names)}" if names else ""
        first, last = (since, until) if details else find_hours(since, until)

        async def work(connection: PgConnection) -> list[Any]:
            return list(await connection.fetch(statement, first, last, *where.values()))

        size = len(names)
        sums = [
            Sums(by=dict(zip(by, row[:size], strict=True)), **dict(zip(SUM_FIELDS, row[size:], strict=True)))
            for row in map(tuple, self._database.run(work, WRITE_S))
            if row[size]
        ]
        return sorted(sums, key=lambda line: (-line.cost, -line.requests, str(line.by)))

    def page(self, since: float, until: float, where: dict[str, str], cursor: str, most: int) -> Page:
        if unknown := [word for word in where if word not in COLUMNS]:
            raise ValueError(f"{unknown[0]}: expected some of {', '.join(COLUMNS)}")
        last = read_cursor(cursor) if cursor else (until, "")
        most = min(max(most, 1), MOST_ROWS)
        statement = f"select {', '.join(COLUMNS)} from dragoman.requests"  # noqa: S608  # our own names
        statement += ' where at >= $1 and (at < $2 or at = $2 and id collate "C" < $3)'
        statement += "".join(f" and {word}::text = ${number}" for number, word in enumerate(where, 5))
        statement += ' order by at desc, id collate "C" desc limit $4'

        async def work(connection: PgConnection) -> tuple[LedgerRow, ...]:
            found = [dict(row) for row in await connection.fetch(statement, since, *last, most, *where.values())]
            tries: dict[str, list[AttemptRow]] = {}
            for one in map(tuple, await connection.fetch(_TRIES, [row["id"] for row in found])):
                tries.setdefault(one[0], []).append(AttemptRow(*one[1:]))
            return tuple(with_tries(LedgerRow(**row), tuple(tries.get(row["id"], ()))) for row in found)

        rows = self._database.run(work, WRITE_S)
        return Page(rows=rows, cursor=f"{rows[-1].at!r},{rows[-1].id}" if len(rows) == most else "")

    def forget(self, before: float) -> int:
        """In small steps, so that no writer waits for long."""

        async def work(connection: PgConnection) -> int:
            ids = [row[0] for row in await connection.fetch(_FORGET, before, _FORGET_AT_ONCE)]
            await connection.execute("delete from dragoman.attempts where request = any($1)", ids)
            return len(ids)

        gone = 0
        while count := self._database.run(work, WRITE_S):
            gone += count
        return gone

    def close(self) -> None:
        """The database is closed by the one that opened it."""


_DETAILED = [
    *("count(*)", "count(*) filter (where status >= 400)", "count(*) filter (where cost is null)"),
    *(f"coalesce(sum({name}), 0)::bigint" for name in (*COUNTERS, "cost", "total_ms")),
]


def _show_time(word: str, time: str) -> str:
    return f"to_char(to_timestamp({time}) at time zone 'UTC', '{_TIMES[word]}')"


def _plain(value: Any) -> Any:
    """A text as PostgreSQL accepts it: without NUL, and valid UTF-8."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "replace").decode()
    return value
