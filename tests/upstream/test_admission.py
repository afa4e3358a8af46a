"""The window, the queue and the admission: event in, verdict out."""

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.upstream.admission import (
    MARGIN_S,
    TICK_S,
    Admission,
    AdmissionWaiter,
    FairQueue,
    LimitedQueue,
    ProcessLimits,
    Ticket,
    Window,
    put_in_row,
)


def test_a_window_refuses_what_would_exceed_it_and_says_how_long() -> None:
    window = Window(2)
    assert window.wait_s(0.0) == 0
    window.take(0.0)
    window.take(10.0)
    assert window.wait_s(10.0) == 50.0 + MARGIN_S
    assert window.wait_s(60.0 + MARGIN_S) == 0


def test_what_was_never_sent_is_given_back() -> None:
    window = Window(1)
    entry = window.take(0.0)
    assert window.wait_s(0.0) > 0
    window.change(entry, -1)
    assert window.wait_s(0.0) == 0
    assert window.used(0.0) == 0


def test_what_was_sent_late_counts_from_then() -> None:
    window = Window(1)
    entry = window.take(0.0)
    window.stamp(entry, 1, 5.0)
    assert window.wait_s(62.0) == pytest.approx(3.0 + MARGIN_S)


def test_an_old_entry_that_is_sent_late_or_never_is_found_among_many() -> None:
    window = Window(1000, span_s=60.0, margin_s=0.0)
    entries = [window.take(float(i)) for i in range(40)]
    window.stamp(entries[0], 1, 45.0)
    window.change(entries[1], -1)
    assert window.used(45.0) == 39
    assert window.used(61.9) == 39, "the entry at 2 is the oldest"
    assert window.used(104.9) == 1
    assert window.used(105.0) == 0


def test_tokens_are_settled_to_what_they_were() -> None:
    window = Window(1000)
    entry = window.take(0.0, 900)
    assert window.wait_s(1.0, 200) > 0
    window.change(entry, 100 - 900)
    assert window.wait_s(1.0, 200) == 0


def test_a_request_heavier_than_the_limit_goes_alone() -> None:
    window = Window(10)
    assert window.wait_s(0.0, 50) == 0
    window.take(0.0, 50)
    assert window.wait_s(1.0, 1) > 0


GAPS_S = st.sampled_from([0.0, 0.5, 3.0, 7.0, 29.0, 53.0]) | st.floats(0, 40)


@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.tuples(GAPS_S, st.integers(0, 4).map(lambda n: n == 4), st.floats(0, 1)), max_size=60),
)
def test_no_true_window_is_ever_exceeded(limit: int, steps: list[tuple[float, bool, float]]) -> None:
    window, now = Window(limit), 0.0
    sent: list[float] = []
    for gap, give_back, delay in steps:
        now += gap
        if window.wait_s(now) > 0:
            continue
        entry = window.take(now)
        if give_back:
            window.change(entry, -1)
            continue
        now += delay
        window.stamp(entry, 1, now)
        sent.append(now)
    recent: deque[float] = deque()
    for moment in sent:
        recent.append(moment)
        while recent[0] <= moment - 60:
            recent.popleft()
        assert len(recent) <= limit


@given(
    limit=st.integers(1, 30),
    steps=st.lists(st.tuples(st.floats(0, 0.02) | GAPS_S, st.integers(1, 9), st.floats(0, 1.5)), max_size=80),
)
def test_requests_of_one_moment_are_counted_together_and_no_window_is_exceeded(
    limit: int, steps: list[tuple[float, int, float]]
) -> None:
    """With weights that change afterwards, as tokens do. It is at most a hundredth of a second stricter."""
    window, now = Window(limit), 0.0
    sent: list[tuple[float, int]] = []
    for gap, weight, used in steps:
        now += gap
        weight = min(weight, limit)
        recent = sum(real for at, real in sent if at > now - 60)
        older = sum(real for at, real in sent if at > now - 60 - MARGIN_S - TICK_S)
        if not window.fits(now, weight):
            assert older + weight > limit
            continue
        assert recent + weight <= limit
        tick = window.take(now, weight)
        real = min(round(weight * used), weight)
        window.change(tick, real - weight)
        sent.append((now, real))
    assert len(window._ticks) <= len(sent)


def test_a_busy_minute_needs_little_memory() -> None:
    window = Window(10**9)
    for number in range(20_000):
        window.take(number * 0.0001)
    assert len(window._ticks) <= 2.0 / TICK_S + 1


def make_queues(limits: ProcessLimits, grants: list[dict[str, int]]) -> list[LimitedQueue]:
    numbers = {"at_once": None, "rpm": None, "tpm": None}
    return [limits.open_queue(str(n), "x", **numbers | grant, queue=0) for n, grant in enumerate(grants)]


