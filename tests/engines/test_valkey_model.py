"""Three processes and one Valkey, in any order of events and with a clock of the test's own: no true window is ever
exceeded, no more requests run at once than may, and what a process took in advance and did not use is given back."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct

from dragoman.errors import UpstreamError
from dragoman.upstream.admission import LimitedQueue, Ticket
from tests.engines.servers import Engine

pytest.importorskip("redis", reason="the extra `valkey` is not installed")

from redis import Redis

from dragoman.valkey import in_advance
from dragoman.valkey.limits import ValkeyLimits
from dragoman.valkey.queue import STAMP_S
from dragoman.valkey.server import ScriptReply, ValkeyServer

T = TypeVar("T")
PROCESSES = st.integers(0, 2)
STEP_S = 0.5  # as often as a process says hello
EPOCH_S = 1_700_000_000
MILLISECOND_S = 0.00101  # the script counts in these, and a float is never exact
EXAMPLES = int(os.environ.get("DRAGOMAN_EXAMPLES", "25"))
GRANTS = (
    {"rpm": 3},
    {"rpm": 100},
    {"rpm": 100, "tpm": 3000},
    {"tpm": 2000},
    {"rpm": 100, "at_once": 40},
    {"at_once": 40},
    {"rpm": 100, "tpm": 6000, "at_once": 60},
)
PART = 2  # more is taken in advance than outside, so that mistakes show sooner
names = count()


class Clock:
    """The time of all processes and, by way of a key, of the server's script."""

    def __init__(self, client: "Redis", prefix: str) -> None:
        self.now, self._client, self._key = 1000.0, client, f"{{{prefix}}}:clock"
        self.advance(0.0)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        whole = int(self.now)
        micros = int((self.now - whole) * 1e6)
        self._client.hset(self._key, mapping={"s": EPOCH_S + whole, "us": micros})


class SlowServer(ValkeyServer):
    """The way to the server and the way back take time."""

    def __init__(self, url: str, clock: Clock, prefix: str) -> None:
        super().__init__(url, answer_s=30.0)
        self._clock, self.there_s, self.back_s = clock, 0.0, 0.0
        for here, there in (
            ("redis.call('TIME')", f"redis.call('HMGET', '{{{prefix}}}:clock', 's', 'us')"),
            ("local PART = 8 ", f"local PART = {PART} "),
        ):
            assert here in self._script
            self._script = self._script.replace(here, there)

    async def _run_once(self, batch: Any) -> list[ScriptReply]:
        self._clock.advance(self.there_s)
        replies = await super()._run_once(batch)
        self._clock.advance(self.back_s)
        return replies


class Use(Struct, eq=False):
    process: int
    queue: Any
    ticket: Ticket
    at: float | None = None  # when it was sent
    tokens: int = 0


