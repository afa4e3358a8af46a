"""Keys and teams in PostgreSQL. Every gateway has a copy of them, in memory and in a file.

A request is checked against the copy, so it never waits for the database. The database announces each change, and we
also look every second. While the database is away the last copy is used, after a restart too. Revoked keys in it stay
revoked.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from dragoman.accounts.grants import (
    Grant,
    check_grant,
)
from dragoman.errors import ConfigError
from dragoman.gateway.stores.keys import AuditRow, Decide, KeyRow, KeyRules, KeyTable, find_person, new_pepper
from dragoman.postgres.database import AWAY, Database, DatabaseAwayError, PgConnection

T = TypeVar("T")
COPY = "keys.copy"
CHANNEL = "dragoman_keys"
LOOK_S = 1.0
START_S = 5.0  # a process that starts waits at most this long for the keys
_COLUMNS = "id, digest, name, admin, created, revoked, team, granted, expires, old_digest, old_until"
_PUT = f"""
insert into dragoman.keys ({_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (id) do update set digest = excluded.digest, name = excluded.name, revoked = excluded.revoked,
    team = excluded.team, granted = excluded.granted, expires = excluded.expires, old_digest = excluded.old_digest,
    old_until = excluded.old_until
"""  # noqa: S608  # our own names

_PUT_TEAM = "insert into dragoman.teams values ($1, $2) on conflict (name) do update set granted = $2"
_NOTE = "insert into dragoman.audit (at, who, what, subject, before, after) values ($1, $2, $3, $4, $5, $6)"


class PostgresKeyStore(KeyRules):
    def __init__(self, database: Database, name: str, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """`name`: for messages, without a password. `folder`: where the copy is kept."""
        self.name = name
        super().__init__(clock)
        self._database = database
        self._file = folder / COPY
        self._copy: KeyTable | None = None
        self._revision = 0
        self._process = 0  # the id of the process whose task keeps the copy fresh

    # ---------------------------------------------------------------- reading

    def read(self) -> KeyTable | None:
        if self._process != os.getpid():
            self._begin()
        elif self._database.away:
            raise ConfigError(self.name, "", f"does not answer: {self._database.away}")
        return self._copy

    def stamp(self) -> object:
        fresh = self._process == os.getpid() and not self._database.away
        return self._revision if fresh else None

    def _begin(self) -> None:
        """The first look of a process waits for the database. Without it, the copy in the file holds."""
        self._process = os.getpid()
        self._database.start(self._keep_fresh)
        try:
            self._take(self._database.run(_fetch, START_S))
        except DatabaseAwayError as error:
            self._copy = self._load()
            if self._copy is None:
                self._process = 0
                raise ConfigError(self.name, "", f"does not answer, and there is no copy: {error}") from error

    async def _keep_fresh(self) -> None:
        while True:
            notified = asyncio.Event()
            with suppress(*AWAY):
                connection = await self._database.listen(CHANNEL, notified.set)
                try:
                    while not connection.is_closed():
                        await self._look()
                        with suppress(TimeoutError):
                            await asyncio.wait_for(notified.wait(), LOOK_S)
                        notified.clear()
                finally:
                    connection.terminate()
            with suppress(*AWAY):
                await self._look()  # sets `away` if the database does not answer
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        revision = await self._database.run_here(_fetch_revision)
        if revision != self._revision:
            self._take(await self._database.run_here(_fetch))

    def _take(self, found: tuple[int, KeyTable] | None) -> None:
        if found is not None:
            self._copy = found[1]
            self._save(found[1])
            self._revision = found[0]

    def _save(self, table: KeyTable) -> None:
        draft = self._file.with_name(f"{COPY}.{secrets.token_hex(4)}")
        with suppress(OSError):  # if the file cannot be written, only a restart without the database suffers
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_bytes(msgspec.msgpack.encode(table))
            draft.replace(self._file)

    def _load(self) -> KeyTable | None:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.msgpack.decode(self._file.read_bytes(), type=KeyTable)
        return None

    # ---------------------------------------------------------------- writing

    def prepare(self) -> None:
        async def work(connection: PgConnection) -> None:
            await connection.execute("insert into dragoman.install values ($1) on conflict do nothing", new_pepper())

        self._run(work)

    def read_audit(self, most: int = 100, before: int | None = None) -> list[AuditRow]:
        async def work(connection: PgConnection) -> list[Any]:
            statement = (
                "select * from dragoman.audit where $1::bigint is null or number < $1 order by number desc limit $2"
            )
            return list(await connection.fetch(statement, before, most))

        return [
            AuditRow(
                number=row[0],
                at=row[1],
                who=row[2],
                what=row[3],
                subject=row[4],
                before=msgspec.Raw(row[5].encode()),
                after=msgspec.Raw(row[6].encode()),
            )
            for row in self._run(work)
        ]

    def _transact(self, who: str, decide: Decide) -> bool:
        async def work(connection: PgConnection) -> bool:
            write = decide(await _lock(connection))
            if write is None:
                return False
            if write.key is not None:
                await _put(connection, write.key)
            if write.grant is not None:
                await connection.execute(_PUT_TEAM, write.team, msgspec.json.encode(write.grant).decode())
            elif write.team is not None:
                await connection.execute("delete from dragoman.teams where name = $1", write.team)
            states = [msgspec.json.encode(value).decode() for value in (write.before, write.after)]
            person = who or find_person()
            await connection.execute(_NOTE, self._clock(), person, write.what, write.subject, *states)
            await connection.execute("update dragoman.install set revision = revision + 1")
            await connection.execute(f"notify {CHANNEL}")  # all gateways hear it when the transaction is done
            return True

        self.prepare()
        return self._run(work)

    def _run(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        try:
            return self._database.run(work, START_S)
        except DatabaseAwayError as error:
            raise ConfigError(self.name, "", f"the keys cannot be read or written now: {error}") from error


async def _fetch_revision(connection: PgConnection) -> int:
    return int(await connection.fetchval("select revision from dragoman.install") or 0)


async def _fetch(connection: PgConnection) -> tuple[int, KeyTable] | None:
    await connection.execute("set transaction isolation level repeatable read")
    return await _read(connection, "select pepper, revision from dragoman.install")


async def _lock(connection: PgConnection) -> KeyTable:
    """Writers wait for each other: what was read stays true until the commit."""
    found = await _read(connection, "select pepper, revision from dragoman.install for update")
    if found is None:
        raise DatabaseAwayError("the pepper is missing")
    return found[1]


async def _read(connection: PgConnection, statement: str) -> tuple[int, KeyTable] | None:
    install = await connection.fetchrow(statement)
    if install is None:
        return None
    rows = await connection.fetch(f"select {_COLUMNS} from dragoman.keys order by created, id")  # noqa: S608
    teams = await connection.fetch("select name, granted from dragoman.teams order by name")
    table = KeyTable(
        pepper=install[0],
        rows=tuple(_row(row) for row in rows),
        teams={row[0]: _grant(row[1]) for row in teams},
    )
    return install[1], table


def _row(row: Any) -> KeyRow:
    fields = dict(zip(KeyRow.__struct_fields__, tuple(row), strict=True))
    return KeyRow(**{**fields, "grant": _grant(fields["grant"])})


def _grant(text: str) -> Grant:
    return check_grant(msgspec.json.decode(text, type=Grant))


async def _put(connection: PgConnection, row: KeyRow) -> None:
    granted = msgspec.json.encode(row.grant).decode()
    await connection.execute(_PUT, *[granted if name == "grant" else value for name, value in asdict(row).items()])
