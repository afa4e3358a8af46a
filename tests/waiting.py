"""Waiting for what a test needs next: until it is so, never for a guess of how long that takes.

A busy machine makes a test slower and must not make it fail. So a wait ends as soon as its fact is true, and gives up
only after a time that says "this will never happen".
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

NEVER_S = 300.0  # what has not happened by then will not happen, also where twenty processes share a core
_LOOK_S = 0.005  # between two looks


def wait_until(fact: Callable[[], T], what: str = "what the test waits for") -> T:
    """Looks until the fact is true, and returns what it said then."""
    until = time.monotonic() + NEVER_S
    while not (said := fact()):
        assert time.monotonic() < until, f"{what} did not happen in {NEVER_S:g} s"
        time.sleep(_LOOK_S)
    return said


async def until(fact: Callable[[], T], what: str = "what the test waits for") -> T:
    """The same inside an event loop, which goes on meanwhile."""
    end = time.monotonic() + NEVER_S
    while not (said := fact()):
        assert time.monotonic() < end, f"{what} did not happen in {NEVER_S:g} s"
        await asyncio.sleep(_LOOK_S)
    return said


async def until_said(ask: Callable[[], Awaitable[T]], fits: Callable[[T], object]) -> T:
    """Asks again until the answer fits, and returns it."""
    end = time.monotonic() + NEVER_S
    while not fits(said := await ask()):
        assert time.monotonic() < end, f"after {NEVER_S:g} s it still says {said!r}"
        await asyncio.sleep(_LOOK_S)
    return said


async def turns(count: int) -> None:
    """Lets other tasks go on for so many turns of the event loop: work that takes a while, on any machine."""
    for _ in range(count):
        await asyncio.sleep(0)
