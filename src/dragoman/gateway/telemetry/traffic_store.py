"""The rows of traffic in SQLite: the newest N of the last days, in a file that all workers share, or in memory.

A page is read by its cursor, so that row 90,000 costs as much as row 1. A search reads every row that is kept.

While there is much traffic, rows are kept in packs, which cost a tenth of what single rows cost. They become single
rows when a page is opened, or when there is little to do. Under load most of them never do: newer rows replace them
first.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from math import log
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct, msgpack

from dragoman.gateway.stores.sqlite import SqliteStore

FILE = "traffic.db"
BUSY_S = 5.0  # calls are made in threads
MOST_ROWS = 5000  # in one answer
LOOK_EVERY = 500  # rows between two looks for old ones
FEW = 20  # so many rows at a time are written one by one
UNPACK_AT_ONCE = 2000  # rows, when there is little to do
DAY_MS = 86_400_000
MINUTE_MS = 60_000
STEP = 1.1  # of the histogram of times: each bucket is so many times the one before it


T = TypeVar("T")


class TrafficRow(Struct, frozen=True, kw_only=True):
    seq: int  # 1, 2, 3, ... in the order in which requests ended
    id: str
    time: int  # when it ended, in milliseconds
    key: str
    program: str  # the client's, as it calls itself
    door: str
    asked: str  # the model, as the client named it
    upstream: str
    model: str
    status: int  # 0: the client left
    failure: str
    first_ms: int | None
    ms: int
    input: int | None
    output: int | None
    cost: str | None
    lost: int  # notes, by rank
    changed: int
    harmless: int
    tries: int  # attempts at upstreams
    kept: bool  # its bodies were kept for X-ray


class Minute(Struct, frozen=True, kw_only=True):
    """What happened in one minute. `firsts`: how often the first byte took about `STEP ** bucket` milliseconds."""

    minute: int  # since 1970
    requests: int
    errors: int
    tokens: int
    firsts: dict[int, int]


class Latency(Struct, frozen=True, kw_only=True):
    requests: int
    errors: int
    median_ms: int
    p95_ms: int


class Search(Struct, frozen=True):
    """A condition for SQL. Its values are never a part of the text."""

    sql: str = "1"
    values: tuple[str | int, ...] = ()


COLUMNS = TrafficRow.__struct_fields__[1:]
_TEXTS = ("id", "key", "program", "door", "asked", "upstream", "model", "failure", "cost")
_SCHEMA = f"""
create table if not exists traffic (
    seq integer primary key autoincrement, {", ".join(f"{n} {'text' if n in _TEXTS else 'integer'}" for n in COLUMNS)},
    words text
);
create table if not exists packs (seq integer primary key, time integer, rows blob);
create index if not exists traffic_time on traffic (time);
create index if not exists traffic_id on traffic (lower(id));
"""
_ROW = f"({', '.join('?' * (len(COLUMNS) + 2))})"
_INSERT = f"insert or ignore into traffic (seq, {', '.join(COLUMNS)}, words) values {_ROW}"  # noqa: S608  # our own names
# Each statement releases the interpreter's lock and takes it again, which disturbs the event loop.
AT_ONCE = 25
_INSERT_MANY = _INSERT + f", {_ROW}" * (AT_ONCE - 1)
_LAST = """select max(
    coalesce((select max(seq) from packs), 0), coalesce((select seq from sqlite_sequence where name = 'traffic'), 0)
)"""
_SELECT = f"select seq, {', '.join(COLUMNS)} from traffic where "  # noqa: S608
_read = attrgetter(*COLUMNS)
_SEARCHED = ("id", "key", "program", "door", "asked", "upstream", "model", "status", "failure")
_TIME, _WORDS = COLUMNS.index("time"), [COLUMNS.index(name) for name in _SEARCHED]
_pack, _unpack = msgpack.Encoder().encode, msgpack.Decoder(list[tuple[str | int | bool | None, ...]]).decode
Values: TypeAlias = tuple[str | int | bool | None, ...]  # of a row, without its number
_FAILED = "(status >= 400 or failure != '')"
_STATES = {"error": _FAILED, "ok": f"not {_FAILED}", "lossy": "lost > 0", "changed": "changed > 0", "kept": "kept"}


class TrafficStore(SqliteStore):
    def __init__(self, path: Path | None, keep_days: int, most: int) -> None:
        super().__init__(path, BUSY_S)
        self._keep_days, self._most = keep_days, most
        self._added = LOOK_EVERY  # since the last look for old rows
        self._now_ms = 0  # when a row was added last

    def add(self, rows: Sequence[TrafficRow], now_ms: int) -> int:
        """The number of the last one."""
        return self.add_values([_read(row) for row in rows], now_ms)

    def add_values(self, rows: Sequence[Values], now_ms: int) -> int:
        """In one transaction, so that their numbers follow each other. The number of the last one."""

        self._now_ms = now_ms

        def work(db: sqlite3.Connection) -> int:
            with db:
                db.execute("begin immediate")  # no other worker counts on from the same number
                last = int(db.execute(_LAST).fetchone()[0])
                if len(rows) > FEW:
                    newest = rows[-1][_TIME]
                    db.execute("insert into packs values (?, ?, ?)", (last + len(rows), newest, _pack(rows)))
                else:
                    _take_packs(db, UNPACK_AT_ONCE)
                    _insert(db, last, rows)
                self._added += len(rows)
                if self._added >= LOOK_EVERY:
                    self._added = 0
                    self._forget(db, now_ms)
            return last + len(rows)

        return self._run(work)

    def _forget(self, db: sqlite3.Connection, now_ms: int) -> None:
        last = int(db.execute(_LAST).fetchone()[0])
        db.execute("delete from packs where seq <= ?", (last - self._most,))  # by its last row
        db.execute("delete from traffic where seq <= ?", (last - self._most,))
        if self._keep_days:
            before = now_ms - self._keep_days * DAY_MS
            db.execute("delete from packs where time < ?", (before,))
            db.execute("delete from traffic where time < ?", (before,))

    def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Reads, after all packs have become rows."""

        def unpack(db: sqlite3.Connection) -> T:
            if db.execute("select 1 from packs limit 1").fetchone():
                with db:
                    db.execute("begin immediate")
                    _take_packs(db, None)
                    self._forget(db, self._now_ms)
            return work(db)

        return self._run(unpack)

    def page(self, search: Search, before: int | None, most: int) -> tuple[list[TrafficRow], int | None]:
        """Rows from the newest to the oldest, and where the next page begins."""
        most = min(max(most, 1), MOST_ROWS)
        older = before if before is not None else 1 << 62
        statement = f"{_SELECT} seq < ? and {search.sql} order by seq desc limit ?"
        rows = self._find(statement, (older, *search.values, most))
        return rows, rows[-1].seq if len(rows) == most else None

    def after(self, seq: int, most: int) -> list[TrafficRow]:
        """The rows that came after one, the oldest first; of too many the newest."""
        return self._find(f"{_SELECT} seq > ? order by seq desc limit ?", (seq, most))[::-1]

    def last(self) -> int:
        return self._run(lambda db: int(db.execute(_LAST).fetchone()[0]))

    def count(self, search: Search) -> int:
        statement = f"select count(*) from traffic where {search.sql}"  # noqa: S608  # made here
        return self._look(lambda db: int(db.execute(statement, search.values).fetchone()[0]))

    def minutes(self, search: Search, since_ms: int) -> list[Minute]:
        what = f"time / {MINUTE_MS}, {_FAILED}, coalesce(input, 0) + coalesce(output, 0), first_ms"
        statement = f"select {what} from traffic where time >= ? and {search.sql}"  # noqa: S608  # made here
        found = self._look(lambda db: db.execute(statement, (since_ms, *search.values)).fetchall())
        return _sum_minutes(found)

    def latencies(self, since_ms: int) -> dict[str, Latency]:
        """By upstream: requests, errors, and how long the first byte took."""
        statement = (
            f"select upstream, {_FAILED}, coalesce(first_ms, ms) from traffic where time >= ? and upstream != ''"  # noqa: S608
        )
        found = self._look(lambda db: db.execute(statement, (since_ms,)).fetchall())
        times: dict[str, list[int]] = {}
        failed: dict[str, int] = {}
        for name, bad, ms in found:
            times.setdefault(name, []).append(ms)
            failed[name] = failed.get(name, 0) + bad
        return {name: _latency(sorted(values), failed[name]) for name, values in times.items()}

    def _find(self, statement: str, values: tuple[str | int, ...]) -> list[TrafficRow]:
        found = self._look(lambda db: db.execute(statement, values).fetchall())
        return [_make(row) for row in found]

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.executescript(_SCHEMA)


