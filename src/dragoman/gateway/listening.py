"""Listening sockets. With `shared`, several processes listen on one port and the newest takes over (F40).

A listening socket that closes resets the connections it has not accepted yet. So a new process first tells the kernel
to send all new connections to its own socket: socket(7), SO_ATTACH_REUSEPORT_CBPF (read 2026-11-15).
"""

import contextlib
import ctypes
import os
import socket
import struct
from pathlib import Path

BACKLOG = 2048
_ATTACH_CBPF = 51  # SO_ATTACH_REUSEPORT_CBPF of Linux; Python has no name for it
_RETURN = 0x06  # BPF_RET | BPF_K
_LISTENING = "0A"  # in /proc/net/tcp


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; an OSError says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
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
        return not any(_inode(number) == inode for number, inode in self._originals)

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
    try:
        return os.fstat(number).st_ino
    except OSError:
        return None
