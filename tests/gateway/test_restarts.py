"""Processes that die, leave and take over from each other, while clients go on asking (F38, F39, F40)."""

import http.client
import json
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dragoman.accounts.journal import FOLDER, Journal
from dragoman.accounts.ledger import FILE, LedgerRow, SqliteLedger
from dragoman.gateway.process.workers import restart_wait_s, supervise
from tests.cli.test_serve import Running, environment, serving
from tests.waiting import NEVER_S, wait_until

BODY = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}).encode()
HEADERS = {"content-type": "application/json"}


class Load:
    """Clients that ask again and again: one for each request anew, one on a connection it keeps."""

    def __init__(self, port: int, pause_s: float = 0.01) -> None:
        self.port, self.pause_s = port, pause_s
        self.asked = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(kept,), daemon=True) for kept in (False, True, False, True)
        ]

    def _ask_on(self, kept: bool) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._stop.is_set():
            connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=NEVER_S)
            try:
                connection.request("POST", "/v1/chat/completions", BODY, HEADERS)
                response = connection.getresponse()
                said = response.read()
                if response.status != 200:
                    self.failed.append(f"{response.status} {said[:100]!r}")
                leaving = response.will_close
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                leaving = True
            self.asked += 1
            if leaving or not kept:
                connection.close()
                connection = None
            self._stop.wait(self.pause_s)
        if connection is not None:
            connection.close()

    @contextmanager
    def running(self) -> Iterator["Load"]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(NEVER_S)


def test_rows_of_a_killed_gateway_are_in_the_ledger_before_the_next_request(tmp_path: Path) -> None:
    """They waited for a request with a key: a report after a crash at night lacked them."""
    home = Path(environment(tmp_path)["DRAGOMAN_HOME"])
    journal = Journal(home / FOLDER)
    journal.write(LedgerRow(id="a", at=1_794_830_400.0, status=200))
    journal.close()  # its rows stay, as after a kill
    with serving(tmp_path):
        ledger = SqliteLedger(home / FILE)
        wait_until(lambda: ledger.page(0.0, 1e11, {}, "", 9).rows, "the row in the ledger")
        wait_until(lambda: not list((home / FOLDER).iterdir()), "the journal's end")


def port_of(running: Running) -> int:
    return int(running.url.rpartition(":")[2])


def children(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads children from /proc (Linux)")


@needs_proc
def test_f38_a_killed_worker_is_replaced_and_the_other_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as running, Load(port_of(running)).running() as load:
        pid = running.process.pid
        times = 4
        for _ in range(times):
            before = children(pid)
            assert len(before) == 2
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: len(children(pid) - {victim}) == 2)  # noqa: B023  # called at once
            after = children(pid)
            assert before - {victim} < after, "the other worker is the same"
            asked = load.asked
            wait_until(lambda: load.asked > asked + 3)  # noqa: B023  # called at once
        assert len(load.failed) <= times * 4, load.failed  # what that worker held, at most one a client
        asked = load.asked
        wait_until(lambda: load.asked > asked + 20)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(NEVER_S) == 0


@needs_proc
def test_f38_workers_whose_supervisor_was_killed_end_too(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as running:
        workers = children(running.process.pid)
        running.process.kill()
        running.process.wait(NEVER_S)
        wait_until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in workers))
        wait_until(lambda: not accepts(port_of(running)))  # a process that ends gives up its files before its sockets


def test_f38_a_worker_that_keeps_dying_is_started_ever_later_but_within_a_second() -> None:
    waits = [restart_wait_s(deaths) for deaths in range(10)]
    assert waits == sorted(waits)
    assert waits[0] <= 0.1
    assert waits[-1] == 1.0


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system has no SO_REUSEPORT")
def test_f40_a_rolling_restart_loses_no_request(tmp_path: Path) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(serving(tmp_path, "--reuse-port"))
        port = port_of(old)
        with Load(port).running() as load:
            for _ in range(2):
                new = stack.enter_context(serving(tmp_path, "--reuse-port", "--port", str(port)))
                old.process.send_signal(signal.SIGTERM)
                assert old.process.wait(NEVER_S) == 0
                old, asked = new, load.asked
                wait_until(lambda: load.asked > asked + 40)  # noqa: B023  # called at once
    assert load.failed == []


def test_f40_a_port_is_shared_only_if_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as running, socket.socket() as second:
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with pytest.raises(OSError, match="in use"):
            second.bind(("127.0.0.1", port_of(running)))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_f39_a_server_that_leaves_serves_its_connections_and_no_new_ones(workers: str, tmp_path: Path) -> None:
    """With workers, their supervisor took new connections and reset them when it ended."""
    with serving(tmp_path, "--workers", workers) as running:
        port = port_of(running)
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=NEVER_S)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b'{"status":"ok"}'
        silent = http.client.HTTPConnection("127.0.0.1", port, timeout=NEVER_S)
        silent.connect()
        running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(port))
        for connection in (kept, silent):
            connection.request("POST", "/v1/chat/completions", BODY, HEADERS)
            response = connection.getresponse()
            assert response.status == 200
            assert response.headers["connection"] == "close"
            response.read()
        assert running.process.wait(NEVER_S) == 0


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=NEVER_S).close()
    except OSError:
        return False
    return True


def test_a_worker_tells_its_supervisor_what_it_has_loaded() -> None:
    reading, writing = os.pipe()

    def work(number: int, tell_supervisor: Callable[[], None]) -> None:
        tell_supervisor()
        signal.pause()

    supervisor = multiprocessing.get_context("fork").Process(
        target=lambda: supervise(1, work, lambda: os.write(writing, b"told"))
    )
    supervisor.start()
    assert os.read(reading, 10) == b"told"
    supervisor.terminate()
    supervisor.join(NEVER_S)
    assert supervisor.exitcode == 0
    os.close(reading)
    os.close(writing)
