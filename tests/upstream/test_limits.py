"""The window, the line and the gate: event in, verdict out."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.upstream.gate import Admission, Ticket
from dragoman.upstream.limits import MARGIN_S, Window
from dragoman.upstream.queue import FairQueue


def test_a_window_refuses_what_would_exceed_it_and_says_how_long() -> None:
    window = Window(2)
    assert window.wait_s(0.0) == 0
    window.take(0.0)
    window.take(10.0)
    assert window.wait_s(10.0) == 50.0 + MARGIN_S
    assert window.wait_s(60.0 + MARGIN_S) == 0


def test_what_was_never_sent_is_given_back() -> None:
    window = Window(1)
    slip = window.take(0.0)
    assert window.wait_s(0.0) > 0
    window.give_back(slip)
    window.give_back(slip)
    assert window.wait_s(0.0) == 0
    assert window.used(0.0) == 0


def test_what_was_sent_late_counts_from_then() -> None:
    window = Window(1)
    slip = window.take(0.0)
    window.stamp(slip, 5.0)
    assert window.wait_s(62.0) == pytest.approx(3.0 + MARGIN_S)


def test_tokens_are_settled_to_what_they_were() -> None:
    window = Window(1000)
    slip = window.take(0.0, 900)
    assert window.wait_s(1.0, 200) > 0
    window.settle(slip, 100)
    assert window.wait_s(1.0, 200) == 0


def test_a_request_heavier_than_the_limit_goes_alone() -> None:
    window = Window(10)
    assert window.wait_s(0.0, 50) == 0
    window.take(0.0, 50)
    assert window.wait_s(1.0, 1) > 0


@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.tuples(st.floats(0, 40), st.booleans(), st.floats(0, 10)), max_size=60),
)
def test_no_true_window_is_ever_exceeded(limit: int, steps: list[tuple[float, bool, float]]) -> None:
    window, now = Window(limit), 0.0
    sent: list[float] = []
    for gap, give_back, delay in steps:
        now += gap
        if window.wait_s(now) > 0:
            continue
        slip = window.take(now)
        if give_back:
            window.give_back(slip)
            continue
        now += delay
        window.stamp(slip, now)
        sent.append(now)
    recent: deque[float] = deque()
    for moment in sent:
        recent.append(moment)
        while recent[0] <= moment - 60:
            recent.popleft()
        assert len(recent) <= limit


def test_a_line_takes_turns_between_askers() -> None:
    line: FairQueue[str] = FairQueue(10)
    for item in ("a1", "a2", "a3"):
        assert line.push("a", item)
    assert line.push("b", "b1")
    assert [line.pop() for _ in range(4)] == ["a1", "b1", "a2", "a3"]


def test_a_full_line_says_so_and_a_place_can_be_left() -> None:
    line: FairQueue[str] = FairQueue(1)
    assert line.push("a", "a1")
    assert not line.push("b", "b1")
    assert line.remove("a", "a1")
    assert not line.remove("a", "a1")
    assert line.push("b", "b1")


def test_a_gate_lets_in_as_many_as_it_may_and_the_next_when_one_leaves() -> None:
    gate = Admission(at_once=1, queue=1)
    one, two, three = Ticket("a", 0), Ticket("b", 0), Ticket("c", 0)
    assert gate.arrive(one, 0.0) == "go"
    assert gate.arrive(two, 0.0) == "wait"
    assert gate.arrive(three, 0.0) == "full"
    assert gate.admit(1.0) == ([], None)
    gate.leave(one, sent=True)
    assert gate.admit(1.0) == ([two], None)


def test_a_gate_says_when_to_ask_again() -> None:
    gate = Admission(rpm=1)
    one, two = Ticket("a", 0), Ticket("a", 0)
    assert gate.arrive(one, 0.0) == "go"
    gate.leave(one, sent=True)
    assert gate.arrive(two, 20.0) == "wait"
    assert gate.admit(20.0) == ([], 40.0 + MARGIN_S)
    assert gate.admit(60.0 + MARGIN_S) == ([two], None)


def test_a_request_that_failed_before_it_was_sent_does_not_count() -> None:
    gate = Admission(rpm=1, tpm=100)
    one, two = Ticket("a", 80), Ticket("a", 80)
    assert gate.arrive(one, 0.0) == "go"
    gate.leave(one, sent=False)
    assert gate.arrive(two, 0.0) == "go"


def test_whoever_leaves_the_line_is_gone() -> None:
    gate = Admission(at_once=1)
    one, two, three = Ticket("a", 0), Ticket("a", 0), Ticket("a", 0)
    gate.arrive(one, 0.0)
    gate.arrive(two, 0.0)
    gate.arrive(three, 0.0)
    gate.leave(two, sent=False)
    gate.leave(one, sent=True)
    assert gate.admit(1.0) == ([three], None)
