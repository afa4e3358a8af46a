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

    __slots__ = ("_dated", "_rows", "_same")

    def __init__(self, limits: Sequence[LimitView], dialect: Dialect) -> None:
        names, self._dated = dialect.quota_headers, dialect.dates_quota
        self._same: dict[str, str] = {}
        self._rows: list[tuple[str, str, str, list[LeftWindow]]] = []
        for (limit, left, reset), windows in (
            (names[:3], [view.rpm for view in limits if view.rpm is not None]),
            (names[3:], [view.tpm for view in limits if view.tpm is not None]),
        ):
            if windows:
                self._rows.append((limit, left, reset, [*windows]))
                self._same.update({limit: str(windows[0].limit), left: "", reset: WHOLE_AGAIN})

    def write(self, wall: float) -> dict[str, str]:
        """Empty if there are no limits by the minute."""
        headers = self._same.copy()
        for limit, left, reset, windows in self._rows:
            least = windows[0].left
            for other in windows[1:]:
                if other.left < least:
                    least, headers[limit] = other.left, str(other.limit)
            headers[left] = str(least)
            if self._dated:
                headers[reset] = _write_time(int(wall + SPAN_S) + 1)
        return headers


@lru_cache(maxsize=2)
def _write_time(second: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(second))
