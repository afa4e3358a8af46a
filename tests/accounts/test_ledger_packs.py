"""Rows that SQLite keeps in packs answer every question as single rows do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.accounts import ledger as module
from dragoman.accounts.budgets import Line
from dragoman.accounts.ledger import DETAILS, SUMMED, AttemptRow, LedgerRow, SqliteLedger, write_line

NEVER = 10**9
WORDS = ("", "a", "b", 'é"\\\n\u2028', "=1")
counts = st.none() | st.integers(0, 2**40)


@st.composite
def batches(draw: st.DrawFn) -> list[LedgerRow]:
    """Rows of a few ids, so that the same ones come again."""
    rows = []
    for number in draw(st.lists(st.integers(0, 11), max_size=12)):
        word = st.sampled_from(WORDS)
        tries = draw(st.sampled_from([(), (), (AttemptRow("x", "m", 429, "rate_limited", 3),)]))
        row = LedgerRow(
            f"id{number:02}", 3600.0 * (number // 3) + number % 3, draw(word), "k", draw(word), draw(word),
            draw(word), "chat", draw(word), "up", draw(word), draw(counts), None, 7, draw(counts), 1,
            draw(counts), draw(word), draw(st.sampled_from([0, 200, 429])), "", draw(counts), draw(st.integers(0, 99)),
            len(tries) or number % 2, 0, 2, 0, draw(st.booleans()), draw(st.sampled_from(["", "", "body"])), tries,
            (Line("key:a", 0, 5),), draw(counts),
        )  # fmt: skip
        rows.append(row)
    return rows


@contextmanager
def packs_from(few: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        patch.setattr(module, "MOST_IN_PACK", 4)
        patch.setattr(module, "_FORGET_PACKS", 2)
        yield


WHERE: tuple[dict[str, str], ...] = (
    *({}, {"key": "a"}, {"key": ""}, {"tags": WORDS[3], "team": "b"}, {"client": "nothing of the kind"}),
    *({"status": "429"}, {"status": "200.0", "key": "b"}, {"status": "x"}, {"estimated": "1"}, {"cost": "0"}),
    *({"at": "3600.0"}, {"id": "id07"}, {"bodies": "body"}),
)


def ask_all(ledger: SqliteLedger) -> list[object]:
    """All pages and reports, for some choices of rows."""
    found: list[object] = []
    for where, (since, until), most in product(WHERE, ((0.0, 1e6), (3601.0, 7202.0)), (3, 100)):
        cursor = ""
        while True:
            page = ledger.page(since, until, where, cursor, most)
            found.append(page)
            cursor = page.cursor
            if not cursor:
                break
    for by, where in product(
        [(), *((word,) for word in (*SUMMED, *DETAILS)), ("day", "client"), ("hour", "tags", "key")], WHERE
    ):
        if set(where) <= {*SUMMED, *DETAILS}:
            found += [ledger.sum(by, 0.0, 1e6, where), ledger.sum(by, 1.0, 3601.0, where)]
    return found


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "add", "new", "forget"]), batches(), st.sampled_from([0, 3, NEVER])),
        max_size=6,
    )
)
def test_packs_are_the_same_as_rows(steps: Sequence[tuple[str, list[LedgerRow], int]]) -> None:
    with TemporaryDirectory() as folder:
        packed, single = SqliteLedger(Path(folder) / "packed.db"), SqliteLedger(Path(folder) / "single.db")
        seen: set[str] = set()
        for kind, rows, few in steps:
            for ledger, least in ((packed, few), (single, NEVER)):
                with packs_from(least):
                    if kind == "forget":
                        before = rows[0].at if rows else 0.0
                        ledger.forget(before)
                    elif kind == "new":
                        fresh = [row for row in {row.id: row for row in rows}.values() if row.id not in seen]
                        ledger.add(fresh, [write_line(row) for row in fresh])
                    else:
                        ledger.add(rows)
            if kind != "forget":
                seen |= {row.id for row in rows}
        assert ask_all(packed) == ask_all(single)
        packed.close()
        single.close()


def test_rows_of_an_older_version_are_not_counted_again(tmp_path: Path) -> None:
    """An older gateway wrote each row by itself, and was killed before its journal was deleted."""
    ledger, rows = SqliteLedger(tmp_path / "ledger.db"), [LedgerRow(id=str(n), at=float(n), key="a") for n in range(50)]
    with packs_from(NEVER):
        ledger.add(rows[:30])
    ledger.add(rows)
    ledger.add(rows)
    assert ledger.sum(["key"], 0, 99, {})[0].requests == 50
    assert [row.id for row in ledger.page(0, 99, {}, "", 100).rows] == [str(n) for n in reversed(range(50))]


def test_a_pack_is_divided_when_only_some_of_its_rows_are_old(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.add([LedgerRow(id=f"{n:02}", at=float(n)) for n in range(50)])
    assert ledger.forget(20.0) == 20
    assert ledger.forget(20.0) == 0
    assert [row.at for row in ledger.page(0, 99, {}, "", 100).rows] == [float(n) for n in reversed(range(20, 50))]
    assert ledger.sum([], 0, 99, {})[0].requests == 50
