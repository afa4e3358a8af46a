"""A program in a pseudo-terminal, driven as a person drives it."""

import contextlib
import os
import pty
import select
import signal
import socket
import sys
import time

from tests.waiting import NEVER_S


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
            os.execv(sys.executable, [sys.executable, "-m", "dragoman", *words])  # noqa: S606
        self.seen, self._at = "", 0

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ask(self, line: str, word: str) -> None:
        """Types a line when there is a prompt, and waits for what must be in the answer, not in its echo."""
        self.wait("> ")
        self.type(line + "\r")
        self.wait("\n")
        self.wait(word)

    def interrupt(self, word: str) -> None:
        """Types Ctrl-C and waits for a word. A signal just before CPython blocks is heard at the next one only."""
        until = time.monotonic() + NEVER_S
        self.type("\x03")
        while not self._read_to(word, 5.0) and time.monotonic() < until:
            self.type("\x03")
        self.wait(word)

    def wait(self, word: str) -> None:
        """Reads on until a word has appeared behind the last one waited for."""
        if not self._read_to(word, NEVER_S):
            os.kill(self.pid, signal.SIGKILL)
            self.end()
            raise AssertionError(f"no {word!r} in {self.seen[self._at :]!r}")
        self._at = self.seen.index(word, self._at) + len(word)

    def _read_to(self, word: str, seconds: float) -> bool:
        """Whether the word comes within that time."""
        until = time.monotonic() + seconds
        while word not in self.seen[self._at :]:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            try:
                data = os.read(self._fd, 65536) if ready else b""
            except OSError:  # the program has ended
                data = b""
            if not data:
                return False
            self.seen += data.decode("utf-8", "replace")
        return True

    def end(self) -> int:
        """Its exit code; what it said since the last word waited for is in `rest`."""
        until = time.monotonic() + NEVER_S
        with contextlib.suppress(OSError):
            while time.monotonic() < until and select.select([self._fd], [], [], NEVER_S)[0]:
                data = os.read(self._fd, 65536)
                self.seen += data.decode("utf-8", "replace")
                if not data:
                    break
        if time.monotonic() >= until:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    @property
    def rest(self) -> str:
        return self.seen[self._at :]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
