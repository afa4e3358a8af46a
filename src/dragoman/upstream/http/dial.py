"""Finds the addresses of a host name and opens a socket to the first one that answers, with TLS where needed.

The system's lookup blocks and cannot be cancelled. Each name is looked up in a thread of its own that dies with the
process. So a slow lookup does not delay the others, and a stuck one does not delay the end of the process. While the
lookup fails, addresses are used from memory (F29).
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import chain, zip_longest
from typing import Any, TypeAlias, TypeVar

LOOKUP_S = 3.0
FRESH_S = 60.0
KEPT_S = 300.0  # an answer may be this old when there is no fresh one
MOST_KEPT = 1000
HEAD_START_S = 0.25  # an address is tried alone for this long (RFC 8305, Happy Eyeballs)

P = TypeVar("P", bound=asyncio.Protocol)
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


async def dial(
    host: str,
    found: list[Address],
    make: Callable[[], P],
    *,
    tls: ssl.SSLContext | None,
    connect_s: float,
    prepare: Callable[[socket.socket], Awaitable[None]] | None = None,
) -> P:
    """A connected protocol; an OSError (such as ssl.SSLError or TimeoutError) when no address in `found` answers.
    `prepare`: what to do on the socket before TLS begins."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(connect_s):
        connected = await _reach(loop, _mixed(found))
        try:
            if prepare is not None:
                await prepare(connected)
            _, protocol = await loop.create_connection(
                make, sock=connected, ssl=tls, server_hostname=host if tls else None
            )
        except BaseException:
            connected.close()
            raise
        return protocol


def _mixed(found: list[Address]) -> list[Address]:
    """IPv4 and IPv6 in turn, beginning with the family that the system prefers."""
    first = [info for info in found if info[0] == found[0][0]]
    other = [info for info in found if info[0] != found[0][0]]
    return [info for info in chain.from_iterable(zip_longest(first, other)) if info is not None]


async def _reach(loop: asyncio.AbstractEventLoop, addresses: list[Address]) -> socket.socket:
    """Tries the next address when the one before has failed or its head start is over. The first to answer is used."""
    if len(addresses) == 1:
        return await _connect(loop, addresses[0])
    trying: set[asyncio.Task[socket.socket]] = set()
    failed: BaseException | None = None
    left = iter(addresses)
    more = True
    try:
        while True:
            address = next(left, None)
            if address is not None:
                trying.add(loop.create_task(_connect(loop, address)))
            more = address is not None
            if not trying:
                raise failed or OSError("no address")
            done, trying = await asyncio.wait(
                trying, timeout=HEAD_START_S if more else None, return_when=asyncio.FIRST_COMPLETED
            )
            good = [task.result() for task in done if not task.cancelled() and task.exception() is None]
            for second in good[1:]:
                second.close()
            if good:
                return good[0]
            failed = next((task.exception() for task in done), failed)
    finally:
        for task in trying:
            task.cancel()


async def _connect(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    family, kind, proto, _, where = address
    one = socket.socket(family, kind, proto)
    try:
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(one, where)
    except BaseException:
        one.close()
        raise
    return one
