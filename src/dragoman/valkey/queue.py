"""The requests of one process that wait for a limit which processes of many machines keep together."""

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.upstream.admission import FairQueue, Ticket
from dragoman.upstream.failures import queue_full, queue_timeout
from dragoman.valkey.server import AwayError, ScriptReply

if TYPE_CHECKING:
    from dragoman.valkey.limits import Limit

KINDS = ("rpm", "tpm")
LOOK_S = 1.0  # a waiting request looks this often, in case the message that wakes it is lost
LOCAL_LOOK_S = 0.1  # the same while Valkey is away
RECOVER_S = 2.0  # after Valkey lost its memory, every process reports its counts within this time
PATIENCE_S = 2 * RECOVER_S  # a request waits at most this long while all processes report their counts
LOST, RECOVERING = -2, -3  # as in limits.lua
STAMP_S = 0.025  # a request that is sent later than this after its grant counts from the time when it was sent


class CountedRequest:
    """How one request was counted, so that it can be corrected or given back.

    When our clock was at `asked`, Valkey's was not beyond `server_s`."""

    __slots__ = ("asked", "bucket", "id", "local", "server_s", "tokens")

    def __init__(self, ticket_id: str, asked: float, tokens: int, server_s: float = 0.0, bucket: int = 0) -> None:
        self.id, self.asked, self.tokens = ticket_id, asked, tokens
        self.server_s, self.bucket = server_s, bucket
        self.local = False

    def count_at(self, server_s: float) -> None:
        self.server_s, self.bucket = server_s, int(server_s)


class ValkeyQueue:
    """The requests of this process that wait for one limit. Each one that enters leaves exactly once."""

    def __init__(
        self, limit: "Limit", label: str, *, at_once: int | None, rpm: int | None, tpm: int | None, queue: int
    ) -> None:
        self._limit, self._limits, self._label = limit, limit.limits, label
        self.at_once = at_once
        self._limited = {kind: most for kind, most in zip(KINDS, (rpm, tpm), strict=True) if most is not None}
        for kind, most in self._limited.items():
            limit.seen[kind].limit = most
        self._windows = {kind: limit.seen[kind] for kind in self._limited}
        self.rpm, self.tpm = self._windows.get("rpm"), self._windows.get("tpm")
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
        return max(self._limit.running_seen - len(self._limit.places.ids), self.running)

    @property
    def admission(self) -> "ValkeyQueue":
        return self

    def wake(self) -> None:
        self._woken.set()

    def enter_now(self, ticket: Ticket, now: float) -> bool:
        """Enters with what was taken in advance. False: Valkey has to be asked."""
        ahead, rpm, tpm, place = self._limit.ahead, self.rpm, self.tpm, ""
        if self.queue.size or (now >= ahead.until and self._limited):
            return False
        if (rpm is not None and rpm.in_hand < 1) or (tpm is not None and tpm.in_hand < ticket.tokens):
            return False
        if self.at_once is not None:
            found = self._limit.places.take(now)
            if found is None:
                return False
            place = found
        low = now >= ahead.renew_at
        if rpm is not None:
            rpm.in_hand -= 1
            low = low or rpm.in_hand <= rpm.low
        if tpm is not None:
            tpm.in_hand -= ticket.tokens
            low = low or tpm.in_hand <= tpm.low
        # It counts in the second that ends when our clock is at `until`.
        self._admit(ticket, CountedRequest(place, ahead.until, ticket.tokens, ahead.bucket + 1, ahead.bucket))
        if low:
            ahead.look(now, self._windows)
        return True

    async def enter(self, ticket: Ticket, left_s: float) -> float:
        """Waits until the request may go and returns how long that took; an UpstreamError when it may not in time."""
        began = self._limits.clock()
        if not len(self.queue) and (self.enter_now(ticket, began) or await self._try(ticket) == 0):
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
        before, after = grant.bucket, int(grant.server_s + late_s)
        if after > before:
            changes: list[str | int] = []
            for kind, weight in self._weights(grant.tokens).items():
                changes += [kind, before, -weight, kind, after, weight]
            self._limits.server.call_later(self._limit.keys, ("settle", "", *changes))
            grant.bucket = after

    def leave(self, ticket: Ticket, *, sent: bool, tokens: int | None = None) -> None:
        """A request leaves the queue, or it has ended. An unsent one is given back; tokens are settled."""
        if not ticket.admitted:
            self.queue.remove(ticket.client, ticket)
            return
        ticket.admitted = False
        self._give_back(self._grants.pop(ticket), sent=sent, tokens=tokens)
        self._woken.set()

    def _give_back(self, grant: CountedRequest, *, sent: bool, tokens: int | None) -> None:
        limit, ahead = self._limit, self._limit.ahead
        self.running -= 1
        limit.running.pop(grant.id, None)
        if grant.local:
            return  # counted locally; Valkey gets the sum with the next hello
        if not sent:
            for kind, weight in self._weights(grant.tokens).items():
                ahead.give_back(kind, grant.bucket, weight)
        elif self.tpm is not None and tokens is not None and tokens != grant.tokens:
            ahead.give_back("tpm", grant.bucket, grant.tokens - tokens)
        if self.at_once is not None and not limit.places.keep(
            grant.id, self.at_once - limit.running_seen, self._limits.parts
        ):
            ahead.settle(grant.id)
        elif not ahead.bucket:
            ahead.settle()

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
        self._limit.ahead.settle()
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
        grant.count_at(server_ms / 1000)
        self._limits.set_time(server_ms)
        for kind, used in zip(KINDS, (rpm_used, tpm_used), strict=True):
            if kind in self._limited:
                self._limit.seen[kind].add(used, grant.server_s)
        self._limit.running_seen = count
        if wait_ms == 0:
            self._admit(ticket, grant)
            self._limit.ahead.look(grant.asked, self._windows)
        return inf if wait_ms < 0 else wait_ms / 1000

    def _refuse_grant(self, grant: CountedRequest, done: "asyncio.Future[ScriptReply]") -> None:
        """The client left while Valkey was asked."""
        if not done.cancelled() and done.exception() is None and done.result()[0] == 0:
            grant.count_at(done.result()[4] / 1000)
            self.running += 1
            self._give_back(grant, sent=False, tokens=None)

    def _admit(self, ticket: Ticket, grant: CountedRequest) -> None:
        ticket.admitted = True
        self.running += 1
        self._grants[ticket] = grant
        self._limit.ahead.requests += 1
        self._limit.ahead.tokens += ticket.tokens
        if grant.id:
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
