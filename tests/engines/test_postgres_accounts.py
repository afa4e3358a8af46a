"""Keys, budgets and the ledger in PostgreSQL: what holds for SQLite holds here, over many machines."""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from dragoman.accounts.budgets import BudgetStore, Line, Settlement
from dragoman.accounts.grants import Grant, GrantChange
from dragoman.errors import ConfigError
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.stores.keys import KeyChange
from tests.accounts import test_budgets, test_ledger
from tests.cli.test_serve import COMMAND, environment, serving
from tests.engines.servers import Engine, TcpProxy
from tests.gateway.web import post
from tests.waiting import NEVER_S, wait_until

pytest.importorskip("asyncpg", reason="the extra `postgres` is not installed")

from dragoman.postgres.books import PostgresBudgets, PostgresLedger
from dragoman.postgres.database import Database, PgConnection, migrate
from dragoman.postgres.key_store import PostgresKeyStore

TABLES = "keys, teams, install, spent, reserved, settled, told, requests, attempts, sums"


@pytest.fixture(scope="module")
def migrated(postgres: Engine) -> Iterator[Database]:
    with closing(Database(postgres.url)) as found:
        migrate(found)
        yield found


async def empty(connection: PgConnection) -> None:
    await connection.execute("truncate " + ", ".join(f"dragoman.{name}" for name in TABLES.split(", ")))


@pytest.fixture
def database(migrated: Database) -> Database:
    migrated.run(empty)
    return migrated


OF_BUDGETS = [
    test_budgets.test_a_high_estimate_reserves_what_is_left,
    test_budgets.test_a_strict_policy_refuses_a_high_estimate,
    test_budgets.test_a_team_that_has_spent_its_budget_stops_its_keys_and_holds_nothing,
    test_budgets.test_what_a_dead_process_had_reserved_comes_back_with_the_end_of_its_lease,
    test_budgets.test_a_reservation_of_the_last_period_does_not_change_this_one,
    test_budgets.test_a_journal_that_is_replayed_settles_once_even_after_the_lease,
    test_budgets.test_a_threshold_is_reported_once_in_a_period,
]
OF_LEDGERS = [
    test_ledger.test_a_row_counts_once_however_often_it_is_added,
    test_ledger.test_a_cost_that_is_unknown_is_counted_and_not_added,
    test_ledger.test_a_report_until_a_day_has_nothing_of_that_day,
    test_ledger.test_sums_stay_when_single_rows_are_forgotten,
    test_ledger.test_pages_hold_every_row_once,
]


@pytest.mark.parametrize("test", OF_BUDGETS, ids=lambda test: test.__name__)
def test_budgets_are_as_those_of_sqlite(database: Database, test: Callable[[Any], None]) -> None:
    test(PostgresBudgets(database))


@pytest.mark.parametrize("test", OF_LEDGERS, ids=lambda test: test.__name__)
def test_the_ledger_is_as_that_of_sqlite(database: Database, test: Callable[[Any], None]) -> None:
    test(PostgresLedger(database))


def test_exactly_fifty_of_a_hundred_pass_over_three_gateways(postgres: Engine, database: Database) -> None:
    line, gateways = Line("key:a", 0, 50), [Database(postgres.url) for _ in range(3)]
    stores = [PostgresBudgets(one) for one in gateways]

    def ask(number: int) -> bool:
        found = stores[number % 3].reserve(f"r{number}", "o", [line], 1, now=1.0, until=99.0, cap=False)
        if isinstance(found, list):
            stores[number % 3].settle([Settlement(f"r{number}", (line,), 1)], 1.0)
        return isinstance(found, list)

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(ask, range(100))) == 50
    (spent,) = stores[0].read([line])
    assert (spent.micros, spent.reserved) == (50, 0)
    for one in gateways:
        one.close()


def test_no_order_of_events_over_three_gateways_passes_a_budget_or_leaks_a_reservation(
    postgres: Engine, database: Database
) -> None:
    gateways = [Database(postgres.url) for _ in range(3)]

    class Gateways(test_budgets.Processes):
        def open_stores(self) -> list[BudgetStore]:
            database.run(empty)
            return [PostgresBudgets(one) for one in gateways]

        def teardown(self) -> None:
            pass

    run_state_machine_as_test(Gateways, settings=settings(max_examples=8, stateful_step_count=20, deadline=None))
    for one in gateways:
        one.close()


def test_gateways_that_settle_many_accounts_at_once_do_not_stop_each_other(
    postgres: Engine, database: Database
) -> None:
    gateways = [Database(postgres.url) for _ in range(3)]
    lines = [Line(f"key:{number}", 0, 10**9) for number in range(8)]

    def settle(number: int) -> None:
        """Each one in an order of its own."""
        mine = random.Random(number).sample(lines, len(lines))  # noqa: S311
        batch = [Settlement(f"{number}-{line.account}", (line,), 1) for line in mine]
        PostgresBudgets(gateways[number % 3]).settle(batch, 1.0)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(settle, range(30)))
    assert [spent.micros for spent in PostgresBudgets(database).read(lines)] == [30] * 8
    for one in gateways:
        one.close()


