"""Database: PostgreSQL for code that is not async, in a thread with an event loop of its own.

When the server does not answer, calls fail at once. A background task tries it every second until it is back. So a
request never waits twice for a server that is away.
"""

import asyncio
import atexit
import os
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar

import asyncpg
from msgspec import Struct

T = TypeVar("T")
ANSWER_S = 2.0
AGAIN_S = 1.0
POOL = 8
MIGRATE_S = 600.0
_LOCK = 0x647261676F6D616E  # "dragoman": one process migrates at a time
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_AWAY_CLASSES = ("08", "53", "57")  # classes of error codes: connection, resources, operator
# InternalClientError: asyncpg met a connection that broke while it was used ("another operation is in progress").
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
PgConnection: TypeAlias = Any  # a connection of asyncpg; its queries return rows of any type


_UNKNOWN = ("3F000", "42P01", "42703", "42883")  # SQL states: no such schema, table, column, function


def _say(error: BaseException) -> str:
    """Why the database cannot be used, for people."""
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate in _UNKNOWN:
        return f"its tables are missing or old ({error}): run `dragoman db migrate`"
    return str(error) or type(error).__name__


class DatabaseAwayError(OSError):
    """The database does not answer now, or has not the tables that we need."""


class Migration(Struct, frozen=True):
    number: int
    name: str
    sql: str


