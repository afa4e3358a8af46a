"""Workers share the connections of one socket evenly. Workers are played by acceptors of one event loop."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dragoman.gateway.process import accept
from dragoman.gateway.process.accept import Acceptor, OpenCounts
from dragoman.gateway.process.server import bind
from tests.waiting import until


class Street:
    """A listening socket, its clients, and its workers."""

    def __init__(self, stack: ExitStack, workers: int) -> None:
        self.stack, self.listener = stack, stack.enter_context(bind("127.0.0.1", 0))
        self.counts = OpenCounts(workers)

    def connect(self, count: int) -> None:
        for _ in range(count):
            self.stack.enter_context(socket.create_connection(self.listener.getsockname()))


class Worker:
    def __init__(self, street: Street, number: int) -> None:
        self.street = street
        self.open: list[socket.socket] = []
        self.listener = street.stack.enter_context(street.listener.dup())
        self.acceptor = Acceptor(self.listener, street.counts.of(number), lambda: len(self.open), self.take)

    def take(self, client: socket.socket) -> None:
        self.open.append(self.street.stack.enter_context(client))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def test_connections_that_come_at_once_are_spread_evenly(stack: ExitStack) -> None:
    async def play() -> None:
        street = Street(stack, 2)
        first, second = workers = [Worker(street, number) for number in range(2)]
        street.connect(31)
        await until(lambda: len(first.open) + len(second.open) == 31)
        assert abs(len(first.open) - len(second.open)) <= 3
        del first.open[:10]
        street.connect(10)
        await until(lambda: len(first.open) + len(second.open) == 31)
        assert abs(len(first.open) - len(second.open)) <= 3
        for worker in workers:
            worker.acceptor.close()

    asyncio.run(play())


@pytest.mark.parametrize("how", ["stuck", "ended"])
def test_a_worker_takes_all_if_the_other_one_does_not(how: str, stack: ExitStack) -> None:
    async def play() -> None:
        street = Street(stack, 2)
        first, other = Worker(street, 0), Worker(street, 1)
        if how == "ended":
            other.acceptor.close()
        else:
            asyncio.get_running_loop().remove_reader(other.listener)
        street.connect(5)
        await until(lambda: len(first.open) == 5)
        first.acceptor.close()

    asyncio.run(play())


class Full:
    """A socket that cannot accept at first."""

    def __init__(self, real: socket.socket) -> None:
        self.real, self.failures = real, 2
        self.fileno, self.setblocking = real.fileno, real.setblocking

    def accept(self) -> tuple[socket.socket, Any]:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.real.accept()


def test_too_many_open_files_are_logged_and_tried_again(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accept, "REST_S", 0.001)

    async def play() -> None:
        street = Street(stack, 1)
        worker = Worker(street, 0)
        worker.acceptor.close()
        listener: Any = Full(street.listener)
        again = Acceptor(listener, street.counts.of(0), lambda: len(worker.open), worker.take)
        street.connect(1)
        await until(lambda: len(worker.open) == 1)
        again.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert len(caplog.records) == 2
