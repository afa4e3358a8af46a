"""Pool: idle connections to one origin, kept for the next question."""

import asyncio

from dragoman.upstream.http.connection import HttpConnection

POOL_IDLE_S = 20.0  # below what servers commonly keep (FIELD-CASES 107)


class Pool:
    """The one used last goes first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[HttpConnection] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> HttpConnection | None:
        fresh = self._loop.time() - POOL_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and connection.idle_since > fresh:
                return connection
            connection.close()
        return None

    def give_back(self, connection: HttpConnection) -> None:
        connection.answers += 1
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(POOL_IDLE_S, self._sweep)

    def _sweep(self) -> None:
        fresh = self._loop.time() - POOL_IDLE_S
        kept = [connection for connection in self._idle if not connection.closed and connection.idle_since > fresh]
        for connection in self._idle:
            if connection not in kept:
                connection.close()
        self._idle = kept
        self._timer = self._loop.call_later(POOL_IDLE_S, self._sweep) if kept else None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
