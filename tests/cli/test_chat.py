"""`dragoman chat`, driven as a person drives it."""

import io
import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.cli.chat import ChatTerminal
from dragoman.cli.chat_session import VIAS, ChatSession
from dragoman.cli.local_gateway import base_url, running_gateway
from dragoman.model.events import Event
from dragoman.model.fold import unfold
from dragoman.model.messages import Text
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.testing import faults, serve
from dragoman.testing.faults import ScriptedFault
from dragoman.upstream.spec import Timeouts
from tests.cli.terminal import Terminal, answers
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.ports import free_port
from tests.waiting import NEVER_S, wait_until

pytestmark = pytest.mark.usefixtures("at_home")


# What is typed, and what must then be on the screen.
EVERYWHERE = (
    ("say my colour is green", "green"),
    ("what is my colour?", "Your colour is green."),
    ("/clear", "forgotten"),
    ("what is my colour?", "You asked"),  # the demo model's way to say that it does not know
    ("/xray", "── canonical"),
    ("/iter 7", "iterations: 7"),
    ("/iter x", "from 1 to 100"),
    ("/iter", "iterations: 7"),
    ("/model", "* demo"),
    ("/model ../nobody", "model: ../nobody"),
    ("say hello", "there is no"),
    ("/model demo", "model: demo"),
    ("/list", "time "),
    ("/add other http://127.0.0.1:9/mcp", "added other"),
    ("/list", "down"),
    ("/remove other", "removed other"),
    ("/remove other", "no MCP server"),
    ("/add nonsense", "expected a name and an address"),
    ("/add bad ftp://nowhere", "http"),
    ("/remove", "expected a name"),
    ("/frobnicate", "no such command: /frobnicate"),
    ("/help", "/quit"),
    ("/save", "expected a file"),
    ("/save /nonexistent/talk.md", "cannot be written"),
    ("say goodbye", "goodbye"),
    ("/save talk.json", "saved 4 messages"),
    ("/save talk.md", "saved 4 messages"),
)