GRANTS = st.fixed_dictionaries(
    {}, optional={"rpm": st.integers(1, 6), "tpm": st.integers(1, 90), "at_once": st.integers(1, 3)}
)


@given(
    grants=st.lists(GRANTS.filter(bool), min_size=1, max_size=3),
    steps=st.lists(st.tuples(GAPS_S, st.integers(1, 40), st.integers(0, 3), st.integers(0, 60)), max_size=40),
)
def test_limits_in_a_row_decide_as_each_of_them_does(
    grants: list[dict[str, int]], steps: list[tuple[float, int, int, int]]
) -> None:
    now = 0.0
    apart, together = (make_queues(ProcessLimits(lambda: now), grants) for _ in range(2))
    row = put_in_row(together)
    assert row is not None
    running: list[tuple[list[Ticket], Ticket]] = []
    for gap, tokens, gone, used in steps:
        now += gap
        tickets = [Ticket("a", tokens) for _ in apart]
        entered = [queue.enter_now(ticket, now) for queue, ticket in zip(apart, tickets, strict=True)]
        if not all(entered):
            for queue, ticket in zip(apart, tickets, strict=True):
                queue.leave(ticket, sent=False)
        ticket = Ticket("a", tokens)
        assert row.enter_now(ticket, now) == all(entered)
        if all(entered):
            running.append((tickets, ticket))
        for _ in range(min(gone, len(running))):
            old, one = running.pop(0)
            for queue, each in zip(apart, old, strict=True):
                queue.leave(each, sent=bool(used), tokens=used)
            row.leave(one, sent=bool(used), tokens=used)
        for here, there in zip(apart, together, strict=True):
            one_view, other = here.admission, there.admission
            assert one_view.running == other.running == len(running)
            assert one_view.running_anywhere == other.running_anywhere
            for window, same in ((one_view.rpm, other.rpm), (one_view.tpm, other.tpm)):
                assert (window is None) == (same is None)
                assert window is None or same is None or window.used(now) == same.used(now)


@given(
    limits=st.tuples(st.integers(1, 6), st.integers(10, 90), st.integers(1, 9), st.integers(10, 150)),
    steps=st.lists(
        st.tuples(st.floats(0, 0.02) | GAPS_S, st.integers(0, 1), st.integers(1, 40), st.floats(0, 1.5)), max_size=60
    ),
)
def test_keys_of_one_team_never_pass_its_limits_together(
    limits: tuple[int, int, int, int], steps: list[tuple[float, int, int, float]]
) -> None:
    """Each key counts what it takes in ticks of its own, which its windows and those of the team share."""
    now, store = 0.0, ProcessLimits(lambda: now)
    rpm, tpm, team_rpm, team_tpm = limits
    grants = [{"rpm": rpm, "tpm": tpm}, {"rpm": rpm, "tpm": tpm}, {"rpm": team_rpm, "tpm": team_tpm}]
    queues = make_queues(store, grants)
    rows = [put_in_row([queues[key], queues[2]]) for key in (0, 1)]
    sent: list[tuple[float, int, int, bool]] = []  # time, key, tokens, whether it was sent

    def passes(key: int, tokens: int, span_s: float) -> bool:
        """Whether one more is too much for one of its limits."""
        last = [one for one in sent if one[0] > now - span_s]
        for most, most_tokens, some in ((rpm, tpm, [one for one in last if one[1] == key]), (team_rpm, team_tpm, last)):
            requests, used = sum(one[3] for one in some), sum(one[2] for one in some)
            if requests + 1 > most or min(used + tokens, used + most_tokens) > most_tokens:
                return True
        return False

    for gap, key, tokens, used in steps:
        now += gap
        row, ticket = rows[key], Ticket("a", tokens)
        assert row is not None
        if not row.enter_now(ticket, now):
            assert passes(key, tokens, 60 + MARGIN_S + TICK_S)
            continue
        assert not passes(key, tokens, 60)
        real = min(round(tokens * used), tokens)
        row.leave(ticket, sent=real > 0, tokens=real)
        sent.append((now, key, real, real > 0))
    for queue in queues:
        view = queue.admission
        assert view.rpm is not None
        assert view.tpm is not None
        assert (view.rpm.used(now + 61), view.tpm.used(now + 61), view.running) == (0, 0, 0)


