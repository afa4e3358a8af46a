"""Window: a sliding limit that no true window of its length ever exceeds.

A log of what was taken and when. What is taken counts from the moment it is taken; `stamp` moves it to the moment it
was really sent, so a slow connect cannot squeeze two windows' worth into one. The margin covers the way there.
"""

from collections import deque
from math import inf

SPAN_S = 60.0
MARGIN_S = 0.05


class WindowEntry:
    """One reservation. Its weight may change until it leaves the window."""

    __slots__ = ("at", "counted", "weight")

    def __init__(self, at: float, weight: int) -> None:
        self.at = at
        self.weight = weight
        self.counted = True


class Window:
    __slots__ = ("_log", "_span", "_used", "limit")

    def __init__(self, limit: int, span_s: float = SPAN_S, margin_s: float = MARGIN_S) -> None:
        self.limit = limit
        self._span = span_s + margin_s
        self._log: deque[WindowEntry] = deque()  # by time
        self._used = 0

    def wait_s(self, now: float, weight: int = 1) -> float:
        """0 when `weight` fits now, else how long until it can."""
        self._forget(now)
        # What is heavier than the whole limit goes when the window is empty: it could never go otherwise.
        over = self._used + min(weight, self.limit) - self.limit
        if over <= 0:
            return 0.0
        for slip in self._log:
            over -= slip.weight
            if over <= 0:
                return max(slip.at + self._span - now, 0.001)
        return inf  # not reached: everything in the log leaves in the end

    def take(self, now: float, weight: int = 1) -> WindowEntry:
        slip = WindowEntry(now, weight)
        self._log.append(slip)
        self._used += weight
        return slip

    def stamp(self, slip: WindowEntry, now: float) -> None:
        """It was sent only now."""
        if slip.counted and now > slip.at:
            self._log.remove(slip)
            slip.at = now
            self._log.append(slip)

    def settle(self, slip: WindowEntry, weight: int) -> None:
        """What it really weighed."""
        if slip.counted:
            self._used += weight - slip.weight
        slip.weight = weight

    def give_back(self, slip: WindowEntry) -> None:
        """It was never sent."""
        if slip.counted:
            slip.counted = False
            self._log.remove(slip)
            self._used -= slip.weight

    def used(self, now: float) -> int:
        self._forget(now)
        return self._used

    def _forget(self, now: float) -> None:
        log = self._log
        while log and log[0].at + self._span <= now:
            slip = log.popleft()
            slip.counted = False
            self._used -= slip.weight
