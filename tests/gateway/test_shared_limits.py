"""Limits that several processes keep together: no true window is exceeded, whichever of them asks."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.gateway.process.shared_limits import BUCKET_S, PLACES, SharedLimit, SharedLimits, SharedMemory
from dragoman.upstream.admission import MARGIN_S, SPAN_S, Admission, Ticket
from tests.cli.test_serve import serving
from tests.gateway.house import faultline
from tests.gateway.test_faults import GOOD
from tests.gateway.web import post
from tests.waiting import NEVER_S

FORK = multiprocessing.get_context("fork")
steps = st.lists(
    st.tuples(
        st.integers(0, 2),  # the worker
        st.floats(0, 30),  # seconds since the step before
        st.integers(1, 60),  # tokens
        st.sampled_from(["sent", "late", "given back", "more", "less"]),
    ),
    max_size=60,
)


@given(st.integers(1, 4), st.integers(10, 100), steps)
def test_no_true_window_is_exceeded_by_any_process(
    rpm: int, tpm: int, moves: list[tuple[int, float, int, str]]
) -> None:
    memory = SharedMemory(3)
    workers = [Admission(rpm=rpm, tpm=tpm, queue=0, keeper=SharedLimits(memory, n).of("x")) for n in range(3)]
    now, sent = 1000.0, []
    for worker, gap, tokens, how in moves:
        now += gap
        ticket = Ticket("a", tokens)
        if workers[worker].arrive(ticket, now) != "go":
            continue
        if how == "given back":
            workers[worker].leave(ticket, sent=False)
            continue
        if how == "late":
            now += 7.0
            workers[worker].stamp(ticket, now)
        real = {"more": tokens + 5, "less": max(tokens - 5, 0)}.get(how, tokens)
        workers[worker].leave(ticket, sent=True, tokens=real)
        sent.append((now, min(tokens, real)))
    recent: deque[tuple[float, int]] = deque()
    for moment, tokens in sent:
        recent.append((moment, tokens))
        while recent[0][0] <= moment - SPAN_S:
            recent.popleft()
        assert len(recent) <= rpm
        assert sum(weight for _, weight in recent) <= max(tpm, tokens)


def test_what_is_free_again_is_used() -> None:
    memory = SharedMemory(2)
    one, two = (Admission(rpm=2, tpm=100, keeper=SharedLimits(memory, n).of("x")) for n in range(2))
    assert one.arrive(Ticket("a", 40), 0.0) == "go"
    assert two.arrive(Ticket("a", 40), 10.0) == "go"
    late = Ticket("a", 10)
    assert two.arrive(late, 10.0) == "wait"
    going, wait = two.admit(10.0)
    assert not going
    assert wait == BUCKET_S + SPAN_S + MARGIN_S - 10.0
    assert two.admit(10.001 + wait) == ([late], None)
    assert one.rpm is not None
    assert one.rpm.used(10.001 + wait) == 2


def test_as_many_run_at_once_as_may_and_a_dead_worker_holds_nothing() -> None:
    memory = SharedMemory(2)
    one, two = (Admission(at_once=1, keeper=SharedLimits(memory, n).of("x")) for n in range(2))
    first, second = Ticket("a", 0), Ticket("b", 0)
    assert one.arrive(first, 0.0) == "go"
    assert (two.running, two.running_anywhere) == (0, 1)
    assert two.arrive(second, 0.0) == "wait"
    going, wait = two.admit(0.0)
    assert not going
    assert wait, "it looks again soon: the other worker cannot tell it"
    SharedLimits(memory, 0)  # the first worker died, and this one is in its place
    assert two.admit(1.0) == ([second], None)
    assert Admission(at_once=1, keeper=SharedLimits(memory, 0).of("other")).arrive(Ticket("c", 0), 1.0) == "go"


def test_more_upstreams_than_places_share_and_exceed_nothing() -> None:
    limits = SharedLimits(SharedMemory(1), 0)
    places = {limits.of(f"u{number}")._number for number in range(PLACES)}
    assert len(places) == PLACES
    assert limits.of("one more")._number in places


def test_processes_at_once_stay_below_a_limit_smaller_than_their_number() -> None:
    memory, gate = SharedMemory(4), FORK.Barrier(4)
    results: multiprocessing.SimpleQueue[int] = FORK.SimpleQueue()

    def run(worker: int) -> None:
        admission = Admission(rpm=3, tpm=10_000, queue=0, keeper=SharedLimits(memory, worker).of("x"))
        gate.wait(NEVER_S)
        tickets = [Ticket("a", 1) for _ in range(200)]
        results.put(sum(admission.arrive(ticket, time.monotonic()) == "go" for ticket in tickets))

    children = [FORK.Process(target=run, args=(worker,)) for worker in range(4)]
    for child in children:
        child.start()
    assert sum(results.get() for _ in children) == 3
    for child in children:
        child.join(NEVER_S)


def test_without_a_limit_no_worker_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory(2)
    one, two = (Admission(keeper=SharedLimits(memory, number).of("x")) for number in range(2))
    ticket = Ticket("me", 1)
    with monkeypatch.context() as patch:
        patch.setattr(SharedLimit, "__enter__", lambda self: pytest.fail("a lock"))
        assert one.enter_now(ticket, 1.0)
        assert two.running_anywhere == 1
        one.leave(ticket, sent=True, tokens=5)
    assert two.running_anywhere == 0


def test_a_killed_process_leaves_no_lock_behind() -> None:
    memory = SharedMemory(2)
    reading, writing = os.pipe()

    def hold() -> None:
        with SharedLimits(memory, 0).of("x"):
            os.write(writing, b"held")
            signal.pause()

    child = FORK.Process(target=hold)
    child.start()
    assert os.read(reading, 10) == b"held"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(NEVER_S)
    assert Admission(rpm=1, keeper=SharedLimits(memory, 1).of("x")).arrive(Ticket("a", 0), 0.0) == "go"
    os.close(reading)
    os.close(writing)


def test_four_workers_send_one_request_a_minute_if_that_is_the_limit(tmp_path: Path) -> None:
    with faultline(GOOD) as line:
        config = {"deadline_s": 5, "providers": {"far": {"base_url": line.url, "models": ["m"], "rpm": 1}}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with serving(tmp_path, "--workers", "4") as running:
            statuses: list[int] = []
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            asking = [
                threading.Thread(target=lambda: statuses.append(post(running.url, "/v1/chat/completions", body).status))
                for _ in range(12)
            ]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join(NEVER_S)
        assert len(line.seen) == 1
        assert sorted(statuses) == [200] + [429] * 11
