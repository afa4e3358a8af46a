"""The ledger: one row for each request and each of its attempts, and sums by the hour.

A row is first a line of a journal file (journal.py), then a row of SQLite. Each row has an id, so that a journal that
is read twice counts once. Single rows are kept for some days; the sums stay.

Under load, usual rows are kept in packs: the lines of the journal as they are, some hundred in one value of SQLite. A
pack costs a small part of what its rows would cost. It stays a pack, and is read when somebody asks for its rows.
"""

import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, compress, repeat
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from msgspec import Struct, json
from msgspec.structs import replace

from dragoman.accounts.budgets import Line
from dragoman.accounts.sqlite import use_wal

FILE = "ledger.db"
BUSY_S = 30.0
COUNTERS = ("input", "cache_read", "cache_write", "output", "reasoning")
# What sums can be grouped by. `day` and `hour` are made of the time.
SUMMED = ("team", "key", "door", "upstream", "model", "currency", "day", "hour")
DETAILS = ("client", "asked", "status", "tags")  # only single rows have these, not the sums
MOST_ROWS = 10_000  # of one answer to a query
FEW = 20  # so many rows at a time are written one by one
MOST_IN_PACK = 500  # rows: to read them takes less than a millisecond, in which no other thread runs
_FORGET_AT_ONCE = 5000
_FORGET_PACKS = 20  # at once


class AttemptRow(Struct, frozen=True, array_like=True):
    upstream: str
    model: str
    status: int | None
    failure: str | None
    waited_ms: int


class LedgerRow(Struct, frozen=True, omit_defaults=True, gc=False):
    id: str
    at: float  # when it began
    key: str = ""  # the key's name, or its id if it has none
    key_id: str = ""
    team: str = ""
    tags: str = ""
    client: str = ""  # the client's program
    door: str = ""
    asked: str = ""  # the model, as the client named it
    upstream: str = ""
    model: str = ""  # the model that answered
    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cost: int | None = None  # micro-units; None is unknown
    currency: str = ""
    status: int = 0  # 0: the client left
    failure: str = ""
    first_ms: int | None = None
    total_ms: int = 0
    tries: int = 0
    harmless: int = 0  # notes, by rank
    changed: int = 0
    lost: int = 0
    estimated: bool = False  # the counters are ours, not the provider's
    bodies: str = ""  # masked; only for keys that ask for it
    attempts: tuple[AttemptRow, ...] = ()
    charged: tuple[Line, ...] = ()  # the budgets that pay for it
    instead: int | None = None  # what they pay if the cost is unknown

    @property
    def debit(self) -> int:
        """The amount that the budgets of the request pay, in micro-units."""
        return self.cost if self.cost is not None else self.instead or 0


_encode = json.Encoder().encode
read_line = json.Decoder(LedgerRow).decode
_read_lines = json.Decoder(LedgerRow).decode_lines


def write_line(row: LedgerRow) -> bytes:
    """A row as a line of a journal, and of a pack."""
    return _encode(row) + b"\n"


class Sums(Struct, frozen=True, kw_only=True):
    """One line of a usage report."""

    by: dict[str, str | int]
    requests: int
    failed: int
    unpriced: int  # requests whose cost is unknown
    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int
    cost: int  # micro-units, of the requests whose cost is known
    total_ms: int


class Page(Struct, frozen=True, kw_only=True):
    rows: tuple[LedgerRow, ...]
    cursor: str = ""  # where the next page begins; "" at the end


def check_words(by: Sequence[str], where: Iterable[str]) -> None:
    """A ValueError names a word that no report can be made by, or that no row can be chosen by."""
    known = (*SUMMED, *DETAILS)
    if (unknown := next((word for word in by if word not in known), None)) is not None:
        raise ValueError(f"{unknown}: expected some of {', '.join(known)}")
    chosen = [word for word in known if word not in _CLOCKS]  # a time is chosen by `since` and `until`
    if (unknown := next((word for word in where if word not in chosen), None)) is not None:
        raise ValueError(f"{unknown}: expected some of {', '.join(chosen)}")


def read_cursor(cursor: str) -> tuple[float, str]:
    """The time and the id of the last row of a page."""
    at, _, row_id = cursor.partition(",")
    try:
        return float(at), row_id
    except ValueError:
        raise ValueError("cursor: expected the cursor of the page before") from None


