"""Breaker: stops sending to an upstream that does not answer. Now and then it lets one request through as a probe.

Only the upstream's own failures count. A 4xx is the caller's fault and a 429 is a cool-down. One request can also break
a healthy server (llama.cpp answers 500 to a picture it cannot take), and that must not stop all other requests. So a
failure is of one of three sorts:

away    not reached, or it says itself that it cannot serve      any client would meet it
silent  reached, but no whole answer came                        may be this request's own fault
wrong   it answered with an error of its own                     the same, and counts in the share only

The attempts of one request count once. So does a request that is sent again and again, if it may be at fault itself.

Failures that only one client meets, while other clients are served, do not open the breaker.
"""

from collections import deque
from collections.abc import Collection
from math import inf
from typing import Literal, TypeAlias

from dragoman.failure import Failure

State = Literal["closed", "open", "half_open"]
How: TypeAlias = Literal["away", "silent", "wrong"]

IN_A_ROW = 5
SHARE = 0.5
AT_LEAST = 20
LOOK_BACK_S = 30.0
OPEN_S = 30.0
MOST_KEPT = 1000

# Codes of our own transport. Every other failure is an answer of the upstream.
_CODES: dict[str, How] = {
    "upstream_unreachable": "away",
    "upstream_connect": "away",
    "upstream_tls": "away",
    "upstream_redirect": "away",
    "upstream_http2_only": "away",
    "upstream_disconnected": "silent",
    "upstream_gave_up": "silent",
    "upstream_timeout": "silent",
    "upstream_truncated": "silent",
}
_AWAY_STATUSES = frozenset({502, 503, 504, 529})


def how_failed(failure: Failure) -> How:
    """The sort of a failure that is not the caller's fault."""
    known = _CODES.get(failure.code or "")
    if known is not None:
        return known
    if (failure.code or "").startswith("upstream_"):
        return "wrong"  # its answer cannot be used; the status 502 is ours
    return "away" if failure.kind == "overloaded" or failure.status in _AWAY_STATUSES else "wrong"


class Breaker:
    __slots__ = ("_before", "_early", "_history", "_last", "_probing", "_row", "_until", "state")

    def __init__(self) -> None:
        self.state: State = "closed"
        self._row: list[str | None] = []  # clients of the failures since the last success; None: any client would fail
        # time, success, client, hash of the request
        self._history: deque[tuple[float, bool, str | None, int | None]] = deque()
        self._until = 0.0
        self._probing = False
        self._early = False  # a request may go before the time is up, because no other upstream is left
        self._last: tuple[str, float] | None = None  # the client that was served last, and when
        self._before: tuple[str, float] | None = None  # the last one before it that is another client

    def allows(self, now: float) -> bool:
        """Whether a request may go. When the breaker is open and its time is up, one request may go as a probe."""
        if self.state == "closed":
            return True
        return not self._probing and now >= self._until

    def begin(self, now: float) -> None:
        """A request is being sent."""
        if self.state != "closed":
            self.state = "half_open"
            self._probing = True
            self._early = now < self._until

    def succeeded(self, now: float, client: str = "") -> None:
        if self._last is not None and self._last[0] != client:
            self._before = self._last
        self._last = (client, now)
        if self._row:
            self._row.clear()
        if self.state == "open":  # a request from before it opened
            return
        if self.state == "half_open":
            self.state, self._probing = "closed", False
            self._history.clear()
        elif self._history:
            self._remember(now, True, client, None)

    def failed(
        self, now: float, dice: float, how: How = "away", client: str = "", request_hash: int | None = None
    ) -> None:
        """`request_hash` tells one request from another, where it is known."""
        if self.state == "open":  # a request from before it opened
            return
        if self.state == "closed":
            self._forget(now)
        blamed = None if how == "away" else client
        if blamed is not None and request_hash is not None and self._is_known(request_hash):
            self.abandoned()  # the same request fails again: that says nothing new
            return
        self._remember(now, False, blamed, request_hash)
        if how != "wrong":
            self._row = [*self._row[-IN_A_ROW:], blamed]
        if self.state == "half_open" and self._early:
            self.abandoned()  # it was expected to fail: that makes the wait no longer
        elif self.state == "half_open" or self._should_open(now):
            self._trip(now, dice)

    def abandoned(self) -> None:
        """The probe ended without a result, for example because the client left."""
        self._probing = False
        if self.state == "half_open" and self._early:
            self.state = "open"

    @property
    def served_at(self) -> float:
        """When a request was last served."""
        return -inf if self._last is None else self._last[1]

    def wait_s(self, now: float) -> float:
        return 0.0 if self.state == "closed" else max(self._until - now, 0.0)

    def _should_open(self, now: float) -> bool:
        if len(self._row) >= IN_A_ROW and not self._is_one_clients(self._row, now):
            return True
        bad = [client for _, good, client, _ in self._history if not good]
        many = len(self._history) >= AT_LEAST and len(bad) >= SHARE * len(self._history)
        return many and not self._is_one_clients(bad, now)

    def _is_one_clients(self, clients: Collection[str | None], now: float) -> bool:
        """Whether one client met all these failures while another client is served."""
        one, *others = set(clients)
        if one is None or others:
            return False
        served = [seen for seen in (self._last, self._before) if seen is not None]
        return any(client != one and at > now - LOOK_BACK_S for client, at in served)

    def _is_known(self, request_hash: int) -> bool:
        return any(request_hash == known for _, _, _, known in self._history)

    def _trip(self, now: float, dice: float) -> None:
        self.state, self._probing = "open", False
        self._until = now + OPEN_S * (0.8 + 0.4 * dice)
        self._row.clear()
        self._forget(now)

    def _remember(self, now: float, good: bool, client: str | None, request_hash: int | None) -> None:
        self._history.append((now, good, client, request_hash))
        self._forget(now)

    def _forget(self, now: float) -> None:
        history = self._history
        while history and (history[0][0] < now - LOOK_BACK_S or len(history) > MOST_KEPT):
            history.popleft()
