"""The pauses of a gateway between two attempts: seen and skipped, so that a test of them waits for nothing."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dragoman.upstream import send
from tests.gateway.house import House


class HeldTime:
    """Stands in for the sender's clock and sleep. `waits` are the seconds that were asked for, in order."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.ended = 0  # pauses that are over
        self._ahead_s = 0.0
        self._held = False

    def clock(self) -> float:
        return time.monotonic() + self._ahead_s

    def hold(self) -> None:
        """From now on every pause lasts until `go`."""
        self._held = True

    def go(self) -> None:
        self._held = False

    async def sleep(self, seconds: float) -> None:
        until = self.clock() + seconds
        self.waits.append(seconds)
        while self._held:
            await asyncio.sleep(0.001)
        self._ahead_s = max(self._ahead_s, until - time.monotonic())
        await asyncio.sleep(0)
        self.ended += 1


@contextmanager
def held_time(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldTime]:
    """The pauses of this gateway take no time, or as long as the test says."""
    held = HeldTime()
    with monkeypatch.context() as patch:
        patch.setattr(send, "asyncio", SimpleNamespace(sleep=held.sleep))
        patch.setattr(house.gateway.sender, "clock", held.clock)
        try:
            yield held
        finally:
            held.go()
