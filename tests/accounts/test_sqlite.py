"""Several threads and processes at one SQLite file."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.accounts.budgets import Line, SqliteBudgets
from dragoman.accounts.ledger import LedgerRow, SqliteLedger
from dragoman.gateway.stores.responses import SqliteResponseStore

ROW = LedgerRow(id="a", at=1.0)
LINE = Line("key:a", 0, 100)
OPENERS: dict[str, Callable[[Path], object]] = {
    "budgets": lambda path: SqliteBudgets(path).read([LINE]),
    "ledger": lambda path: SqliteLedger(path).add([ROW]),
    "report": lambda path: SqliteLedger(path).page(0, 2, {}, "", 1),
    "responses": lambda path: SqliteResponseStore(path, 10).get("", "x"),
}


@pytest.mark.parametrize("name", OPENERS)
def test_of_two_that_open_a_new_file_the_second_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It got "database is locked" at once, and a key with a budget a 503."""
    path = tmp_path / "state.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("create table first (x)")
    other.execute("begin immediate")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.rollback()

    monkeypatch.setattr("dragoman.accounts.sqlite.time.sleep", wait)
    OPENERS[name](path)
    other.close()
    assert len(waits) == 3


def test_a_lock_that_stays_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("create table first (x)")
    other.execute("begin immediate")
    monkeypatch.setattr("dragoman.accounts.budgets.BUSY_S", 0.0)
    with pytest.raises(OSError, match="locked"):
        SqliteBudgets(path).read([LINE])
    other.close()


def test_threads_write_and_read_one_ledger(tmp_path: Path) -> None:
    """They shared one connection: "cannot start a transaction within a transaction"."""
    ledger, errors = SqliteLedger(tmp_path / "ledger.db"), []

    def work(number: int) -> None:
        try:
            for i in range(40):
                ledger.add([LedgerRow(id=f"{number}-{i}", at=1.0)])
                ledger.sum(["key"], 0, 2, {})
        except OSError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ledger.sum([], 0, 2, {})[0].requests == 160
    ledger.close()


def test_a_long_report_sees_one_moment_and_holds_up_no_writer(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.add([ROW])
    with ledger._report() as report:
        assert report.execute("select count(*) from requests").fetchone() == (1,)
        ledger.add([LedgerRow(id="b", at=1.0)])
        assert report.execute("select count(*) from requests").fetchone() == (1,)
    assert ledger.sum([], 0, 2, {})[0].requests == 2
    ledger.close()
