"""Quota: how much of its limits a key has left, in the headers that its client knows.

Where a key and its team both have a limit, the one counts of which less is left.
"""

from collections.abc import Sequence
from functools import lru_cache
from time import gmtime, strftime
from typing import Protocol

from dragoman.dialects._base import Dialect
from dragoman.upstream.admission import SPAN_S, LimitView

WHOLE_AGAIN = "1m0s"  # the windows slide: after a minute without requests a limit is whole again


class LeftWindow(Protocol):
    @property
    def limit(self) -> int: ...
    @property
    def left(self) -> int: ...


class Quota:
    """For one key and one dialect. What stays the same for all its replies is written once."""

    __slots__ = ("_dated", "_lines", "_names", "_rows")

    def __init__(self, limits: Sequence[LimitView], dialect: Dialect) -> None:
        names, self._dated = dialect.quota_headers, dialect.dates_quota
        self._names: list[str] = []
        self._rows: list[tuple[LeftWindow, list[LeftWindow]]] = []
        for row, windows in (
            (names[:3], [view.rpm for view in limits if view.rpm is not None]),
            (names[3:], [view.tpm for view in limits if view.tpm is not None]),
        ):
            if windows:
                self._rows.append((windows[0], [*windows[1:]]))
                self._names += row
        self._lines = "".join([f"{name}: %s\r\n" for name in self._names])

    def write(self, wall: float) -> dict[str, str]:
        """Empty if there are no limits by the minute."""
        return dict(zip(self._names, map(str, self._find_values(wall)), strict=True))

    def write_lines(self, wall: float) -> str:
        """The same, as lines of a head."""
        return self._lines % tuple(self._find_values(wall))

    def _find_values(self, wall: float) -> list[int | str]:
        values: list[int | str] = []
        reset = _write_time(int(wall + SPAN_S) + 1) if self._dated and self._rows else WHOLE_AGAIN
        for window, others in self._rows:
            least = window.left
            for other in others:
                left = other.left
                if left < least and least > 0:
                    least, window = left, other
            values += (window.limit, least if least > 0 else 0, reset)
        return values


@lru_cache(maxsize=2)
def _write_time(second: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(second))
