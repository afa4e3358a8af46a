"""The server: it listens, hands each connection to a ClientConnection, and shuts down without a lost request."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dragoman.gateway.app import App
from dragoman.gateway.client_connection import LINGER_S, ClientConnection, OpenConnections, Opening, most_connections
from dragoman.gateway.process.accept import Acceptor, OpenCounts, Share
from dragoman.gateway.process.certificate import Certificate
from dragoman.gateway.state import Gateway

AFTER_GRACE_S = 5.0
# SIGBREAK is Ctrl+Break on Windows.
END_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
LOOK_S = 0.02  # how often a server that shuts down looks whether requests still run
HAS_READERS = os.name != "nt"  # Windows' loop has none
LEAST_OPENING = 16  # with too many connections, so many more may open at once, to hear of it (503)
MOST_TURNS = 100  # turns of the event loop that we wait for a socket to close


class Server:
    """Listens, and ends in order. Each connection is a ClientConnection.

    On SIGTERM it accepts the connections that wait and no new ones. Running requests have the grace time to end; a
    second signal ends them at once. Two processes on one port replace each other without a lost request (F39, F40).
    """

    def __init__(
        self,
        gateway: Gateway,
        app: App,
        on_hangup: Callable[[], object] = lambda: None,
        certificate: Certificate | None = None,
        share: Share | None = None,
    ) -> None:
        """`share`: of the connections, among several workers."""
        self.open = OpenConnections()
        self.started = False
        self._gateway, self._app, self._on_hangup = gateway, app, on_hangup
        self.certificate = certificate
        self._tls = certificate.listening if certificate is not None else None
        # a client that says nothing is no connection yet, so that no other limit ends it
        self._handshake_s = gateway.now.settings.limits.head_s if self._tls is not None else None
        self._share = share
        self._servers: list[asyncio.Server | Acceptor] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending, self._at_once = asyncio.Event(), False

    async def serve(self, listeners: list[socket.socket]) -> None:
        """Serves until a signal or `end` comes, and returns when all requests are answered."""
        self._loop = loop = asyncio.get_running_loop()
        with self._signals():
            self._servers = [await self._listen(listener, loop) for listener in listeners]
            self.started = True
            await self._ending.wait()
            await self._shut_down(listeners)

    async def _listen(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> asyncio.Server | Acceptor:
        share = self._share
        if share is None and self._tls is not None and HAS_READERS:  # asyncio would not tell us of handshakes that run
            share = OpenCounts(1).of(0)
        if share is not None:
            return Acceptor(listener, share, self._count_open, self._open_connection)
        return await loop.create_server(
            self._connect,
            sock=listener,
            ssl=self._tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=self._handshake_s,
        )

    def _count_open(self) -> int:
        return len(self.open.connections) + len(self.open.opening)

    def _open_connection(self, client: socket.socket) -> None:
        """Takes a connection that was accepted already. With TLS it is open when its handshake is over."""
        loop = asyncio.get_running_loop()
        opening = loop.create_task(
            loop.connect_accepted_socket(self._connect, client, ssl=self._tls, ssl_handshake_timeout=self._handshake_s)
        )
        self.open.opening[opening] = None
        opening.add_done_callback(self._end_opening)
        most = self._gateway.now.settings.limits.connections or most_connections()
        if len(self.open.opening) > max(most - len(self.open.connections), LEAST_OPENING):
            self._drop(next(iter(self.open.opening)))  # most likely it says nothing: a handshake is short

    def _drop(self, opening: Opening) -> None:
        self.open.opening.pop(opening, None)
        opening.cancel()

    def _end_opening(self, opening: Opening) -> None:
        self.open.opening.pop(opening, None)
        if opening.cancelled() or opening.exception() is not None:
            return  # the client has gone, or its TLS is no TLS
        if self._ending.is_set():
            opening.result()[1].shutdown()

    def end(self, *, at_once: bool = False) -> None:
        """Ends the server. Another thread may call it. `at_once`: without waiting for requests that run."""
        if self._loop is None:  # before it serves
            self._begin_to_end(at_once)
        else:
            self._loop.call_soon_threadsafe(self._begin_to_end, at_once)

    def _connect(self) -> ClientConnection:
        return ClientConnection(self._app, self.open)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Hears signals while it serves. Only the main thread may: tests serve in others."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in END_SIGNALS}
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came before is handled now
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.end(at_once=self._ending.is_set())

    def _begin_to_end(self, at_once: bool) -> None:
        if at_once:
            self._at_once = True
            self._gateway.end_streams()
        self._gateway.leave()
        self._ending.set()

    async def _shut_down(self, listeners: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        await self._stop_listening(listeners)
        for connection in list(self.open.connections):
            connection.shutdown()
        grace_s = self._gateway.now.settings.grace_s
        ending = loop.call_later(grace_s, self._gateway.end_streams)
        dropping = loop.call_later(LINGER_S, self._drop_opening)
        # A connection that was busy may bring one more request: the head of its answer did not say that it will close.
        closing = loop.call_later(max(LINGER_S, grace_s / 2), self._gateway.drain)
        try:
            await self._wait_for_answers(loop.time() + grace_s + AFTER_GRACE_S)
        finally:
            for timer in (ending, dropping, closing):
                timer.cancel()
            self._gateway.drain()

    def _drop_opening(self) -> None:
        """Drops the clients that have connected and say nothing. Those that have spoken have opened by now."""
        for opening in list(self.open.opening):
            self._drop(opening)

    async def _wait_for_answers(self, until: float) -> None:
        """Returns when no connection and no request is left. Requests that still run at the end are cancelled."""
        clock = asyncio.get_running_loop().time
        while (self._count_open() or self.open.tasks) and not self._at_once:
            if clock() >= until:
                for task in self.open.tasks:
                    task.cancel("the time to shut down is over")
                return
            await asyncio.sleep(LOOK_S)

    async def _stop_listening(self, listeners: list[socket.socket]) -> None:
        pending = PendingConnections(listeners)
        await self._open_accepted(listeners)
        for server in self._servers:
            server.close()
        for listener in listeners:
            listener.close()
        for _ in range(MOST_TURNS):
            if pending.are_originals_closed():  # the loop closes them a little later
                break
            await asyncio.sleep(0)
        for client in pending.accept_all():
            self._open_connection(client)

    async def _open_accepted(self, listeners: list[socket.socket]) -> None:
        """asyncio drops a connection that it has accepted and not opened yet when its server closes."""
        loop = asyncio.get_running_loop()
        for listener in listeners if HAS_READERS else ():
            loop.remove_reader(listener)
        for _ in range(2):
            await asyncio.sleep(0)


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
