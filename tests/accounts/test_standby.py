"""A part of a budget in hand, for the time when its store is away."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.accounts.bookkeeper import Bookkeeper
from dragoman.accounts.budgets import Line, Passed, Refused, Settlement, Spent, SqliteBudgets
from dragoman.accounts.journal import Journal
from dragoman.accounts.ledger import LedgerRow
from dragoman.accounts.standby import Standby
from tests.accounts.test_ledger import ROW
from tests.waiting import NEVER_S, wait_until

LINE, LEASE_S = Line("key:a", 0, 10_000), 60.0


class Far(SqliteBudgets):
    """As a server that can be away."""

    away = False
    hold = False

    async def ask(
        self, request: str, owner: str, lines: Sequence[Line], estimate: int, *, now: float, until: float, cap: bool
    ) -> list[Spent] | Refused:
        if self.away:
            raise OSError("away")
        while self.hold:
            await asyncio.sleep(0)
        return self.reserve(request, owner, lines, estimate, now=now, until=until, cap=cap)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Far]:
    store = Far(tmp_path / "budgets.db")
    yield store
    store.close()


def look(store: SqliteBudgets) -> tuple[int, int]:
    (spent,) = store.read([LINE])
    return spent.micros, spent.reserved


def make_standby(store: SqliteBudgets) -> Standby:
    standby = Standby(store, "me", LEASE_S)
    standby.want([LINE], 0.0)
    standby.renew(0.0)
    return standby


def test_a_hundredth_is_in_hand_and_what_is_used_of_it_is_reserved(store: Far) -> None:
    standby = make_standby(store)
    assert look(store) == (0, 100)
    assert isinstance(standby.use_alone("1", [LINE], 60, 1.0, cap=True), list)
    assert isinstance(standby.use_alone("2", [LINE], 60, 1.0, cap=True), list), "the rest of it"
    assert standby.use_alone("3", [LINE], 1, 1.0, cap=True) is None
    standby.end([Settlement("1", (LINE,), 10)])
    assert isinstance(standby.use_alone("4", [LINE], 50, 1.0, cap=False), list), "what a request did not cost"
    assert standby.use_alone("5", [LINE], 1, 1.0, cap=False) is None


def test_a_request_that_fits_the_reserve_does_not_ask_the_store_and_a_larger_one_does(store: Far) -> None:
    standby = make_standby(store)
    assert standby.use("1", [LINE], 60, 1.0) is not None
    assert standby.use("2", [LINE], 60, 1.0) is None
    standby.renew(3.0)
    assert look(store) == (0, 200), "it is used up by half, so there is another one"
    standby.end([Settlement("1", (LINE,), 60)])
    standby.renew(5.0)
    assert look(store) == (0, 100)


def test_it_ends_with_its_lease_and_is_given_back_at_the_end(store: Far) -> None:
    standby = make_standby(store)
    assert standby.use_alone("1", [LINE], 1, LEASE_S - 1.0, cap=True) is None, "clocks differ"
    standby.close(1.0)
    assert look(store) == (0, 0)


def test_one_whose_lease_ended_while_the_store_was_away_is_not_in_hand_any_more(store: Far) -> None:
    standby = make_standby(store)
    later = LEASE_S + 5.0
    store.expire(later)
    standby.want([LINE], later)
    standby.renew(later)
    assert look(store) == (0, 100), "a new one"
    assert isinstance(standby.use("1", [LINE], 100, later), list)


def test_the_last_fifth_of_a_budget_is_for_those_that_ask(store: Far) -> None:
    standby = make_standby(store)
    store.settle([Settlement("x", (LINE,), 8_000)], 1.0)
    standby.renew(3.0)
    assert look(store) == (8_000, 0)
    assert standby.use_alone("1", [LINE], 1, 3.0, cap=True) is None
    store.settle([Settlement("y", (LINE,), 2_000)], 3.0)
    standby.renew(5.0)
    found = standby.use_alone("1", [LINE], 1, 6.0, cap=True)
    assert isinstance(found, Refused), "what is spent is spent, also while it cannot be asked"


def test_a_part_that_is_used_stays_reserved_until_its_request_ends(store: Far) -> None:
    standby = make_standby(store)
    assert standby.use_alone("1", [LINE], 60, 1.0, cap=True)
    standby.renew(40.0)
    assert look(store) == (0, 200), "beside a new one, as more than half of it is used"
    store.settle([Settlement("1", (LINE,), 60)], 41.0)
    standby.end([Settlement("1", (LINE,), 60)])
    standby.renew(42.0)
    assert look(store) == (60, 100)
    standby.want([LINE], 42.0)
    standby.renew(200.0)
    assert look(store) == (60, 0), "a budget that is not used any more holds nothing"


def make_books(folder: Path, store: Far, *, standby: bool = True) -> Bookkeeper:
    journal, settling = Journal(folder / "journal"), Far(folder / "budgets.db")
    return Bookkeeper(journal, None, store, settling, remote=store, standby=standby, wall=lambda: 1.0)


def test_requests_go_on_while_the_store_is_away_and_are_settled_when_it_is_back(tmp_path: Path, store: Far) -> None:
    books = make_books(tmp_path, store)

    async def ask(request: str) -> list[Spent] | Refused:
        return await books.reserve(request, [LINE], 10, cap=True)

    assert isinstance(asyncio.run(ask("1")), list)
    wait_until(lambda: books.in_hand, "a part in hand")
    store.away = True
    assert isinstance(asyncio.run(ask("2")), list)
    for name in ("1", "2"):
        books.record(_row(name, 7))
    wait_until(lambda: look(store)[0] == 14, "both to be settled")
    books.close()
    assert look(store) == (14, 0)


def test_one_that_shall_refuse_refuses(tmp_path: Path, store: Far) -> None:
    books = make_books(tmp_path, store, standby=False)
    store.away = True
    with pytest.raises(OSError, match="away"):
        asyncio.run(books.reserve("1", [LINE], 10, cap=True))
    books.close()


def test_a_client_that_leaves_while_the_store_is_asked_leaves_no_reservation(tmp_path: Path, store: Far) -> None:
    books = make_books(tmp_path, store)

    async def leave() -> None:
        store.hold = True
        asked = asyncio.create_task(books.reserve("1", [LINE], 10, cap=True))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        store.hold = False
        while look(store)[1] == 0:
            await asyncio.sleep(0)
        books.record(_row("1", 0))

    asyncio.run(leave())
    wait_until(lambda: look(store) == (0, 0), "it to be given back")
    books.close()


def test_a_settlement_that_takes_long_does_not_let_the_leases_of_others_end(tmp_path: Path, store: Far) -> None:
    """On a machine with thirty busy processes, the lease of 20 s ended behind a slow database, and 51 requests passed a
    budget for 50."""
    slow, settles, renewed = threading.Event(), threading.Event(), threading.Event()

    class Slow(Far):
        def settle(self, settlements: Sequence[Settlement], now: float) -> list[Passed]:
            settles.set()
            assert slow.wait(NEVER_S)
            return super().settle(settlements, now)

        def renew(self, requests: Sequence[str], until: float) -> set[str]:
            kept = super().renew(requests, until)
            if "running" in kept:
                renewed.set()
            return kept

        def expire(self, now: float) -> int:
            return 0  # a busy machine may be late with the first renewal

    journal, settling = Journal(tmp_path / "journal"), Slow(tmp_path / "budgets.db")
    books = Bookkeeper(journal, None, store, settling, remote=store, standby=False, lease_s=1.0, wall=time.time)

    async def ask(*requests: str) -> None:
        for request in requests:
            assert isinstance(await books.reserve(request, [LINE], 10, cap=True), list)

    asyncio.run(ask("over", "running"))
    books.record(_row("over", 7))
    assert settles.wait(NEVER_S)
    renewed.clear()
    assert renewed.wait(NEVER_S), "while the settlement goes on"
    slow.set()
    books.record(_row("running", 7))
    books.close()
    assert look(store) == (14, 0)


def test_a_part_that_the_store_gave_to_others_is_not_renewed(store: Far) -> None:
    """Its renewal was on its way when its lease ended."""
    standby = make_standby(store)
    store.expire(LEASE_S + 1.0)
    standby.prolong(LEASE_S / 2)
    assert standby.use("1", [LINE], 10, LEASE_S + 1.0) is None


def test_a_part_that_the_store_does_not_know_any_more_is_not_used(store: Far) -> None:
    """The clock of another gateway is ahead, or the store has lost its memory: others may have this part."""
    standby = make_standby(store)
    store.expire(LEASE_S + 1.0)
    standby.prolong(LEASE_S / 2)
    assert standby.use("1", [LINE], 10, LEASE_S / 2) is None
    standby.renew(LEASE_S / 2 + 1.0)
    assert standby.use("1", [LINE], 10, LEASE_S / 2 + 1.0) is not None
    assert look(store) == (0, 100)


def _row(name: str, cost: int) -> LedgerRow:
    return replace(ROW, id=name, cost=cost, charged=(LINE,))