def test_a_request_that_has_ended_reserves_nothing_any_more(database: Database) -> None:
    line, store = Line("key:a", 0, 50), PostgresBudgets(database)
    store.settle([Settlement("1", (line,), 0)], 1.0)
    assert isinstance(store.reserve("1", "o", [line], 5, now=1.0, until=9.0, cap=True), list)
    assert store.read([line])[0].reserved == 0


def test_the_ledger_says_by_day_and_takes_odd_text(database: Database) -> None:
    ledger = PostgresLedger(database)
    ledger.add([replace(test_ledger.ROW, id="a", asked="m\x00\ud800"), replace(test_ledger.ROW, id="b")])
    (line,) = ledger.sum(["day"], 0, 2e9, {})
    assert (line.requests, len(str(line.by["day"]))) == (2, 10)
    assert [one.asked for one in ledger.page(0, 2e9, {}, "", 10).rows if one.id == "a"] == ["m?"]


# ---------------------------------------------------------------- keys


def key_store(url: str, folder: Path) -> PostgresKeyStore:
    return PostgresKeyStore(Database(url, answer_s=0.5), "postgresql://test", folder)


def test_keys_made_at_once_are_all_kept_and_revoked_ones_stay_so(
    postgres: Engine, database: Database, tmp_path: Path
) -> None:
    stores = [key_store(postgres.url, tmp_path / str(number)) for number in range(3)]
    with ThreadPoolExecutor(12) as pool:
        keys = list(pool.map(lambda number: stores[number % 3].new(f"k{number}"), range(12)))
    reading = ClientKeys(stores[0], clock=lambda: 0.0)
    assert all(reading.check(key) for key in keys)
    key_id, before = keys[0].split("-")[1], stores[0].stamp()
    assert stores[1].revoke(key_id, who="ada")
    assert not stores[2].revoke(key_id)
    wait_until(lambda: stores[0].stamp() != before, "the message of PostgreSQL")
    reading._read()
    assert reading.check(keys[0]) is None
    stores[1].set_team("web", GrantChange(rpm=5))
    assert stores[1].edit(keys[1].split("-")[1], KeyChange(team="web"))
    table = stores[2].read()
    assert table is not None
    assert table.teams == {"web": Grant(rpm=5)}
    acts = [(row.who, row.what) for row in stores[0].read_audit()]
    assert ("ada", "key revoke") in acts
    assert len(acts) == 15
    for store in stores:
        store._database.close()


def test_the_audit_log_is_only_added_to(database: Database) -> None:
    async def change(connection: PgConnection) -> None:
        await connection.execute("delete from dragoman.audit")

    with pytest.raises(OSError, match="only added to"):
        database.run(change)


def test_keys_hold_while_postgres_is_away_and_after_a_restart(
    postgres: Engine, database: Database, tmp_path: Path
) -> None:
    with TcpProxy(postgres.port) as proxy:
        keep_and_restart(proxy, postgres.url.replace(str(postgres.port), str(proxy.port)), tmp_path)


def keep_and_restart(proxy: TcpProxy, url: str, tmp_path: Path) -> None:
    store = key_store(url, tmp_path)
    good, bad = store.new("good"), store.new("bad")
    assert store.revoke(bad.split("-")[1])
    now = [0.0]
    keys = ClientKeys(store, clock=lambda: now[0])
    proxy.cut()
    wait_until(lambda: store._database.away, "the store to see it")
    now[0] += 2.0
    assert keys.check(good)
    assert keys.away
    assert keys.check(bad) is None
    with pytest.raises(ConfigError):
        store.new("more")
    second, third = key_store(url, tmp_path), key_store(url, tmp_path / "elsewhere")
    later = ClientKeys(second, clock=lambda: 0.0)
    assert later.check(good), "a process that starts now reads the copy"
    assert later.check(bad) is None
    with pytest.raises(ConfigError, match="no copy"):
        third.read()
    proxy.mend()

    def heard() -> bool:
        now[0] += 2.0
        return bool(keys.check(good)) and not keys.away

    wait_until(heard, "the store to be read again")
    for one in (store, second, third):
        one._database.close()


def test_a_key_made_by_the_command_opens_every_gateway(postgres: Engine, database: Database, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"demo": True, "database": postgres.url}))
    made = subprocess.run(
        [*COMMAND, "keys", "new", "--name", "ada"], cwd=folders[0], env=environment(folders[0]), capture_output=True,
        text=True, timeout=NEVER_S,
    )  # fmt: skip
    key = made.stdout.strip()
    assert key.startswith("dk-"), made.stderr
    body = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    with serving(folders[0]) as one, serving(folders[1], "--workers", "2") as two:
        for running in (one, two):
            assert post(running.url, "/v1/chat/completions", body).status == 401
            got = post(running.url, "/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
            assert got.status == 200
        ledger = PostgresLedger(database)
        wait_until(lambda: len(ledger.page(0, time.time() + 60, {"key": "ada"}, "", 10).rows) == 2, "both rows")
