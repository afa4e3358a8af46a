"""Our side field `dragoman` is between us and a client: no provider ever sees it, and what is not ours stays."""

import json
from typing import Any

import pytest

from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.test_passthrough import KINDS, PATHS, REPLIES
from tests.gateway.web import post

SEAL = {"seal": {"origin": "elsewhere", "value": "c2VhbA==", "form": "signature"}}
SIDES: dict[str, Any] = {
    "a seal": SEAL,
    "nothing we wrote": {"x": 1},
    "a word": "yes",
    "a broken seal": {"seal": {"v": 1}},
}
# A client's own, which only happens to have the same name.
TOOL_SCHEMA = {"type": "object", "properties": {"dragoman": {"type": "string"}}}
ARGUMENTS = {"dragoman": "mine"}


def bodies(side: Any) -> dict[str, dict[str, Any]]:
    """A conversation in each dialect, with the side field wherever a client may bring it back."""
    here = {"dragoman": side}
    call = {"name": "f", "arguments": json.dumps(ARGUMENTS)}
    return {
        "openai_chat": {
            "model": "far-model",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL_SCHEMA}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi", **here}], **here},
                {
                    "role": "assistant",
                    "content": "ho",
                    "tool_calls": [{"id": "c1", "type": "function", "function": call, **here}],
                    **here,
                },
                {"role": "tool", "tool_call_id": "c1", "content": "42", **here},
            ],
        },
        "anthropic": {
            "model": "far-model",
            "max_tokens": 9,
            "tools": [{"name": "f", "input_schema": TOOL_SCHEMA}],
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "ho", **here},
                        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": ARGUMENTS, **here},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "toolu_1",
                            "content": [{"type": "text", "text": "42", **here}],
                            **here,
                        }
                    ],
                },
            ],
        },
        "openai_responses": {
            "model": "far-model",
            "store": False,
            "tools": [{"type": "function", "name": "f", "parameters": TOOL_SCHEMA, "strict": False}],
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi", **here}], **here},
                {"type": "function_call", "call_id": "call_1", **call, **here},
                {"type": "function_call_output", "call_id": "call_1", "output": "42", **here},
            ],
        },
        "gemini": {
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": TOOL_SCHEMA}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "hi", **here}], **here},
                {
                    "role": "model",
                    "parts": [{"text": "ho", **here}, {"functionCall": {"name": "f", "args": ARGUMENTS}, **here}],
                },
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": ARGUMENTS}, **here}]},
            ],
        },
        "ollama": {
            "model": "far-model",
            "stream": False,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL_SCHEMA}}],
            "messages": [
                {"role": "user", "content": "hi", **here},
                {
                    "role": "assistant",
                    "content": "ho",
                    "tool_calls": [{"function": {"name": "f", "arguments": ARGUMENTS}, **here}],
                    **here,
                },
                {"role": "tool", "tool_name": "f", "content": "42", **here},
            ],
        },
    }


def mentions(value: object, at: str = "") -> list[str]:
    """Where the word stands as a key."""
    if isinstance(value, dict):
        own = [f"{at}/dragoman"] if "dragoman" in value else []
        return own + [found for key, inner in value.items() for found in mentions(inner, f"{at}/{key}")]
    if isinstance(value, list):
        return [found for i, inner in enumerate(value) for found in mentions(inner, f"{at}/{i}")]
    return mentions(json.loads(value), f"{at}(text)") if isinstance(value, str) and value[:1] == "{" else []


def is_clients_own(place: str) -> bool:
    return any(word in place for word in ("/properties/", "/input/", "/args/", "(text)", "/arguments/", "/response/"))


ROWS = [
    (door, behind, side) for door in PATHS for behind in PATHS for side in SIDES if door == behind or side == "a seal"
]


@pytest.mark.parametrize(("door", "behind", "side"), ROWS)
def test_no_provider_sees_our_side_field(door: str, behind: str, side: str) -> None:
    body = bodies(SIDES[side])[door]
    with faultline(say(200, REPLIES[behind])) as line:
        spec = upstream("far", behind, line.url, kind=KINDS.get(behind, behind), models=("far-model",))
        with open_house(spec) as house:
            got = post(house.url, PATHS[door].replace("MODEL", "far-model"), body)
            assert got.status == 200, got.text
    found = mentions(json.loads(line.seen[0].body))
    assert [place for place in found if not is_clients_own(place)] == []
    assert [place for place in found if is_clients_own(place)], "what is the client's own stays"


@pytest.mark.parametrize("door", PATHS)
def test_a_word_that_is_the_clients_own_changes_no_byte(door: str) -> None:
    body = json.loads(json.dumps(bodies("x")[door]), object_hook=without_side)
    raw = json.dumps(body, indent=1).encode()
    assert b'"dragoman"' in raw
    with faultline(say(200, REPLIES[door])) as line:
        spec = upstream("far", door, line.url, kind=KINDS.get(door, door), models=("far-model",))
        with open_house(spec) as house:
            post(house.url, PATHS[door].replace("MODEL", "far-model"), raw)
    assert line.seen[0].body == raw


def without_side(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key != "dragoman" or inner != "x"}


THOUGHT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "far-model",
    "content": [
        {"type": "thinking", "thinking": "one", "signature": "c2VhbA=="},
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "two", "signature": "c2VhbDI="},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("door", ["openai_chat", "ollama", "openai_responses", "gemini", "anthropic"])
def test_the_gateway_writes_it_for_no_client(door: str, streamed: bool) -> None:
    """Also the places of thoughts, and seals, reach clients in their dialect's own words only (decision 3)."""
    body = bodies({"x": 1})[door]
    body = json.loads(json.dumps(body).replace('"dragoman": {"x": 1}', '"x": 1'))
    body.pop("tools", None)
    path = PATHS[door]
    if streamed and door == "gemini":
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    elif door != "gemini":
        body["stream"] = streamed
    with (
        faultline(say(200, json.dumps(THOUGHT).encode())) as far,
        open_house(upstream("far", "anthropic", far.url)) as house,
    ):
        got = post(house.url, path, body)
    assert got.status == 200, got.text
    assert b'"dragoman"' not in got.body
    assert b"two" in got.body
