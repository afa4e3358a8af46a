"""Resolver: the addresses of a host name, within a time limit, and from memory while the system's lookup fails (F29).

The system's lookup blocks and cannot be cancelled. Each name is looked up in a thread of its own that dies with the
process. So a slow lookup does not delay the others, and a stuck one does not delay the end of the process.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

LOOKUP_S = 3.0
FRESH_S = 60.0
KEPT_S = 300.0  # an answer may be this old when there is no fresh one
MOST_KEPT = 1000

Address: TypeAlias = tuple[Any, ...]  # an entry of getaddrinfo


def look_up(host: str, port: int) -> list[Address]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class Resolver:
    def __init__(self, lookup_s: float = LOOKUP_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._lookup_s = lookup_s
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[float, list[Address]]] = {}
        self._asking: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """A gaierror when there is no answer in time, nor one from the last five minutes."""
        numeric = _read_address(host, port)
        if numeric is not None:
            return numeric
        at = (host, port)
        age, kept = self._kept(at)
        if age <= FRESH_S:
            return kept
        try:
            async with asyncio.timeout(self._lookup_s):
                return await asyncio.shield(self._ask(at))
        except (OSError, UnicodeError) as error:  # a timeout is an OSError too
            if age <= KEPT_S:
                return kept
            raise socket.gaierror(socket.EAI_AGAIN, "the name cannot be resolved") from error

    def _kept(self, at: tuple[str, int]) -> tuple[float, list[Address]]:
        found = self._known.get(at)
        return (KEPT_S + 1, []) if found is None else (self._clock() - found[0], found[1])

    def _ask(self, at: tuple[str, int]) -> asyncio.Future[list[Address]]:
        """One lookup for each name, which all that wait share. It may end after they have stopped waiting."""
        asking = self._asking.get(at)
        if asking is None:
            asking = self._asking[at] = in_a_thread(look_up, *at)
            asking.add_done_callback(lambda done: self._keep(at, done))
        return asking

    def _keep(self, at: tuple[str, int], done: asyncio.Future[list[Address]]) -> None:
        del self._asking[at]
        if done.cancelled() or done.exception() is not None or not done.result():
            return
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[at] = (self._clock(), done.result())


def _read_address(host: str, port: int) -> list[Address] | None:
    """A numeric address, which needs no lookup."""
    try:
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except (OSError, UnicodeError):
        return None


def in_a_thread(work: Callable[..., list[Address]], *arguments: Any) -> asyncio.Future[list[Address]]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Address]] = loop.create_future()

    def tell(done: Callable[[Any], None], value: object) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if future.done() else done(value))
        except RuntimeError:  # the loop is closed
            return

    def run() -> None:
        try:
            found = work(*arguments)
        except Exception as error:
            tell(future.set_exception, error)
        else:
            tell(future.set_result, found)

    threading.Thread(target=run, name="resolver", daemon=True).start()
    return future