@pytest.mark.parametrize("via", VIAS)
def test_every_command_through_every_door(house: House, via: str, tmp_path: Path) -> None:
    terminal = Terminal("chat", "--via", via, "--port", str(house.port), "--model", "demo", "--max-iter", "4")
    terminal.wait("/help for commands")
    for typed, seen in EVERYWHERE:
        terminal.ask(typed, seen)
    terminal.wait("> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert terminal.rest.endswith("\n"), "the shell's prompt begins a line of its own"
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [row["role"] for row in saved] == ["user", "assistant"] * 2
    assert "## assistant\n\ngoodbye\n" in (tmp_path / "talk.md").read_text()


def test_texts_of_several_lines_and_lines_of_before(house: House, tmp_path: Path) -> None:
    terminal = Terminal("chat", "--port", str(house.port), "--model", "demo")
    terminal.ask('"""', ". ")
    terminal.type('one\rtwo"""\r')
    terminal.wait("“one")
    terminal.wait("two”")
    terminal.ask("three \\", ". ")
    terminal.type("four\r")
    terminal.wait("“three")
    terminal.wait("four”")
    terminal.wait("> ")
    terminal.type("\x1b[200~five\nsix\x1b[201~\r")  # pasted
    terminal.wait("“five")
    terminal.wait("six”")
    terminal.ask(" /hi", "You asked: “/hi”")  # no command: it begins with a space
    terminal.wait("> ")
    terminal.type("say again\r")
    terminal.wait("\nagain")
    terminal.wait("> ")
    terminal.type("\x1b[A\r")  # the line before
    terminal.wait("\nagain")
    terminal.wait("> ")
    terminal.type("half a line")
    terminal.wait("half a line")
    terminal.interrupt("\n")  # Ctrl-C at the prompt throws the line away, and ends nothing
    terminal.ask("say still here", "still here")
    terminal.ask("/quit", "")
    assert terminal.end() == 0
    assert "\x1b[32m" in terminal.seen  # the prompt is coloured
    history = tmp_path / "home" / "chat_history"
    assert "say again" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    terminal = Terminal("chat", "--port", str(house.port), "--model", "demo")
    terminal.wait("> ")
    terminal.type("\x1b[A\x1b[A\r")  # a line of the conversation before
    terminal.wait("\nstill here")
    terminal.ask("/quit", "")
    assert terminal.end() == 0


def test_without_colour_where_none_is_wanted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal("chat", "--port", str(house.port), "--model", "demo")
    terminal.ask("say hello", "hello")
    terminal.ask("/quit", "")
    assert terminal.end() == 0
    assert not re.search(r"\x1b\[\d+m", terminal.seen)


@pytest.mark.parametrize(
    "fault", [faults.slow(40, 0.02), faults.stalled(60), faults.stalled(60, after=4)], ids=lambda f: f.name
)
def test_ctrl_c_stops_an_answer_and_not_the_program(fault: ScriptedFault) -> None:
    with serve("openai", key=CANARY) as provider:
        spec = upstream("far", "openai_chat", provider.base_url, timeouts=Timeouts())
        with open_house(spec) as house:
            provider.next(fault)
            terminal = Terminal("chat", "--port", str(house.port), "--model", "far-model")
            terminal.ask("count to 900", "1 2" if "headers" not in fault.name else "")
            wait_until(lambda: any(request.fault for request in provider.requests), "the request that meets the fault")
            terminal.interrupt("(stopped; not remembered)")
            terminal.ask("say hello", "hello")
            terminal.ask("/quit", "")
            assert terminal.end() == 0
            talks = [request.json["messages"] for request in provider.requests if request.dialect]
            assert [len(messages) for messages in talks] == [1, 1]


def test_a_gateway_that_is_gone_is_said_and_the_conversation_goes_on() -> None:
    port = free_port()
    with running_gateway(base_url("127.0.0.1", port)):
        terminal = Terminal("chat", "--port", str(port), "--model", "demo")
        terminal.ask("say hello", "hello")
    terminal.ask("say hello", "does not answer")
    terminal.ask("/list", "does not answer")
    terminal.ask("/xray", "does not answer")
    terminal.ask("/iter 3", "iterations: 3")
    terminal.ask("/quit", "")
    assert terminal.end() == 0


@pytest.mark.parametrize("via", VIAS)
def test_tools_through_every_door(
    house: House, via: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('Use convert_time with "UTC" "12:00" "Asia/Tokyo"\n'))
    words = ["chat", "--via", via, "--port", str(house.port), "--model", "demo"]
    assert main([*words, *([] if via == "mcp" else ["--mcp", "time"])]) == 0
    assert "T21:00:00+09:00" in capsys.readouterr().out


def test_the_tools_of_a_server_that_is_added_are_used_at_once() -> None:
    session = ChatSession("http://127.0.0.1:1", "openai", "demo")
    for server in ("time", "weather", "time"):
        session.use_server(server)
    assert session.mcp == "time,weather"
    session.drop_server("time")
    assert session.mcp == "weather"
    session.drop_server("weather")
    assert session.mcp is None


def test_an_answer_that_did_not_end_by_itself_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    reply = Reply(
        id="r",
        model="m",
        choices=(Choice(parts=(Text(text="half"),), finish=Finish(reason="length")),),
    )

    class ShortReply(ChatSession):
        def send(self, text: str) -> Iterator[Event]:
            yield from unfold(reply)

    ChatTerminal(ShortReply("http://127.0.0.1:1", "openai", "demo"))._handle("hello")
    assert capsys.readouterr().out == "half (ended: length)\n"


def test_lines_of_a_pipe_are_a_conversation_too(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("my colour is green\nwhat is my colour?\n"))
    assert main(["chat", "--port", str(house.port), "--model", "demo"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Your colour is green."


def test_an_error_of_the_gateway_is_shown_and_the_conversation_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/model demo\nsay yes\n"))
    assert main(["chat", "--port", str(house.port), "--model", "../no/such"]) == 0
    out = capsys.readouterr().out
    assert "no model '../no/such'" in out
    assert "yes" in out


def test_a_gateway_elsewhere_that_does_not_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--host", "192.0.2.1", "--port", "9"]) == 1
    assert "no gateway answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name
)
def test_a_chat_that_is_ended_leaves_no_gateway_behind(how: signal.Signals) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "chat", "--port", str(port), "--model", "demo"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert b"started a gateway" in process.stderr.readline()
    process.send_signal(how)
    process.communicate(timeout=NEVER_S)
    wait_until(lambda: not answers(port), "the end of its gateway")
