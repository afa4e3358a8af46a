"""Three gateways with a part of a budget in hand: in any order of events nothing is overspent, and nothing leaks."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dragoman.accounts import standby as in_advance
from dragoman.accounts.budgets import Line, Refused, Settlement, SqliteBudgets
from dragoman.accounts.standby import InHand, Standby
from tests.accounts.test_budgets import MEMORY

LIMIT, LEASE_S = 100, 60.0
PART = 5  # a fifth of the budget for each gateway, so that they soon meet
LINE = Line("key:a", 0, LIMIT)
GATEWAYS = st.integers(0, 2)


class Far(SqliteBudgets):
    """As a server that one gateway cannot reach for a while."""

    away = False

    def _change(self):  # type: ignore[no-untyped-def]  # a context manager, as its parent's
        if self.away:
            raise OSError("away")
        return super()._change()


class Gateways(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None)
        path = Path(self.folder.name) / "budgets.db"
        self.judge = SqliteBudgets(path)
        self.stores = [Far(path) for _ in range(3)]
        self.now, self.number = 0.0, 0
        self.owners = ["", "", ""]
        self.standbys = [self.start(number) for number in range(3)]
        self.running: list[dict[str, tuple[int, InHand | float]]] = [{}, {}, {}]  # reserved, and in what or until when
        self.unsettled: list[list[Settlement]] = [[], [], []]
        self.spent = self.over = 0

    def start(self, number: int) -> Standby:
        self.number += 1
        self.owners[number] = f"{number}-{self.number}"
        standby = Standby(self.stores[number], self.owners[number], LEASE_S)
        standby.want([LINE], self.now)
        if not self.stores[number].away:
            standby.renew(self.now)
        return standby

    @rule(at=GATEWAYS, estimates=st.lists(st.integers(1, 30), min_size=1, max_size=8), cap=st.booleans())
    def ask(self, at: int, estimates: list[int], cap: bool) -> None:
        for estimate in estimates:
            self.ask_one(at, estimate, cap)

    def ask_one(self, at: int, estimate: int, cap: bool) -> None:
        """As the bookkeeper asks: from what is in hand, else at the store, else alone."""
        self.number += 1
        request, standby, owner = str(self.number), self.standbys[at], self.owners[at]
        standby.want([LINE], self.now)
        if standby.use(request, [LINE], estimate, self.now) is not None:
            self.note_in_hand(at, request)
            return
        until = self.now + LEASE_S
        try:
            found = self.stores[at].reserve(request, owner, [LINE], estimate, now=self.now, until=until, cap=cap)
        except OSError:
            if isinstance(standby.use_alone(request, [LINE], estimate, self.now, cap=cap), list):
                self.note_in_hand(at, request)
            return
        if isinstance(found, Refused):
            standby.note_refusal(found.spent)
        else:
            self.running[at][request] = (min(estimate, found[0].left) if cap else estimate, until)

    def note_in_hand(self, at: int, request: str) -> None:
        ((part, held),) = self.standbys[at]._used[request]
        assert part.until > self.now, "its lease has ended: another gateway may have this money now"
        self.running[at][request] = (held, part)

    @rule(data=st.data(), at=GATEWAYS, percent=st.integers(0, 150))
    def end(self, data: st.DataObject, at: int, percent: int) -> None:
        if self.running[at]:
            request = data.draw(st.sampled_from(sorted(self.running[at])))
            held, place = self.running[at].pop(request)
            cost = held * percent // 100
            until = self.end_of(place)
            self.over += cost if until < self.now or self.stores[at].away else max(cost - held, 0)
            self.unsettled[at].append(Settlement(request, (LINE,), cost))
            self.settle(at)

    @rule(at=GATEWAYS)
    def settle(self, at: int) -> None:
        """Settlements wait while the store is away. After their lease, all that they cost is more than was reserved."""
        batch = self.unsettled[at]
        if batch and not self.stores[at].away:
            self.stores[at].settle(batch, self.now)
            self.standbys[at].end(batch)
            self.spent += sum(one.micros for one in batch)
            self.unsettled[at] = []

    @rule(at=GATEWAYS)
    def renew(self, at: int) -> None:
        try:
            self.standbys[at].renew(self.now)
        except OSError:
            assert self.stores[at].away

    @rule(at=GATEWAYS)
    def lose_or_find_the_store(self, at: int) -> None:
        self.stores[at].away = not self.stores[at].away

    @rule(at=GATEWAYS)
    def die(self, at: int) -> None:
        """By `kill -9`: it gives nothing back. What had ended is in its journal, which another one settles."""
        self.judge.settle(self.unsettled[at], self.now)
        self.spent += sum(one.micros for one in self.unsettled[at])
        self.running[at], self.unsettled[at], self.standbys[at] = {}, [], self.start(at)

    @rule(seconds=st.sampled_from([1.0, 45.0]))
    def wait(self, seconds: float) -> None:
        """Late settlements may come after their leases: then others may have had the money."""
        self.now += seconds
        self.judge.expire(self.now)

    @invariant()
    def spend_stays_in_the_budget(self) -> None:
        """Also with what running requests may still spend, as long as their reservations last."""
        (found,) = self.judge.read([LINE])
        assert found.micros == self.spent
        held = sum(held for one in self.running for held, place in one.values() if self.end_of(place) >= self.now)
        assert found.micros + held <= LIMIT + self.over

    def end_of(self, place: InHand | float) -> float:
        return place.until if isinstance(place, InHand) else place

    def teardown(self) -> None:
        """When all requests have ended, gateways that live and close hold nothing, also without the end of a lease."""
        for at, standby in enumerate(self.standbys):
            self.stores[at].away = False
            self.unsettled[at] += [Settlement(request, (LINE,), 0) for request in self.running[at]]
            self.settle(at)
            standby.close(self.now)
        with closing(sqlite3.connect(Path(self.folder.name) / "budgets.db")) as db:
            owners = {owner for (owner,) in db.execute("select owner from reserved")}
        assert owners.isdisjoint(self.owners), "a reservation leaks"
        self.judge.expire(self.now + 2 * LEASE_S)
        assert self.judge.read([LINE])[0].reserved == 0, "a reservation of a dead gateway leaks"
        for store in (*self.stores, self.judge):
            store.close()
        self.folder.cleanup()


def test_no_order_of_events_overspends_a_budget_of_which_parts_are_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_advance, "PART", PART)
    run_state_machine_as_test(Gateways, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))
