"""Limits that processes of many machines keep together in Valkey. limits.lua decides. queue.py asks it, once for each
request; this module stays in touch with the other processes.

When Valkey is away, a process goes on under its share: what was free when it last looked, divided by the number of
processes. It never goes on without a limit. What it sends meanwhile is counted in Valkey when that is back.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil, floor
from typing import Literal

from msgspec import json

from dragoman.log_line import LogLine
from dragoman.upstream.admission import SPAN_S, LimitedQueue, Ticket, Window
from dragoman.valkey.in_advance import HELD_S, InAdvance, KeptPlaces
from dragoman.valkey.queue import KINDS, RECOVER_S, ValkeyQueue
from dragoman.valkey.server import AwayError, ScriptReply, ValkeyServer

log = logging.getLogger(__name__)
OnLoss = Literal["local_share", "refuse"]
HELLO_S = 0.5  # how often a process reports. If Valkey goes away, it does not know what others used since then
LEASE_S = 3.0  # as in limits.lua: after it the others keep this process's share for it
LAG_S = 1.5 * LEASE_S  # for this long the others may still use everything that becomes free
LISTEN_AGAIN_S = 1.0  # after the connection for messages is lost
LOW = 4  # at a fourth of what was taken in advance, more is taken
UNMET_REPLICAS = 10  # a process that never reached Valkey takes one tenth of each limit


class Seen:
    """A window as this process last saw it: what was used in each second of Valkey's time, and what it has in hand."""

    __slots__ = ("_oldest", "_sum", "buckets", "in_hand", "limit", "low", "now_s", "reserve")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.buckets: dict[int, int] = {}  # with what is in hand
        self.limit = 0
        self.now_s = now_s  # Valkey's time
        self.in_hand = 0  # of what was taken in advance; below zero if requests used more than they had said
        self.low = 0  # so little in hand, and it is time for more
        self.reserve = 0  # a guess of what others used after the last look, until Valkey went away
        self._oldest, self._sum = 0, 0  # the first second that counts, and the sum from it on

    def replace(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.buckets, self._oldest = dict(pairs), 0

    def add(self, total: int, now_s: float) -> None:
        """Takes the sum that Valkey reports. The increase since the last report counts as used now."""
        more = total - self.used_at(now_s)
        if more > 0:
            self._count(int(now_s), more)
        if len(self.buckets) > 2 * SPAN_S:
            self.buckets = {bucket: used for bucket, used in self.buckets.items() if bucket + 1 + SPAN_S > now_s}

    def take_in_hand(self, amount: int, total: int, now_s: float, bucket: int) -> None:
        """`total`: the sum with the amount, which counts in `bucket`."""
        self.add(total - amount, now_s)
        self._count(bucket, amount)
        self.in_hand += amount
        self.low = self.in_hand // LOW

    def _count(self, bucket: int, amount: int) -> None:
        self.buckets[bucket] = self.buckets.get(bucket, 0) + amount
        self._oldest = 0

    def used_at(self, now_s: float) -> int:
        oldest = floor(now_s - SPAN_S - 1) + 1
        if oldest != self._oldest:
            self._oldest, self._sum = oldest, sum([used for at, used in self.buckets.items() if at >= oldest])
        return self._sum

    def used(self, now: float) -> int:
        return self.used_at(self.now_s()) - self.in_hand

    @property
    def left(self) -> int:
        return max(self.limit - self.used_at(self.now_s()) + self.in_hand, 0)

    def wait_s(self, now: float, weight: int = 1) -> float:
        now_s = self.now_s()
        over = self.used_at(now_s) + min(weight, self.limit) - self.limit
        for bucket in sorted(self.buckets):
            if over <= 0:
                break
            if bucket + 1 + SPAN_S > now_s:
                over -= self.buckets[bucket]
                if over <= 0:
                    return max(bucket + 1 + SPAN_S - now_s, 0.001)
        return 0.0

    def lose(self) -> None:
        """Valkey has just gone away. Reserves what others may use until they know it: twice their usual rate."""
        used = self.used_at(self.now_s())
        self.reserve = min(max(self.limit - used, 0), ceil(2 * used * (HELLO_S + LEASE_S + HELD_S) / SPAN_S))

    def free_at(self, now_s: float, away_s: float) -> int:
        reserve = self.reserve if away_s < SPAN_S + LAG_S else 0
        return max(self.limit - self.used_at(now_s - LAG_S) - reserve, 0)


class ValkeyLimits:
    """All limits that this process keeps with others, by name."""

    kept = "valkey"

    def __init__(
        self,
        server: ValkeyServer,
        replica: str,
        clock: Callable[[], float],
        *,
        prefix: str = "dragoman",
        on_loss: OnLoss = "local_share",
        recover_s: float = RECOVER_S,
    ) -> None:
        """`replica` names this process and is the same after a restart."""
        self.server, self.replica, self.clock, self.on_loss = server, replica, clock, on_loss
        self.process = secrets.token_hex(8)
        self.tag = "{" + prefix + "}"
        self.channel = f"{self.tag}:wake:{self.process}"
        self.news = f"{self.tag}:news"
        self.hear_news: Callable[[bytes], None] = lambda news: None
        self.parts, self.rank = UNMET_REPLICAS, UNMET_REPLICAS
        self.away_since = clock()
        self.epoch = 0  # changes when Valkey loses its memory
        self._recover_s = recover_s
        self._replicas: list[str] = []
        self._offset = 0.0  # Valkey's time minus ours
        self._limits: dict[str, Limit] = {}
        self._by_key: dict[bytes, Limit] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._lost = asyncio.Event()
        self.losses = 0
        server.on_away = self._be_without

    @property
    def away(self) -> str:
        return self.server.away

    def server_s(self) -> float:
        return self.clock() + self._offset

    @property
    def first_alone(self) -> int:
        """The first second of Valkey's time in which it granted nothing any more."""
        return int(self.away_since + self._offset) + 1

    def set_time(self, server_ms: int) -> None:
        self._offset = server_ms / 1000 - self.clock()

    def part(self, amount: int) -> int:
        """This process's share."""
        return amount // self.parts + (self.rank < amount % self.parts)

    def limit(self, name: str) -> "Limit":
        found = self._limits.get(name)
        if found is None:
            found = self._limits[name] = Limit(self, name)
            self._by_key[found.keys[3].encode()] = found
        return found

    def open_queue(
        self, name: str, label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> LimitedQueue:
        """`name`: what all processes call this limit; `label`: what clients are told."""
        return ValkeyQueue(self.limit(name), label, at_once=at_once, rpm=rpm, tpm=tpm, queue=queue)

    # ---------------------------------------------------------------- staying in touch

    async def start(self) -> None:
        """Connects, if Valkey is there, and stays in touch with it."""
        await self._stay()
        self._tasks = [asyncio.create_task(self._keep_in_touch()), asyncio.create_task(self._listen())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if not self.away:
            for limit in self._limits.values():
                limit.give_up()
            with suppress(AwayError):
                await self.server.call(self.limit("").keys, ("leave", self.replica))
        await self.server.close()

    def lose_memory(self) -> None:
        """Valkey was restarted and is empty. This process reports at once what it has seen."""
        self._lost.set()

    async def _keep_in_touch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), HELLO_S)
            self._lost.clear()
            await self._stay()

    async def _stay(self) -> None:
        was_away = bool(self.away)
        try:
            if was_away:
                await self.server.reach()
            await self._hello(again=was_away)
        except AwayError as error:
            self.server.away = self.server.away or str(error)
            return
        if was_away:
            log.info(LogLine("state_is_back", {"limits": len(self._limits), "replicas": self.parts}))

    async def _hello(self, *, again: bool) -> None:
        limits, asked = list(self._limits.values()) or [self.limit("")], self.clock()
        calls = [self.server.call(limit.keys, limit.hello(again=again, recover_s=self._recover_s)) for limit in limits]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        lost = not again and any(not isinstance(reply, BaseException) and reply[0] != self.epoch for reply in replies)
        for limit, reply in zip(limits, replies, strict=True):
            if isinstance(reply, BaseException):
                limit.take_back()
            elif lost:
                limit.forget_sent()
            else:
                limit.take_hello(reply, asked)
                self.epoch = reply[0]
                self._take_replicas([name.decode() for name in reply[5]])
        if failed := next((reply for reply in replies if isinstance(reply, BaseException)), None):
            raise failed
        if lost:  # report our counts first: its empty answer must not replace them
            await self._hello(again=True)

    def _take_replicas(self, names: list[str]) -> None:
        self._replicas = sorted({*names, self.replica})
        self.parts, self.rank = len(self._replicas), self._replicas.index(self.replica)

    def others(self) -> list[str]:
        return [name for name in self._replicas if name != self.replica]

    def _be_without(self) -> None:
        self.away_since = self.clock()
        self.losses += 1
        for limit in self._limits.values():
            limit.lose()
        log.warning(LogLine("state_is_away", {"why": self.away, "policy": self.on_loss, "replicas": self.parts}))

    async def _listen(self) -> None:
        while True:
            await self.server.listen((self.channel, self.news), self._hear)
            await asyncio.sleep(LISTEN_AGAIN_S)

    def _hear(self, channel: str, message: bytes) -> None:
        if channel == self.news:
            self.hear_news(message)
        elif (limit := self._by_key.get(message)) is not None:
            limit.wake()


class Limit:
    """One limit: what this process has seen of it, and what it sent while Valkey was away."""

    def __init__(self, limits: ValkeyLimits, name: str) -> None:
        self.limits = limits
        kinds = ("running", "rpm", "tpm", "waiting")
        own = [f"{limits.tag}:{kind}:{name}" for kind in kinds]
        self.keys = (*own, f"{limits.tag}:replicas", f"{limits.tag}:epoch")
        self.seen = {kind: Seen(limits.server_s) for kind in KINDS}
        self.running: dict[str, Ticket] = {}  # requests of this process
        self.places = KeptPlaces()
        self.ahead = InAdvance(self)
        self.running_seen = 0  # requests of all processes, at the last look
        self._local = {kind: Window(1, margin_s=0.0) for kind in KINDS}
        self._unsent: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}  # sent without asking
        self._sending: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        self._queues: list[ValkeyQueue] = []
        self._next_ticket = 0

    def add_queue(self, queue: "ValkeyQueue") -> None:
        self._queues = [old for old in self._queues if len(old.queue) or old.running] + [queue]

    def wake(self) -> None:
        for queue in self._queues:
            queue.wake()

    def new_ticket(self) -> str:
        self._next_ticket += 1
        return f"{self.limits.process}-{self._next_ticket}"

    def hello(self, *, again: bool, recover_s: float) -> tuple[str, str, str]:
        self._sending, self._unsent = self._unsent, {kind: {} for kind in KINDS}
        now_s = self.limits.server_s()
        known: Mapping[str, object] = {
            "again": again,
            "recover_ms": round(recover_s * 1000),
            "replicas": self.limits.others() if again else [],
            "seen": {kind: {str(at): used for at, used in self.seen[kind].buckets.items()} for kind in KINDS}
            if again
            else {},
            "sent": self._sending,
            "tickets": [*self.running, *self.places.ids],
            "at": now_s,
        }
        return "hello", self.limits.replica, json.encode(known).decode()

    def take_hello(self, reply: ScriptReply, asked: float) -> None:
        self.limits.set_time(reply[1])
        self.seen["rpm"].replace(reply[2])
        self.seen["tpm"].replace(reply[3])
        self.running_seen = reply[4]
        self.forget_sent()
        self._local = {kind: Window(1, margin_s=0.0) for kind in KINDS}
        self._give_back(self.places.renew(asked))
        self.ahead.tend(self.limits.clock())

    def give_up(self) -> None:
        """This process stops: others can use at once what it has taken in advance."""
        idle = self.places.ids
        self.places.lose()
        self._give_back(idle)
        self.ahead.end()
        self.ahead.settle()

    def _give_back(self, places: Sequence[str]) -> None:
        for ticket in places:
            self.ahead.settle(ticket)

    def forget_sent(self) -> None:
        """Valkey got the last hello."""
        self._sending = {kind: {} for kind in KINDS}

    def take_back(self) -> None:
        """Valkey did not get the last hello. Its counts go into the next one."""
        for kind, weights in self._sending.items():
            for bucket, weight in weights.items():
                self._count(kind, int(bucket), weight)
        self._sending = {kind: {} for kind in KINDS}

    def _count(self, kind: str, bucket: int, weight: int) -> None:
        self._unsent[kind][str(bucket)] = self._unsent[kind].get(str(bucket), 0) + weight

    def lose(self) -> None:
        for seen in self.seen.values():
            seen.lose()
        self.ahead.lose()
        self.places.lose()
        self.wake()

    def enter_locally(self, weights: Mapping[str, int], at_once: int | None) -> bool:
        """Whether a request may go under this process's share."""
        limits = self.limits
        now, server_s = limits.clock(), limits.server_s()
        if at_once is not None and len(self.running) >= limits.part(at_once):
            return False
        for kind, weight in weights.items():
            share = limits.part(self.seen[kind].free_at(server_s, now - limits.away_since))
            window = self._local[kind]
            window.change_limit(share)
            if min(weight, self.seen[kind].limit) > share or window.wait_s(now, weight) > 0:
                return False
        # If Valkey loses its memory, the most that any replica has seen of a second counts. What is sent now is added,
        # so it counts for a second of which no replica can have seen anything.
        second = max(int(server_s), limits.first_alone)
        for kind, weight in weights.items():
            self._local[kind].take(now, weight)
            self._count(kind, second, weight)
        return True
