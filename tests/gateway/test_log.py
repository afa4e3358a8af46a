"""The log (mission D11): a logger for each module, a line for each request, and nobody waits for its reader."""

import ast
import fcntl
import json
import logging
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.gateway.telemetry import log as log_module
from dragoman.gateway.telemetry.log import Log, Sink
from dragoman.log_line import LogLine, plain
from tests.cli.test_serve import COMMAND, Running, environment, serving, wait_until_ready
from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.test_faults import ASK, GOOD
from tests.gateway.web import post
from tests.waiting import NEVER_S, wait_until

SOURCE = Path(dragoman.__file__).parent
CHAT = "/v1/chat/completions"
# Loggers that are not a module's own: ours as a whole, and other packages' that are to say less.
OTHERS = {
    ("gateway/telemetry/log.py", "ROOT"),
    ("upstream/__init__.py", "'dragoman'"),
    ("mcp/connection.py", "'mcp'"),
    ("mcp/http_client.py", "'httpx2'"),
}


def loggers() -> Iterator[tuple[str, str]]:
    """Every `logging.getLogger(...)` in the source: the file and what it is called with."""
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text if "getLogger" in text else "")):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger") and node.args:
                yield file.relative_to(SOURCE).as_posix(), ast.unparse(node.args[0])


def test_each_module_that_logs_has_a_logger_of_its_own_name() -> None:
    found = set(loggers())
    assert {row for row in found if row[1] != "__name__"} <= OTHERS
    rooms = {file.partition("/")[0] for file, name in found if name == "__name__"}
    assert rooms >= {"gateway", "upstream", "mcp", "agent"}


class Read:
    """The lines of a sink, read from a pipe."""

    def __init__(self, form: str) -> None:
        self.end, self.file = os.pipe()
        self.sink = Sink(form, self.file, clock=lambda: 1_794_700_800.25)

    def lines(self) -> list[str]:
        self.sink.flush()
        return os.read(self.end, 1_000_000).decode().splitlines()

    def close(self) -> None:
        os.close(self.end)
        os.close(self.file)


@pytest.fixture(params=["human", "json"])
def read(request: pytest.FixtureRequest) -> Iterator[Read]:
    made = Read(request.param)
    yield made
    made.close()


FORGED = 'x\x1b[2J\n{"level":"info"} \u2028\u202e end'


def test_t40_a_line_is_one_line_and_shows_what_was_in_it(read: Read) -> None:
    read.sink.put(logging.INFO, "dragoman.gateway.conversation", LogLine("request", {"model": FORGED, "tokens": 3}))
    (line,) = read.lines()
    assert line.isprintable()
    assert "\\\\x1b[2J" in line if line[0] == "{" else "\\x1b[2J" in line.replace("\\\\", "\\")
    if line[0] == "{":
        assert json.loads(line)["tokens"] == 3


def test_a_long_field_is_cut_and_an_empty_one_left_out(read: Read) -> None:
    read.sink.put(logging.INFO, "dragoman.x", LogLine("request", {"a": "y" * 10_000, "b": None, "c": "", "d": 0}))
    (line,) = read.lines()
    assert len(line) < 2300
    assert not re.search(r"\b[bcd]\b[\"=]", line)


def test_json_says_when_how_bad_and_who() -> None:
    read = Read("json")
    read.sink.put(logging.WARNING, "dragoman.gateway.process.run", LogLine("config_rejected", {"why": "a b"}))
    (line,) = read.lines()
    read.close()
    assert json.loads(line) == {
        "time": "2026-11-15T00:00:00.250Z",
        "level": "warning",
        "logger": "dragoman.gateway.process.run",
        "event": "config_rejected",
        "why": "a b",
    }


def test_what_other_packages_say_is_one_line_without_secrets_or_what_they_carried() -> None:
    read = Read("json")
    try:
        raise ValueError("Bearer sk-canary-7f3a91c2d4e5f6")
    except ValueError:
        log = logging.Logger("asyncio")
        log.addHandler(read.sink)
        log.exception("never retrieved: %s", "sk-canary-7f3a91c2d4e5f6\nx")
    (line,) = read.lines()
    read.close()
    assert "canary" not in line
    assert json.loads(line)["error"] == "ValueError"


def test_f49_a_reader_that_sleeps_costs_lines_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MOST_LINES", 50)
    monkeypatch.setattr(log_module, "FLUSH_AT_END_S", 0.05)
    read = Read("human")
    fcntl.fcntl(read.file, fcntl.F_SETPIPE_SZ, 4096)
    began = time.process_time()
    for i in range(2000):
        read.sink.put(logging.INFO, "dragoman.x", LogLine("request", {"number": i, "filler": "f" * 100}))
    read.sink.flush()
    assert time.process_time() - began < 1
    lost = read.sink.dropped
    assert 1000 < lost < 2000

    def read_on() -> bool:  # the reader wakes up
        if select.select([read.end], [], [], 0)[0]:
            os.read(read.end, 100_000)
        return read.sink._written == read.sink._handed

    wait_until(read_on, "all lines that were kept")
    read.sink.put(logging.INFO, "dragoman.x", LogLine("later"))
    last = read.lines()
    read.close()
    assert any(f"log_dropped lines={lost}" in line for line in last), "what was dropped is counted and told"


