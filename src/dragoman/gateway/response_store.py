"""Stored responses: what `previous_response_id` and GET /v1/responses/{id} need. Bounded, one row a response.

Every lookup names the key it was stored under: another client's id is as unknown as one that never was (T17).
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.log_line import LogLine
from dragoman.model.messages import Message

log = logging.getLogger(__name__)
MAX_ROW_BYTES = 8 * 1024 * 1024
BUSY_S = 1.0  # while another process writes; a client waits
PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
T = TypeVar("T")

_SCHEMA = """
create table if not exists responses (
    owner text not null, id text not null, created real not null, row blob not null, primary key (owner, id)
) without rowid;
create index if not exists by_age on responses (created);
"""
_DELETE_OLDEST = """
delete from responses where (owner, id) in (select owner, id from responses order by created limit ?)
"""


class StoredResponse(Struct, kw_only=True):
    """A response, and the conversation up to and with it."""

    id: str
    messages: tuple[Message, ...]
    wire: bytes  # as the client got it
    input: bytes = b"[]"  # the items it asked with
    upstream: str = ""  # who answered, if with an id of its own
    created: float = 0.0


class StoreUnavailable(UpstreamError):
    """Nothing can be kept or found now: the disk is full, the folder cannot be made, the file is locked or broken."""


def store_unavailable() -> Failure:
    words = "stored responses cannot be read or written now"
    return Failure(kind="overloaded", status=503, code="store_unavailable", message=words, retry_after_s=5.0)


class ResponseStore(Protocol):
    """Where responses are kept. Calls may be made from any thread; a StoreUnavailable: not now."""

    def put(self, owner: str, stored: StoredResponse) -> bool:
        """False if it is too large to be kept."""

    def get(self, owner: str, response_id: str) -> StoredResponse | None: ...

    def list(self, owner: str, prefix: str, most: int) -> "list[StoredResponse]":
        """Those whose id begins so, the youngest first."""

    def delete(self, owner: str, response_id: str) -> bool: ...
    def close(self) -> None: ...


class SqliteResponseStore:
    """In a file or in memory; calls are short."""

    def __init__(self, path: Path | None, rows: int) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._path = path
        self._db: sqlite3.Connection | None = None

    def put(self, owner: str, stored: StoredResponse) -> bool:
        """False if it is too large to be kept."""
        try:
            row = msgspec.msgpack.encode(stored)
        except OverflowError:  # a number of more than 64 bits
            return False
        if len(row) > MAX_ROW_BYTES:
            return False
        self._run(lambda db: self._insert(db, (owner, stored.id, stored.created, row)))
        return True

    def _insert(self, db: sqlite3.Connection, row: tuple[str, str, float, bytes]) -> None:
        db.execute("insert or replace into responses values (?, ?, ?, ?)", row)
        (count,) = db.execute("select count(*) from responses").fetchone()
        if count > self._rows:
            db.execute(_DELETE_OLDEST, (count - self._rows,))
        db.commit()

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        asked = "select row from responses where owner = ? and id = ?"
        found = self._run(lambda db: db.execute(asked, (owner, response_id)).fetchone())
        return None if found is None else msgspec.msgpack.decode(found[0], type=StoredResponse)

    def list(self, owner: str, prefix: str, most: int) -> "list[StoredResponse]":
        """Those whose id begins so, the youngest first."""
        asked = "select row from responses where owner = ? and id >= ? and id < ? order by created desc limit ?"
        rows = self._run(lambda db: db.execute(asked, (owner, prefix, prefix + "\x7f", most)).fetchall())
        return [msgspec.msgpack.decode(row[0], type=StoredResponse) for row in rows]

    def delete(self, owner: str, response_id: str) -> bool:
        return self._run(lambda db: self._delete(db, owner, response_id))

    def _delete(self, db: sqlite3.Connection, owner: str, response_id: str) -> bool:
        done = db.execute("delete from responses where owner = ? and id = ?", (owner, response_id)).rowcount
        db.commit()
        return done > 0

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._open())
            except (sqlite3.Error, OSError) as error:
                self._recover(error)
                raise StoreUnavailable(store_unavailable()) from error

    def _recover(self, error: Exception) -> None:
        """After a full disk or a lock the connection is still good. After anything else the next call opens anew."""
        log.warning(LogLine("store_unavailable", {"error": type(error).__name__, "why": str(error)}))
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
            db = sqlite3.connect(self._path or ":memory:", check_same_thread=False, timeout=BUSY_S)
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
            db.execute("pragma journal_mode = wal")
            # a client waits for this: what a power cut may cost is the last responses, never the database
            db.execute("pragma synchronous = normal")
        db.executescript(_SCHEMA)
