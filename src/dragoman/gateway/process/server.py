"""The server: uvicorn listens; each connection is a ClientConnection of ours, and the shutdown is ours too."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from dragoman.gateway.app import App
from dragoman.gateway.client_connection import LINGER_S, ClientConnection
from dragoman.gateway.state import Gateway

AFTER_GRACE_S = 5.0
MOST_TURNS = 100  # turns of the event loop that we wait for a socket to close


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

    def load_certificate(self) -> None:
        """Reads the files of the certificate again. Connections that are open keep the old one."""
        settings = self._gateway.now.settings
        if self.config.ssl is not None and settings.tls_cert:
            self.config.ssl.load_cert_chain(settings.tls_cert, settings.tls_key or None)

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
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, client, ssl=self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        return ClientConnection(self.config, self.server_state, self.lifespan.state)


def make_server(gateway: Gateway, app: App, on_hangup: Callable[[], object] = lambda: None) -> Server:
    settings = gateway.now.settings
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
        timeout_graceful_shutdown=int(settings.grace_s + AFTER_GRACE_S) or 1,
        backlog=BACKLOG,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
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


# ---------------------------------------------------------------- listening sockets
#
# With `shared`, several processes listen on one port and the newest takes over (F40). A listening socket that closes
# resets the connections it has not accepted yet. So a new process first tells the kernel to send all new connections to
# its own socket: socket(7), SO_ATTACH_REUSEPORT_CBPF (read 2026-11-15).

BACKLOG = 2048
_ATTACH_CBPF = 51  # SO_ATTACH_REUSEPORT_CBPF of Linux; Python has no name for it
_RETURN = 0x06  # BPF_RET | BPF_K
_LISTENING = "0A"  # in /proc/net/tcp


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; an OSError says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name != "nt":  # on Windows this option would let another program take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def take_over(listener: socket.socket) -> bool:
    """Sends all new connections to this socket, away from older processes on the port.

    False where the kernel cannot do that: then it spreads new connections over all sockets.
    """
    try:
        # the kernel numbers sockets in the order they began to listen, so this one is the last
        last = _listeners(listener.getsockname()[1], listener.family) - 1
        program = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, last))
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_CBPF, struct.pack("HP", 1, ctypes.addressof(program)))
    except OSError:
        return False
    return True


def _listeners(port: int, family: int) -> int:
    """How many sockets listen on a port of this machine."""
    rows = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return sum(1 for row in fields if row[3] == _LISTENING and row[1].endswith(f":{port:04X}"))


class PendingConnections:
    """Keeps listening sockets open while the server closes its own copies, so that no waiting connection is reset."""

    def __init__(self, listeners: list[socket.socket]) -> None:
        self._copies = [listener.dup() for listener in listeners]
        self._originals = [(listener.fileno(), _inode(listener.fileno())) for listener in listeners]

    def are_originals_closed(self) -> bool:
        """Whether the server has closed its own copies."""
        return not any(inode is not None and _inode(number) == inode for number, inode in self._originals)

    def accept_all(self) -> list[socket.socket]:
        """Accepts the connections that still wait, then closes the sockets."""
        found: list[socket.socket] = []
        for listener in self._copies:
            with listener, contextlib.suppress(OSError):  # no connection is left
                listener.setblocking(False)
                while len(found) < BACKLOG:
                    found.append(listener.accept()[0])
        for client in found:
            client.setblocking(False)
        return found


def _inode(number: int) -> int | None:
    """None: it is closed, or the system has no such number for sockets (Windows)."""
    try:
        return os.fstat(number).st_ino
    except OSError:
        return None
