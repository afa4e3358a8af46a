"""Breaker: stops asking an upstream that does not answer, and lets one request in now and then to see.

Only failures of its own count (no connection, no answer, 5xx): a 4xx is the caller's, a 429 is a cool-down.
"""

from collections import deque
from typing import Literal

State = Literal["closed", "open", "half_open"]

IN_A_ROW = 5
SHARE = 0.5
AT_LEAST = 20
LOOK_BACK_S = 30.0
OPEN_S = 30.0
LONGEST_S = 300.0


class Breaker:
    __slots__ = ("_history", "_in_a_row", "_probing", "_trips", "_until", "state")

    def __init__(self) -> None:
        self.state: State = "closed"
        self._in_a_row = 0
        self._history: deque[tuple[float, bool]] = deque()
        self._until = 0.0
        self._trips = 0
        self._probing = False

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

    def succeeded(self, now: float) -> None:
        self._in_a_row = 0
        if self.state == "open":  # a request from before it opened
            return
        if self.state == "half_open":
            self.state, self._probing, self._trips = "closed", False, 0
            self._history.clear()
        elif self._history:
            self._remember(now, True)

    def failed(self, now: float, dice: float) -> None:
        self._in_a_row += 1
        self._remember(now, False)
        if self.state != "closed" or self._in_a_row >= IN_A_ROW or self._mostly_failing():
            self._trip(now, dice)

    def abandoned(self) -> None:
        """The probe ended without an answer either way: the client left."""
        self._probing = False

    def wait_s(self, now: float) -> float:
        return 0.0 if self.state == "closed" else max(self._until - now, 0.0)

    def _trip(self, now: float, dice: float) -> None:
        self._trips += 1
        length = min(OPEN_S * self._trips, LONGEST_S)
        self.state, self._probing = "open", False
        self._until = now + length * (0.8 + 0.4 * dice)
        self._in_a_row = 0
        self._history.clear()

    def _remember(self, now: float, good: bool) -> None:
        history = self._history
        history.append((now, good))
        while history and (history[0][0] < now - LOOK_BACK_S or len(history) > 1000):
            history.popleft()

    def _mostly_failing(self) -> bool:
        bad = sum(1 for _, good in self._history if not good)
        return len(self._history) >= AT_LEAST and bad / len(self._history) >= SHARE
