"""Requests that are JSON and yet no text, and requests that say nothing."""

import json
from typing import Any

import pytest

from tests.gateway.house import faultline, open_house, stream, upstream
from tests.gateway.test_faults import ASK, GOOD
from tests.gateway.web import post

TURN = '{"role":"user","content":"cut \\ud83d"}'
BODIES = {
    "/v1/chat/completions": '{"model":"m","messages":[' + TURN + "]}",
    "/v1/messages": '{"model":"m","max_tokens":9,"messages":[' + TURN + "]}",
    "/v1/responses": '{"model":"m","input":[' + TURN + "]}",
    "/api/chat": '{"model":"m","stream":false,"messages":[' + TURN + "]}",
    "/v1beta/models/m:generateContent": '{"contents":[{"role":"user","parts":[{"text":"cut \\ud83d"}]}]}',
}


@pytest.mark.parametrize("path", BODIES)
def test_half_an_emoji_is_replaced_and_noted(path: str) -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = post(house.url, path, BODIES[path].encode())
        assert got.status == 200, got.text
        assert json.loads(line.seen[0].body)["messages"][-1]["content"] == "cut \ufffd"
        (note,) = [note for note in json.loads(got.headers["x-dragoman-notes"]) if "surrogate" in note["why"]]
        assert note["kind"] == "repaired"
        assert note["where"].endswith(("/0/content", "/0/parts/0/text"))
        refused = post(house.url, path, BODIES[path].encode(), {"x-dragoman-refuse": "repaired"})
        assert refused.status == 400


def test_an_emoji_split_over_two_events_arrives_whole() -> None:
    head = 'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    hi, end = '{"role":"assistant","content":"hi"}', '{},"finish_reason":"stop"'
    deltas = [hi, '{"content":"\\ud83d"}', '{"content":"\\ude00!"}', end]
    frames = [*(head + delta + "}]}\n\n" for delta in deltas), "data: [DONE]\n\n"]
    with (
        faultline(stream(*[frame.encode() for frame in frames])) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        got = post(house.url, "/api/chat", {**ASK, "model": "m"})
        said = "".join(json.loads(row)["message"]["content"] for row in got.text.splitlines())
        assert said == "hi\U0001f600!"
        got = post(house.url, "/v1/chat/completions", {**ASK, "model": "m", "stream": True})
        chunks = [json.loads(row[6:]) for row in got.text.splitlines() if row.startswith("data: {")]
        texts = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
        assert "".join(texts) == "hi\U0001f600!"


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/v1/chat/completions", {"model": "demo"}, "messages"),
        ("/v1/chat/completions", {"model": "demo", "messages": []}, "messages"),
        ("/v1/messages", {"model": "demo", "max_tokens": 9}, "messages"),
        ("/v1/messages", {"model": "demo", "max_tokens": 9, "messages": []}, "messages"),
        ("/v1/messages/count_tokens", {"model": "demo"}, "messages"),
        ("/v1/responses", {"model": "demo"}, "input"),
        ("/v1/responses", {"model": "demo", "input": []}, "input"),
        ("/v1beta/models/demo:generateContent", {}, "contents"),
        ("/v1beta/models/demo:countTokens", {}, "contents"),
    ],
)
def test_a_request_without_messages_is_400_and_says_which_key(path: str, body: dict[str, Any], key: str) -> None:
    with open_house() as house:
        got = post(house.url, path, body)
        assert got.status == 400
        assert f"/{key}: expected at least one message" in got.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "demo", "messages": [{"role": "bard", "content": "hi"}]}),
        ("/v1/messages", {"model": "demo", "max_tokens": 9, "messages": [{"role": "bard", "content": "hi"}]}),
        ("/v1/responses", {"model": "demo", "input": [{"role": "bard", "content": "hi"}]}),
        ("/api/chat", {"model": "demo", "messages": [{"role": "bard", "content": "hi"}]}),
        ("/v1beta/models/demo:generateContent", {"contents": [{"role": "bard", "parts": [{"text": "hi"}]}]}),
    ],
)
def test_a_role_that_no_dialect_has_is_400_with_its_place(path: str, body: dict[str, Any]) -> None:
    with open_house() as house:
        got = post(house.url, path, body)
        assert got.status == 400
        assert "/0/role: expected one of" in got.text
        assert "bard" in got.text
