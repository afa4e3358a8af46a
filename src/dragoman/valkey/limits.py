"""Limits that processes of many machines keep together in Valkey. limits.lua decides; this asks it, once per request.

When Valkey is away, a process goes on under its share: what was free when it last looked, divided by the number of
processes. It never goes on without a limit. What it sends meanwhile is counted in Valkey when that is back.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil, inf
from typing import Literal

from msgspec import json

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.log_line import LogLine
from dragoman.upstream.admission import SPAN_S, FairQueue, LimitedQueue, Ticket, Window, queue_full, queue_timeout
from dragoman.valkey.server import AwayError, ScriptReply, ValkeyServer

log = logging.getLogger(__name__)
OnLoss = Literal["local_share", "refuse"]
KINDS = ("rpm", "tpm")
HELLO_S = 0.5  # how often a process reports. If Valkey goes away, it does not know what others used since then
LEASE_S = 3.0  # as in limits.lua: after it the others keep this process's share for it
LAG_S = 1.5 * LEASE_S  # for this long the others may still use everything that becomes free
RECOVER_S = 2.0  # after Valkey lost its memory, every process reports its counts within this time
LOOK_S = 1.0  # a waiting request looks this often, in case the message that wakes it is lost
LOCAL_LOOK_S = 0.1  # the same while Valkey is away
UNMET_REPLICAS = 10  # a process that never reached Valkey takes one tenth of each limit
PATIENCE_S = 2 * RECOVER_S  # a request waits at most this long while all processes report their counts
LOST, RECOVERING = -2, -3  # as in limits.lua
STAMP_S = 0.025  # a request that is sent later than this after its grant counts from the time when it was sent


class Seen:
    """A window as this process last saw it: what was used in each second of Valkey's time."""

    __slots__ = ("buckets", "limit", "now_s", "reserve")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.buckets: dict[int, int] = {}
        self.limit = 0
        self.now_s = now_s  # Valkey's time
        self.reserve = 0  # a guess of what others used after the last look, until Valkey went away

    def replace(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.buckets = dict(pairs)

    def add(self, total: int, now_s: float) -> None:
        """Takes the sum that Valkey reports. The increase since the last report counts as used now."""
        more = total - self.used_at(now_s)
        if more > 0:
            self.buckets[int(now_s)] = self.buckets.get(int(now_s), 0) + more
        if len(self.buckets) > 2 * SPAN_S:
            self.buckets = {bucket: used for bucket, used in self.buckets.items() if bucket + 1 + SPAN_S > now_s}

    def used_at(self, now_s: float) -> int:
        oldest = now_s - SPAN_S - 1
        return sum([used for bucket, used in self.buckets.items() if bucket > oldest])

    def used(self, now: float) -> int:
        return self.used_at(self.now_s())

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
        self.reserve = min(max(self.limit - used, 0), ceil(2 * used * (HELLO_S + LEASE_S) / SPAN_S))

    def free_at(self, now_s: float, away_s: float) -> int:
        reserve = self.reserve if away_s < SPAN_S + LAG_S else 0
        return max(self.limit - self.used_at(now_s - LAG_S) - reserve, 0)


class CountedRequest:
    """How one request was counted, so that it can be corrected or given back."""

    __slots__ = ("asked", "id", "local", "server_s", "tokens")

    def __init__(self, ticket_id: str, asked: float, tokens: int) -> None:
        self.id, self.asked, self.tokens = ticket_id, asked, tokens
        self.server_s = 0.0
        self.local = False


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
        limits = list(self._limits.values()) or [self.limit("")]
        calls = [self.server.call(limit.keys, limit.hello(again=again, recover_s=self._recover_s)) for limit in limits]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        lost = not again and any(not isinstance(reply, BaseException) and reply[0] != self.epoch for reply in replies)
        for limit, reply in zip(limits, replies, strict=True):
            if isinstance(reply, BaseException):
                limit.take_back()
            elif lost:
                limit.forget_sent()
            else:
                limit.take_hello(reply)
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
            await asyncio.sleep(LOOK_S)

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
            "tickets": list(self.running),
            "at": now_s,
        }
        return "hello", self.limits.replica, json.encode(known).decode()

    def take_hello(self, reply: ScriptReply) -> None:
        self.limits.set_time(reply[1])
        self.seen["rpm"].replace(reply[2])
        self.seen["tpm"].replace(reply[3])
        self.running_seen = reply[4]
        self.forget_sent()
        self._local = {kind: Window(1, margin_s=0.0) for kind in KINDS}

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
            window.limit = share
            if min(weight, self.seen[kind].limit) > share or window.wait_s(now, weight) > 0:
                return False
        for kind, weight in weights.items():
            self._local[kind].take(now, weight)
            self._count(kind, int(server_s), weight)
        return True


