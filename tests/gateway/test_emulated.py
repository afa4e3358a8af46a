"""What a target lacks, over a real gateway: JSON held to a schema, and several answers."""

import json
from typing import Any

from tests.gateway.house import Faultline, Script, faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, post

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
GOOD, BAD = '{"a":"b"}', '{"a":1}'


def whole(text: str, **usage: int) -> Script:
    spent = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5} | usage
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": spent}
    return say(200, json.dumps(body).encode())


def pieces(*texts: str) -> Script:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    frames = [chunk({"content": text}) for text in texts]
    return stream(*frames, chunk({}, "stop"), b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n")


def ask(line: Faultline, headers: dict[str, str] | None = None, **more: Any) -> Got:
    lacking = {"lacks": ["json", "json_schema", "choices", "tool_choice"]}
    with open_house(upstream("chat", "openai_chat", line.url, models=("m",), overrides=lacking)) as house:
        body = {"model": "m", "messages": [{"role": "user", "content": "q"}], **more}
        return post(house.url, "/v1/chat/completions", body, headers)


def notes_of(got: Got) -> list[dict[str, str]]:
    told: list[dict[str, str]] = json.loads(got.headers["x-dragoman-notes"])
    return told


def content(got: Got) -> Any:
    return got.json["choices"][0]["message"]["content"]


def streamed(got: Got) -> list[Any]:
    lines = [line[6:] for line in got.body.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# ---------------------------------------------------------------- JSON held to a schema (case 71)


def test_an_answer_that_fits_comes_without_what_stood_around_it() -> None:
    with faultline(whole(f"Sure!\n```json\n{GOOD}\n```")) as line:
        got = ask(line, response_format=FORMAT)
    assert (got.status, content(got), len(line.seen)) == (200, GOOD, 1)
    assert "response_format" not in json.loads(line.seen[0].body)


def test_a_misfit_is_asked_for_once_more_with_what_is_wrong() -> None:
    with faultline(whole(BAD), whole(GOOD)) as line:
        got = ask(line, response_format=FORMAT)
    assert (got.status, content(got), len(line.seen)) == (200, GOOD, 2)
    first, second = (json.loads(seen.body)["messages"] for seen in line.seen)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": BAD}
    assert "/a: expected string, found number" in second[len(first) + 1]["content"]
    assert got.json["usage"]["total_tokens"] == 10  # both were paid for
    assert not [note for note in notes_of(got) if note["where"] == "/choices/0"]


def test_a_second_misfit_is_handed_on_and_told() -> None:
    with faultline(whole(BAD), whole('{"b":2}')) as line:
        got = ask(line, response_format=FORMAT)
    assert (got.status, content(got), len(line.seen)) == (200, '{"b":2}', 2)
    (told,) = [note for note in notes_of(got) if note["where"] == "/choices/0"]
    assert told == {
        "kind": "dropped",
        "where": "/choices/0",
        "why": "the answer is not what was asked for: /: a is missing",
    }


def test_strict_a_second_misfit_is_an_error_that_says_so() -> None:
    with faultline(whole(BAD)) as line:
        got = ask(line, {"x-dragoman-refuse": "dropped"}, response_format=FORMAT)
    assert (got.status, len(line.seen)) == (502, 2)
    assert "/a: expected string" in got.json["error"]["message"]


def test_a_streamed_misfit_is_handed_on() -> None:
    with faultline(pieces('{"a"', ":1}")) as line:
        got = ask(line, response_format=FORMAT, stream=True)
    assert got.status == 200
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in streamed(got) if c["choices"]) == BAD
    assert len(line.seen) == 1


def test_strict_a_streamed_misfit_ends_in_an_error() -> None:
    with faultline(stream_slowly(BAD)) as line:
        got = ask(line, {"x-dragoman-refuse": "dropped"}, response_format=FORMAT, stream=True)
    last = streamed(got)[-1]
    assert "/a: expected string" in last["error"]["message"]
    assert b"[DONE]" not in got.body or b'"finish_reason":"stop"' not in got.body


def stream_slowly(text: str) -> Script:
    """So that the client has heard of it before it is whole."""

    def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: " + json.dumps({"id": "x", "model": "m", "choices": choices}).encode() + b"\n\n"

    return stream(
        frame({"content": text[:4]}), 0.2, frame({"content": text[4:]}), frame({}, "stop"), b"data: [DONE]\n\n"
    )