class Database:
    """Calls may be made from any thread. A forked process opens connections of its own."""

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        self._url, self._answer_s = url, answer_s
        self.away = ""  # why it cannot be asked; "" if it can, or has not been asked yet
        self._healing = False
        self._start_lock = threading.Lock()
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: Any = None

    def run(
        self,
        work: Callable[[PgConnection], Awaitable[T]],
        answer_s: float | None = None,
        *,
        transaction: bool = True,
    ) -> T:
        """Runs `work` in one transaction; a DatabaseAwayError if the server does not answer.

        Work that is one statement needs none, and is one round trip without it."""
        if self.away:
            self._look_for_it()
            raise DatabaseAwayError(self.away)
        limit_s = answer_s or self._answer_s
        future = asyncio.run_coroutine_threadsafe(self._work(work, limit_s, transaction=transaction), self._find_loop())
        try:
            found = future.result(limit_s + 1.0)
        except (LateError, *AWAY) as error:
            future.cancel()
            self._fail(error)
            raise DatabaseAwayError(_say(error)) from error
        self.away = ""
        return found

    async def ask(
        self, work: Callable[[PgConnection], Awaitable[T]], answer_s: float, *, transaction: bool = True
    ) -> T:
        """Does the same as `run` for code on another event loop, without blocking that loop."""
        if self.away:
            self._look_for_it()
            raise DatabaseAwayError(self.away)
        coroutine = self._work(work, answer_s, transaction=transaction)
        asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._find_loop()))
        try:
            async with asyncio.timeout(answer_s):
                found = await asked
        except AWAY as error:
            self._fail(error)
            raise DatabaseAwayError(_say(error)) from error
        self.away = ""
        return found

    async def run_here(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        """Does the same as `run` for a task that `start` began. Raises one of AWAY if the server does not answer."""
        try:
            found = await self._work(work, self._answer_s)
        except AWAY as error:
            self._fail(error)
            raise
        self.away = ""
        return found

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs a task in the background, as long as this process lives."""
        asyncio.run_coroutine_threadsafe(_as_coroutine(work), self._find_loop())

    async def _work(
        self, work: Callable[[PgConnection], Awaitable[T]], limit_s: float, *, transaction: bool = True
    ) -> T:
        """Runs the work. If it takes too long, its connection is cut: to close it properly, we would have to wait
        again."""
        if self._pool is None:
            self._pool = asyncpg.create_pool(
                self._url, min_size=0, max_size=POOL, timeout=limit_s, command_timeout=MIGRATE_S, reset=_keep_as_is
            )
        pool = await self._pool  # a second task waits here while the first one makes the pool
        connection = await pool.acquire(timeout=limit_s)
        task = asyncio.ensure_future(_run_work(work, connection, transaction=transaction))
        try:
            done, _ = await asyncio.wait({task}, timeout=limit_s)
            if not done:
                raise TimeoutError("no answer in time")
            return task.result()
        except asyncpg.InternalClientError:
            connection.terminate()  # the next work on this connection would fail too
            raise
        finally:
            if not task.done():
                connection.terminate()
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)
            await pool.release(connection)

    async def listen(self, channel: str, hear: Callable[[], None]) -> PgConnection:
        """Opens a connection that receives the messages of a channel."""
        connection = await asyncpg.connect(self._url, timeout=self._answer_s, command_timeout=self._answer_s)
        try:
            await connection.add_listener(channel, lambda *_: hear())
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] not in _AWAY_CLASSES:
            return  # the server answered, so it is not away: the statement was wrong
        self.away = str(error) or type(error).__name__
        self._look_for_it()

    def _look_for_it(self) -> None:
        loop = self._find_loop()
        if not self._healing:
            self._healing = True
            asyncio.run_coroutine_threadsafe(self._heal(), loop)

    async def _heal(self) -> None:
        try:
            while self.away:
                await asyncio.sleep(AGAIN_S)
                with suppress(*AWAY):
                    await self.run_here(_knock)
        finally:
            self._healing = False

    def _find_loop(self) -> asyncio.AbstractEventLoop:
        with self._start_lock:
            if self._loop is None or self._process != os.getpid():
                self._process, self._pool, self._healing = os.getpid(), None, False
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="postgres", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    def close(self) -> None:
        with self._start_lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None and self._process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close(loop), loop)
            self._thread.join(self._answer_s)
            atexit.unregister(self.close)

    async def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(2):  # twice: a cancelled query may start another task, which cancels the query at the server
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._pool is not None:
                self._pool.terminate()
            await asyncio.sleep(0.01)  # its sockets are closed in the next turns
        loop.call_soon(loop.stop)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _run_work(work: Callable[[PgConnection], Awaitable[T]], connection: PgConnection, *, transaction: bool) -> T:
    if not transaction:
        return await work(connection)
    async with connection.transaction():
        return await work(connection)


async def _keep_as_is(connection: PgConnection) -> None:
    """Skips the reset after each use, which costs a round trip: our work changes no setting of a connection."""


async def _knock(connection: PgConnection) -> None:
    await connection.execute("select 1")


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


# ---------------------------------------------------------------- migrations


def list_migrations() -> list[Migration]:
    """All migrations in their order. A released file never changes: a later file changes its tables."""
    found = [
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in files("dragoman.postgres").joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(file.name))
    ]
    return sorted(found, key=lambda one: one.number)


def read_applied(database: Database) -> list[int]:
    async def work(connection: PgConnection) -> list[int]:
        if await connection.fetchval("select to_regclass('dragoman.migrations')") is None:
            return []
        return [row[0] for row in await connection.fetch("select number from dragoman.migrations order by number")]

    return database.run(work)


def migrate(database: Database) -> list[Migration]:
    """Applies the missing migrations, all or none, and returns their names."""
    wanted = list_migrations()

    async def work(connection: PgConnection) -> list[Migration]:
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute("create schema if not exists dragoman")
        await connection.execute(
            "create table if not exists dragoman.migrations"
            " (number integer primary key, name text not null, at timestamptz not null default now())"
        )
        known = {row[0] for row in await connection.fetch("select number from dragoman.migrations")}
        missing = [one for one in wanted if one.number not in known]
        for one in missing:
            await connection.execute(one.sql)
            await connection.execute("insert into dragoman.migrations values ($1, $2)", one.number, one.name)
        return missing

    return database.run(work, MIGRATE_S)


def find_mismatch(applied: list[int]) -> str:
    """Why this version of dragoman cannot use the tables; "" if it can. Newer tables are fine: they only add."""
    missing = [one for one in list_migrations() if one.number not in applied]
    if not missing:
        return ""
    return f"{len(missing)} migrations are missing (the first is {missing[0].name}): run `dragoman db migrate`"
