"""`dragoman ask`: one question, from the command line."""

import io
import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import cli
from dragoman.testing import faults, serve
from tests.gateway.house import open_house

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
NAMES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "DRAGOMAN_MODEL", "DRAGOMAN_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


def test_without_a_key_the_demo_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", "Say", "hello"]) == 0
    assert capsys.readouterr() == ("hello\n", "")


def test_what_is_piped_in_is_added(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("say pong\n"))
    assert cli.main(["ask"]) == 0
    assert capsys.readouterr().out == "pong\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("the text"))
    assert cli.main(["ask", "What is it?", "-"]) == 0
    assert "What is it?\n\nthe text" in capsys.readouterr().out


def test_a_picture_and_a_file_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("words")
    assert cli.main(["ask", "Look", "--image", str(tmp_path / "a.png"), "--file", str(tmp_path / "a.txt")]) == 0
    out = capsys.readouterr().out
    assert "image" in out or "picture" in out


@pytest.mark.parametrize("file", [False, True])
def test_json_held_to_a_schema(file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    schema = str(tmp_path / "schema.json") if file else SCHEMA
    assert cli.main(["ask", "A city like Oslo", "--json-schema", schema]) == 0
    assert json.loads(capsys.readouterr().out) == {"city": "Oslo"}


def test_verbose_tells_notes_usage_and_who_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with serve("anthropic", key="k") as provider, pytest.MonkeyPatch.context() as env:
        env.setenv("ANTHROPIC_API_KEY", "k")
        env.setenv("ANTHROPIC_BASE_URL", provider.base_url)
        assert cli.main(["ask", "say pong", "-v"]) == 0
        assert cli.main(["ask", "say pong", "--model", "claude-x", "--refuse", "invented"]) == 3
    out, err = capsys.readouterr()
    assert out == "pong\n"
    assert "anthropic, claude-sonnet-5-5, stop, 2 in, 1 out" in err
    assert "invented: /max_output" in err
    assert "refused: /max_output" in err
    assert provider.requests[0].headers["x-api-key"] == "k"


def test_settings_are_passed_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with serve("openai", key="k") as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        words = ["ask", "say x", "-m", "gpt-4o", "-s", "Be short.", "--max-output", "50", "--temperature", "0"]
        assert cli.main(words) == 0
        body = provider.requests[0].json
    assert capsys.readouterr().out == "x\n"
    assert body["temperature"] == 0
    assert 50 in body.values()  # under the name this model knows
    assert body["messages"][0]["content"] == "Be short."


def test_through_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    with open_house() as house:
        assert cli.main(["ask", "say hello", "--url", house.url]) == 0
        assert cli.main(["ask", "say hello", "--url", house.url, "--model", "demo", "--stream"]) == 0
    assert capsys.readouterr().out == "hello\nhello\n"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "what is the question?"),
        (["x", "--model", "gpt-4o"], 1, "set OPENAI_API_KEY"),
        (["x", "--model", "nobody"], 1, "say whose it is"),
        (["x", "--image", "/nowhere.png"], 2, "cannot be read"),
        (["x", "--json-schema", "/nowhere.json"], 2, "No such file"),
        (["x", "--json-schema", "{"], 2, "not JSON"),
        (["x", "--url", "ftp://x"], 2, "base_url"),
        (["x", "--url", "http://127.0.0.1:9", "--model", "demo"], 1, "takes no connection"),
        (["x", "--refuse", "everything"], 2, "invalid choice"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else None,
)
def test_what_goes_wrong_is_said_in_one_line(
    words: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert "Traceback" not in err


def test_a_stream_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with serve("anthropic", key="k") as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.base_url)
        provider.next(faults.cut(after=8))
        assert cli.main(["ask", "count to 30", "--stream"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 2")
    assert "ended before its end" in err


def test_on_a_terminal_the_answer_is_shown_as_it_comes() -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "dragoman", "ask", "count to 5", "--model", "demo"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while select.select([controller], [], [], 20)[0] and (data := os.read(controller, 1000)):
                shown += data
        except OSError:  # Linux's way to say that the terminal is closed
            pass
        assert process.wait(20) == 0
    os.close(controller)
    assert shown == b"1 2 3 4 5\r\n"