def find_hours(since: float, until: float) -> tuple[int, int]:
    """The hours that this time touches: the first one, and the one after the last."""
    return int(since // 3600), math.ceil(until / 3600)


class Ledger(Protocol):
    """Where rows are kept. OSError: it cannot be used now, and the rows wait in the journal. `until` is the first
    moment that does not belong to a report."""

    def add(self, rows: Sequence[LedgerRow], lines: Sequence[bytes] = ()) -> None:
        """Adds rows in one transaction. A row that is there already is not changed. `lines`: the same rows as lines of
        the journal, if this ledger has never been asked to add one of them."""

    def sum(self, by: Sequence[str], since: float, until: float, where: dict[str, str]) -> list[Sums]: ...

    def page(self, since: float, until: float, where: dict[str, str], cursor: str, most: int) -> Page:
        """Rows from the newest to the oldest."""

    def forget(self, before: float) -> int:
        """Deletes single rows. Returns how many."""

    def close(self) -> None: ...


_TEXTS = ("key", "key_id", "team", "tags", "client", "door", "asked", "upstream", "model")
_REST = (*COUNTERS, "cost", "currency", "status", "failure", "first_ms", "total_ms", "tries")
_LAST = ("harmless", "changed", "lost", "estimated", "bodies")
COLUMNS = ("id", "at", *_TEXTS, *_REST, *_LAST)
_NUMBERS = {
    "at",
    *COUNTERS,
    "cost",
    "status",
    "first_ms",
    "total_ms",
    "tries",
    "harmless",
    "changed",
    "lost",
    "estimated",
}
SUM_KEYS = ("hour", "key", "team", "door", "upstream", "model", "currency")
SUM_FIELDS = ("requests", "failed", "unpriced", *COUNTERS, "cost", "total_ms")
_SCHEMA = f"""
create table if not exists requests (
    id text primary key, at real not null,
    {", ".join(f"{name} {'integer' if name in _NUMBERS else 'text'}" for name in COLUMNS[2:])}
);
create index if not exists requests_at on requests (at, id);
create table if not exists attempts (
    request text, number integer, upstream text, model text, status integer, failure text, waited_ms integer,
    primary key (request, number)
) without rowid;
create table if not exists packs (first real not null, last real not null, rows blob not null);
create index if not exists packs_last on packs (last, first);
create table if not exists sums (
    hour integer, {", ".join(f"{name} text" for name in SUM_KEYS[1:])},
    {", ".join(f"{name} integer not null default 0" for name in SUM_FIELDS)},
    primary key ({", ".join(SUM_KEYS)})
) without rowid;
"""
_INSERT = f"insert or ignore into requests values ({', '.join('?' * len(COLUMNS))})"  # noqa: S608  # our own names
# Each statement releases the interpreter's lock and takes it again, which disturbs the event loop. So many rows go
# into one statement.
AT_ONCE = 25
_INSERT_MANY = _INSERT + f", ({', '.join('?' * len(COLUMNS))})" * (AT_ONCE - 1)
_PACKS = "select last, rows from packs where last >= ? and first <= ?"
_OLD_PACKS = """
select rowid, rows from packs where rowid in (select rowid from packs where first < ? order by last limit ?)
"""
_KNOWN = "select id from requests where id in (select value from json_each(?))"
_TRY = "insert or ignore into attempts values (?, ?, ?, ?, ?, ?, ?)"
_SUM = f"""
insert into sums values ({", ".join("?" * (len(SUM_KEYS) + len(SUM_FIELDS)))})
on conflict do update set {", ".join(f"{name} = {name} + excluded.{name}" for name in SUM_FIELDS)}
"""  # noqa: S608  # our own names
_read = attrgetter(*COLUMNS)
_order = attrgetter("at", "id")
# We group by numbers, which is quick. Only the few lines of the result are written as times.
_CLOCKS = {"day": (86_400, "%Y-%m-%d"), "hour": (3600, "%Y-%m-%d %H:00")}


def _insert(db: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
    whole = len(rows) // AT_ONCE * AT_ONCE
    for first in range(0, whole, AT_ONCE):
        db.execute(_INSERT_MANY, list(chain.from_iterable(rows[first : first + AT_ONCE])))
    db.executemany(_INSERT, rows[whole:])


class SqliteLedger:
    """Threads that write take turns at one connection. A report has its own: no writer waits for a long one."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def add(self, rows: Sequence[LedgerRow], lines: Sequence[bytes] = ()) -> None:
        if not rows:
            return
        with self._change() as db:
            if not lines:
                rows = _leave_out_known(db, rows)
                lines = [write_line(row) for row in rows] if len(rows) > FEW else ()
            single = _write_packs(db, rows, lines) if len(rows) > FEW else rows
            _insert(db, list(map(_read, single)))
            db.executemany(_SUM, _add_up(rows))
            db.executemany(_TRY, _list_tries(single))

    def sum(self, by: Sequence[str], since: float, until: float, where: dict[str, str]) -> list[Sums]:
        check_words(by, where)
        details = any(word in DETAILS for word in (*by, *where))
        names = [_clock_of(word, details=details) if word in _CLOCKS else word for word in by]
        source = _DETAILED if details else _SUMMED_FROM
        what = ", ".join((*names, *source.sums))
        statement = f"select {what} from {source.table} where {source.time}"  # noqa: S608  # our own names
        statement += "".join(f" and {word} = ?" for word in where) + (f" group by {', '.join(names)}" if names else "")
        first, last = (since, until) if details else find_hours(since, until)
        size = len(names)
        with self._report() as db:
            found = db.execute(statement, (first, last, *where.values())).fetchall()
            groups = {row[:size]: list(row[size:]) for row in found if row[size]}
            if details:
                _add_packed(db, groups, by, (since, until), where)
        sums = [Sums(by=_show(by, at), **dict(zip(SUM_FIELDS, row, strict=True))) for at, row in groups.items()]
        return sorted(sums, key=lambda line: (-line.cost, -line.requests, str(line.by)))

    def page(self, since: float, until: float, where: dict[str, str], cursor: str, most: int) -> Page:
        if unknown := [word for word in where if word not in COLUMNS]:
            raise ValueError(f"{unknown[0]}: expected some of {', '.join(COLUMNS)}")
        last = read_cursor(cursor) if cursor else (until, "")
        most = min(max(most, 1), MOST_ROWS)
        what = ", ".join(COLUMNS)
        statement = f"select {what} from requests where at >= ? and (at, id) < (?, ?)"  # noqa: S608  # our own names
        statement += "".join(f" and {word} = ?" for word in where) + " order by at desc, id desc limit ?"
        with self._report() as db:
            found = db.execute(statement, (since, *last, *where.values(), most)).fetchall()
            rows = _merge_packed(db, [_row(values, db) for values in found], since, last, where, most)
        return Page(rows=tuple(rows), cursor=f"{rows[-1].at!r},{rows[-1].id}" if len(rows) == most else "")

    def forget(self, before: float) -> int:
        """In small steps, so that no writer waits for long."""
        gone = 0
        while True:
            with self._change() as db:
                statement = "select id from requests where at < ? order by at limit ?"
                ids = db.execute(statement, (before, _FORGET_AT_ONCE)).fetchall()
                db.executemany("delete from attempts where request = ?", ids)
                db.executemany("delete from requests where id = ?", ids)
            gone += len(ids)
            if len(ids) < _FORGET_AT_ONCE:
                return gone + self._forget_packed(before)

    def _forget_packed(self, before: float) -> int:
        gone = 0
        while True:
            with self._change() as db:
                packs = db.execute(_OLD_PACKS, (before, _FORGET_PACKS)).fetchall()
                for number, lines in packs:
                    rows = _read_lines(lines)
                    left = [row for row in rows if row.at >= before]
                    gone += len(rows) - len(left)
                    db.execute("delete from packs where rowid = ?", (number,))
                    if left:
                        _insert_pack(db, left, [write_line(row) for row in left])
            if len(packs) < _FORGET_PACKS:
                return gone

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._tell(), self._lock:
            db = self._db = self._db or self._open()
            db.execute("begin immediate")
            try:
                yield db
                db.execute("commit")
            except BaseException:
                db.rollback()
                raise

    @contextmanager
    def _report(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: it sees one state of the ledger, even if rows are written meanwhile."""
        with self._tell(), closing(self._open()) as db:
            db.execute("begin")
            yield db

    @contextmanager
    def _tell(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._read_only and not self._path.exists():
            words = "a gateway records requests that come with a key, and others with `[ledger] on = true`"
            raise OSError(f"{self._path}: nothing is recorded yet; {words}")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            use_wal(db, BUSY_S)
            db.execute("pragma synchronous = full")  # a journal file is deleted after this commit
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        self._path.chmod(0o600)
        return db


def _clock_of(word: str, *, details: bool) -> str:
    """The number of the day or the hour, as SQL."""
    seconds = _CLOCKS[word][0]
    return f"cast(at / {seconds} as integer)" if details else "hour / 24" if word == "day" else "hour"


def _show(by: Sequence[str], values: Sequence[str | int]) -> dict[str, str | int]:
    found = dict(zip(by, values, strict=True))
    for word in found.keys() & _CLOCKS:
        seconds, form = _CLOCKS[word]
        found[word] = time.strftime(form, time.gmtime(int(found[word]) * seconds))
    return found


class _Source(Struct, frozen=True):
    table: str
    time: str
    sums: tuple[str, ...]


_SUMMED_FROM = _Source("sums", "hour >= ? and hour < ?", tuple(f"sum({name})" for name in SUM_FIELDS))
_DETAILED = _Source(
    "requests",
    "at >= ? and at < ?",
    (
        *("count(*)", "sum(status >= 400)", "sum(cost is null)"),
        *(f"coalesce(sum({name}), 0)" for name in (*COUNTERS, "cost", "total_ms")),
    ),
)


def _add_up(rows: Sequence[LedgerRow]) -> list[tuple[object, ...]]:
    """The rows of `sums` for these requests. They are few: many requests share an hour, a key and a model."""
    groups: dict[tuple[object, ...], list[LedgerRow]] = {}
    for row in rows:
        model = row.model if 0 < row.status < 400 or row.cost else ""  # clients choose the names in failed requests
        at = (int(row.at // 3600), row.key, row.team, row.door, row.upstream, model, row.currency)
        if at in groups:
            groups[at].append(row)
        else:
            groups[at] = [row]
    return [(*at, *_sum_rows(group)) for at, group in groups.items()]


def _sum_rows(rows: Sequence[LedgerRow]) -> list[int]:
    """As SUM_FIELDS has them."""
    costs = [row.cost for row in rows]
    return [
        len(rows),
        sum([row.status >= 400 for row in rows]),
        costs.count(None),
        sum([row.input or 0 for row in rows]),
        sum([row.cache_read or 0 for row in rows]),
        sum([row.cache_write or 0 for row in rows]),
        sum([row.output or 0 for row in rows]),
        sum([row.reasoning or 0 for row in rows]),
        sum([cost or 0 for cost in costs]),
        sum([row.total_ms for row in rows]),
    ]


def _list_tries(rows: Sequence[LedgerRow]) -> Iterator[tuple[object, ...]]:
    """Only if there was more than one attempt, or it failed. Otherwise the request's own row has everything."""
    for row in rows:
        if len(row.attempts) > 1 or (row.attempts and row.attempts[0].failure):
            for number, one in enumerate(row.attempts, 1):
                yield (row.id, number, one.upstream, one.model, one.status, one.failure, one.waited_ms)


def _row(values: tuple[object, ...], db: sqlite3.Connection) -> LedgerRow:
    fields = dict(zip(COLUMNS, values, strict=True))
    fields["estimated"] = bool(fields["estimated"])
    statement = "select upstream, model, status, failure, waited_ms from attempts where request = ? order by number"
    tries = tuple(AttemptRow(*one) for one in db.execute(statement, (fields["id"],)))
    return with_tries(LedgerRow(**fields), tries)  # type: ignore[arg-type]  # as the table has them


def with_tries(row: LedgerRow, tries: tuple[AttemptRow, ...]) -> LedgerRow:
    """A row of the table, with its attempts. A single attempt that went well has no row of its own, so it is made
    here."""
    if not tries and row.tries:
        tries = (AttemptRow(row.upstream, row.model, 200 if row.status else None, None, 0),)
    return replace(row, attempts=tries)


# ---------------------------------------------------------------- packs


def _leave_out_known(db: sqlite3.Connection, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The rows that are not there already. Each comes once."""
    new = {row.id: row for row in reversed(rows)}
    for (known,) in db.execute(_KNOWN, (json.encode(list(new)),)):
        del new[known]
    times = [row.at for row in rows]
    for _, lines in db.execute(_PACKS, (min(times), max(times))):
        for row in _read_lines(lines):
            new.pop(row.id, None)
    return list(new.values())


def _write_packs(db: sqlite3.Connection, rows: Sequence[LedgerRow], lines: Sequence[bytes]) -> list[LedgerRow]:
    """Packs the usual rows and returns the others: those with bodies, which are long, and with attempts."""
    usual = [not row.bodies and not row.attempts for row in rows]
    packed, lines = list(compress(rows, usual)), list(compress(lines, usual))
    for first in range(0, len(packed), MOST_IN_PACK):
        end = first + MOST_IN_PACK
        _insert_pack(db, packed[first:end], lines[first:end])
    return [row for row in rows if row.bodies or row.attempts]


def _insert_pack(db: sqlite3.Connection, rows: Sequence[LedgerRow], lines: Sequence[bytes]) -> None:
    times = [row.at for row in rows]
    db.execute("insert into packs values (?, ?, ?)", (min(times), max(times), b"".join(lines)))


def _read_packs(
    db: sqlite3.Connection, since: float, until: float, where: dict[str, str]
) -> Iterator[tuple[float, list[LedgerRow]]]:
    """The rows that fit, pack by pack, and the time of the newest row of each pack. It falls from pack to pack."""
    # SQLite finds a text faster than we do. It may stand in a row for another reason: `_fits` decides.
    words = [json.encode({word: text})[1:-1] for word, text in where.items() if text and word not in _NUMBERS]
    statement = _PACKS + " and instr(rows, ?)" * len(words) + " order by last desc"
    wanted = [(word, _read_number(text) if word in _NUMBERS else text) for word, text in where.items()]
    for last, lines in db.execute(statement, (since, until, *words)):
        rows = [row for row in _read_lines(lines) if since <= row.at <= until]
        yield last, [row for row in rows if _fits(row, wanted)] if wanted else rows


def _fits(row: LedgerRow, wanted: Sequence[tuple[str, object]]) -> bool:
    return all(getattr(row, word) == value for word, value in wanted)


def _read_number(text: str) -> float:
    """As SQLite compares a number with a text. NaN is equal to no number."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return math.nan


def _merge_packed(
    db: sqlite3.Connection,
    rows: list[LedgerRow],
    since: float,
    before: tuple[float, str],
    where: dict[str, str],
    most: int,
) -> list[LedgerRow]:
    """A page of single rows, with those of packs."""
    for last, packed in _read_packs(db, since, before[0], where):
        if len(rows) == most and rows[-1].at > last:
            break
        rows += [with_tries(replace(row, charged=(), instead=None), ()) for row in packed if _order(row) < before]
        rows = sorted(rows, key=_order, reverse=True)[:most]
    return rows


def _add_packed(
    db: sqlite3.Connection,
    groups: dict[tuple[str | int, ...], list[int]],
    by: Sequence[str],
    span: tuple[float, float],
    where: dict[str, str],
) -> None:
    """Adds the rows of packs to the sums of single rows."""
    columns = [(_CLOCKS[word][0], "at") if word in _CLOCKS else (0, word) for word in by]
    for _, rows in _read_packs(db, *span, where):
        found: dict[tuple[str | int, ...], list[LedgerRow]] = {}
        values = [
            [int(row.at / seconds) for row in rows] if seconds else list(map(attrgetter(name), rows))
            for seconds, name in columns
        ]
        for row, at in zip(rows, zip(*values, strict=True) if by else repeat(()), strict=False):
            if row.at < span[1]:
                found.setdefault(at, []).append(row)
        for at, group in found.items():
            sums = _sum_rows(group)
            groups[at] = [one + more for one, more in zip(groups[at], sums, strict=True)] if at in groups else sums
