"""Workers: several processes behind one socket. A worker that dies is replaced within a second (F38)."""

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

STABLE_S = 5.0  # a worker that ran this long did not fail at its start
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0
POLL_S = 0.02
_PDEATHSIG = 1  # PR_SET_PDEATHSIG of prctl(2)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RELOADED = signal.SIGUSR1  # from a worker: it has loaded a new configuration


def restart_wait_s(deaths: int) -> float:
    """How long to wait before the next start, after so many early deaths in a row."""
    return float(min(FIRST_WAIT_S * 2**deaths, LONGEST_WAIT_S))


# A worker's number, and a function by which it tells the supervisor that it has loaded a new configuration.
Work = Callable[[int, Callable[[], None]], None]


def supervise(
    count: int,
    work: Work,
    on_reload: Callable[[], object] = lambda: None,
    on_stop: Callable[[], object] = lambda: None,
) -> int:
    """Runs `work` in `count` children until it is told to stop; the exit code."""
    signal.signal(RELOADED, lambda sig, frame: on_reload())
    return _Supervisor(work, on_stop).run(count)


def end_with(parent: int) -> None:
    """Ends this worker when its supervisor dies; otherwise it would keep the port (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _tell(parent: int) -> None:
    if os.getppid() == parent:  # it may be gone, and its number another process's
        os.kill(parent, RELOADED)


class _Supervisor:
    def __init__(self, work: Work, on_stop: Callable[[], object]) -> None:
        self._work, self._on_stop = work, on_stop
        self._children: dict[int, tuple[int, float]] = {}  # pid -> number, start time
        self._due: dict[int, float] = {}  # number -> time of its next start
        self._deaths: dict[int, int] = {}  # number -> early deaths in a row
        self._stopping = False

    def run(self, count: int) -> int:
        for sig in SIGNALS:
            signal.signal(sig, self._forward)
        for number in range(count):
            self._start(number)
        while self._children or (self._due and not self._stopping):
            pid = self._next_death()
            if pid:
                self._plan_restart(pid)
            now = time.monotonic()
            for number in [n for n, when in self._due.items() if when <= now]:
                del self._due[number]
                self._start(number)
        return 0

    def _start(self, number: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # otherwise a child that starts now would miss a stop signal
        try:
            if self._stopping:
                return
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._be_child(number, parent)
            self._children[pid] = (number, time.monotonic())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _be_child(self, number: int, parent: int) -> None:
        code = 1
        try:
            end_with(parent)
            for sig in (*SIGNALS, RELOADED):
                signal.signal(sig, signal.SIG_DFL)
            signal.pthread_sigmask(
                signal.SIG_UNBLOCK, set(SIGNALS) - {signal.SIGHUP}
            )  # SIGHUP waits until the server handles it
            self._work(number, lambda: _tell(parent))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _next_death(self) -> int:
        """The next child that ended; 0 if none has and another one is due to start."""
        try:
            if not self._due:
                return os.wait()[0]
            pid = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            pid = 0
        if not pid:
            time.sleep(POLL_S)
        return pid

    def _plan_restart(self, pid: int) -> None:
        number, began = self._children.pop(pid, (-1, 0.0))
        if number < 0 or self._stopping:
            return
        now = time.monotonic()
        deaths = self._deaths[number] = 0 if now - began > STABLE_S else self._deaths.get(number, -1) + 1
        self._due[number] = now + restart_wait_s(deaths)

    def _forward(self, sig: int, frame: Any) -> None:
        if sig != signal.SIGHUP and not self._stopping:
            self._stopping = True
            self._on_stop()
        for pid in list(self._children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
