"""Stored responses: what `previous_response_id` and GET /v1/responses/{id} need. Bounded, one row a response.

Every lookup names the key it was stored under: another client's id is not found, like an id that never existed (T17).
The same file says which key owns each thing that a provider made and keeps for one of our keys (access/owners.py).
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.stores.sqlite import BROKEN, SqliteStore, is_over, share_out
from dragoman.jsontypes import dump_json
from dragoman.log_line import LogLine
from dragoman.model.messages import Message

log = logging.getLogger(__name__)
MAX_ROW_BYTES = 8 * 1024 * 1024
BUSY_S = 1.0  # while another process writes; a client waits
T = TypeVar("T")

_SCHEMA = """
create table if not exists responses (
    owner text not null, id text not null, created real not null, row blob not null, primary key (owner, id)
) without rowid;
create index if not exists by_age on responses (created);
create index if not exists by_id on responses (id);
create index if not exists by_owner on responses (owner, created);
create table if not exists owned (name text primary key, owner text not null, created real not null) without rowid;
create index if not exists owned_by_owner on owned (owner, created);
"""
_DELETE_OLDEST = """
delete from responses where (owner, id) in (select owner, id from responses where owner = ? order by created limit ?)
"""
_FORGET_OLDEST = """
delete from owned where name in (select name from owned where owner = ? order by created limit ?)
"""
NAMES_PER_ROW = 20  # names that are kept, for each response: an answer may have many items
LEAST_NAMES = 10_000


class StoredResponse(Struct, kw_only=True):
    """A response, and the conversation up to and with it."""

    id: str
    messages: tuple[Message, ...]
    wire: bytes  # as the client got it
    input: bytes = b"[]"  # the items it asked with
    upstream: str = ""  # the upstream that answered, if the id is its own
    created: float = 0.0


class StoreUnavailable(UpstreamError):
    """Nothing can be kept or found now: the disk is full, the folder cannot be made, the file is locked or broken."""


def store_unavailable() -> Failure:
    words = "stored responses cannot be read or written now"
    return Failure(kind="overloaded", status=503, code="store_unavailable", message=words, retry_after_s=5.0)


class ResponseStore(Protocol):
    """Where responses are kept. Calls may be made from any thread. StoreUnavailable means: not now."""

    def put(self, owner: str, stored: StoredResponse) -> bool:
        """False if it is too large to be kept."""

    def get(self, owner: str, response_id: str) -> StoredResponse | None: ...

    def is_foreign(self, owner: str, response_id: str) -> bool:
        """Whether another owner has a response of this id."""

    def list_ids(self, owner: str, prefix: str, most: int) -> list[str]:
        """Ids that begin so, the newest first. All rows at once might take gigabytes."""

    def delete(self, owner: str, response_id: str) -> bool: ...

    def own(self, owner: str, names: Collection[str]) -> None:
        """Something with these names was made for an owner. A name that has an owner already keeps it."""

    def find_owners(self, names: Collection[str]) -> dict[str, str]:
        """The owner of each name that is known."""

    def close(self) -> None: ...


class SqliteResponseStore(SqliteStore):
    def __init__(self, path: Path | None, rows: int) -> None:
        super().__init__(path, BUSY_S)
        self._rows = rows

    def put(self, owner: str, stored: StoredResponse) -> bool:
        """False if it is too large to be kept."""
        row = write_row(stored)
        if len(row) > MAX_ROW_BYTES:
            return False
        self._ask(lambda db: self._insert(db, (owner, stored.id, stored.created, row)))
        return True

    def _insert(self, db: sqlite3.Connection, row: tuple[str, str, float, bytes]) -> None:
        db.execute("insert or replace into responses values (?, ?, ?, ?)", row)
        (count,) = db.execute("select count(*) from responses").fetchone()
        if is_over(count, self._rows):
            counts = dict(db.execute("select owner, count(*) from responses group by owner").fetchall())
            db.executemany(_DELETE_OLDEST, share_out(counts, self._rows).items())
        db.commit()

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        statement = "select row from responses where owner = ? and id = ?"
        found = self._ask(lambda db: db.execute(statement, (owner, response_id)).fetchone())
        return None if found is None else read_row(found[0])

    def is_foreign(self, owner: str, response_id: str) -> bool:
        statement = "select 1 from responses where id = ? and owner <> ? limit 1"
        return self._ask(lambda db: db.execute(statement, (response_id, owner)).fetchone()) is not None

    def list_ids(self, owner: str, prefix: str, most: int) -> list[str]:
        statement = "select id from responses where owner = ? and id >= ? and id < ? order by created desc limit ?"
        rows = self._ask(lambda db: db.execute(statement, (owner, prefix, prefix + "\x7f", most)).fetchall())
        return [row[0] for row in rows]

    def delete(self, owner: str, response_id: str) -> bool:
        return self._ask(lambda db: self._delete(db, owner, response_id))

    def _delete(self, db: sqlite3.Connection, owner: str, response_id: str) -> bool:
        done = db.execute("delete from responses where owner = ? and id = ?", (owner, response_id)).rowcount
        db.commit()
        return done > 0

    def own(self, owner: str, names: Collection[str]) -> None:
        """A name that has an owner already keeps it."""
        self._ask(lambda db: self._own(db, [(name, owner, time.time()) for name in names]))

    def _own(self, db: sqlite3.Connection, rows: Sequence[tuple[str, str, float]]) -> None:
        db.executemany("insert or ignore into owned values (?, ?, ?)", rows)
        (count,) = db.execute("select count(*) from owned").fetchone()
        if is_over(count, most_names(self._rows)):
            counts = dict(db.execute("select owner, count(*) from owned group by owner").fetchall())
            db.executemany(_FORGET_OLDEST, share_out(counts, most_names(self._rows)).items())
        db.commit()

    def find_owners(self, names: Collection[str]) -> dict[str, str]:
        statement = "select owner from owned where name = ?"
        rows = self._ask(lambda db: [(name, db.execute(statement, (name,)).fetchone()) for name in names])
        return {name: row[0] for name, row in rows if row is not None}

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.executescript(_SCHEMA)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._run(work)
        except BROKEN as error:
            log.warning(LogLine("store_unavailable", {"error": type(error).__name__, "why": str(error)}))
            raise StoreUnavailable(store_unavailable()) from error


def most_names(rows: int) -> int:
    """How many names are kept beside so many responses."""
    return max(rows * NAMES_PER_ROW, LEAST_NAMES)


def write_row(stored: StoredResponse) -> bytes:
    return dump_json(stored)  # JSON, because a conversation may hold numbers of any size and half an emoji


def read_row(row: bytes) -> StoredResponse | None:
    """The stored response in these bytes; None if another version of dragoman wrote it."""
    try:
        return msgspec.json.decode(row, type=StoredResponse)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