class ValkeyQueue:
    """The requests of this process that wait for one limit. Each one that enters leaves exactly once."""

    def __init__(
        self, limit: Limit, label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> None:
        self._limit, self._limits, self._label = limit, limit.limits, label
        self.at_once = at_once
        self._limited = {kind: most for kind, most in zip(KINDS, (rpm, tpm), strict=True) if most is not None}
        for kind, most in self._limited.items():
            limit.seen[kind].limit = most
        self.rpm = limit.seen["rpm"] if rpm is not None else None
        self.tpm = limit.seen["tpm"] if tpm is not None else None
        self._numbers = (at_once or 0, rpm or 0, tpm or 0)
        self.queue: FairQueue[Ticket] = FairQueue(queue)
        self.running = 0
        self._grants: dict[Ticket, CountedRequest] = {}
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._woken = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        limit.add_queue(self)

    @property
    def running_anywhere(self) -> int:
        return max(self._limit.running_seen, self.running)

    @property
    def admission(self) -> "ValkeyQueue":
        return self

    def wake(self) -> None:
        self._woken.set()

    def enter_now(self, ticket: Ticket, now: float) -> bool:
        return False  # the server has to be asked

    async def enter(self, ticket: Ticket, left_s: float) -> float:
        """Waits until the request may go and returns how long that took; an UpstreamError when it may not in time."""
        began = self._limits.clock()
        if not len(self.queue) and await self._try(ticket) == 0:
            return 0.0
        if not self.queue.push(ticket.client, ticket):
            raise UpstreamError(queue_full(self._label, self.queue.limit, self._wait_s()))
        future = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(left_s):
                await future
        except TimeoutError:
            self.leave(ticket, sent=False)
            waited_s = self._limits.clock() - began
            raise UpstreamError(queue_timeout(self._label, waited_s, self._wait_s(), self.at_once)) from None
        except BaseException:
            self.leave(ticket, sent=False)
            raise
        finally:
            self._waiting.pop(ticket, None)
        return self._limits.clock() - began

    def stamp(self, ticket: Ticket) -> None:
        """The request leaves now. If that is much later than it was granted, it counts from now."""
        grant = self._grants.get(ticket)
        late_s = self._limits.clock() - grant.asked if grant is not None else 0.0
        if grant is None or grant.local or late_s < STAMP_S or not self._limited:
            return
        before, after = int(grant.server_s), int(grant.server_s + late_s)
        if after > before:
            changes: list[str | int] = []
            for kind, weight in self._weights(grant.tokens).items():
                changes += [kind, before, -weight, kind, after, weight]
            self._limits.server.call_later(self._limit.keys, ("settle", "", *changes))
        grant.server_s += late_s

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        """A request leaves the queue, or it has ended. An unsent one is given back; tokens are settled."""
        if not ticket.admitted:
            self.queue.remove(ticket.client, ticket)
            return
        ticket.admitted = False
        self._give_back(self._grants.pop(ticket), sent=sent, tokens=tokens)
        self._woken.set()

    def _give_back(self, grant: CountedRequest, *, sent: bool, tokens: int | None) -> None:
        self.running -= 1
        self._limit.running.pop(grant.id, None)
        changes: list[str | int] = []
        bucket = int(grant.server_s)
        if grant.local:
            return  # counted locally; Valkey gets the sum with the next hello
        if not sent:
            for kind, weight in self._weights(grant.tokens).items():
                changes += [kind, bucket, -weight]
        elif self.tpm is not None and tokens is not None and tokens != grant.tokens:
            changes = ["tpm", bucket, tokens - grant.tokens]
        if changes or self.at_once is not None:
            self._limits.server.call_later(self._limit.keys, ("settle", grant.id, *changes))

    def _weights(self, tokens: int) -> dict[str, int]:
        return {kind: 1 if kind == "rpm" else tokens for kind in self._limited}

    def _wait_s(self) -> float:
        waits = [window.wait_s(0.0) for window in (self.rpm, self.tpm) if window is not None]
        return max(waits, default=0.0)

    # ---------------------------------------------------------------- asking

    async def _try(self, ticket: Ticket) -> float:
        """0 if the request has entered, else how long to wait before the next try."""
        limits = self._limits
        grant = CountedRequest(self._limit.new_ticket(), limits.clock(), ticket.tokens)
        if limits.away:
            return self._try_locally(ticket, grant)
        try:
            reply = await self._ask(grant)
            end = limits.clock() + PATIENCE_S
            while reply[0] in (LOST, RECOVERING):
                if reply[0] == LOST:
                    limits.lose_memory()
                left_s = LOCAL_LOOK_S if reply[0] == LOST else reply[1] / 1000
                if limits.clock() + left_s > end:
                    return left_s
                await asyncio.sleep(left_s)
                grant.asked = limits.clock()
                reply = await self._ask(grant)
        except AwayError:
            return self._try_locally(ticket, grant)
        return self._take_reply(ticket, grant, reply)

    async def _ask(self, grant: CountedRequest) -> ScriptReply:
        limits = self._limits
        asked = limits.server.call(
            self._limit.keys,
            ("enter", limits.replica, limits.epoch, grant.id, limits.channel, *self._numbers, grant.tokens),
        )
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda done: self._refuse_grant(grant, done))
            raise

    def _take_reply(self, ticket: Ticket, grant: CountedRequest, reply: ScriptReply) -> float:
        wait_ms, rpm_used, tpm_used, count, server_ms = reply
        grant.server_s = server_ms / 1000
        self._limits.set_time(server_ms)
        for kind, used in zip(KINDS, (rpm_used, tpm_used), strict=True):
            if kind in self._limited:
                self._limit.seen[kind].add(used, grant.server_s)
        self._limit.running_seen = count
        if wait_ms == 0:
            self._admit(ticket, grant)
        return inf if wait_ms < 0 else wait_ms / 1000

    def _refuse_grant(self, grant: CountedRequest, done: "asyncio.Future[ScriptReply]") -> None:
        """The client left while Valkey was asked."""
        if not done.cancelled() and done.exception() is None and done.result()[0] == 0:
            grant.server_s = done.result()[4] / 1000
            self.running += 1
            self._give_back(grant, sent=False, tokens=None)

    def _admit(self, ticket: Ticket, grant: CountedRequest) -> None:
        ticket.admitted = True
        self.running += 1
        self._grants[ticket] = grant
        self._limit.running[grant.id] = ticket

    def _try_locally(self, ticket: Ticket, grant: CountedRequest) -> float:
        if self._limits.on_loss == "refuse":
            raise UpstreamError(state_away(self._label))
        if not self._limit.enter_locally(self._weights(ticket.tokens), self.at_once):
            return LOCAL_LOOK_S
        grant.local = True
        self._admit(ticket, grant)
        return 0.0

    async def _serve(self) -> None:
        """Lets waiting requests in, the first one first. It asks again when woken, or when a place must be free."""
        try:
            while (ticket := self.queue.peek()) is not None:
                self._woken.clear()
                try:
                    wait = await self._try(ticket)
                except UpstreamError as error:
                    self._pass_error(ticket, error)
                    continue
                if wait == 0:
                    self._let_in(ticket)
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), LOOK_S if wait == inf else wait)
        finally:
            self._serving = None

    def _let_in(self, ticket: Ticket) -> None:
        future = self._waiting.get(ticket)
        if self.queue.peek() is ticket:
            self.queue.pop()
        if future is None or future.done():  # its client left at this moment
            self.leave(ticket, sent=False)
        else:
            future.set_result(None)

    def _pass_error(self, ticket: Ticket, error: UpstreamError) -> None:
        self.queue.remove(ticket.client, ticket)
        future = self._waiting.get(ticket)
        if future is not None and not future.done():
            future.set_exception(error)


def state_away(label: str) -> Failure:
    words = f"the limits of {label} cannot be checked now, and this gateway is configured to refuse requests then"
    return Failure(kind="overloaded", status=503, code="state_away", message=words, retry_after_s=1.0)
