"""Stored responses and kept reasoning state in PostgreSQL. They keep the same promises as the SQLite stores."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

from dragoman.gateway.stores.reasoning_state import LOOK_S
from dragoman.gateway.stores.reasoning_state import MAX_ROW_BYTES as MAX_STATE_BYTES
from dragoman.gateway.stores.responses import (
    MAX_ROW_BYTES,
    StoredResponse,
    StoreUnavailable,
    most_names,
    read_row,
    store_unavailable,
    write_row,
)
from dragoman.gateway.stores.sqlite import share_out
from dragoman.log_line import LogLine
from dragoman.postgres.database import AWAY, Database, DatabaseAwayError, PgConnection

log = logging.getLogger(__name__)
T = TypeVar("T")
SWEEP_EVERY = 100  # after this many new rows they are counted, and old ones deleted
_PUT = """
insert into dragoman.responses values ($1, $2, $3, $4)
on conflict (owner, id) do update set created = excluded.created, row = excluded.row
"""
_LIST = """
select id from dragoman.responses where owner = $1 and id collate "C" >= $2 and id collate "C" < $3
order by created desc limit $4
"""
_OWN = """
insert into dragoman.owned select name, $2, $3 from unnest($1::text[]) name on conflict (name) do nothing
"""
_PUT_STATE = """
insert into dragoman.reasoning_state values ($1, $2, $3, $4)
on conflict (owner, key) do update set created = excluded.created, state = excluded.state
"""


async def keep_newest(connection: PgConnection, table: str, name: str, rows: int) -> None:
    """Deletes the oldest rows of the owners with most, if there are more than `rows`."""
    found = await connection.fetch(f"select owner, count(*) from dragoman.{table} group by owner")  # noqa: S608
    for owner, number in share_out({row[0]: row[1] for row in found}, rows).items():
        oldest = f"select {name} from dragoman.{table} where owner = $1 order by created limit $2"  # noqa: S608
        statement = f"delete from dragoman.{table} where owner = $1 and {name} in ({oldest})"  # noqa: S608
        await connection.execute(statement, owner, number)


class PostgresResponseStore:
    """Calls block until the server answers. So they are made in threads, as with SQLite."""

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
                await keep_newest(connection, "responses", "id", self._rows)

        self._run(work)
        return True

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        async def work(connection: PgConnection) -> bytes | None:
            statement = "select row from dragoman.responses where owner = $1 and id = $2"
            found: bytes | None = await connection.fetchval(statement, owner, response_id)
            return found

        row = self._run(work)
        return None if row is None else read_row(row)

    def is_foreign(self, owner: str, response_id: str) -> bool:
        async def work(connection: PgConnection) -> bool:
            statement = "select exists (select from dragoman.responses where id = $1 and owner <> $2)"
            found: bool = await connection.fetchval(statement, response_id, owner)
            return found

        return self._run(work)

    def list_ids(self, owner: str, prefix: str, most: int) -> list[str]:
        async def work(connection: PgConnection) -> list[str]:
            rows = await connection.fetch(_LIST, owner, prefix, prefix + "\x7f", most)
            return [row[0] for row in rows]

        return self._run(work)

    def delete(self, owner: str, response_id: str) -> bool:
        async def work(connection: PgConnection) -> bool:
            statement = "delete from dragoman.responses where owner = $1 and id = $2"
            return str(await connection.execute(statement, owner, response_id)) != "DELETE 0"

        return self._run(work)

    def own(self, owner: str, names: Collection[str]) -> None:
        """A name that has an owner already keeps it."""
        self._puts += 1

        async def work(connection: PgConnection) -> None:
            await connection.execute(_OWN, list(names), owner, time.time())
            if self._puts % SWEEP_EVERY == 0:
                await keep_newest(connection, "owned", "name", most_names(self._rows))

        self._run(work)

    def find_owners(self, names: Collection[str]) -> dict[str, str]:
        async def work(connection: PgConnection) -> dict[str, str]:
            statement = "select name, owner from dragoman.owned where name = any($1)"
            return {row[0]: row[1] for row in await connection.fetch(statement, list(names))}

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
    """While the database is away, nothing is kept or found. Requests go on without their state."""

    def __init__(self, database: Database, rows: int) -> None:
        self._database, self._rows = database, rows
        self._filled = self._watching = False
        self._puts = 0

    def is_empty(self) -> bool:
        """Called for every request, so it must be quick: a background task looks until the table has a row."""
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
                await keep_newest(connection, "reasoning_state", "key", self._rows)

        self._run(work)

    def get(self, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        async def work(connection: PgConnection) -> dict[str, bytes]:
            statement = "select key, state from dragoman.reasoning_state where owner = $1 and key = any($2)"
            return {row[0]: row[1] for row in await connection.fetch(statement, owner, list(keys))}

        return self._run(work) or {}

    def close(self) -> None:
        """The database is closed by the one that opened it."""

    def _run(self, work: Callable[[PgConnection], Awaitable[T]]) -> T | None:
        try:
            return self._database.run(work)
        except DatabaseAwayError as error:
            log.warning(LogLine("state_not_kept", {"error": type(error).__name__, "why": str(error)}))
            return None
