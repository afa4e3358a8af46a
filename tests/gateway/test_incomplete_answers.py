"""An upstream answers with less than a whole answer, under status 200: no client takes it for a whole one."""

import json
from typing import Any

import pytest

from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.skipped_pauses import held_time
from tests.gateway.web import post

TEXT = {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []}
RESPONSE: dict[str, Any] = {"id": "resp_7", "object": "response", "created_at": 5, "model": "far-model", "output": []}
FAILED = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down, please"}}
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai_responses": ("/v1/responses", {"input": "hi"}),
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
    "gemini": ("/v1beta/models/far-model:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "ollama": ("/api/chat", {"messages": [{"role": "user", "content": "hi"}], "stream": False}),
}
OTHERS = [door for door in DOORS if door != "openai_responses"]
# Some Chat servers never tell why an answer ended: Snowflake says "", OpenRouter null for Grok.
CHAT_ANSWER: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion",
    "created": 5,
    "model": "far-model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "all"}, "finish_reason": None}],
}
# What other servers send when it is not the end.
ENDLESS: dict[str, dict[str, Any]] = {
    "openai_responses": RESPONSE | {"status": "incomplete", "output": [TEXT]},
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "far-model",
        "content": [{"type": "text", "text": "half"}],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "half"}]}}]},
    "ollama": {"model": "far-model", "message": {"role": "assistant", "content": "half"}, "done": False},
}


def ask(door: str, source: str, answer: dict[str, Any]) -> tuple[int, dict[str, Any], int]:
    """Status and body at this door, and how often the upstream was asked."""
    path, body = DOORS[door]
    with (
        faultline(say(200, json.dumps(answer).encode())) as far,
        open_house(upstream("far", source, far.url)) as house,
        pytest.MonkeyPatch.context() as patch,
        held_time(house, patch),
    ):
        got = post(house.url, path, body | {"model": "far-model"})
        return got.status, got.json, len(far.seen)


def end_of(door: str, body: dict[str, Any]) -> object:
    match door:
        case "openai_chat":
            return body["choices"][0]["finish_reason"]
        case "openai_responses":
            return body["status"]
        case "anthropic":
            return body["stop_reason"]
        case "gemini":
            return body["candidates"][0].get("finishReason")
        case _:
            return body["done"] and body.get("done_reason", "stop")


WHOLE = {"stop", "end_turn", "completed", "STOP", "tool_calls", "tool_use"}


@pytest.mark.parametrize("status", ["queued", "in_progress"])
@pytest.mark.parametrize("door", OTHERS)
def test_a_response_that_is_still_running_is_an_error_elsewhere(door: str, status: str) -> None:
    code, body, asked = ask(door, "openai_responses", RESPONSE | {"status": status})
    assert code == 502
    assert f"it is {status} in the background, as resp_7" in json.dumps(body)
    assert asked == 1  # another try would begin a second one


def test_a_response_that_is_still_running_stays_one_for_its_own_clients() -> None:
    code, body, _ = ask("openai_responses", "openai_responses", RESPONSE | {"status": "queued"})
    assert (code, body["status"], body["id"]) == (200, "queued", "resp_7")


@pytest.mark.parametrize("door", OTHERS)
def test_a_response_that_failed_is_an_error_elsewhere(door: str) -> None:
    code, body, _ = ask(door, "openai_responses", RESPONSE | FAILED)
    assert code == 429
    assert "slow down, please" in json.dumps(body)


@pytest.mark.parametrize("source", ENDLESS)
@pytest.mark.parametrize("door", DOORS)
def test_an_answer_that_does_not_tell_why_it_ended_is_no_whole_one(door: str, source: str) -> None:
    code, body, _ = ask(door, source, ENDLESS[source])
    assert code == 200
    assert end_of(door, body) not in WHOLE


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("word", [None, ""])
def test_a_chat_answer_without_a_reason_is_whole(door: str, word: str | None) -> None:
    choice = CHAT_ANSWER["choices"][0] | {"finish_reason": word}
    code, body, _ = ask(door, "openai_chat", CHAT_ANSWER | {"choices": [choice]})
    assert code == 200
    assert end_of(door, body) in WHOLE


def test_a_choice_that_a_filter_cut_has_a_message() -> None:
    """Azure leaves it out (recorded), and the official client reads `choices[0].message.content`."""
    cut = {"index": 0, "finish_reason": "content_filter", "content_filter_results": {}}
    code, body, _ = ask("openai_chat", "openai_chat", CHAT_ANSWER | {"choices": [cut]})
    assert code == 200
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["choices"][0]["finish_reason"] == "content_filter"
