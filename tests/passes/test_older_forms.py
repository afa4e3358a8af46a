"""`functions`, `function_call`, and a tool choice in another dialect's form: each server gets a form that it takes."""

import json
from typing import Any

import pytest

from dragoman import convert
from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.web import post

FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
LEGACY: dict[str, Any] = {
    "model": "far-model",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "7"},
    ],
    "functions": [FUNCTION],
    "function_call": {"name": "f"},
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
ANSWER: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion",
    "created": 5,
    "model": "far-model",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
}
NAMED = {"type": "function", "function": {"name": "f"}}


def play(kind: str, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the server got, and what the client got."""
    with (
        faultline(say(200, json.dumps(ANSWER).encode())) as far,
        open_house(upstream("far", "openai_chat", far.url, kind=kind)) as house,
    ):
        got = post(house.url, "/v1/chat/completions", body)
        return json.loads(far.seen[0].body), got.json


@pytest.mark.parametrize("kind", ["mistral", "groq", "vllm", "compatible"])
def test_older_forms_become_the_newer_ones_and_the_client_gets_its_own(kind: str) -> None:
    sent, got = play(kind, LEGACY)
    assert sent["tools"] == [{"type": "function", "function": FUNCTION}]
    assert sent["tool_choice"] == NAMED
    assert not sent.keys() & {"functions", "function_call"}
    call, result = sent["messages"][1:3]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert (result["role"], "function_call" in call) == ("tool", False)
    assert got["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert got["choices"][0]["finish_reason"] == "function_call"


def test_the_maker_gets_older_forms_as_they_are() -> None:
    sent, _ = play("openai", LEGACY)
    assert sent == LEGACY


@pytest.mark.parametrize("kind", ["openai", "azure", "mistral", "groq"])
@pytest.mark.parametrize("word", ["function", "tool"])
def test_a_choice_in_another_dialects_form_is_mended(kind: str, word: str) -> None:
    tools = [{"type": "function", "function": FUNCTION}]
    body = {"model": "far-model", "messages": LEGACY["messages"][:1], "tools": tools}
    sent, _ = play(kind, body | {"tool_choice": {"type": word, "name": "f"}})
    assert sent["tool_choice"] == NAMED


def test_the_mend_of_a_choice_is_noted() -> None:
    body = {"model": "m", "messages": LEGACY["messages"][:1], "tools": [{"type": "function", "function": FUNCTION}]}
    said = convert(body | {"tool_choice": {"type": "function", "name": "f"}}, source="openai_chat", to="openai_chat")
    assert [(note.kind, note.where) for note in said.notes] == [("repaired", "/tool_choice")]
