"""How workers share the connections that come to one socket.

The event loop accepts all connections that wait at once: of a client's thirty, one worker would get twenty-nine. Here a
worker accepts one at a time. If another one has fewer open, by more than one, it leaves the next to that one for a
moment.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from mmap import mmap
from typing import TypeAlias

from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
LEAVE_S = 0.001  # a worker that is not busy accepts within this time
GONE = 2**62
REST_S = 1.0  # after an error: mostly, no more files may be open
Open: TypeAlias = Callable[[socket.socket], object]


class OpenCounts:
    """How many connections each worker has open. The supervisor makes it, its workers inherit it."""

    def __init__(self, workers: int) -> None:
        self.cells = memoryview(mmap(-1, workers * 8)).cast("q")

    def of(self, worker: int) -> "Share":
        return Share(self.cells, worker)


class Share:
    """What one worker tells the others, and hears of them."""

    def __init__(self, cells: memoryview, worker: int) -> None:
        self._cells, self._worker = cells, worker
        cells[worker] = 0  # the worker before this one died with its connections

    def tell(self, count: int) -> bool:
        """Tells how many connections are open here. Returns whether another worker has fewer, by more than one."""
        self._cells[self._worker] = count
        return count > min(self._cells) + 1

    def leave(self) -> None:
        """This worker accepts no more: no other one waits for it."""
        self._cells[self._worker] = GONE


class Acceptor:
    """Accepts the connections of one listening socket, until `close`."""

    def __init__(self, listener: socket.socket, share: Share, count: Callable[[], int], open_connection: Open) -> None:
        """`count`: the connections that are open, or opening. `open_connection`: takes one that was accepted."""
        self._listener, self._share, self._count, self._open = listener, share, count, open_connection
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_left = False  # the next connection, to another worker
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        self._share.leave()
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()

    def _accept(self) -> None:
        others_have_fewer = self._share.tell(self._count())
        if others_have_fewer and not self._has_left:
            self._has_left = True
            self._wait(LEAVE_S)
            return
        self._has_left = False
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker has it, or the client has gone
        except OSError as error:
            log.warning(LogLine("accept_failed", {"error": str(error), "again_s": REST_S}))
            self._wait(REST_S)
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open(client)

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, self._loop.add_reader, self._listener, self._accept)
