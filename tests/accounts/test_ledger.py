"""The ledger: rows survive `kill -9`, count once, and add up."""

import asyncio
import csv
import io
import json
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from dragoman.accounts import bookkeeper, usage
from dragoman.accounts.bookkeeper import Bookkeeper
from dragoman.accounts.budgets import Line, Refused, SqliteBudgets
from dragoman.accounts.journal import Journal, read_rows
from dragoman.accounts.ledger import COLUMNS, AttemptRow, LedgerRow, SqliteLedger
from dragoman.accounts.money import read_micros
from tests.real.llama import UnavailableError, find_environment
from tests.waiting import NEVER_S, wait_until

FORK = multiprocessing.get_context("fork")
NOON = 1_794_830_400.0
ROW = LedgerRow(
    id="a", at=NOON, key="ada", team="web", upstream="openai", model="gpt-5", status=200, cost=5, currency="USD"
)


def rows(count: int, **more: object) -> list[LedgerRow]:
    base = {name: getattr(ROW, name) for name in ROW.__struct_fields__} | more
    return [LedgerRow(**{**base, "id": f"{base['id']}{i}"}) for i in range(count)]


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    return SqliteLedger(tmp_path / "ledger.db")


@pytest.mark.parametrize("known", [0, 1, 30, 60])
def test_large_batches_count_once_too(known: int, ledger: SqliteLedger) -> None:
    ledger.add(rows(known))
    ledger.add(rows(77))
    (sums,) = ledger.sum(["team"], NOON - 60, NOON + 60, {})
    assert (sums.requests, sums.cost) == (77, 77 * 5)
    assert len(ledger.page(0, NOON + 60, {}, "", 100).rows) == 77


def make_books(folder: Path, ledger: SqliteLedger | None) -> Bookkeeper:
    stores = [SqliteBudgets(folder / "budgets.db") for _ in range(2)]
    return Bookkeeper(Journal(folder / "journal"), ledger, *stores)


def test_a_row_that_no_store_can_hold_stops_no_other(tmp_path: Path, ledger: SqliteLedger) -> None:
    """A gigantic count of one provider kept all rows and budgets of all keys waiting, for ever."""
    books, line = make_books(tmp_path, ledger), Line("key:a", 0, 100, 80)
    first, bad, last = rows(3, charged=(line,), cost=7)
    for row in (first, msgspec.structs.replace(bad, cost=10**20, input=10**20), last):
        books.record(row)
    books.close()
    assert {row.id for row in SqliteLedger(tmp_path / "ledger.db").page(0, 1e11, {}, "", 9).rows} == {first.id, last.id}
    assert SqliteBudgets(tmp_path / "budgets.db").read([line])[0].micros == 14


