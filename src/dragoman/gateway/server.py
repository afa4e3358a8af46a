"""The server: uvicorn listens; each connection is a ClientConnection of ours, and the shutdown is ours too."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from dragoman.gateway.app import App
from dragoman.gateway.client_connection import LINGER_S, ClientConnection
from dragoman.gateway.listening import BACKLOG, PendingConnections
from dragoman.gateway.state import Gateway

AFTER_GRACE_S = 5.0
MOST_TURNS = 100  # of the event loop, to wait for a socket to be closed


class Server(uvicorn.Server):
    """On SIGTERM it accepts the connections that wait and no new ones. Running requests have the grace time to end.

    Two processes on one port replace each other without a lost request (F39, F40).
    """

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
                signal.pthread_sigmask(
                    signal.SIG_UNBLOCK, {signal.SIGHUP}
                )  # a signal that came before this line is handled now

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._gateway.leave()
        await self._stop_listening(sockets or [])
        ending = loop.call_later(self._gateway.now.settings.grace_s, self._gateway.end_streams)
        closing = loop.call_later(LINGER_S, self._gateway.drain)
        try:
            await super().shutdown([])
        finally:
            ending.cancel()
            closing.cancel()
            self._gateway.drain()

    async def _stop_listening(self, listeners: list[socket.socket]) -> None:
        pending = PendingConnections(listeners)
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        for _ in range(MOST_TURNS):
            if pending.are_originals_closed():  # the loop closes them a little later
                break
            await asyncio.sleep(0)
        for client in pending.accept_all():
            with contextlib.suppress(OSError):  # the client has gone
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, client)

    def _protocol(self) -> asyncio.Protocol:
        return ClientConnection(self.config, self.server_state, self.lifespan.state)


def make_server(gateway: Gateway, app: App, on_hangup: Callable[[], object] = lambda: None) -> Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # only ClientConnection calls it
        interface="asgi3",
        http=ClientConnection,
        ws="none",
        lifespan="off",
        loop="none",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(gateway.now.settings.grace_s + AFTER_GRACE_S) or 1,
        backlog=BACKLOG,
    )
    return Server(config, gateway, on_hangup)


def run_loop(main: Any) -> None:
    """Runs on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
