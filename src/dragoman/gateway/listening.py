"""Listening sockets: one's own, or one of several on a port, where the newest takes over from those before it (F40).

A listening socket that closes turns away whoever has connected to it and was not let in yet. So with `shared` the
newcomer first sees to it that the kernel brings everybody to it: socket(7), SO_ATTACH_REUSEPORT_CBPF (read 2026-11-15).
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
    """From now on everybody who connects comes here, and not to those who listened before; False where that cannot be
    arranged: then the kernel takes turns."""
    try:
        # in the order they began to listen, so this one is the last
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


class Holding:
    """Listening sockets, kept open while a server gives them up, so that nobody in front of the door is turned away."""

    def __init__(self, listeners: list[socket.socket]) -> None:
        self._held = [listener.dup() for listener in listeners]
        self._given = [(listener.fileno(), _inode(listener.fileno())) for listener in listeners]

    def is_given_up(self) -> bool:
        """Whether nobody else in this process has them open."""
        return not any(_inode(number) == inode for number, inode in self._given)

    def let_in(self) -> list[socket.socket]:
        """Who has connected and was not let in yet; the door closes behind the last."""
        found: list[socket.socket] = []
        for listener in self._held:
            with listener, contextlib.suppress(OSError):  # nobody is left
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
