"""Opens a socket to the first address of a host that answers, with TLS where needed."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from itertools import chain, zip_longest
from typing import TypeVar

from dragoman.upstream.http.resolver import Address

HEAD_START_S = 0.25  # an address is tried alone for this long (RFC 8305, Happy Eyeballs)

P = TypeVar("P", bound=asyncio.Protocol)


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
