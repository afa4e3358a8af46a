"""A listener hears of an answer's bytes before the task that waits for them."""

import asyncio
from typing import Any

import pytest

from dragoman.upstream.http.connection import HttpConnection
from tests.waiting import NEVER_S

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Line:
    """A transport that keeps what was written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        pass


def connect() -> HttpConnection:
    connection, line = HttpConnection(asyncio.get_running_loop()), Line()
    connection.connection_made(line)  # type: ignore[arg-type]
    connection.ask(b"POST / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD)
    return connection


def test_a_piece_that_a_listener_takes_wakes_no_task() -> None:
    async def run() -> None:
        connection, heard = connect(), list[bytes]()

        def listen() -> bool:
            heard.append(connection.take())
            return True

        connection.listener = listen
        waiter = connection.wait(NEVER_S)
        connection.data_received(b"3\r\none\r\n")
        connection.data_received(b"3\r\ntwo\r\n")
        assert heard == [b"one", b"two"]
        assert not waiter.done()
        connection.close()

    asyncio.run(run())


def test_what_a_listener_does_not_take_is_for_the_task() -> None:
    async def run() -> None:
        connection = connect()
        connection.listener = lambda: False
        waiter = connection.wait(NEVER_S)
        connection.data_received(b"3\r\none\r\n")
        assert waiter.done()
        assert connection.take() == b"one"
        connection.close()

    asyncio.run(run())


def test_a_listener_hears_nothing_while_the_task_is_at_work() -> None:
    """It must not overtake what the task has taken and not yet written."""

    async def run() -> None:
        connection, heard = connect(), list[int]()

        def listen() -> bool:
            heard.append(connection.waiting)
            return True

        connection.listener = listen
        connection.data_received(b"3\r\none\r\n")
        assert heard == []
        assert connection.take() == b"one"
        connection.close()

    asyncio.run(run())


def test_an_end_wakes_the_task_whatever_the_listener_does() -> None:
    async def run() -> None:
        connection: Any = connect()
        connection.listener = lambda: bool(connection.waiting)
        waiter = connection.wait(NEVER_S)
        connection.data_received(b"0\r\n\r\n")
        assert waiter.done()
        assert connection.ended
        connection.close()

    asyncio.run(run())


def test_what_a_listener_takes_moves_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on is not silent."""

    async def run() -> None:
        connection = connect()
        connection.listener = lambda: bool(connection.take())
        waiter = connection.wait(NEVER_S)
        first = connection._deadline
        monkeypatch.setattr(connection, "_loop", Clock(connection._loop, 20.0))
        connection.data_received(b"3\r\none\r\n")
        assert connection._deadline >= first + 19.0
        assert not waiter.done()
        connection.close()

    asyncio.run(run())


class Clock:
    """A loop whose clock is ahead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead: float) -> None:
        self._loop, self._ahead = loop, ahead

    def time(self) -> float:
        return self._loop.time() + self._ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)