def _make(values: tuple[object, ...]) -> TrafficRow:
    named = dict(zip(("seq", *COLUMNS), values, strict=True))
    return TrafficRow(**{**named, "kept": bool(named["kept"])})  # type: ignore[arg-type]  # as they were put in


def _latency(values: list[int], errors: int) -> Latency:
    count = len(values)
    late = values[min(count - 1, int(count * 0.95))]
    return Latency(requests=count, errors=errors, median_ms=values[count // 2], p95_ms=late)


def _insert(db: sqlite3.Connection, last: int, rows: Sequence[Values]) -> None:
    """Adds rows after number `last`."""
    numbered = [(number, *row, _join_words(row)) for number, row in enumerate(rows, last + 1)]
    whole = len(rows) // AT_ONCE * AT_ONCE
    for first in range(0, whole, AT_ONCE):
        db.execute(_INSERT_MANY, list(chain.from_iterable(numbered[first : first + AT_ONCE])))
    if whole < len(rows):
        db.executemany(_INSERT, numbered[whole:])


def _take_packs(db: sqlite3.Connection, most: int | None) -> None:
    """Makes rows of the oldest packs, until there are about so many."""
    done = 0
    while most is None or done < most:
        pack = db.execute("select seq, rows from packs order by seq limit 1").fetchone()
        if pack is None:
            return
        rows = _unpack(pack[1])
        _insert(db, pack[0] - len(rows), rows)
        db.execute("delete from packs where seq = ?", pack[:1])
        done += len(rows)


def _join_words(row: Values) -> str:
    return " ".join([str(row[at]) for at in _WORDS]).lower()


def _sum_minutes(rows: list[tuple[int, int, int, int | None]]) -> list[Minute]:
    found: dict[int, Minute] = {}
    for minute, failed, tokens, first in rows:
        one = found.get(minute)
        if one is None:
            one = found[minute] = Minute(minute=minute, requests=0, errors=0, tokens=0, firsts={})
        firsts = one.firsts
        if first is not None:
            bucket = round(log(max(first, 1)) / log(STEP))
            firsts[bucket] = firsts.get(bucket, 0) + 1
        found[minute] = Minute(
            minute=minute,
            requests=one.requests + 1,
            errors=one.errors + failed,
            tokens=one.tokens + tokens,
            firsts=firsts,
        )
    return sorted(found.values(), key=lambda one: one.minute)


_NAMED = re.compile(r"(\w+):(.+)")
_LONGER = re.compile(r"(ms|first_ms|input|output|lost|changed|tries|status)([<>]=?)(\d{1,15})")


def read_search(text: str) -> Search:
    """`claude status:5 ms>2000 is:lossy`: every word must fit. A plain word may stand anywhere in the row."""
    parts: list[str] = []
    values: list[str | int] = []
    for word in text.lower().split()[:20]:
        sql, more = _read_word(word)
        parts.append(sql)
        values += more
    return Search(" and ".join(parts) or "1", tuple(values))


def _read_word(word: str) -> tuple[str, list[str | int]]:
    if compared := _LONGER.fullmatch(word):
        return f"{compared[1]} {compared[2]} ?", [int(compared[3])]
    if named := _NAMED.fullmatch(word):
        name, value = named.groups()
        if name == "is" and value in _STATES:
            return _STATES[value], []
        if name == "status":
            return "cast(status as text) like ? || '%'", [value]
        if name == "id":  # compared whole: one id may be the start of another
            return "lower(id) = ?", [value]
        if name in _TEXTS:
            return f"instr(lower(coalesce({name}, '')), ?) > 0", [value]
    return "instr(words, ?) > 0", [word]
