"""Where the gateway's keys are kept: one SQLite file that all processes of a machine share.

It holds digests, never a key. A change is one transaction and on disk before the call returns, so that parallel writers
lose nothing and a process that is killed loses nothing that it has printed.
"""

import hashlib
import hmac
import os
import secrets
import sqlite3
import string
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigError

FILE = "keys.db"
OLD_FILE = "keys.json"  # of dragoman 0.1; imported once
READ_BUSY_S = 0.02  # the event loop waits for a read
WRITE_BUSY_S = 30.0  # a person waits for a write
SETTLED_S = 1.0  # file times are coarse: a file this young may change again without a new time
VERSION = 1  # of the tables, in `pragma user_version`
_ID_LETTERS = string.ascii_lowercase + string.digits
_SCHEMA = """
create table install (pepper text not null);
create table keys (
    id text primary key, digest text not null, name text not null, admin integer not null, created real not null,
    revoked real
) without rowid;
"""


class KeyRow(Struct, frozen=True, kw_only=True):
    id: str
    digest: str
    name: str = ""
    admin: bool = False
    created: float = 0.0
    revoked: float | None = None


class KeyTable(Struct, frozen=True, kw_only=True):
    """All keys of an installation, revoked ones too."""

    pepper: str  # makes the digests of two installations differ
    rows: tuple[KeyRow, ...] = ()

    def digest(self, key: str) -> str:
        return hmac.new(self.pepper.encode(), key.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


class KeyStore(Protocol):
    """What the gateway and `dragoman keys` need of a store. A ConfigError says why it cannot be used now."""

    name: str  # for messages

    def read(self) -> KeyTable | None:
        """All keys; None if there is no store yet."""

    def may_have_changed(self) -> bool:
        """Whether there may be something new since the last `read`. Cheap, and never wrong with False."""

    def prepare(self) -> None:
        """Makes the store if there is none yet."""

    def new(self, name: str, *, admin: bool) -> str:
        """Makes a key. This is the only time it can be read."""

    def revoke(self, key_id: str) -> bool:
        """Ends a key for ever. False if there is no such key, or it was revoked before."""


def new_pepper() -> str:
    return secrets.token_hex(32)


def new_key(*, admin: bool) -> tuple[str, str]:
    """The id of a new key, and the key."""
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(8))
    return key_id, f"{'dka' if admin else 'dk'}-{key_id}-{secrets.token_urlsafe(32)}"


