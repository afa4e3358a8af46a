"""Budgets: reserved before a request is sent, settled with what it really cost.

A reservation ends with its lease: the reservations of a process that died are given back and cost nothing. Each belongs
to the period in which it was made, and cannot change another period. All amounts are whole micro-units.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from dragoman.accounts.grants import Account
from dragoman.accounts.money import Budget, find_period
from dragoman.accounts.sqlite import use_wal

FILE = "budgets.db"
BUSY_S = 2.0
SETTLED_KEPT_S = 2 * 86_400.0  # settled ids are kept this long, so that a replayed journal settles nothing twice
_SCHEMA = """
create table if not exists spent (
    account text, period integer, micros integer not null default 0, reserved integer not null default 0,
    primary key (account, period)
) without rowid;
create table if not exists reserved (
    id text primary key, owner text not null, until real not null, held blob not null
) without rowid;
create table if not exists settled (id text primary key, at real not null) without rowid;
create table if not exists told (account text, period integer, percent integer, primary key (account, period, percent))
    without rowid;
"""
_RESERVE = """
update spent set reserved = reserved + :micros
where account = :account and period = :period and micros + reserved + :micros <= :most returning micros, reserved
"""
_SETTLE = "insert or ignore into settled select value, ? from json_each(?)"
_END = "delete from reserved where id in (select value from json_each(?)) returning held"
_RENEW = "update reserved set until = ? where id in (select value from json_each(?)) returning id"
_CHANGE = """
insert into spent values (:account, :period, :micros, :reserved)
on conflict do update set micros = micros + excluded.micros, reserved = reserved + excluded.reserved
returning micros
"""


class Held(Struct, frozen=True, array_like=True):
    """The reservation of one request in one budget."""

    account: str
    period: int
    micros: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Held]).decode


class Line(Struct, frozen=True):
    """One budget that a request counts against, in the period when it was asked."""

    account: str
    period: int
    limit: int
    soft: int = 100  # percent


class Settlement(Struct, frozen=True):
    id: str
    lines: tuple[Line, ...]
    micros: int


class Spent(Struct, frozen=True, kw_only=True):
    """How much of a budget is spent and reserved."""

    account: str
    period: int
    limit: int
    micros: int = 0
    reserved: int = 0

    @property
    def left(self) -> int:
        return self.limit - self.micros - self.reserved

    @property
    def may_come_back(self) -> bool:
        """Whether running requests hold what is left, so that a part of it may be free again soon."""
        return self.micros < self.limit and self.reserved > 0

    @property
    def percent(self) -> int:
        return self.micros * 100 // self.limit if self.limit else 100


class Passed(Struct, frozen=True):
    """A threshold that was passed for the first time in its period."""

    line: Line
    percent: int
    micros: int


class Refused(Struct, frozen=True):
    spent: Spent


class BusyError(OSError):
    """Another process is just writing: the same call may succeed a moment later."""


class BudgetStore(Protocol):
    """A store of budgets that processes share. Each call is one transaction. OSError: the store cannot be used now."""

    def reserve(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        """Reserves on all lines or on none. With `cap`, no more than what is left."""

    def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
        """Each id counts once, however often it is settled."""

    def renew(self, requests: Sequence[str], until: float) -> set[str]:
        """Prolongs the reservations of requests that still run. Returns those that are still reserved."""

    def expire(self, now: float) -> int:
        """Gives back the reservations whose lease has ended. Returns how many."""

    def read(self, lines: Sequence[Line]) -> list[Spent]: ...

    def close(self) -> None: ...


class RemoteBudgets(BudgetStore, Protocol):
    """Budgets on a server. The event loop is not blocked while the server is asked."""

    async def ask(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        """As `BudgetStore.reserve`."""


def make_lines(accounts: Sequence[Account], now: float) -> tuple[Line, ...]:
    return tuple(
        Line(account.name, find_period(account.budget.period, now)[0], account.budget.micros, account.grant.soft)
        for account in accounts
        if account.budget is not None
    )


def find_reset(budget: Budget, now: float) -> int | None:
    """When the next period begins; None if there is none."""
    return find_period(budget.period, now)[1]


class SqliteBudgets:
    """Budgets in SQLite, in WAL mode without a flush per commit: a killed process loses nothing, a power cut loses the
    last moments."""

    def __init__(self, path: Path, busy_s: float = BUSY_S) -> None:
        """`busy_s`: how long a call waits for other processes."""
        self._path, self._busy_s = path, busy_s
        self._lock = threading.Lock()  # one connection for all threads: transactions come one after the other
        self._db: sqlite3.Connection | None = None

    def reserve(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        with self._change() as db:
            found = _take(db, lines, estimate, cap=cap)
            if isinstance(found, Refused) and _expire(db, now):
                found = _take(db, lines, estimate, cap=cap)
            if isinstance(found, Refused):
                return found
            held = [Held(line.account, line.period, micros) for line, (_, micros) in zip(lines, found, strict=True)]
            db.execute("insert into reserved values (?, ?, ?, ?)", (request, owner, until, _encode(held)))
            return [spent for spent, _ in found]

    def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
        changes: dict[tuple[str, int], list[int]] = {}  # spent and reserved, by account and period
        lines: dict[tuple[str, int], Line] = {}
        with self._change() as db:
            new = _settle_new(db, settlements, now)
            ids = _encode([one.id for one in new])
            for (held,) in db.execute(_END, (ids,)).fetchall():
                for part in _decode(held):
                    changes.setdefault((part.account, part.period), [0, 0])[1] -= part.micros
            for one in new:
                for line in one.lines:
                    at = (line.account, line.period)
                    changes.setdefault(at, [0, 0])[0] += one.micros
                    lines[at] = line
            passed = [found for at, change in changes.items() for found in _write(db, at, change, lines.get(at))]
            db.execute("delete from settled where at < ?", (now - SETTLED_KEPT_S,))
        return passed

    def renew(self, requests: Sequence[str], until: float) -> set[str]:
        with self._change() as db:
            return {row[0] for row in db.execute(_RENEW, (until, _encode(requests))).fetchall()}

    def expire(self, now: float) -> int:
        with self._change() as db:
            return _expire(db, now)

    def read(self, lines: Sequence[Line]) -> list[Spent]:
        with self._change() as db:
            return [_look(db, line) for line in lines]

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                db = self._db or self._open()
                db.execute("begin immediate")
                try:
                    yield db
                    db.execute("commit")
                except BaseException:
                    db.rollback()
                    raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)  # only errors of SQLite itself have one
            kind = BusyError if code & 0xFF == sqlite3.SQLITE_BUSY else OSError
            raise kind(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            use_wal(db, self._busy_s)
            db.execute("pragma synchronous = normal")
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db


def _settle_new(db: sqlite3.Connection, settlements: Sequence[Settlement], now: float) -> Sequence[Settlement]:
    """The settlements that are new. Mostly all of them are, so one statement is tried first."""
    ids = _encode([one.id for one in settlements])
    if db.execute(_SETTLE, (now, ids)).rowcount == len(settlements):
        return settlements
    db.rollback()
    db.execute("begin immediate")
    insert = "insert or ignore into settled values (?, ?)"
    return [one for one in settlements if db.execute(insert, (one.id, now)).rowcount]


def _look(db: sqlite3.Connection, line: Line) -> Spent:
    statement = "select micros, reserved from spent where account = ? and period = ?"
    row = db.execute(statement, (line.account, line.period)).fetchone() or (0, 0)
    return make_spent(line, *row)


def _take(
    db: sqlite3.Connection, lines: Sequence[Line], estimate: int, *, cap: bool
) -> list[tuple[Spent, int]] | Refused:
    """Reserves on each budget. If one of them refuses, the others get theirs back."""
    taken: list[tuple[Spent, int]] = []
    for line in lines:
        spent, micros = _take_one(db, line, estimate, cap=cap)
        if micros is None:
            for earlier, held in zip(lines, taken, strict=False):
                _change_spent(db, (earlier.account, earlier.period), (0, -held[1]))
            return Refused(spent)
        taken.append((spent, micros))
    return taken


def _take_one(db: sqlite3.Connection, line: Line, estimate: int, *, cap: bool) -> tuple[Spent, int | None]:
    values = {"micros": estimate, "account": line.account, "period": line.period, "most": line.limit}
    for row in db.execute(_RESERVE, values).fetchall():  # mostly it fits
        return make_spent(line, row[0], row[1] - estimate), estimate
    spent = _look(db, line)
    micros = min(estimate, spent.left) if cap else estimate
    if micros < 1 or spent.left < micros:
        return spent, None
    _change_spent(db, (line.account, line.period), (0, micros))
    return spent, micros


def make_spent(line: Line, micros: int, reserved: int) -> Spent:
    return Spent(account=line.account, period=line.period, limit=line.limit, micros=micros, reserved=reserved)


def _change_spent(db: sqlite3.Connection, at: tuple[str, int], change: Sequence[int]) -> int:
    """Changes the spent amount and returns the new one."""
    values = {"account": at[0], "period": at[1], "micros": change[0], "reserved": change[1]}
    return int(db.execute(_CHANGE, values).fetchall()[0][0])


def _write(db: sqlite3.Connection, at: tuple[str, int], change: Sequence[int], line: Line | None) -> list[Passed]:
    """Each threshold is reported once, by the process that records it first."""
    micros = _change_spent(db, at, change)
    if line is None:
        return []
    percent = make_spent(line, micros, 0).percent
    insert = "insert or ignore into told values (?, ?, ?)"
    reached = [mark for mark in sorted({line.soft, 100}) if percent >= mark]
    new = [mark for mark in reached if db.execute(insert, (*at, mark)).rowcount]
    return [Passed(line, new[-1], micros)] if new else []


def _expire(db: sqlite3.Connection, now: float) -> int:
    rows = db.execute("delete from reserved where until < ? returning held", (now,)).fetchall()
    for (held,) in rows:
        for part in _decode(held):
            _change_spent(db, (part.account, part.period), (0, -part.micros))
    return len(rows)
