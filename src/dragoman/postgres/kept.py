"""Stored responses and kept reasoning state in PostgreSQL, with the promises of the SQLite stores."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from dragoman.gateway.stores.reasoning_state import LOOK_S
from dragoman.gateway.stores.reasoning_state import MAX_ROW_BYTES as MAX_STATE_BYTES
from dragoman.gateway.stores.responses import (
    MAX_ROW_BYTES,
    StoredResponse,
    StoreUnavailable,
    read_row,
    store_unavailable,
    write_row,
)
from dragoman.log_line import LogLine
from dragoman.postgres.database import AWAY, Database, DatabaseAwayError, PgConnection

log = logging.getLogger(__name__)
T = TypeVar("T")
SWEEP_EVERY = 100  # rows between two looks at how many there are
_PUT = """
insert into dragoman.responses values ($1, $2, $3, $4)
on conflict (owner, id) do update set created = excluded.created, row = excluded.row
"""
_SWEEP = """
delete from dragoman.responses where created < (
    select created from dragoman.responses order by created desc offset $1 limit 1
)
"""
_LIST = """
select row from dragoman.responses where owner = $1 and id collate "C" >= $2 and id collate "C" < $3
order by created desc limit $4
"""
_PUT_STATE = """
insert into dragoman.reasoning_state values ($1, $2, $3, $4)
on conflict (owner, key) do update set created = excluded.created, state = excluded.state
"""
_SWEEP_STATE = """
delete from dragoman.reasoning_state where created < (
    select created from dragoman.reasoning_state order by created desc offset $1 limit 1
)
"""


class PostgresResponseStore:
    """Its calls wait for the server: they are made in threads, as those of SQLite are."""

    def __init__(self, database: Database, rows: int) -> None:
        self._database, self._rows = database, rows
        self._puts = 0

    def put(self, owner: str, stored: StoredResponse) -> bool:
        """False if it is too large to be kept."""
        row = write_row(stored)
        if len(row) > MAX_ROW_BYTES:
            return False
        self._puts += 1

        async def work(connection: PgConnection) -> None:
            await connection.execute(_PUT, owner, stored.id, stored.created, row)
            if self._puts % SWEEP_EVERY == 0 or self._rows < SWEEP_EVERY:
                await connection.execute(_SWEEP, max(self._rows - 1, 0))

        self._run(work)
        return True

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        async def work(connection: PgConnection) -> bytes | None:
            asked = "select row from dragoman.responses where owner = $1 and id = $2"
            found: bytes | None = await connection.fetchval(asked, owner, response_id)
            return found

        row = self._run(work)
        return None if row is None else read_row(row)

    def is_foreign(self, owner: str, response_id: str) -> bool:
        async def work(connection: PgConnection) -> bool:
            asked = "select exists (select from dragoman.responses where id = $1 and owner <> $2)"
            found: bool = await connection.fetchval(asked, response_id, owner)
            return found

        return self._run(work)

    def list(self, owner: str, prefix: str, most: int) -> "list[StoredResponse]":
        """Responses whose id begins so, the newest first."""

        async def work(connection: PgConnection) -> "list[bytes]":
            rows = await connection.fetch(_LIST, owner, prefix, prefix + "\x7f", most)
            return [row[0] for row in rows]

        return [found for row in self._run(work) if (found := read_row(row)) is not None]

    def delete(self, owner: str, response_id: str) -> bool:
        async def work(connection: PgConnection) -> bool:
            asked = "delete from dragoman.responses where owner = $1 and id = $2"
            return str(await connection.execute(asked, owner, response_id)) != "DELETE 0"

        return self._run(work)

    def close(self) -> None:
        """The database is closed by the one that opened it."""

    def _run(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        try:
            return self._database.run(work)
        except DatabaseAwayError as error:
            log.warning(LogLine("store_unavailable", {"error": type(error).__name__, "why": str(error)}))
            raise StoreUnavailable(store_unavailable()) from error


class PostgresStateStore:
    """What cannot be kept or found is as if it had never been."""

    def __init__(self, database: Database, rows: int) -> None:
        self._database, self._rows = database, rows
        self._filled = self._watching = False
        self._puts = 0

    def is_empty(self) -> bool:
        """Asked for every request: a task in the background looks until there is something."""
        if not self._filled and not self._watching and self._rows:
            self._watching = True
            self._database.start(self._watch)
        return not self._filled

    async def _watch(self) -> None:
        async def work(connection: PgConnection) -> bool:
            return bool(await connection.fetchval("select exists (select 1 from dragoman.reasoning_state)"))

        while not self._filled:
            with suppress(*AWAY):
                self._filled = await self._database.run_here(work)
            await asyncio.sleep(LOOK_S)

    def put(self, owner: str, key: str, state: bytes) -> None:
        if len(state) > MAX_STATE_BYTES or not self._rows:
            return
        self._filled = True
        self._puts += 1

        async def work(connection: PgConnection) -> None:
            await connection.execute(_PUT_STATE, owner, key, time.time(), state)
            if self._puts % SWEEP_EVERY == 0 or self._rows < SWEEP_EVERY:
                await connection.execute(_SWEEP_STATE, max(self._rows - 1, 0))

        self._run(work)

    def get(self, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        async def work(connection: PgConnection) -> dict[str, bytes]:
            asked = "select key, state from dragoman.reasoning_state where owner = $1 and key = any($2)"
            return {row[0]: row[1] for row in await connection.fetch(asked, owner, list(keys))}

        return self._run(work) or {}

    def close(self) -> None:
        """The database is closed by the one that opened it."""

    def _run(self, work: Callable[[PgConnection], Awaitable[T]]) -> T | None:
        try:
            return self._database.run(work)
        except DatabaseAwayError as error:
            log.warning(LogLine("state_not_kept", {"error": type(error).__name__, "why": str(error)}))
            return None