def test_a_request_waits_for_what_one_of_another_worker_has_just_held(
    tmp_path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asked one after the other was refused by every other worker: "running requests hold the rest"."""
    monkeypatch.setattr(bookkeeper, "SETTLE_WAITS", (1,) * 200)  # a busy machine settles late
    here, there = make_books(tmp_path, ledger), make_books(tmp_path, SqliteLedger(tmp_path / "ledger.db"))
    line = Line("key:a", 0, 10, 80)

    async def ask_in_turn() -> list[object]:
        found: list[object] = []
        for i, row in enumerate(rows(5, charged=(line,), cost=1)):
            books = (here, there)[i % 2]
            found.append(await books.reserve(row.id, [line], 10, cap=True))
            books.record(row)
        return found

    assert not [one for one in asyncio.run(ask_in_turn()) if isinstance(one, Refused)]
    here.close()
    there.close()


def test_a_row_counts_once_however_often_it_is_added(ledger: SqliteLedger) -> None:
    for _ in range(3):
        ledger.add(rows(2, input=10))
    (sums,) = ledger.sum(["team", "day"], NOON - 60, NOON + 60, {})
    assert sums.by == {"team": "web", "day": "2026-11-16"}
    assert (sums.requests, sums.cost, sums.input, sums.unpriced) == (2, 10, 20, 0)


def test_a_cost_that_is_unknown_is_counted_and_not_added(ledger: SqliteLedger) -> None:
    ledger.add([*rows(1), *rows(2, id="b", cost=None, currency="")])
    report = usage.make_report(ledger, ["team"], NOON - 60, NOON + 60)
    (line,) = report
    assert (line.sums.requests, line.sums.unpriced, line.sums.cost) == (3, 2, 5)


def test_a_cost_that_is_unknown_is_no_number_in_a_spreadsheet(ledger: SqliteLedger) -> None:
    ledger.add([*rows(1, cost=0), *rows(2, id="b", team="shop", cost=None, currency="")])
    report = usage.make_report(ledger, ["team"], NOON - 60, NOON + 60)
    lines = {row["team"]: row for row in csv.DictReader(io.StringIO(usage.write_csv(report, ["team"])))}
    assert (lines["web"]["cost"], lines["shop"]["cost"], lines["shop"]["unpriced"]) == ("0.000000", "", "2")


def test_a_report_until_a_day_has_nothing_of_that_day(ledger: SqliteLedger) -> None:
    """The first hour of a month was counted in the month before, too."""
    midnight = NOON + 12 * 3600
    ledger.add([*rows(1, at=midnight - 1), *rows(2, id="b", at=midnight), *rows(4, id="c", at=midnight + 1800)])
    for by in ("key", "client"):  # of the sums by the hour, and of the single rows
        (before,) = ledger.sum([by], NOON, midnight, {})
        (after,) = ledger.sum([by], midnight, midnight + 3600, {})
        assert (before.requests, after.requests) == (1, 6)
    assert [row.at for row in ledger.page(NOON, midnight, {}, "", 100).rows] == [midnight - 1]


def test_sums_stay_when_single_rows_are_forgotten(ledger: SqliteLedger) -> None:
    ledger.add(rows(3, attempts=(AttemptRow("openai", "gpt-5", 200, None, 0),)))
    assert ledger.forget(NOON + 1) == 3
    assert ledger.page(0, NOON + 60, {}, "", 10).rows == ()
    assert ledger.sum(["key"], NOON, NOON + 1, {})[0].requests == 3


def test_pages_hold_every_row_once(ledger: SqliteLedger) -> None:
    ledger.add([*rows(5, attempts=(AttemptRow("x", "m", 429, "rate_limited", 3),)), *rows(5, id="b", at=NOON + 1)])
    found: list[LedgerRow] = []
    cursor = ""
    while True:
        page = ledger.page(0, NOON + 60, {}, cursor, 3)
        found += page.rows
        cursor = page.cursor
        if not cursor:
            break
    assert len({row.id for row in found}) == len(found) == 10
    assert found[-1].attempts[0].failure == "rate_limited"
    assert [row.at for row in found] == sorted((row.at for row in found), reverse=True)


@pytest.mark.parametrize("word", ["nonsense", "id; drop table requests"])
def test_a_name_that_is_none_is_refused(ledger: SqliteLedger, word: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        ledger.sum([word], 0, 1, {})
    with pytest.raises(ValueError, match="expected"):
        ledger.page(0, 1, {word: "x"}, "", 1)


def test_rows_of_a_killed_process_are_taken_over_once_and_its_budgets_settled(
    tmp_path: Path, ledger: SqliteLedger
) -> None:
    line = Line("key:a", 0, 1000)
    reading, writing = os.pipe()

    def work() -> None:
        books = make_books(tmp_path, SqliteLedger(tmp_path / "away" / "never.db"))
        books._start = lambda: None  # type: ignore[method-assign]  # it dies before its first batch
        for row in rows(20, charged=(line,)):
            asyncio.run(books.reserve(row.id, [line], 9, cap=True))
            books.record(row)
        os.write(writing, b"x")
        signal.pause()

    child = FORK.Process(target=work)
    child.start()
    os.read(reading, 1)
    assert child.pid is not None
    live = make_books(tmp_path, ledger)
    live._take_over()
    assert ledger.page(0, NOON + 60, {}, "", 100).rows == (), "its process lives"
    os.kill(child.pid, signal.SIGKILL)
    child.join(NEVER_S)
    for path in (tmp_path / "journal").iterdir():
        with path.open("ab") as file:
            file.write(b'{"id": "torn')
    for _ in range(2):
        live._take_over()
    assert len(ledger.page(0, NOON + 60, {}, "", 100).rows) == 20
    assert list((tmp_path / "journal").iterdir()) == []
    (spent,) = SqliteBudgets(tmp_path / "budgets.db").read([line])
    assert (spent.micros, spent.reserved) == (100, 0)
    live.close()


@pytest.mark.parametrize("moment", ["not yet", "away", "broken"])
def test_a_row_leaves_the_journal_only_when_its_budget_is_settled(
    tmp_path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """After `kill -9` only the journal knows what a request has cost."""
    line = Line("key:a", 0, 1000)
    killed, after = make_books(tmp_path, ledger), SqliteLedger(tmp_path / "ledger.db")
    killed._start = lambda: None  # type: ignore[method-assign]  # the steps of its thread, one by one
    killed._attempt(killed._settle)
    for row in rows(3, charged=(line,)):
        killed.record(row)
    if moment != "not yet":
        error = OSError("away") if moment == "away" else TypeError("a fault of ours")
        monkeypatch.setattr(killed._settling, "settle", raises(error))
    killed._attempt(killed._write)
    for segment in (*killed._journal.waiting, *([killed._journal._now] if killed._journal._now else [])):
        segment.close()  # as the end of the process does
    again = make_books(tmp_path, after)
    again._take_over()
    (spent,) = SqliteBudgets(tmp_path / "budgets.db").read([line])
    assert spent.micros == sum(row.cost or 0 for row in after.page(0, NOON + 60, {}, "", 9).rows) == 15
    again.close()


def raises(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


def test_rows_wait_in_the_journal_while_the_database_is_away(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("no folder")
    books = make_books(tmp_path, SqliteLedger(tmp_path / "db" / "ledger.db"))
    for row in rows(3):
        books.record(row)
    wait_until(lambda: books.away, "a word that rows wait")
    assert books.waiting == 3
    books.close()
    kept = [row for path in (tmp_path / "journal").glob("*.jsonl") for row in read_rows(path)]
    assert len(kept) == 3
    healed = SqliteLedger(tmp_path / "ledger.db")
    again = make_books(tmp_path, healed)
    again.start()
    wait_until(lambda: not list((tmp_path / "journal").iterdir()), "the rows in the database")
    assert len(healed.page(0, NOON + 60, {}, "", 100).rows) == 3
    again.close()


def test_a_store_that_is_away_stays_so_while_there_is_nothing_to_write(
    tmp_path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health said "ok" for half a second: writing no rows had gone well."""
    books = make_books(tmp_path, ledger)

    def be_away(*_: object) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as away:
        away.setattr(books._settling, "expire", be_away)
        books._attempt(books._take_over)
        books._write()
        assert books.away == "the database is away"
    books._write()
    assert books.away == "", "it is back"
    books.close()


def test_a_disk_that_is_full_loses_no_row_of_a_living_process(
    tmp_path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = make_books(tmp_path, ledger)
    monkeypatch.setattr("dragoman.accounts.journal.os.write", lambda file, data: 3)
    for row in rows(3):
        books.record(row)
    assert books._journal.trouble == "the disk is full"
    books.close()
    assert len(SqliteLedger(tmp_path / "ledger.db").page(0, NOON + 60, {}, "", 100).rows) == 3


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_single_rows_are_exported(tmp_path: Path, ledger: SqliteLedger, name: str) -> None:
    ledger.add(rows(7))
    path = tmp_path / name
    assert usage.export(usage.all_rows(ledger, 0, NOON + 60, {"team": "web"}), path) == 7
    if name == "out.csv":
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
        assert {row["key"] for row in found} == {"ada"}
        assert {Decimal(row["cost"]) for row in found} == {Decimal(one.cost or 0) / 10**6 for one in rows(7)}
    else:
        assert len(read_rows(path)) == 7


def test_nothing_that_a_client_says_is_a_formula_in_a_spreadsheet(tmp_path: Path, ledger: SqliteLedger) -> None:
    said = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a=1"]
    ledger.add([rows(1, id=f"r{i}", tags=text, asked=text)[0] for i, text in enumerate(said)])
    usage.export(usage.all_rows(ledger, 0, NOON + 60, {}), tmp_path / "out.csv")
    report = usage.make_report(ledger, ["tags"], 0, NOON + 60, {})
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = [row[name] for row in csv.DictReader(file) for name in ("tags", "asked")]
    cells += [row["tags"] for row in csv.DictReader(usage.write_csv(report, ["tags"]).splitlines())]
    assert set(cells) == {f"'{text}" for text in said[:-1]} | {"a=1"}


def test_old_rows_are_deleted_by_the_bookkeeper_and_sums_stay(tmp_path: Path, ledger: SqliteLedger) -> None:
    day_s = 86_400.0
    ledger.add([*rows(3), *rows(2, id="b", at=NOON + 9 * day_s)])
    stores = [SqliteBudgets(tmp_path / "budgets.db") for _ in range(2)]
    books = Bookkeeper(
        Journal(tmp_path / "journal"), ledger, *stores, keep_days=5, wall=lambda: NOON + 10 * day_s
    )  # fmt: skip
    books.start()
    seen = SqliteLedger(tmp_path / "ledger.db", read_only=True)
    wait_until(lambda: len(seen.page(0, NOON + 20 * day_s, {}, "", 100).rows) == 2, "the old rows to be deleted")
    (sums,) = seen.sum(["team"], 0, NOON + 20 * day_s, {})
    assert sums.requests == 5
    books.close()


PARQUET = """
import json, sys
from pathlib import Path
from dragoman.accounts import bookkeeper, usage
from dragoman.accounts.ledger import SqliteLedger
import pyarrow.parquet

usage.PAGE = 3
ledger = SqliteLedger(Path(sys.argv[1]))
count = usage.export(usage.all_rows(ledger, 0, float(sys.argv[3]), {}), Path(sys.argv[2]))
table = pyarrow.parquet.read_table(sys.argv[2])
print(json.dumps([count, {one.name: str(one.type) for one in table.schema}, table.to_pylist()], default=str))
"""


def test_single_rows_are_exported_to_parquet(tmp_path: Path, ledger: SqliteLedger) -> None:
    """As pyarrow reads them: every row, and each column in its type."""
    root = Path(__file__).parents[2]
    try:
        python = find_environment(root / "requirements" / "parquet.txt", "pyarrow")
    except UnavailableError as error:
        pytest.skip(str(error))
    added = [*rows(7), LedgerRow(id="odd", at=NOON, key="é\n", cost=None, first_ms=None, estimated=True)]
    ledger.add(added)
    paths = os.pathsep.join([str(root / "src"), str(Path(msgspec.__file__).parents[1])])
    done = subprocess.run(
        [python, "-c", PARQUET, tmp_path / "ledger.db", tmp_path / "out.parquet", str(NOON + 60)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=NEVER_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, types, found = json.loads(done.stdout)
    assert count == len(found) == 8
    assert (types["at"], types["cost"], types["estimated"], types["key"]) == (
        "double",
        "decimal128(24, 6)",
        "bool",
        "string",
    )
    by_id = {row.id: row for row in added}
    for row in found:
        row["cost"] = None if row["cost"] is None else read_micros(row["cost"])  # in units, for spreadsheets
        assert row == {name: getattr(by_id[row["id"]], name) for name in COLUMNS}


def test_a_chart_shows_when_requests_came() -> None:
    assert usage.draw((0, 1, 4, 8)) == " ▁▄█"
    assert usage.draw(()) == ""
