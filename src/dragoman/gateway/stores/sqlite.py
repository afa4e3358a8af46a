"""SqliteStore: a small SQLite database, in a file that all workers share, or in memory. Stores of rows build on it."""

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from dragoman.accounts.sqlite import use_wal

PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
BROKEN = (
    sqlite3.Error,
    OSError,
)  # what a call may raise: the disk is full, the file is locked, broken or cannot be made
SLACK = 100  # one row in a hundred may be too many, so that not every write has to count rows by owner
T = TypeVar("T")


def share_out(counts: Mapping[str, int], rows: int) -> dict[str, int]:
    """How many rows each owner must give up, so that `rows` are left. Those with most give first: an owner that
    writes much takes no room from others."""
    kept = dict(counts)
    for _ in range(sum(counts.values()) - rows):
        kept[max(kept, key=lambda owner: kept[owner])] -= 1
    return {owner: counts[owner] - kept[owner] for owner in counts if kept[owner] < counts[owner]}


def is_over(count: int, rows: int) -> bool:
    """Whether so many rows are too many."""
    return count > rows + rows // SLACK


class SqliteStore(ABC):
    """Opened by the first call; calls are short and may be made from any thread."""

    def __init__(self, path: Path | None, busy_s: float) -> None:
        self._path, self._busy_s = path, busy_s
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Raises one of BROKEN, after which the next call may go well again."""
        with self._lock:
            try:
                return work(self._open())
            except BROKEN as error:
                self._recover(error)
                raise

    def _recover(self, error: Exception) -> None:
        """After a full disk or a lock the connection is still good. After anything else the next call opens anew."""
        if self._db is None:
            return
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in PASSING or self._path is None:
            self._db.rollback()
        else:
            self._drop()

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        """The connection is kept only with its tables in place: a failed start is tried again by the next call."""
        if self._db is None:
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._path.touch(mode=0o600)  # only the owner may read conversations
            db = sqlite3.connect(self._path or ":memory:", check_same_thread=False, timeout=self._busy_s)
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        if self._path is not None:
            self._path.chmod(0o600)
            use_wal(db, self._busy_s)
            # a client waits for this: what a power cut may cost is the last rows, never the database
            db.execute("pragma synchronous = normal")
        self._make_tables(db)

    @abstractmethod
    def _make_tables(self, db: sqlite3.Connection) -> None:
        """Makes the tables that are missing."""
