"""What a process takes of a limit before its requests come, so that most of them need not ask Valkey.

InAdvance is a small part of the limits by the minute. Valkey counts it from the moment when it is taken, in the second
in which it ends. So no true window is ever exceeded, whenever the process uses it. What is left at its end is given
back. It is in hand for one to two seconds, and as large as the process needs for that time, but at most an eighth of
its share of what is left: of a small limit, or one that is nearly used up, each request asks for its part. KeptPlaces
are places of requests that have ended, for the next ones.
"""

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from dragoman.valkey.limits import Limit, Seen
    from dragoman.valkey.server import ScriptReply

HELD_S = 2.0  # for this long it is used at most
RENEW_S = 0.5  # before its end, it is taken anew
WATCH_S = 0.25  # the demand of at least this time says how much is needed
LEAST = 4  # requests in that time; with fewer, each one asks
MORE = 1.25  # times the demand
PLACE_S = 10.0  # Valkey forgets a place 15 s after the last hello that named it (limits.lua)
PART = 8  # as in limits.lua: places are kept only while many more are free


class InAdvance:
    """What of one limit is in hand. The amounts are in the `Seen` of the windows, so that one look finds both."""

    __slots__ = ("_asking", "_limit", "_owed", "_since", "bucket", "renew_at", "requests", "tokens", "until")

    def __init__(self, limit: "Limit") -> None:
        self._limit = limit
        self.until = 0.0  # by our clock
        self.bucket = 0  # the second of Valkey's time in which it is counted; 0 if nothing is in hand
        self.renew_at = 0.0
        self.requests = self.tokens = 0  # that have entered since the last look
        self._since = limit.limits.clock()
        self._asking = False
        self._owed: dict[tuple[str, int], int] = {}  # changes that Valkey does not know yet, by window and bucket

    def look(self, now: float, windows: Mapping[str, "Seen"]) -> None:
        """Takes more, if it is time to. `windows`: those that have a limit, by their kind."""
        passed_s = now - self._since
        if self._asking or passed_s < WATCH_S or self._limit.limits.away:
            return
        requests, tokens = self.requests, self.tokens
        self._since, self.requests, self.tokens = now, 0, 0
        if requests >= LEAST and windows:
            times = MORE * HELD_S / min(passed_s, HELD_S)
            self._ask(ceil(requests * times), ceil(tokens * times), windows)

    def _ask(self, requests: int, tokens: int, windows: Mapping[str, "Seen"]) -> None:
        limits = self._limit.limits
        numbers = [windows[kind].limit if kind in windows else 0 for kind in ("rpm", "tpm")]
        asked, self._asking = limits.clock(), True
        reply = limits.server.call(
            self._limit.keys, ("advance", limits.replica, limits.epoch, *numbers, requests, tokens)
        )
        reply.add_done_callback(lambda done: self._take(done, asked, windows))

    def _take(self, done: "asyncio.Future[ScriptReply]", asked: float, windows: Mapping[str, "Seen"]) -> None:
        self._asking = False
        if done.cancelled() or done.exception() is not None or done.result()[0] != 0 or self._limit.limits.away:
            return
        _, requests, tokens, bucket, rpm_used, tpm_used, server_ms = done.result()
        if bucket != self.bucket:
            self.end()
        self.bucket = bucket
        # The script ran after `asked`, so that Valkey's time is not beyond this end when ours is not.
        self.until = asked + bucket + 1 - server_ms / 1000
        self.renew_at = self.until - RENEW_S
        for kind, amount, used in (("rpm", requests, rpm_used), ("tpm", tokens, tpm_used)):
            if kind in windows:
                windows[kind].take_in_hand(amount, used, server_ms / 1000, bucket)

    def give_back(self, kind: str, bucket: int, weight: int) -> None:
        """Something that was counted in a bucket was not used. What is in hand can be used again."""
        if bucket == self.bucket:
            self._limit.seen[kind].in_hand += weight
        else:
            self._owe(kind, bucket, -weight)

    def _owe(self, kind: str, bucket: int, weight: int) -> None:
        self._owed[kind, bucket] = self._owed.get((kind, bucket), 0) + weight

    def end(self) -> None:
        """What is left is to be given back."""
        for kind, seen in self._limit.seen.items():
            if self.bucket and seen.in_hand:
                self._owe(kind, self.bucket, -seen.in_hand)
            seen.in_hand = seen.low = 0
        self.bucket, self.until, self.renew_at = 0, 0.0, 0.0

    def settle(self, ticket: str = "") -> None:
        """Tells Valkey, with the next calls, what was not used, and that the place of a ticket is free."""
        changes: list[str | int] = []
        for (kind, bucket), weight in self._owed.items():
            if weight:
                changes += [kind, bucket, weight]
        self._owed.clear()
        if ticket or changes:
            self._limit.limits.server.call_later(self._limit.keys, ("settle", ticket, *changes))

    def tend(self, now: float) -> None:
        """From time to time."""
        if self.bucket and now >= self.until:
            self.end()
        self.settle()

    def lose(self) -> None:
        """Valkey is away: what is in hand is not used any more, and stays counted there until it leaves the window."""
        self.end()
        self._owed = {}


class KeptPlaces:
    """Tickets of requests that have ended, whose places under a limit of requests at once Valkey still counts."""

    __slots__ = ("_least", "ids", "until")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.until = 0.0  # until then Valkey knows them all, if it has not lost its memory
        self._least = 0  # so many were not needed since the last look

    def keep(self, ticket: str, free: int, parts: int) -> bool:
        """Keeps a place, if the other processes have enough. `free`: at the last look."""
        if (len(self.ids) + 1) * PART * parts > free:
            return False
        self.ids.append(ticket)
        return True

    def take(self, now: float) -> str | None:
        if not self.ids or now >= self.until:
            return None
        ticket = self.ids.pop()
        if len(self.ids) < self._least:
            self._least = len(self.ids)
        return ticket

    def renew(self, asked: float) -> list[str]:
        """Valkey has heard of all places. Returns those that are to be given back: they were not needed."""
        over = len(self.ids) if asked >= self.until else self._least
        idle, self.ids = self.ids[:over], self.ids[over:]
        self.until, self._least = asked + PLACE_S, len(self.ids)
        return idle

    def lose(self) -> None:
        self.ids, self._least = [], 0
