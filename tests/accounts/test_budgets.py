"""Budgets: never passed, never leaked, over interleaved processes."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dragoman.accounts.budgets import BudgetStore, Line, Refused, Settlement, SqliteBudgets

FORK = multiprocessing.get_context("fork")
WAIT_S = 30.0
MEMORY = "/dev/shm"  # noqa: S108  # no disk to wait for
LIMIT = 50
LEASE_S = 60.0


def take(store: SqliteBudgets, request: str, estimate: int, *, line: Line, cap: bool = True, now: float = 0.0) -> bool:
    found = store.reserve(request, "me", [line], estimate, now=now, until=now + LEASE_S, cap=cap)
    return not isinstance(found, Refused)


def test_exactly_fifty_of_a_hundred_pass_over_four_processes(tmp_path: Path) -> None:
    line, gate, results = Line("key:a", 0, LIMIT), FORK.Barrier(4), FORK.SimpleQueue()

    def work(number: int) -> None:
        store = SqliteBudgets(tmp_path / "budgets.db")
        gate.wait(WAIT_S)
        mine = [f"{number}-{i}" for i in range(25)]
        passed = [request for request in mine if take(store, request, 1, line=line)]
        store.settle([Settlement(request, (line,), 1) for request in passed], 0.0)
        results.put(len(passed))

    children = [FORK.Process(target=work, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    counts = [results.get() for _ in children]
    for child in children:
        child.join(WAIT_S)
    (spent,) = SqliteBudgets(tmp_path / "budgets.db").read([line])
    assert sum(counts) == LIMIT
    assert (spent.micros, spent.reserved) == (LIMIT, 0)


@pytest.fixture
def store(tmp_path: Path) -> SqliteBudgets:
    return SqliteBudgets(tmp_path / "budgets.db")


def test_a_high_estimate_reserves_what_is_left(store: SqliteBudgets) -> None:
    line = Line("key:a", 0, LIMIT)
    assert take(store, "1", 1000, line=line)
    assert not take(store, "2", 1, line=line)
    store.settle([Settlement("1", (line,), 3)], 0.0)
    assert store.read([line])[0].left == LIMIT - 3


def test_a_strict_policy_refuses_a_high_estimate(store: SqliteBudgets) -> None:
    assert not take(store, "1", LIMIT + 1, line=Line("key:a", 0, LIMIT), cap=False)


def test_a_team_that_has_spent_its_budget_stops_its_keys_and_holds_nothing(store: SqliteBudgets) -> None:
    key, team = Line("key:a", 0, LIMIT), Line("team:t", 0, 5)
    store.settle([Settlement("0", (team,), 5)], 0.0)
    found = store.reserve("1", "me", [key, team], 1, now=0.0, until=60.0, cap=True)
    assert isinstance(found, Refused)
    assert found.spent.account == "team:t"
    assert store.read([key])[0].reserved == 0


def test_what_a_dead_process_had_reserved_comes_back_with_the_end_of_its_lease(store: SqliteBudgets) -> None:
    line = Line("key:a", 0, LIMIT)
    assert take(store, "dead", LIMIT, line=line)
    assert not take(store, "2", 1, line=line, now=LEASE_S)
    assert take(store, "3", 1, line=line, now=LEASE_S + 1)


def test_a_reservation_of_the_last_period_does_not_change_this_one(store: SqliteBudgets) -> None:
    old, new = Line("key:a", 0, LIMIT), Line("key:a", 100, LIMIT)
    assert take(store, "1", 20, line=old)
    assert store.read([new])[0].left == LIMIT
    store.settle([Settlement("1", (old,), 20)], 100.0)
    assert store.read([new])[0].left == LIMIT
    assert store.read([old])[0].micros == 20


def test_a_journal_that_is_replayed_settles_once_even_after_the_lease(store: SqliteBudgets) -> None:
    line = Line("key:a", 0, LIMIT)
    assert take(store, "1", 10, line=line)
    store.expire(1000.0)
    for _ in range(3):
        store.settle([Settlement("1", (line,), 7)], 1000.0)
    assert (store.read([line])[0].micros, store.read([line])[0].reserved) == (7, 0)


def test_a_threshold_is_reported_once_in_a_period(store: SqliteBudgets) -> None:
    line = Line("key:a", 0, 100, 80)
    told = [store.settle([Settlement(str(i), (line,), 30)], 0.0) for i in range(5)]
    assert [[one.percent for one in step] for step in told] == [[], [], [80], [100], []]


class Processes(RuleBasedStateMachine):
    """Three processes with one store: they ask, settle, die and outlive their leases, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = self.open_stores()
        self.now, self.number, self.period = 0.0, 0, 0
        self.open: dict[str, tuple[Line, int, float]] = {}  # reserved, by request
        self.spent: dict[int, int] = {}
        self.over: dict[int, int] = {}  # what requests cost more than they had reserved

    def open_stores(self) -> list[BudgetStore]:
        self.folder = TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None)
        return [SqliteBudgets(Path(self.folder.name) / "budgets.db") for _ in range(3)]

    def line(self) -> Line:
        return Line("key:a", self.period, LIMIT)

    def alive(self) -> list[str]:
        return sorted(name for name in self.open if not name.startswith("dead-"))

    @rule(process=st.integers(0, 2), estimate=st.integers(1, 30), cap=st.booleans())
    def ask(self, process: int, estimate: int, cap: bool) -> None:
        self.number += 1
        request, line = str(self.number), self.line()
        before = self.stores[process].read([line])[0]
        found = self.stores[process].reserve(
            request, str(process), [line], estimate, now=self.now, until=self.now + LEASE_S, cap=cap
        )
        if not isinstance(found, Refused):
            held = min(estimate, found[0].left) if cap else estimate
            assert found[0].left >= before.left
            self.open[request] = (line, held, self.now + LEASE_S)

    @rule(data=st.data(), process=st.integers(0, 2), part=st.integers(0, 150))
    def settle(self, data: st.DataObject, process: int, part: int) -> None:
        if alive := self.alive():
            request = data.draw(st.sampled_from(alive))
            line, held, until = self.open.pop(request)
            cost = held * part // 100
            self.stores[process].settle([Settlement(request, (line,), cost)] * 2, self.now)
            self.spent[line.period] = self.spent.get(line.period, 0) + cost
            # after the end of its lease, all of it is more than it had reserved
            more = cost if until < self.now else max(cost - held, 0)
            self.over[line.period] = self.over.get(line.period, 0) + more

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """The process of a request is gone: it never settles."""
        if alive := self.alive():
            request = data.draw(st.sampled_from(alive))
            line, held, until = self.open.pop(request)
            self.open[f"dead-{request}"] = (line, held, until)

    @rule(process=st.integers(0, 2))
    def renew(self, process: int) -> None:
        """Requests that run keep what they have reserved, if their lease has not ended yet."""
        self.pass_time(40.0)
        self.stores[process].renew(self.alive(), self.now + LEASE_S)
        for name in self.alive():
            line, held, until = self.open[name]
            self.open[name] = (line, held, self.now + LEASE_S if until >= self.now else until)
        self.pass_time(40.0)

    @rule(seconds=st.sampled_from([1.0, 40.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.stores[0].expire(self.now)
        dead = [name for name, (_, _, until) in self.open.items() if name.startswith("dead-") and until < self.now]
        for name in dead:
            del self.open[name]

    @rule()
    def begin_a_period(self) -> None:
        self.period += 1

    @invariant()
    def spend_stays_in_the_budget_and_nothing_leaks(self) -> None:
        for period in range(self.period + 1):
            (found,) = self.stores[1].read([Line("key:a", period, LIMIT)])
            assert found.micros == self.spent.get(period, 0)
            assert found.micros <= LIMIT + self.over.get(period, 0)
            held = [held for line, held, until in self.open.values() if line.period == period and until >= self.now]
            assert found.reserved == sum(held)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()


def test_no_order_of_events_passes_a_budget_or_leaks_a_reservation() -> None:
    run_state_machine_as_test(Processes, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))


def test_threads_share_a_store_without_a_fault(tmp_path: Path) -> None:
    """Requests reserve, settle and read at once; each transaction waits for the one before it."""
    store, line = SqliteBudgets(tmp_path / "budgets.db"), Line("key:a", 0, 10**9, 80)

    def work(number: int) -> None:
        store.reserve(f"r{number}", "o", [line], 10, now=1.0, until=100.0, cap=True)
        store.settle([Settlement(f"r{number}", (line,), 1)], 2.0)
        store.read([line])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert store.read([line])[0].micros == 200
