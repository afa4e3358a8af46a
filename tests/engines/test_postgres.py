"""PostgreSQL: migrations, stored responses and kept state, and what happens while it is away."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.test_serve import COMMAND, environment, serving
from tests.engines.servers import Engine, TcpProxy
from tests.gateway.web import post, send
from tests.waiting import NEVER_S, wait_until

pytest.importorskip("asyncpg", reason="the extra `postgres` is not installed")

import asyncpg

from dragoman.gateway.stores.responses import StoredResponse, StoreUnavailable
from dragoman.postgres.database import (
    Database,
    DatabaseAwayError,
    PgConnection,
    find_mismatch,
    list_migrations,
    migrate,
    read_applied,
)
from dragoman.postgres.kept import PostgresResponseStore, PostgresStateStore


@pytest.fixture(scope="module")
def database(postgres: Engine) -> Iterator[Database]:
    found = Database(postgres.url, answer_s=1.0)
    migrate(found)
    yield found
    found.close()


def stored(name: str, created: float) -> StoredResponse:
    return StoredResponse(id=name, messages=(), wire=b"{}", created=created)


def test_migrations_are_numbered_without_a_gap_and_applied_once(postgres: Engine) -> None:
    numbers = [one.number for one in list_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
    databases = [Database(postgres.url) for _ in range(3)]
    at_once = [Thread(target=migrate, args=(one,)) for one in databases]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join(NEVER_S)
    found = databases[0]
    assert read_applied(found) == numbers
    assert migrate(found) == []
    assert find_mismatch(numbers) == ""
    assert "db migrate" in find_mismatch(numbers[:-1])
    for one in databases:
        one.close()


def test_a_connection_that_broke_in_use_is_a_database_that_is_away_and_is_not_used_again(postgres: Engine) -> None:
    """Seen under `bench/replicas.py`: a request was answered with 500."""
    found, backends = Database(postgres.url), []

    async def break_it(connection: PgConnection) -> None:
        backends.append(await connection.fetchval("select pg_backend_pid()"))
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    async def name_it(connection: PgConnection) -> None:
        backends.append(await connection.fetchval("select pg_backend_pid()"))

    with pytest.raises(DatabaseAwayError, match="another operation"):
        found.run(break_it)
    wait_until(lambda: not found.away, "another connection")
    found.run(name_it)
    assert backends[0] != backends[1]
    found.close()


def test_many_first_questions_at_once_are_all_answered(postgres: Engine) -> None:
    found = Database(postgres.url)

    async def ask(connection: PgConnection) -> int:
        return int(await connection.fetchval("select 1"))

    async def ask_at_once() -> list[int]:
        return await asyncio.gather(*(found.ask(ask, NEVER_S) for _ in range(30)))

    assert asyncio.run(ask_at_once()) == [1] * 30
    found.close()


def test_db_migrate_and_status(postgres: Engine, tmp_path: Path) -> None:
    admin = subprocess.run([*COMMAND, "db", "status"], cwd=tmp_path, env=environment(tmp_path), capture_output=True)
    assert admin.returncode == 1, "no database is configured"
    env = {**environment(tmp_path), "DRAGOMAN_DATABASE": postgres.url}
    for words, says in ((("migrate",), ""), (("migrate",), "nothing to do"), (("status",), "0001 keys: applied")):
        done = subprocess.run(
            [*COMMAND, "db", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=NEVER_S
        )
        assert (done.returncode, says in done.stdout) == (0, True), done.stderr
    Database(postgres.url).run(lambda connection: connection.execute("create database bare"), transaction=False)
    env["DRAGOMAN_DATABASE"] = postgres.url.removesuffix("postgres") + "bare"
    for command in (("usage",), ("keys", "list")):
        done = subprocess.run(
            [*COMMAND, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=NEVER_S
        )
        assert (done.returncode, "run `dragoman db migrate`" in done.stderr) == (1, True), done.stderr


def test_responses_are_kept_for_their_owner(database: Database) -> None:
    store = PostgresResponseStore(database, 1000)
    assert store.put("a", stored("resp_1", 1.0))
    assert store.put("a", stored("resp_2", 2.0))
    assert store.put("a", stored("conv_1", 3.0))
    assert store.put("b", stored("resp_1", 4.0))
    found = store.get("a", "resp_1")
    assert found is not None
    assert found.created == 1.0
    assert store.get("c", "resp_1") is None
    assert store.list_ids("a", "resp_", 10) == ["resp_2", "resp_1"]
    assert store.delete("a", "resp_1")
    assert not store.delete("a", "resp_1")
    assert store.get("b", "resp_1") is not None


def test_the_oldest_responses_of_the_owner_with_most_go_first(database: Database) -> None:
    store = PostgresResponseStore(database, 0)
    store.put("a", stored("swept", 1.0))
    store = PostgresResponseStore(database, 3)
    store.put("few", stored("resp_1", 50.0))
    for number in range(6):
        store.put("many", stored(f"resp_{number}", 100.0 + number))
    assert store.list_ids("many", "", 10) == ["resp_5", "resp_4"]
    assert store.list_ids("few", "", 10) == ["resp_1"]


def test_a_thing_of_a_provider_keeps_its_first_owner(database: Database) -> None:
    store = PostgresResponseStore(database, 3)
    store.own("a", ["file-1", "file-2"])
    store.own("b", ["file-2", "file-3"])
    assert store.find_owners(["file-1", "file-2", "file-3", "file-4"]) == {"file-1": "a", "file-2": "a", "file-3": "b"}


def test_state_is_found_by_another_gateway(database: Database) -> None:
    one, two = PostgresStateStore(database, 10), PostgresStateStore(database, 10)
    one.put("a", "k", b"state")
    assert not one.is_empty()
    wait_until(lambda: not two.is_empty(), "a look in the background")
    assert two.get("a", ["k", "other"]) == {"k": b"state"}
    assert two.get("b", ["k"]) == {}


def test_a_database_that_is_away_is_told_apart_and_heals(postgres: Engine, database: Database) -> None:
    with TcpProxy(postgres.port) as proxy:
        lose_and_find(proxy, Database(postgres.url.replace(str(postgres.port), str(proxy.port)), answer_s=0.5))


def lose_and_find(proxy: TcpProxy, database: Database) -> None:
    store, state = PostgresResponseStore(database, 10), PostgresStateStore(database, 10)

    def answers() -> bool:
        with suppress(StoreUnavailable):  # half a second can be too short for a first connection on a busy machine
            return store.get("a", "resp_9") is None
        return False

    wait_until(answers, "a first answer")
    proxy.cut()
    try:
        with pytest.raises(StoreUnavailable):
            store.get("a", "resp_1")
        assert database.away
        assert state.get("a", ["k"]) == {}
        with pytest.raises(StoreUnavailable):
            store.put("a", stored("x", 1.0))
    finally:
        proxy.mend()

    def works() -> bool:
        try:
            return store.put("a", stored("later", 1.0))
        except StoreUnavailable:
            return False

    wait_until(works, "the database to be asked again")
    assert not database.away
    database.close()


def test_a_response_of_one_gateway_is_found_at_another(postgres: Engine, database: Database, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"demo": True, "database": postgres.url}))
    with serving(folders[0]) as one, serving(folders[1]) as two:
        made = post(one.url, "/v1/responses", {"model": "echo", "input": "hello"}).json
        found = send(two.url, "GET", f"/v1/responses/{made['id']}").json
        assert found["output"] == made["output"]


def test_a_gateway_does_not_start_on_tables_of_an_older_version(postgres: Engine, tmp_path: Path) -> None:
    url = f"{postgres.url.rpartition('/')[0]}/template1"
    env = {**environment(tmp_path), "DRAGOMAN_DATABASE": url}
    done = subprocess.run(
        [*COMMAND, "serve", "--port", "0"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=NEVER_S
    )
    assert done.returncode == 78
    assert "dragoman db migrate" in done.stderr
    done = subprocess.run([*COMMAND, "check"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=NEVER_S)
    assert "dragoman db migrate" in done.stderr
