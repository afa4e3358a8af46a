"""The server: uvicorn with what it lacks. Header caps, deadlines, ending what a client left, draining."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.gateway.asgi import CANCELS, Asgi
from dragoman.gateway.listening import BACKLOG, Holding
from dragoman.gateway.state import Gateway

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
MAX_LINE_BYTES = 8 * 1024
HEAD_S = 10.0
BODY_S = 30.0
BODY_S_PER_MIB = 1.0
WRITE_S = 60.0
KEEP_ALIVE_S = 60
AFTER_GRACE_S = 5.0
FEW = 100  # turns of the loop
LINGER_S = 1.0  # a connection that is open when the server leaves may ask once more

_LENGTHS = {b"transfer-encoding": 1, b"content-length": 2}
_TOO_BIG = b'{"error": {"message": "the request head is too large", "type": "invalid_request_error"}}'
_TOO_SLOW = b'{"error": {"message": "the request took too long to arrive", "type": "invalid_request_error"}}'


class Protocol(HttpToolsProtocol):
    """One connection. What it adds costs nothing while a request arrives in one piece and its answer is read."""

    _clock: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _head = 0
    _arrived = True
    _begun = False
    _refused = False
    _running: "asyncio.Task[None] | None" = None
    _leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state = {CANCELS: True}
        self._arm(HEAD_S)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._begun:
            self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._begun and self._head > MAX_HEAD_BYTES:
            self._refuse(431, _TOO_BIG)
        elif self._arrived:
            self._disarm()
        elif self._clock is None:
            self._arm(BODY_S + self._expected() * BODY_S_PER_MIB if self._begun else HEAD_S)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arrived, self._begun = False, False

    def on_headers_complete(self) -> None:
        size, coded = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name in _LENGTHS:
                coded |= _LENGTHS[name]
        if len(self.headers) > MAX_HEADERS or size > MAX_HEAD_BYTES or len(self.url) > MAX_LINE_BYTES:
            self._refuse(431, _TOO_BIG)
            return
        if coded == 3:
            raise httptools.HttpParserError("both transfer-encoding and content-length")
        self._begun, self._head = True, 0
        self._disarm()
        super().on_headers_complete()
        if self._leaving is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._arrived = True
        if not self._refused:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        task = self._running = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def shutdown(self) -> None:
        """The server leaves: this connection ends with its answer, or soon."""
        if self._is_idle():
            if self._leaving is None:
                self._leaving = self.loop.call_later(LINGER_S, self._leave)
        else:
            super().shutdown()

    def _is_idle(self) -> bool:
        cycle: Any = self.cycle  # None until the first request
        return cycle is None or bool(cycle.response_complete)

    def _leave(self) -> None:
        if self._is_idle():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._leaving is not None:
            self._leaving.cancel()
        if self._stall is not None:
            self._stall.cancel()
        cycle: Any = self.cycle  # None until the first request
        unfinished = cycle is not None and not cycle.response_complete
        super().connection_lost(exc)
        if unfinished and self._running is not None:
            self._running.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _expected(self) -> float:
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        return int(length) / 1024 / 1024 if length.isdigit() and len(length) < 12 else 0.0

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._clock = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _late(self) -> None:
        self._clock = None
        if self._running is not None and self._begun:
            self.transport.abort()  # its handler waits for a body that does not come
        else:
            self._refuse(408, _TOO_SLOW)

    def _refuse(self, status: int, body: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        words = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}[status]
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, words, len(body)) + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Leaves on SIGTERM: who has connected is served, nobody else; what runs ends by itself within the grace time or is
    told to. Two processes on one port take over from each other without a lost request (F39, F40)."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, on_hangup: Callable[[], object]) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._on_hangup = on_hangup

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            self.force_exit = True
            self._gateway.end_streams()
        self.should_exit = True
        self._gateway.leave()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: tests
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._gateway.leave()
        await self._close_door(sockets or [])
        ending = loop.call_later(self._gateway.now.settings.grace_s, self._gateway.end_streams)
        closing = loop.call_later(LINGER_S, self._gateway.drain)
        try:
            await super().shutdown([])
        finally:
            ending.cancel()
            closing.cancel()
            self._gateway.drain()

    async def _close_door(self, listeners: list[socket.socket]) -> None:
        holding = Holding(listeners)
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        for _ in range(FEW):
            if holding.is_given_up():  # the loop closes what it has in its own time
                break
            await asyncio.sleep(0)
        for client in holding.let_in():
            with contextlib.suppress(OSError):  # gone again
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, client)

    def _protocol(self) -> asyncio.Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)


def make_server(gateway: Gateway, application: Asgi, on_hangup: Callable[[], object] = lambda: None) -> Server:
    config = uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        lifespan="off",
        loop="none",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(gateway.now.settings.grace_s + AFTER_GRACE_S) or 1,
        backlog=BACKLOG,
    )
    return Server(config, gateway, on_hangup)


def run_loop(main: Any) -> None:
    """uvloop where there is one."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
