"""Ports for programs that must be told one before they start."""

import os
import socket
from itertools import count

# Below the ports that the system gives away by itself (32768 and up on Linux): no connection and no `bind` to port 0
# takes one between our look and the program's start. Each process of a test run looks in a part of its own.
FIRST, PART, PARTS = 20_000, 200, 60
_tried = count()


def free_port() -> int:
    for _ in range(PART):
        port = FIRST + os.getpid() % PARTS * PART + next(_tried) % PART
        with socket.socket() as probe:
            if is_free(probe, port):
                return port
    raise AssertionError("all ports of this process are in use")


def is_free(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
