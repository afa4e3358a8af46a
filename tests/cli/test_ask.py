"""`dragoman ask`: one question, from the command line."""

import contextlib
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
from tests.gateway.house import CANARY, open_house, upstream
from tests.waiting import NEVER_S

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
        ([], 2, "no question"),
        (["x", "--model", "gpt-4o"], 1, "set OPENAI_API_KEY"),
        (["x", "--model", "nobody"], 1, "put the upstream's name in front"),
        (["x", "--image", "/nowhere.png"], 2, "cannot be read"),
        (["x", "--json-schema", "/nowhere.json"], 2, "No such file"),
        (["x", "--json-schema", "{"], 2, "not JSON"),
        (["x", "--json-schema", "[1]"], 2, "No such file"),
        (["x", "--json-schema", '{"type": "objekt"}'], 2, "/type: fits none of"),
        (["x", "--json-schema", '{"properties": {"a": {"$ref": "#/$defs/b"}}}'], 2, "nothing at #/$defs/b"),
        (["x", "--json-schema", '{"required": "a"}'], 2, "/required: expected array"),
        (["x", "--image", "/"], 2, "Is a directory"),
        (["x", "--image", __file__], 2, "is no picture that can be shown: PNG"),
        (["x", "--file", "/nowhere.txt"], 2, "cannot be read"),
        (["x", "--effort", "frantic"], 2, "expected off, minimal, low"),
        (["x", "--max-output", "0"], 2, "expected a whole number of 1 or more, found '0'"),
        (["x", "--model", "no model"], 1, "this is not a valid model name"),
        (["x", "--model", "ollama/qwen3"], 1, "ollama (http://127.0.0.1:9) accepts no connection"),
        (["x", "--url", "ftp://x"], 2, "--url: expected http"),
        (
            ["x", "--url", "127.0.0.1:9", "--model", "demo"],
            1,
            "the gateway at http://127.0.0.1:9 accepts no conn",
        ),
        (["x", "--url", "http://nowhere.invalid"], 1, "http://nowhere.invalid: its name cannot be resolved"),
        (["x", "--refuse", "everything"], 2, "repaired, found 'everything'"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else None,
)
def test_what_goes_wrong_is_said_in_one_line(
    words: list[str], code: int, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    assert cli.main(["ask", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Client(" not in err
    assert complaint in err
    assert "Traceback" not in err


WAYS = {
    "openai": "gpt-4o",
    "anthropic": "claude-sonnet-4-6",
    "gemini": "gemini-2.5-flash",
    "ollama": "ollama/qwen3",
    "demo": "demo",
}


@pytest.mark.parametrize("through", [False, True], ids=["straight", "gateway"])
@pytest.mark.parametrize("kind", WAYS)
def test_every_way_answers_alike(
    kind: str, through: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A question, a stream, standard input, a picture, a schema, and a model nobody has: by a provider or a gateway."""
    (tmp_path / "a.png").write_bytes(PNG)
    model = WAYS[kind]
    with contextlib.ExitStack() as stack:
        words = ["--model", model]
        provider = stack.enter_context(serve("openai" if kind == "demo" else kind, key=CANARY))
        if kind != "demo":
            monkeypatch.setenv("OLLAMA_HOST" if kind == "ollama" else f"{kind.upper()}_BASE_URL", provider.base_url)
            monkeypatch.setenv(f"{kind.upper()}_API_KEY", CANARY)
        if through:
            dialect = {"openai": "openai_chat"}.get(kind, kind)
            bare = model.removeprefix("ollama/")
            far = [] if kind == "demo" else [upstream("far", dialect, provider.base_url, kind=kind, models=(bare,))]
            words = ["--url", stack.enter_context(open_house(*far)).url, "--model", bare]
        assert cli.main(["ask", "say hello", *words]) == 0
        assert cli.main(["ask", "count to 3", "--stream", *words]) == 0
        monkeypatch.setattr(sys, "stdin", io.StringIO("say piped\n"))
        assert cli.main(["ask", *words]) == 0
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert capsys.readouterr() == ("hello\n1 2 3\npiped\n", "")
        assert cli.main(["ask", "A city like Oslo", "--json-schema", SCHEMA, *words]) == 0
        assert json.loads(capsys.readouterr().out) == {"city": "Oslo"}
        assert cli.main(["ask", "Look", "--image", str(tmp_path / "a.png"), *words]) == 0
        assert "image" in capsys.readouterr().out
        if kind != "demo":
            assert cli.main(["ask", "say x", *words[:-1], f"{words[-1].rpartition('/')[0]}/no-such".lstrip("/")]) == 1
            out, err = capsys.readouterr()
            assert out == ""
            assert "no" in err
            assert CANARY not in err


def test_an_answer_that_is_not_what_the_schema_says_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve("openai", key=CANARY) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        provider.say('{"city": 5}')
        assert cli.main(["ask", "x", "--model", "gpt-4o", "--json-schema", SCHEMA]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert 'does not match its schema: /city: expected string, found number; it says: {"city": 5}' in err


def test_an_answer_without_text_says_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve("openai", key=CANARY) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        provider.say("", "")
        assert cli.main(["ask", "x", "--model", "gpt-4o", "--json-schema", SCHEMA]) == 1
    assert "the model gave no text: it ended with stop, " in capsys.readouterr().err


def test_a_refused_key_is_said_without_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with serve("anthropic", key=CANARY) as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-another-secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.base_url)
        assert cli.main(["ask", "x"]) == 1
    err = capsys.readouterr().err
    assert "anthropic refuses the key" in err
    assert "sk-another" not in err


def test_a_stream_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with serve("anthropic", key="k") as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.base_url)
        provider.next(faults.cut(after=8))
        assert cli.main(["ask", "count to 30", "--stream"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 2")
    assert "was cut off" in err


def test_on_a_terminal_the_answer_is_shown_as_it_comes() -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "dragoman", "ask", "count to 5", "--model", "demo"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while select.select([controller], [], [], NEVER_S)[0] and (data := os.read(controller, 1000)):
                shown += data
        except OSError:  # Linux's way to say that the terminal is closed
            pass
        assert process.wait(NEVER_S) == 0
    os.close(controller)
    assert shown == b"1 2 3 4 5\r\n"
