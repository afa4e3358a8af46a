"""The stream grammar of Ollama, as a check: one JSON per line, exactly one `done: true`, last, counters in it."""

import json
from typing import Any


def check_stream(data: bytes, *, counted: bool = True) -> list[dict[str, Any]]:
    """The lines of a stream that is legal to the last byte; AssertionError where it is not. Ollama's own streams may
    lack counters (it leaves out a zero), and come back as they were: those are not `counted`."""
    assert data.endswith(b"\n"), "the last line has no end"
    lines: list[dict[str, Any]] = [json.loads(line) for line in data.split(b"\n")[:-1]]
    assert lines, "no line at all"
    for line in lines[:-1]:
        _check_line(line, done=False)
    last = lines[-1]
    if "error" in last:
        assert type(last["error"]) is str
        assert last["error"]
        return lines
    _check_line(last, done=True)
    if counted:
        assert type(last["prompt_eval_count"]) is int
        assert type(last["eval_count"]) is int
    assert {line["model"] for line in lines} == {last["model"]}
    return lines


def _check_line(line: dict[str, Any], *, done: bool) -> None:
    assert line["done"] is done
    assert type(line["model"]) is str
    assert type(line["created_at"]) is str
    if "message" not in line:
        assert type(line["response"]) is str
        return
    message = line["message"]
    assert message["role"] == "assistant"
    assert type(message["content"]) is str
    for call in message.get("tool_calls", ()):
        assert type(call["function"]["name"]) is str
        assert type(call["function"]["arguments"]) is dict, "a call comes whole, its arguments as an object"
