"""Ports for programs that must be told one before they start."""

import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

# Below the ports that the system gives away by itself (32768 and up on Linux): no connection and no `bind` to port 0
# takes one between our look and the program's start. Each process looks in a part of its own, and what it has found is
# its own until it ends: of two test runs side by side, processes look in the same part.
FIRST, PART, PARTS = 20_000, 200, 60
LOCKS = Path(tempfile.gettempdir()) / f"dragoman-test-ports-{os.getuid()}"
_tried = count()


@cache
def _open_locks(process: int) -> int:
    """A file with a byte for each port. The process that has locked a byte has its port."""
    return os.open(LOCKS, os.O_RDWR | os.O_CREAT, 0o600)


def free_port() -> int:
    for _ in range(PART):
        port = FIRST + os.getpid() % PARTS * PART + next(_tried) % PART
        with socket.socket() as probe:
            if is_ours(port) and is_free(probe, port):
                return port
    raise AssertionError("all ports of this process are in use")


def is_ours(port: int) -> bool:
    try:
        fcntl.lockf(_open_locks(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port - FIRST)
    except OSError:
        return False
    return True


def is_free(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