class SqliteKeyStore:
    """In WAL mode: reads do not wait for a write. Connections are short: a process can fork between two calls."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.name = str(path)
        self._clock = clock
        self._read_at: object = ()  # the stamp of the files when they were read; () if it cannot be relied on

    def read(self) -> KeyTable | None:
        stamp, settled = self._stamp()
        self._read_at = stamp if settled else ()
        if not self._is_there():
            return None
        with self._open(READ_BUSY_S) as db:
            return _read_table(db)

    def may_have_changed(self) -> bool:
        return self._stamp()[0] != self._read_at

    def prepare(self) -> None:
        if not self._is_there():
            self._make(KeyTable(pepper=new_pepper()))

    def new(self, name: str, *, admin: bool) -> str:
        self.prepare()
        key_id, key = new_key(admin=admin)
        with self._open(WRITE_BUSY_S) as db, _transaction(db):
            digest = _read_table(db).digest(key)
            row = (key_id, digest, name, admin, self._clock(), None)
            db.execute("insert into keys values (?, ?, ?, ?, ?, ?)", row)
        return key

    def revoke(self, key_id: str) -> bool:
        if not self._is_there():
            return False
        with self._open(WRITE_BUSY_S) as db, _transaction(db):
            asked = "update keys set revoked = ? where id = ? and revoked is null"
            return db.execute(asked, (self._clock(), key_id)).rowcount > 0

    def import_json(self, old: Path) -> None:
        """Takes over the keys of a keys.json, once. The file is kept under another name."""
        if not _stat(old):
            return
        if not self._is_there():
            try:
                self._make(msgspec.json.decode(old.read_bytes(), type=_OldFile).table())
            except (msgspec.DecodeError, OSError) as error:
                raise ConfigError(str(old), "", f"is no key file: {error}") from error
        with suppress(OSError):  # a store that is there is never filled from it again
            old.replace(old.with_name(f"{old.name}.imported"))

    def _is_there(self) -> bool:
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # no right to look: it may be there
            raise ConfigError(self.name, "", f"cannot be read: {error.strerror}") from error
        return True

    def _stamp(self) -> tuple[object, bool]:
        """Changes with every write, and whether it is old enough to be relied on."""
        found = [_stat(path) for path in (self.path, self.path.with_name(f"{self.path.name}-wal"))]
        newest = max((stat.st_mtime for stat in found if stat), default=0.0)
        stamp = tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) if stat else None for stat in found)
        return stamp, abs(time.time() - newest) > SETTLED_S

    def _make(self, table: KeyTable) -> None:
        """Makes the file elsewhere and then gives it its name: it is never there without its tables.

        If another process does the same, the first one wins.
        """
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            try:
                _fill(draft, table)
                _link(draft, self.path)
            finally:
                draft.unlink()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(self.name, "", f"cannot be made: {error}") from error

    @contextmanager
    def _open(self, busy_s: float) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(f"file:{quote(self.name)}?mode=rw", uri=True, timeout=busy_s, isolation_level=None)
            try:
                db.execute("pragma synchronous = full")
                (version,) = db.execute("pragma user_version").fetchone()
                if version != VERSION:
                    words = (
                        f"is of version {version}, not {VERSION}" if version else "is no key store: was it cut short?"
                    )
                    raise ConfigError(self.name, "", words)
                yield db
            finally:
                db.close()
        except (sqlite3.Error, msgspec.ValidationError) as error:
            raise ConfigError(self.name, "", f"the keys cannot be read or written now: {error}") from error


class _OldFile(Struct):
    pepper: str
    keys: list[KeyRow] = []

    def table(self) -> KeyTable:
        return KeyTable(pepper=self.pepper, rows=tuple(self.keys))


def open_key_store(folder: Path) -> SqliteKeyStore:
    """The store in the folder of dragoman's state. It is made when the first key is."""
    store = SqliteKeyStore(folder / FILE)
    store.import_json(folder / OLD_FILE)
    return store


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """`immediate` takes the write lock at the beginning: what was read stays true until the commit."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _read_table(db: sqlite3.Connection) -> KeyTable:
    """Each value is of its type, or it is a ValidationError: SQLite keeps whatever stands in a damaged file."""
    peppers = db.execute("select pepper from install").fetchall()
    rows = db.execute("select id, digest, name, admin, created, revoked from keys order by created, id").fetchall()
    names = KeyRow.__struct_fields__
    found = [{**dict(zip(names, row, strict=True)), "admin": bool(row[3])} for row in rows]
    if len(peppers) != 1 or not peppers[0][0]:
        raise sqlite3.DatabaseError("the pepper is missing")
    return msgspec.convert({"pepper": peppers[0][0], "rows": found}, KeyTable)


def _fill(draft: Path, table: KeyTable) -> None:
    db = sqlite3.connect(draft, isolation_level=None)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.executescript(_SCHEMA)
        db.execute("insert into install values (?)", (table.pepper,))
        rows = [(row.id, row.digest, row.name, row.admin, row.created, row.revoked) for row in table.rows]
        db.executemany("insert into keys values (?, ?, ?, ?, ?, ?)", rows)
        db.execute("pragma user_version = 1")  # VERSION: what is not complete has none
    finally:
        db.close()


def _link(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return
    with suppress(OSError):  # some systems open no folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name survives a power cut too
        finally:
            os.close(folder)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
