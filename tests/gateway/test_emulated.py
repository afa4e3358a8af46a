"""What a target lacks, over a real gateway: JSON held to a schema, and several answers."""

import json
from typing import Any

import pytest

from tests.gateway.house import Faultline, Script, faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, post

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
GOOD, BAD = '{"a":"b"}', '{"a":1}'


def whole_body(text: str) -> bytes:
    spent = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": spent}
    return json.dumps(body).encode()


def whole(text: str) -> Script:
    return say(200, whole_body(text))


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
    return [{key: value for key, value in note.items() if key != "rank"} for note in told]


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


def test_an_answer_that_does_not_fit_is_asked_for_once_more_with_the_reason() -> None:
    with faultline(whole(BAD), whole(GOOD)) as line:
        got = ask(line, response_format=FORMAT)
    assert (got.status, content(got), len(line.seen)) == (200, GOOD, 2)
    first, second = (json.loads(seen.body)["messages"] for seen in line.seen)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": BAD}
    assert "/a: expected string, found number" in second[len(first) + 1]["content"]
    assert got.json["usage"]["total_tokens"] == 10  # both were paid for
    assert not [note for note in notes_of(got) if note["where"] == "/choices/0"]


def test_a_second_answer_that_does_not_fit_is_passed_on_with_a_note() -> None:
    with faultline(whole(BAD), whole('{"b":2}')) as line:
        got = ask(line, response_format=FORMAT)
    assert (got.status, content(got), len(line.seen)) == (200, '{"b":2}', 2)
    (told,) = [note for note in notes_of(got) if note["where"] == "/choices/0"]
    assert told == {
        "kind": "dropped",
        "where": "/choices/0",
        "why": "the answer is not in the form that was asked for: /: a is missing",
        "body": "reply",
    }


def test_with_refuse_a_second_answer_that_does_not_fit_is_an_error_that_says_so() -> None:
    with faultline(whole(BAD)) as line:
        got = ask(line, {"x-dragoman-refuse": "dropped"}, response_format=FORMAT)
    assert (got.status, len(line.seen)) == (502, 2)
    assert "/a: expected string" in got.json["error"]["message"]


def test_a_streamed_answer_that_does_not_fit_is_passed_on_with_a_note_at_its_end() -> None:
    with faultline(stream_slowly(BAD)) as line:
        got = ask(line, response_format=FORMAT, stream=True)
    assert got.status == 200
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in streamed(got) if c["choices"]) == BAD
    assert len(line.seen) == 1
    (told,) = [line for line in got.body.decode().splitlines() if line.startswith(": x-dragoman-notes ")]
    assert "/a: expected string, found number" in told  # too late for a header
    assert got.body.index(b"[DONE]") < got.body.index(b": x-dragoman-notes")


def test_an_answer_that_does_not_fit_is_noted_in_the_headers_if_it_is_known_before_them() -> None:
    with faultline(say(200, whole_body(BAD))) as line:
        got = ask(line, response_format=FORMAT, stream=True)  # a whole answer where a stream was asked for
    assert "/a: expected string, found number" in got.headers["x-dragoman-notes"]
    assert b": x-dragoman-notes" not in got.body


def test_with_refuse_a_streamed_answer_that_does_not_fit_ends_in_an_error() -> None:
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


# ---------------------------------------------------------------- several answers from a target that gives one


def contents(got: Got) -> list[str]:
    return [choice["message"]["content"] for choice in got.json["choices"]]


def test_several_answers_are_asked_for_one_by_one_and_joined() -> None:
    with faultline(whole("one"), whole("two"), whole("three")) as line:
        got = ask(line, n=3)
    assert sorted(contents(got)) == ["one", "three", "two"]
    assert [choice["index"] for choice in got.json["choices"]] == [0, 1, 2]
    assert got.json["usage"]["total_tokens"] == 15
    assert [json.loads(seen.body).get("n") for seen in line.seen] == [None] * 3
    assert {"kind": "altered", "where": "/n", "why": "asked 3 times"} in notes_of(got)


