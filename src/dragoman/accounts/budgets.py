"""Budgets: reserved before a request is sent, settled with what it really cost.

A reservation ends with its lease: what a process that died had reserved is given back, and costs nothing. It belongs to
the period it was made in, and cannot change another one. All amounts are whole micro-units.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from dragoman.accounts.grants import Account
from dragoman.accounts.money import Budget, find_period

FILE = "budgets.db"
BUSY_S = 2.0
SETTLED_KEPT_S = 2 * 86_400.0  # a journal that is replayed within this time settles nothing twice
_SCHEMA = """
create table if not exists spent (
    account text, period integer, micros integer not null default 0, reserved integer not null default 0,
    primary key (account, period)
) without rowid;
create table if not exists reserved (
    id text, account text, period integer, micros integer not null, until real not null, owner text not null,
    primary key (id, account)
) without rowid;
create index if not exists reserved_until on reserved (until);
create table if not exists settled (id text primary key, at real not null) without rowid;
create table if not exists told (account text, period integer, percent integer, primary key (account, period, percent))
    without rowid;
"""
_RESERVE = """
insert into spent (account, period, reserved) values (?, ?, ?)
on conflict do update set reserved = reserved + excluded.reserved
"""
_SPEND = """
insert into spent (account, period, micros) values (?, ?, ?)
on conflict do update set micros = micros + excluded.micros
"""


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
    """How a budget stands."""

    account: str
    period: int
    limit: int
    micros: int = 0
    reserved: int = 0

    @property
    def left(self) -> int:
        return self.limit - self.micros - self.reserved

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


class BudgetStore(Protocol):
    """Each call is one transaction that holds for all processes with this store. An OSError: it cannot be used."""

    def reserve(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        """Reserves on all lines or on none. With `cap`, no more than what is left."""

    def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
        """Each id counts once, however often it is settled."""

    def renew(self, owner: str, until: float) -> None:
        """The owner lives: its reservations are good until then."""

    def expire(self, now: float) -> int:
        """Gives back the reservations whose lease has ended; how many."""

    def read(self, lines: Sequence[Line]) -> list[Spent]: ...

    def close(self) -> None: ...


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
    """In WAL mode without a disk flush per commit: a killed process loses nothing, a power cut the last moments."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def reserve(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        with self._change() as db:
            found = self._try(db, lines, estimate, cap=cap)
            if isinstance(found, Refused) and _expire(db, now):
                found = self._try(db, lines, estimate, cap=cap)
            if isinstance(found, Refused):
                return found
            for spent, line in zip(found, lines, strict=True):
                micros = min(estimate, spent.left) if cap else estimate
                db.execute(_RESERVE, (line.account, line.period, micros))
                row = (request, line.account, line.period, micros, until, owner)
                db.execute("insert into reserved values (?, ?, ?, ?, ?, ?)", row)
            return found

    def _try(self, db: sqlite3.Connection, lines: Sequence[Line], estimate: int, *, cap: bool) -> list[Spent] | Refused:
        found = [_look(db, line) for line in lines]
        least = 1 if cap else max(estimate, 1)
        return next((Refused(spent) for spent in found if spent.left < least), found)

    def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
        passed: list[Passed] = []
        with self._change() as db:
            for one in settlements:
                known = db.execute("insert or ignore into settled values (?, ?)", (one.id, now)).rowcount == 0
                if not known:
                    _give_back(db, db.execute("select * from reserved where id = ?", (one.id,)).fetchall())
                    passed += [found for line in one.lines if (found := _spend(db, line, one.micros))]
            db.execute("delete from settled where at < ?", (now - SETTLED_KEPT_S,))
        return passed

    def renew(self, owner: str, until: float) -> None:
        with self._change() as db:
            db.execute("update reserved set until = ? where owner = ?", (until, owner))

    def expire(self, now: float) -> int:
        with self._change() as db:
            return _expire(db, now)

    def read(self, lines: Sequence[Line]) -> list[Spent]:
        with self._change() as db:
            return [_look(db, line) for line in lines]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        try:
            db = self._db or self._open()
            db.execute("begin immediate")
            try:
                yield db
            except BaseException:
                db.rollback()
                raise
            db.execute("commit")
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db


def _look(db: sqlite3.Connection, line: Line) -> Spent:
    asked = "select micros, reserved from spent where account = ? and period = ?"
    row = db.execute(asked, (line.account, line.period)).fetchone() or (0, 0)
    return Spent(account=line.account, period=line.period, limit=line.limit, micros=row[0], reserved=row[1])


def _spend(db: sqlite3.Connection, line: Line, micros: int) -> Passed | None:
    """Adds to what is spent. A threshold is told of once, by the process that writes it down first."""
    db.execute(_SPEND, (line.account, line.period, micros))
    spent = _look(db, line)
    found = None
    for percent in sorted({line.soft, 100}):
        if spent.percent >= percent:
            row = (line.account, line.period, percent)
            if db.execute("insert or ignore into told values (?, ?, ?)", row).rowcount:
                found = Passed(line, percent, spent.micros)
    return found


def _expire(db: sqlite3.Connection, now: float) -> int:
    rows = db.execute("select * from reserved where until < ?", (now,)).fetchall()
    _give_back(db, rows)
    return len(rows)


def _give_back(db: sqlite3.Connection, rows: Sequence[tuple[str, str, int, int, float, str]]) -> None:
    for request, account, period, micros, *_ in rows:
        asked = "update spent set reserved = reserved - ? where account = ? and period = ?"
        db.execute(asked, (micros, account, period))
        db.execute("delete from reserved where id = ? and account = ?", (request, account))