def test_a_reader_that_is_gone_is_counted() -> None:
    read = Read("human")
    os.close(read.end)
    read.sink.put(logging.INFO, "dragoman.x", LogLine("request"))
    read.sink.flush()
    assert read.sink.dropped == 1
    os.close(read.file)


# ---------------------------------------------------------------- a request


def lines_of(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Its lines, once the last of a request has come: a client may be faster than the log."""

    def said() -> list[LogLine]:
        return [record.msg for record in caplog.records if isinstance(record.msg, LogLine)]

    wait_until(lambda: any(line.event == "request" for line in said()))
    found = (line.fields for line in said() if line.event == event)
    return [{name: value for name, value in fields.items() if value} for fields in found]


def test_a_request_is_one_line_that_says_who_what_how_much_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    busy = say(503, b'{"error":{"message":"busy"}}')
    with (
        caplog.at_level(logging.INFO),
        faultline(busy, GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        got = post(house.url, "/v1/messages", {**ASK, "max_tokens": 9, "top_k": 3}, {"x-request-id": "mine"})
        assert got.status == 200, got.text
        (said,) = lines_of(caplog, "request")
        assert (said["id"], said["door"], said["status"]) == ("mine", "messages", 200)
        assert (said["upstream"], said["model"], said["attempts"]) == ("one", "m", 2)
        assert said["input"] > 0
        assert said["output"] > 0
        assert said["ms"] >= said["waited_ms"] if "waited_ms" in said else said["ms"] > 0
        assert said["notes"] >= 1


def test_verbose_says_each_attempt_and_each_note(caplog: pytest.LogCaptureFixture) -> None:
    busy = say(503, b'{"error":{"message":"busy"}}')
    with (
        caplog.at_level(logging.DEBUG, logger="dragoman"),
        faultline(busy, GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        post(house.url, "/v1/messages", {**ASK, "max_tokens": 9, "top_k": 3}, {"x-request-id": "mine"})
        attempts = lines_of(caplog, "attempt")
        assert [row.get("failure") for row in attempts] == ["overloaded", None]
        notes = lines_of(caplog, "note")
        assert any(row["id"] == "mine" and row["where"] == "/top_k" and row["why"] for row in notes)


def test_a_removal_is_logged_with_what_and_why_without_verbose(caplog: pytest.LogCaptureFixture) -> None:
    """Mission E4."""
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "42"}
    with (
        caplog.at_level(logging.INFO, logger="dragoman"),
        faultline(GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        post(house.url, CHAT, {**ASK, "messages": [orphan, *ASK["messages"]]})
        (said,) = lines_of(caplog, "request")
        assert said["mended"] == "/messages/0: it answers no tool call (nobody)"


# ---------------------------------------------------------------- a process


@pytest.mark.parametrize("how", ["-v", "environment"])
def test_verbose_is_a_flag_or_a_variable(how: str, tmp_path: Path) -> None:
    words = [how] if how[0] == "-" else []
    env = environment(tmp_path) | ({"DRAGOMAN_VERBOSE": "1"} if how == "environment" else {})
    with serving(tmp_path, *words, "--log", "json", env=env) as running:
        post(running.url, CHAT, {"model": "demo", "messages": [{"role": "user", "content": "hi"}]})
        post(running.url, CHAT, b"{")
        running.process.send_signal(signal.SIGTERM)
        _, err = running.process.communicate(timeout=NEVER_S)
    rows = [json.loads(line) for line in err.splitlines()]
    assert any(row["level"] == "debug" for row in rows)
    assert {row["logger"] for row in rows} >= {"dragoman.gateway.scope"}


def test_f49_a_server_whose_log_is_not_read_serves_and_ends(tmp_path: Path) -> None:
    end, file = os.pipe()
    fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "-v"],
        stdout=subprocess.PIPE,
        stderr=file,
        text=True,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    try:
        os.close(file)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        wait_until_ready(Running(process, url, ""))
        for _ in range(120):
            assert post(url, CHAT, {"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(NEVER_S) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(end)


def test_the_level_of_a_log_is_that_of_the_whole_family() -> None:
    Log(verbose=True)
    assert logging.getLogger("dragoman.upstream.send").isEnabledFor(logging.DEBUG)
    Log()
    assert not logging.getLogger("dragoman.upstream.send").isEnabledFor(logging.DEBUG)


def test_plain_text_stays_as_it_is() -> None:
    assert plain("안녕 こんにちは 👋 مرحبا") == "안녕 こんにちは 👋 مرحبا"