def test_eight_is_the_most_that_is_asked_for() -> None:
    with faultline(whole("x")) as line:
        got = ask(line, n=8)
    assert len(line.seen) == len(contents(got)) == 8


@pytest.mark.parametrize(
    ("policy", "status", "answers", "sent"), [("emulate", 200, 2, 2), ("drop", 200, 1, 1), ("refuse", 400, 0, 0)]
)
def test_the_policy_decides_about_several_answers(policy: str, status: int, answers: int, sent: int) -> None:
    overrides = {"lacks": ["choices"], "policy": {"choices": policy}}
    with (
        faultline(whole("x")) as line,
        open_house(upstream("chat", "openai_chat", line.url, models=("m",), overrides=overrides)) as house,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "n": 2}
        got = post(house.url, "/v1/chat/completions", body)
    assert (got.status, len(got.json.get("choices", ())), len(line.seen)) == (status, answers, sent)
    if policy == "drop":
        assert {"kind": "dropped", "where": "/n", "why": "compatible has no setting for it"} in notes_of(got)


def test_strict_several_answers_are_not_asked_for_one_by_one() -> None:
    with faultline(whole("x")) as line:
        got = ask(line, {"x-dragoman-refuse": "altered"}, n=2)
    assert (got.status, len(line.seen)) == (400, 0)


def test_a_failure_of_one_is_the_failure_of_all() -> None:
    bad = say(400, b'{"error": {"message": "no", "type": "invalid_request_error"}}')
    with faultline(whole("x"), bad) as line:
        got = ask(line, n=2)
    assert got.status == 400


def by_choice(got: Got) -> dict[int, str]:
    said: dict[int, str] = {}
    for chunk in streamed(got):
        for choice in chunk["choices"]:
            said[choice["index"]] = said.get(choice["index"], "") + (choice["delta"].get("content") or "")
    return said


def test_several_streams_are_one_stream_with_several_choices() -> None:
    with faultline(pieces("o", "n", "e"), pieces("tw", "o"), pieces("three")) as line:
        got = ask(line, n=3, stream=True, stream_options={"include_usage": True})
    assert sorted(by_choice(got).values()) == ["one", "three", "two"]
    chunks = streamed(got)
    assert len({chunk["id"] for chunk in chunks}) == 1
    finishes = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason")]
    assert finishes == ["stop"] * 3
    assert [chunk["usage"]["total_tokens"] for chunk in chunks if chunk.get("usage")] == [15]
    assert got.body.count(b"[DONE]") == 1


def test_streams_wait_for_each_other_where_there_is_one_place() -> None:
    limits = {"lacks": ["choices"]}
    with (
        faultline(pieces("one"), pieces("two")) as line,
        open_house(upstream("chat", "openai_chat", line.url, models=("m",), overrides=limits, at_once=1)) as house,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "n": 2}
        got = post(house.url, "/v1/chat/completions", {**body, "stream": True})
        plain = post(house.url, "/v1/chat/completions", body)
    assert sorted(by_choice(got).values()) == ["one", "two"]
    assert plain.status in (200, 502)


def test_a_stream_that_breaks_ends_all_of_them_in_an_error() -> None:
    broken = stream(b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"tw"}}]}\n\n', 0.2)
    with faultline(pieces("one"), broken) as line:
        got = ask(line, n=2, stream=True)
    assert "error" in streamed(got)[-1]


def test_the_demo_model_gives_several_answers_too() -> None:
    with open_house() as house:
        got = post(
            house.url, "/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "q"}], "n": 2}
        )
    assert len(got.json["choices"]) == 2


# ---------------------------------------------------------------- notes


def test_losses_of_an_answer_are_in_the_header() -> None:
    token = {"token": "hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    message = {"role": "assistant", "content": "hi"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": [token]}}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    with (
        faultline(say(200, json.dumps(body).encode())) as line,
        open_house(upstream("chat", "openai_chat", line.url, models=("m",))) as house,
    ):
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}
        got = post(house.url, "/v1/messages", asked)
    assert "/choices/0/logprobs/content" in [note["where"] for note in notes_of(got)]
