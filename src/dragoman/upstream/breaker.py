"""Breaker: stops asking an upstream that does not answer, and lets one request in now and then to see.

Only what the upstream is to blame for counts. A 4xx is the caller's, a 429 is a cool-down, and a request that breaks
a healthy server (llama.cpp answers 500 to a picture it cannot take) must not close it for everybody:

away    not reached, or it says itself that it cannot serve      counts each time
silent  reached, and then no whole answer                        counts once a request
wrong   it answered with an error of its own                     counts once a request, and in the share only

and what one asker alone meets, while others are served, opens nothing.
"""

from collections import deque
from collections.abc import Collection
from typing import Literal, TypeAlias

from dragoman.failure import Failure

State = Literal["closed", "open", "half_open"]
How: TypeAlias = Literal["away", "silent", "wrong"]

IN_A_ROW = 5
SHARE = 0.5
AT_LEAST = 20
LOOK_BACK_S = 30.0
OPEN_S = 30.0
LONGEST_S = 300.0
MOST_KEPT = 1000

# What the transport found out for itself; every other failure is an answer.
_CODES: dict[str, How] = {
    "upstream_unreachable": "away",
    "upstream_connect": "away",
    "upstream_tls": "away",
    "upstream_redirect": "away",
    "upstream_disconnected": "silent",
    "upstream_timeout": "silent",
    "upstream_truncated": "silent",
}
_AWAY_STATUSES = frozenset({502, 503, 504, 529})


def how_failed(failure: Failure) -> How:
    """What a failure that is not the caller's says about the upstream."""
    known = _CODES.get(failure.code or "")
    if known is not None:
        return known
    if (failure.code or "").startswith("upstream_"):
        return "wrong"  # its answer cannot be used, for which we have a status of our own
    return "away" if failure.kind == "overloaded" or failure.status in _AWAY_STATUSES else "wrong"


class Breaker:
    __slots__ = ("_before", "_history", "_last", "_probing", "_row", "_trips", "_until", "state")

    def __init__(self) -> None:
        self.state: State = "closed"
        self._row: list[str | None] = []  # who met the failures since the last success; None: anybody would have
        self._history: deque[tuple[float, bool, str | None, int | None]] = deque()
        self._until = 0.0
        self._trips = 0
        self._probing = False
        self._last: tuple[str, float] | None = None  # who was served last, and the last one besides
        self._before: tuple[str, float] | None = None

    def allows(self, now: float) -> bool:
        """Whether a request may go; when it is open and its time is up, one may, as a probe."""
        if self.state == "closed":
            return True
        return not self._probing and now >= self._until

    def begin(self, now: float) -> None:
        """A request goes."""
        if self.state != "closed":
            self.state = "half_open"
            self._probing = True

    def succeeded(self, now: float, who: str = "") -> None:
        if self._last is not None and self._last[0] != who:
            self._before = self._last
        self._last = (who, now)
        if self._row:
            self._row.clear()
        if self.state == "open":  # a request from before it opened
            return
        if self.state == "half_open":
            self.state, self._probing, self._trips = "closed", False, 0
            self._history.clear()
        elif self._history:
            self._remember(now, True, who, None)

    def failed(self, now: float, dice: float, how: How = "away", who: str = "", about: int | None = None) -> None:
        """`about`: which request it was, if that is known."""
        if self.state == "open":  # a request from before it opened
            return
        if self.state == "closed":
            self._forget(now)
        asker = None if how == "away" else who
        if asker is not None and about is not None and self._is_known(about):
            self.abandoned()  # the same request fails again: that says nothing new
            return
        self._remember(now, False, asker, about)
        if how != "wrong":
            self._row = [*self._row[-IN_A_ROW:], asker]
        if self.state == "half_open" or self._should_open(now):
            self._trip(now, dice)

    def abandoned(self) -> None:
        """The probe ended without an answer either way: the client left."""
        self._probing = False

    def wait_s(self, now: float) -> float:
        return 0.0 if self.state == "closed" else max(self._until - now, 0.0)

    def _should_open(self, now: float) -> bool:
        if len(self._row) >= IN_A_ROW and not self._is_one_askers(self._row, now):
            return True
        bad = [who for _, good, who, _ in self._history if not good]
        many = len(self._history) >= AT_LEAST and len(bad) >= SHARE * len(self._history)
        return many and not self._is_one_askers(bad, now)

    def _is_one_askers(self, askers: Collection[str | None], now: float) -> bool:
        """Whether one asker met all of them while somebody else is served."""
        one, *others = set(askers)
        if one is None or others:
            return False
        served = [seen for seen in (self._last, self._before) if seen is not None]
        return any(who != one and at > now - LOOK_BACK_S for who, at in served)

    def _is_known(self, about: int) -> bool:
        return any(about == known for _, _, _, known in self._history)

    def _trip(self, now: float, dice: float) -> None:
        self._trips += 1
        length = min(OPEN_S * self._trips, LONGEST_S)
        self.state, self._probing = "open", False
        self._until = now + length * (0.8 + 0.4 * dice)
        self._row.clear()
        self._forget(now)

    def _remember(self, now: float, good: bool, who: str | None, about: int | None) -> None:
        self._history.append((now, good, who, about))
        self._forget(now)

    def _forget(self, now: float) -> None:
        history = self._history
        while history and (history[0][0] < now - LOOK_BACK_S or len(history) > MOST_KEPT):
            history.popleft()
