"""StateStore: reasoning state of turns whose clients bring nothing back, beside the stored responses. Bounded.

A failure here is never the client's error: state that cannot be kept or found is simply missing (decision 3).
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from dragoman.gateway.stores.sqlite import BROKEN, SqliteStore, is_over, share_out
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_ROW_BYTES = 1024 * 1024
BUSY_S = 0.5
LOOK_S = 1.0  # while it is empty: how often to look whether another process has written

_SCHEMA = """
create table if not exists reasoning_state (
    owner text not null, key text not null, created real not null, state blob not null, primary key (owner, key)
) without rowid;
create index if not exists state_by_age on reasoning_state (created);
create index if not exists state_by_owner on reasoning_state (owner, created);
"""
_DELETE_OLDEST = """
delete from reasoning_state where (owner, key) in
    (select owner, key from reasoning_state where owner = ? order by created limit ?)
"""


class StateStore(Protocol):
    """Where state is kept. Every lookup names its owner. Calls may be made from any thread."""

    def is_empty(self) -> bool:
        """Whether no lookup can find anything: cheap, for every request."""

    def put(self, owner: str, key: str, state: bytes) -> None: ...
    def get(self, owner: str, keys: Sequence[str]) -> dict[str, bytes]: ...
    def close(self) -> None: ...


class SqliteStateStore(SqliteStore):
    def __init__(self, path: Path | None, rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(path, BUSY_S)
        self._rows, self._clock = rows, clock
        self._filled = False
        self._looked: float | None = None

    def is_empty(self) -> bool:
        now = self._clock()
        if not self._filled and (self._looked is None or now - self._looked >= LOOK_S):
            self._looked = now
            found = self._ask(lambda db: db.execute("select 1 from reasoning_state limit 1").fetchone())
            self._filled = found is not None
        return not self._filled

    def put(self, owner: str, key: str, state: bytes) -> None:
        if len(state) <= MAX_ROW_BYTES and self._rows:
            self._filled = True
            self._ask(lambda db: self._insert(db, (owner, key, time.time(), state)))

    def _insert(self, db: sqlite3.Connection, row: tuple[str, str, float, bytes]) -> None:
        db.execute("insert or replace into reasoning_state values (?, ?, ?, ?)", row)
        (count,) = db.execute("select count(*) from reasoning_state").fetchone()
        if is_over(count, self._rows):
            counts = dict(db.execute("select owner, count(*) from reasoning_state group by owner").fetchall())
            db.executemany(_DELETE_OLDEST, share_out(counts, self._rows).items())
        db.commit()

    def get(self, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        return self._ask(lambda db: self._select(db, owner, keys)) or {}

    def _select(self, db: sqlite3.Connection, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        statement = "select state from reasoning_state where owner = ? and key = ?"
        rows = ((key, db.execute(statement, (owner, key)).fetchone()) for key in keys)
        return {key: row[0] for key, row in rows if row is not None}

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.executescript(_SCHEMA)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            return self._run(work)
        except BROKEN as error:
            log.warning(LogLine("state_not_kept", {"error": type(error).__name__, "why": str(error)}))
            return None