class Processes(RuleBasedStateMachine):
    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = Redis.from_url(self.engine.url.replace("valkey", "redis"))
        self.prefix = f"model{next(names)}"
        self.clock = Clock(self.client, self.prefix)
        self.uses: list[Use] = []  # all that were sent in the last minutes
        self.running: list[Use] = []
        self.grant: dict[str, int] = {}

    @initialize(grant=st.sampled_from(GRANTS))
    def begin(self, grant: dict[str, int]) -> None:
        self.grant = grant
        self.all = [self.start(number) for number in range(3)]
        self.stay()
        self.clock.advance(3.0)  # a new server grants nothing at first
        self.stay()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def start(self, number: int) -> tuple[ValkeyLimits, LimitedQueue]:
        server = SlowServer(self.engine.url, self.clock, self.prefix)
        limits = ValkeyLimits(server, f"r{number}-{next(names)}", self.clock, prefix=self.prefix, recover_s=1.0)
        self.run(limits._stay())
        assert not limits.away
        numbers = {"at_once": None, "rpm": None, "tpm": None} | self.grant
        return limits, limits.open_queue("far", "far", queue=0, **numbers)

    def stay(self) -> None:
        for limits, _ in self.all:
            self.run(limits._stay())

    def settle_down(self) -> None:
        """Calls that nothing waits for are sent, and their answers taken."""

        async def send() -> None:
            for limits, _ in self.all:
                limits.server._start()
                while limits.server._sending is not None:
                    await limits.server._sending
            await asyncio.sleep(0)

        self.run(send())

    # ---------------------------------------------------------------- what may happen

    @rule(at=PROCESSES, many=st.integers(1, 30), tokens=st.integers(1, 120), back_s=st.sampled_from([0, 0, 0.02, 0.4]))
    def ask(self, at: int, many: int, tokens: int, back_s: float) -> None:
        """Requests of one moment."""
        limits, queue = self.all[at]
        limits.server.back_s = back_s  # type: ignore[attr-defined]
        self.run(self._ask(at, queue, many, min(tokens, self.grant.get("tpm", tokens))))
        limits.server.back_s = 0.0  # type: ignore[attr-defined]

    async def _ask(self, at: int, queue: LimitedQueue, many: int, tokens: int) -> None:
        async def enter() -> None:
            ticket = Ticket("a", tokens)
            try:
                if not queue.enter_now(ticket, self.clock()):
                    await queue.enter(ticket, 0.0)
            except UpstreamError:
                return
            self.running.append(Use(at, queue, ticket, tokens=tokens))

        await asyncio.gather(*[enter() for _ in range(many)])
        self.check_at_once()

    @rule(rounds=st.integers(4, 30), at=PROCESSES, many=st.integers(1, 5), tokens=st.integers(1, 60))
    def load(self, rounds: int, at: int, many: int, tokens: int) -> None:
        """One request after the other, as under load: they are sent at once, and end soon."""
        for number in range(rounds):
            self.ask(at, many, tokens, 0.0)
            self.send(0.0, 0.0)
            self.clock.advance(0.1)
            self.end(0.0, 1.0, 1.0)
            if number % 5 == 4:
                self.stay()

    @rule(at=PROCESSES, tokens=st.integers(1, 60), pause_s=st.sampled_from([0.25, 0.7]))
    def press(self, at: int, tokens: int, pause_s: float) -> None:
        """As many as may go, as soon as anything leaves the window."""
        if self.grant.keys().isdisjoint(("rpm", "tpm")):
            return  # there is no window, and it would never be full
        size = -1
        while size != len(self.uses):  # until the window is full
            size = len(self.uses)
            self.ask(at, 30, tokens, 0.0)
            self.send(0.0, 0.0)
            self.end(0.0, 1.0, 1.0)
        self.pass_time(57.5)
        for _ in range(9):
            self.clock.advance(pause_s)
            self.ask(at, 30, tokens, 0.0)
            self.send(0.0, 0.0)
            self.end(0.0, 1.0, 1.0)

    @rule(late_s=st.sampled_from([0.0, 0.01, 0.9, 1.4, 3.0]), keep=st.floats(0, 0.5))
    def send(self, late_s: float, keep: float) -> None:
        """Requests that have entered leave for their provider, maybe late: the connection took time."""
        waiting = [use for use in self.running if use.at is None]
        self.clock.advance(late_s)
        sent = waiting[int(len(waiting) * keep) :]
        for use in sent:
            use.at = self.clock.now
            self.uses.append(use)
        self.run(self._each([partial(use.queue.stamp, use.ticket) for use in sent]))
        self.check_windows()

    @rule(begin=st.floats(0, 1), part=st.floats(0, 1), used=st.floats(0, 1))
    def end(self, begin: float, part: float, used: float) -> None:
        size = len(self.running)
        gone = self.running[int(size * begin) : int(size * begin) + round(size * part)]
        self.running = [use for use in self.running if use not in gone]
        for use in gone:
            use.tokens = round(use.tokens * used)
        self.leave(gone)

    def leave(self, gone: Sequence[Use]) -> None:
        steps = [partial(use.queue.leave, use.ticket, sent=use.at is not None, tokens=use.tokens) for use in gone]
        self.run(self._each(steps))

    async def _each(self, steps: Sequence[Callable[[], None]]) -> None:
        for step in steps:
            step()

    @rule(at=PROCESSES, seconds=st.floats(0, 1))
    def hello(self, at: int, seconds: float) -> None:
        self.clock.advance(seconds)
        self.run(self.all[at][0]._stay())

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 1.9, 7.0, 31.0, 59.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.advance(min(STEP_S, end - self.clock.now))
            self.stay()

    @rule(at=PROCESSES, seconds=st.sampled_from([0.8, 2.5, 16.0]))
    def freeze(self, at: int, seconds: float) -> None:
        """A process stands still, and its calls that were on their way arrive afterwards. Its requests run no more."""
        gone = [use for use in self.running if use.process == at]
        self.running = [use for use in self.running if use.process != at]
        self.leave(gone)
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.advance(STEP_S)
            for number, (limits, _) in enumerate(self.all):
                if number != at:
                    self.run(limits._stay())

    @rule(at=PROCESSES)
    def kill(self, at: int) -> None:
        self.running = [use for use in self.running if use.process != at]
        dead = self.all[at][0].server
        dead._pending.clear()
        self.run(dead.close())
        self.all[at] = self.start(at)

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def what_is_in_hand_is_counted_while_it_can_be_used(self) -> None:
        for limits, queue in getattr(self, "all", ()):
            limit = limits.limit("far")
            ahead, places = limit.ahead, limit.places
            assert not ahead.bucket or EPOCH_S + ahead.until <= ahead.bucket + 1 + MILLISECOND_S
            assert all(seen.in_hand >= 0 for seen in limit.seen.values())
            if places.ids and self.clock.now < places.until:
                assert all(self.client.zscore(limit.keys[0], ticket) is not None for ticket in places.ids)
            grants = queue._grants
            sent = {use.ticket: use.at for use in self.running if use.at is not None}
            late = [EPOCH_S + sent[ticket] - grant.bucket - 1 for ticket, grant in grants.items() if ticket in sent]
            assert all(late_s < STAMP_S for late_s in late), "a request counts in the second in which it was sent"

    def check_at_once(self) -> None:
        assert len(self.running) <= self.grant.get("at_once", len(self.running))

    def check_windows(self) -> None:
        recent = [use for use in self.uses if use.at is not None and use.at > self.clock.now - 60.0]
        self.uses = recent
        assert len(recent) <= self.grant.get("rpm", len(recent))
        tokens = sum(use.tokens for use in recent)
        assert tokens <= self.grant.get("tpm", tokens)

    def teardown(self) -> None:
        try:
            if self.grant:
                self.send(0.0, 0.0)
                self.end(0.0, 1.0, 1.0)
                self.pass_time(3.0)
                self.settle_down()
                self.clock.advance(62.0)
                self.stay()
                self.check_nothing_is_left()
        finally:
            for limits, _ in getattr(self, "all", ()):
                self.run(limits.close())
            self.client.close()
            self.loop.close()

    def check_nothing_is_left(self) -> None:
        """After a minute of rest all is free again, and a request may go at once."""
        keys = self.all[0][0].limit("far").keys
        assert self.client.zcard(keys[0]) == 0
        seen = [limits.limit("far").seen for limits, _ in self.all]
        assert [(windows["rpm"].used(0.0), windows["tpm"].used(0.0)) for windows in seen] == [(0, 0)] * 3


