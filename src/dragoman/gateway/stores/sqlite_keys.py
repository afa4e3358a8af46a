"""Where the gateway's keys and teams are kept: one SQLite file that all processes of a machine share."""

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from dragoman.accounts.grants import Grant, check_grant
from dragoman.errors import ConfigError
from dragoman.gateway.stores.keys import AuditRow, Decide, KeyRow, KeyRules, KeyTable, find_person, new_pepper

FILE = "keys.db"
OLD_FILE = "keys.json"  # of dragoman 0.1; imported once
READ_BUSY_S = 0.02  # the event loop waits for a read
WRITE_BUSY_S = 30.0  # a person waits for a write
SETTLED_S = 1.0  # file times are coarse: a file this young may change again without a new time
VERSION = 2  # of the tables, in `pragma user_version`
_SCHEMA = """
create table install (pepper text not null);
create table keys (
    id text primary key, digest text not null, name text not null, admin integer not null, created real not null,
    revoked real
) without rowid;
"""
# To version 2: what each key may use, teams, and a log of changes that is only ever added to.
_GRANTS = """
alter table keys add column team text not null default '';
alter table keys add column granted text not null default '{}';
alter table keys add column expires real;
alter table keys add column old_digest text not null default '';
alter table keys add column old_until real;
create table teams (name text primary key, granted text not null) without rowid;
create table audit (
    number integer primary key autoincrement, at real not null, who text not null, what text not null,
    subject text not null, before text, after text
);
create trigger audit_stays before update on audit begin select raise(abort, 'the audit log is only added to'); end;
create trigger audit_keeps before delete on audit begin select raise(abort, 'the audit log is only added to'); end;
"""
_READ_KEYS = """
select id, digest, name, admin, created, revoked, team, granted, expires, old_digest, old_until from keys
order by created, id
"""
_PUT_KEY = """
insert or replace into keys
(id, digest, name, admin, created, revoked, team, granted, expires, old_digest, old_until)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class SqliteKeyStore(KeyRules):
    """In WAL mode: reads do not wait for a write. Connections are short: a process can fork between two calls."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.name = str(path)
        super().__init__(clock)

    def read(self) -> KeyTable | None:
        if not self._is_there():
            return None
        with self._open(READ_BUSY_S) as db:
            return _read_table(db)

    def stamp(self) -> object:
        """The times and sizes of the files; None if one was written a moment ago, because it may change again."""
        found = [_stat(path) for path in (self.path, self.path.with_name(f"{self.path.name}-wal"))]
        newest = max((stat.st_mtime for stat in found if stat), default=0.0)
        if abs(time.time() - newest) <= SETTLED_S:
            return None
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) if stat else None for stat in found)

    def prepare(self) -> None:
        if not self._is_there():
            self._make(KeyTable(pepper=new_pepper()))

    def read_audit(self, most: int = 100, before: int | None = None) -> list[AuditRow]:
        if not self._is_there():
            return []
        with self._open(WRITE_BUSY_S) as db:
            statement = "select * from audit where ? is null or number < ? order by number desc limit ?"
            rows = db.execute(statement, (before, before, most)).fetchall()
        return [_audit_row(row) for row in rows]

    def _transact(self, who: str, decide: Decide) -> bool:
        if not self._is_there():
            return False
        with self._write() as db:
            write = decide(_read_table(db))
            if write is None:
                return False
            if write.key is not None:
                _put(db, write.key)
            if write.grant is not None:
                granted = msgspec.json.encode(write.grant).decode()
                db.execute("insert or replace into teams values (?, ?)", (write.team, granted))
            elif write.team is not None:
                db.execute("delete from teams where name = ?", (write.team,))
            changed = [msgspec.json.encode(value).decode() for value in (write.before, write.after)]
            statement = "insert into audit (at, who, what, subject, before, after) values (?, ?, ?, ?, ?, ?)"
            db.execute(statement, (self._clock(), who or find_person(), write.what, write.subject, *changed))
        return True

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._open(WRITE_BUSY_S) as db, _transaction(db):
            yield db

    def upgrade(self) -> None:
        """Gives a store of an older version today's tables."""
        if not self._is_there():
            return
        with self._open(WRITE_BUSY_S, version=None) as db:
            if _version(db) == 1:
                with _transaction(db):
                    if _version(db) == 1:  # no other process was faster
                        _run_all(db, _GRANTS)
                        db.execute("pragma user_version = 2")

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
    def _open(self, busy_s: float, version: int | None = VERSION) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(f"file:{quote(self.name)}?mode=rw", uri=True, timeout=busy_s, isolation_level=None)
            try:
                db.execute("pragma synchronous = full")
                found = _version(db)
                if version is not None and found != version:
                    words = f"is of version {found}, not {version}" if found else "is no key store: was it cut short?"
                    raise ConfigError(self.name, "", words)
                yield db
            finally:
                db.close()
        except (sqlite3.Error, msgspec.DecodeError) as error:
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
    store.upgrade()
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


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("pragma user_version").fetchone()[0])


def _read_table(db: sqlite3.Connection) -> KeyTable:
    """Checks the type of each value, because SQLite reads anything from a damaged file. Raises ValidationError."""
    peppers = db.execute("select pepper from install").fetchall()
    rows = db.execute(_READ_KEYS).fetchall()
    teams = db.execute("select name, granted from teams order by name").fetchall()
    if len(peppers) != 1 or not peppers[0][0]:
        raise sqlite3.DatabaseError("the pepper is missing")
    found = [_key_row(row) for row in rows]
    grants = {name: _read_grant(granted) for name, granted in teams}
    return msgspec.convert({"pepper": peppers[0][0], "rows": found, "teams": grants}, KeyTable)


def _key_row(row: tuple[object, ...]) -> dict[str, object]:
    names = KeyRow.__struct_fields__
    return {**dict(zip(names, row, strict=True)), "admin": bool(row[3]), "grant": _read_grant(row[7])}


def _read_grant(text: object) -> Grant:
    try:
        return check_grant(msgspec.json.decode(str(text), type=Grant))
    except ValueError as error:
        raise sqlite3.DatabaseError(f"a grant that is not valid: {error}") from error


def _put(db: sqlite3.Connection, row: KeyRow) -> None:
    granted = msgspec.json.encode(row.grant).decode()
    values = [granted if name == "grant" else value for name, value in asdict(row).items()]
    db.execute(_PUT_KEY, values)


def _audit_row(row: tuple[object, ...]) -> AuditRow:
    names = AuditRow.__struct_fields__
    raw = [msgspec.Raw(str(value).encode()) for value in row[5:7]]
    return AuditRow(**dict(zip(names, (*row[:5], *raw), strict=True)))  # type: ignore[arg-type]  # as the table has them


def _run_all(db: sqlite3.Connection, script: str) -> None:
    """Within the transaction: `executescript` would end it. Triggers hold a `;` of their own."""
    statement = ""
    for piece in script.split(";"):
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            if statement.strip(" ;\n"):
                db.execute(statement)
            statement = ""


def _fill(draft: Path, table: KeyTable) -> None:
    db = sqlite3.connect(draft, isolation_level=None)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.executescript(_SCHEMA)
        db.executescript(_GRANTS)
        db.execute("insert into install values (?)", (table.pepper,))
        for row in table.rows:
            _put(db, row)
        db.execute("pragma user_version = 2")  # VERSION, written last: a file without it is not complete
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
