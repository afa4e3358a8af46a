"""`dragoman convert`: what a person sees, and what a script can rely on."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main

REQUEST = {
    "model": "m",
    "max_tokens": 9,
    "system": "be brief",
    "messages": [{"role": "user", "content": "hi"}],
    "top_k": 5,
}
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"hello"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
    b'"usage":{"output_tokens":2}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


class Run:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def convert(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(body: bytes | dict[str, Any], *words: str) -> Run:
        file = tmp_path / "body"
        file.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
        code = main(["convert", *words, str(file)])
        out, err = capfdbinary.readouterr()
        return Run(code, out.decode(), err.decode().replace(str(file), "FILE"))

    return run


def test_a_request_is_converted_and_its_losses_are_noted(convert: Any) -> None:
    run = convert(REQUEST, "--from", "anthropic", "--to", "openai-chat")
    assert run.code == 0
    body = json.loads(run.out)
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert run.err.split()[:3] == ["lost", "dropped", "/top_k"]


def test_the_dialect_is_recognised(convert: Any) -> None:
    assert json.loads(convert(REQUEST, "--to", "canonical").out)["messages"][0]["role"] == "system"


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(REQUEST).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["convert", "--to", "canonical", "--compact", "-"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["model"] == "m"


def test_notes_as_json_are_for_scripts(convert: Any) -> None:
    run = convert(REQUEST, "--to", "openai-chat", "--from", "anthropic", "--notes", "json")
    (note,) = json.loads(run.err)
    assert (note["kind"], note["where"]) == ("dropped", "/top_k")


def test_strict_mode_refuses_a_loss_with_its_own_code(convert: Any) -> None:
    run = convert(REQUEST, "--from", "anthropic", "--to", "openai-chat", "--refuse", "dropped")
    assert (run.code, run.out) == (3, "")
    assert run.err.startswith("dragoman convert: refused: /top_k: ")


def test_a_reply_goes_back(convert: Any) -> None:
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    body = json.loads(convert(reply, "--reply", "--to", "openai-chat").out)
    assert body["choices"][0]["message"]["content"] == "hi"
    assert body["usage"]["total_tokens"] == 7


def test_a_stream_is_converted_frame_by_frame(convert: Any) -> None:
    run = convert(STREAM, "--stream", "--to", "openai-chat")
    assert run.code == 0
    assert run.out.endswith("data: [DONE]\n\n")
    assert '"content":"hello"' in run.out


def test_a_cut_stream_ends_in_an_error_and_says_so(convert: Any) -> None:
    run = convert(STREAM[: STREAM.index(b"event: message_delta")], "--stream", "--to", "openai-chat")
    assert run.code == 2
    assert "[DONE]" not in run.out
    assert run.err == "dragoman convert: FILE: the stream is cut off: its last part is missing\n"


def test_an_error_is_converted(convert: Any) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    run = convert(body, "--error", "--status", "529", "--to", "gemini")
    assert json.loads(run.out)["error"]["status"] == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        (b'{"model": ', ["--to", "canonical"], "FILE: not JSON: Input data was truncated"),
        (b"[1]", ["--to", "canonical"], "FILE: expected object, found array"),
        (b'{"a": 1}', ["--to", "canonical"], "FILE: not a request of any dialect (its keys: a)"),
        (b'{"a": 1}', ["--to", "klingon"], "FILE: unknown dialect 'klingon': expected one of canonical"),
        (
            {"model": "m", "messages": [{"role": "user", "content": 5}]},
            ["--from", "anthropic", "--to", "canonical"],
            "FILE: /messages/0/content: expected string or array, found number",
        ),
        (b"hello\n\n", ["--stream", "--to", "canonical"], "FILE: not a stream of any dialect"),
    ],
)
def test_bad_input_is_one_clear_line_and_code_2(convert: Any, body: Any, words: list[str], line: str) -> None:
    run = convert(body, *words)
    assert run.code == 2
    assert run.err.startswith(f"dragoman convert: {line}")
    assert run.err.count("\n") == 1


def test_a_file_that_is_not_there_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--to", "canonical", "no-such-file"]) == 1
    assert capsys.readouterr().err == "dragoman convert: no-such-file: No such file or directory\n"


def test_dialects_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dialects"]) == 0
    assert "openai-responses" in capsys.readouterr().out