def test_no_true_window_is_exceeded_in_any_order_of_events(valkey: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    Processes.engine = valkey
    monkeypatch.setattr(in_advance, "PART", PART)
    run_state_machine_as_test(
        Processes,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )


@pytest.fixture
def processes(valkey: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    Processes.engine = valkey
    monkeypatch.setattr(in_advance, "PART", PART)
    machine = Processes()
    yield machine
    machine.teardown()


def test_a_request_that_is_sent_late_counts_in_the_second_in_which_it_was_sent(processes: Processes) -> None:
    processes.begin({"rpm": 100})
    processes.load(10, 0, 3, 1)
    processes.ask(0, 5, 1, 0.0)
    processes.send(1.4, 0.0)
    processes.what_is_in_hand_is_counted_while_it_can_be_used()
    assert len(processes.running) == 5


def test_places_that_valkey_has_forgotten_are_not_used_again(processes: Processes) -> None:
    """Their process stood still for longer than Valkey keeps a place."""
    processes.begin({"at_once": 40})
    processes.load(10, 0, 5, 1)
    limit = processes.all[0][0].limit("far")
    assert limit.places.ids
    processes.freeze(0, 16.0)
    for at in (1, 2, 0):
        processes.ask(at, 30, 1, 0.0)
    assert len(processes.running) == 40
