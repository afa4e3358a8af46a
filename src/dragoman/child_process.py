"""What every child process of ours has in common: it gets its own three files and no other descriptor of ours.

uvloop closes nothing for a child, whatever `close_fds` says. A child that inherits the listening socket can accept the
connections of clients, with their keys.
"""

import os
import sys
from collections.abc import Callable

_FIRST = 3  # after stdin, stdout and stderr
_LAST = 2**32 - 1
_CLOEXEC = 4  # CLOSE_RANGE_CLOEXEC of close_range(2), Linux 5.11


def _load_close_range() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        return ctypes.CDLL(None).close_range
    except (OSError, AttributeError):  # an older C library
        return None


_close_range = _load_close_range()  # before any fork: a child must not load libraries


def keep_standard_files() -> None:
    """Runs in the child before its program starts. The program then has no descriptor but the standard three."""
    if _close_range is None or _close_range(_FIRST, _LAST, _CLOEXEC) != 0:
        _mark_each()


def _mark_each() -> None:
    for name in os.listdir("/dev/fd"):  # /proc/self/fd on Linux
        if int(name) >= _FIRST:
            try:
                os.set_inheritable(int(name), False)
            except OSError:  # the descriptor of the listing itself
                continue