def test_only_what_is_too_old_leaves_a_window() -> None:
    """The first entry is over, and the ones behind it are not."""
    window, sent = Window(3), (0.0, 8.0, 30.0)
    for moment in sent:
        assert window.wait_s(moment) <= 0
        window.take(moment)
    assert window.wait_s(59.0) > 0
    after = 61.0
    assert window.wait_s(after) <= 0
    window.take(after)
    assert window.wait_s(after) > 0, "those of 8 s and 30 s still count"
    assert window.used(after) == 3


def test_a_line_takes_turns_between_askers() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for item in ("a1", "a2", "a3"):
        assert queue.push("a", item)
    assert queue.push("b", "b1")
    assert [queue.pop() for _ in range(4)] == ["a1", "b1", "a2", "a3"]


def test_a_full_line_says_so_and_a_place_can_be_left() -> None:
    queue: FairQueue[str] = FairQueue(1)
    assert queue.push("a", "a1")
    assert not queue.push("b", "b1")
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert queue.push("b", "b1")


def test_admission_lets_in_as_many_as_it_may_and_the_next_when_one_leaves() -> None:
    admission = Admission(at_once=1, queue=1)
    one, two, three = Ticket("a", 0), Ticket("b", 0), Ticket("c", 0)
    assert admission.arrive(one, 0.0) == "go"
    assert admission.arrive(two, 0.0) == "wait"
    assert admission.arrive(three, 0.0) == "full"
    assert admission.admit(1.0) == ([], None)
    admission.leave(one, sent=True)
    assert admission.admit(1.0) == ([two], None)


def test_admission_says_when_to_ask_again() -> None:
    admission = Admission(rpm=1)
    one, two = Ticket("a", 0), Ticket("a", 0)
    assert admission.arrive(one, 0.0) == "go"
    admission.leave(one, sent=True)
    assert admission.arrive(two, 20.0) == "wait"
    assert admission.admit(20.0) == ([], 40.0 + MARGIN_S)
    assert admission.admit(60.0 + MARGIN_S) == ([two], None)


def test_a_request_that_failed_before_it_was_sent_does_not_count() -> None:
    admission = Admission(rpm=1, tpm=100)
    one, two = Ticket("a", 80), Ticket("a", 80)
    assert admission.arrive(one, 0.0) == "go"
    admission.leave(one, sent=False)
    assert admission.arrive(two, 0.0) == "go"


def test_a_request_that_leaves_the_line_is_gone() -> None:
    admission = Admission(at_once=1)
    one, two, three = Ticket("a", 0), Ticket("a", 0), Ticket("a", 0)
    admission.arrive(one, 0.0)
    admission.arrive(two, 0.0)
    admission.arrive(three, 0.0)
    admission.leave(two, sent=False)
    admission.leave(one, sent=True)
    assert admission.admit(1.0) == ([three], None)


def wait_in_vain(at_once: int | None, rpm: int | None) -> Failure:
    """The failure of a request whose place is free in the moment when it has waited too long."""
    now = 0.0
    admission = Admission(at_once=at_once, rpm=rpm, queue=3)
    waiter = AdmissionWaiter(admission, "far", lambda: now)

    async def ask() -> None:
        nonlocal now
        assert await waiter.enter(Ticket("a", 1), 0.0) == 0.0
        waiting = asyncio.ensure_future(waiter.enter(Ticket("a", 1), 0.0))
        await asyncio.sleep(0)
        now = 1000.0
        await waiting

    with pytest.raises(UpstreamError) as caught:
        asyncio.run(ask())
    return caught.value.failure


def test_who_waits_too_long_for_a_limit_by_the_minute_hears_of_it_even_if_a_place_is_free_by_then() -> None:
    failure = wait_in_vain(at_once=None, rpm=1)
    assert (failure.status, failure.code) == (429, "queue_timeout")
    failure = wait_in_vain(at_once=1, rpm=None)
    assert (failure.status, failure.code) == (503, "queue_timeout")


def test_without_limits_requests_are_counted_as_with_them() -> None:
    free, wide = Admission(), Admission(at_once=10**9)
    assert (free.unlimited, wide.unlimited) == (True, False)
    seen = []
    for admission in (free, wide):
        tickets = [Ticket("a", 1) for _ in range(3)]
        verdicts = [admission.arrive(ticket, 0.0) for ticket in tickets]
        counts = [(admission.running, admission.running_anywhere)]
        for ticket in (*tickets[:2], tickets[0]):  # one leaves twice
            admission.leave(ticket, sent=True, tokens=5)
            counts.append((admission.running, admission.running_anywhere))
        seen.append((verdicts, counts, [ticket.admitted for ticket in tickets]))
    assert seen[0] == seen[1]
    assert seen[0][1] == [(3, 3), (2, 2), (1, 1), (1, 1)]
