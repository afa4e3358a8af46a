"""Ids that clients join turns and results by: unique, and in the form of the client's own dialect."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.house import House, faultline, open_house, say, stream, upstream
from tests.gateway.web import post

CALL = {"function": {"name": "look", "arguments": {"at": "sea"}}}
HEAD = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}  # a clock that stands still
WHOLE = {
    **HEAD,
    "message": {"role": "assistant", "content": "", "tool_calls": [CALL]},
    "done": True,
    "done_reason": "stop",
}
LINES = (
    json.dumps({**WHOLE, "done": False})
    + "\n"
    + json.dumps({**HEAD, "message": {"role": "assistant", "content": ""}, "done": True})
    + "\n"
)
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
TURN = [{"role": "user", "content": "look"}]
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages",
        {"max_tokens": 9, "messages": TURN, "tools": [{"name": "look", "input_schema": SCHEMA}]},
    ),
    "openai_chat": (
        "/v1/chat/completions",
        {"messages": TURN, "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]},
    ),
    "openai_responses": (
        "/v1/responses",
        {"input": "look", "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "look"}]}],
            "tools": [{"functionDeclarations": [{"name": "look"}]}],
        },
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "streamed"])
def house(request: pytest.FixtureRequest) -> Iterator[tuple[House, bool]]:
    script = (
        stream(LINES.encode(), kind="application/x-ndjson") if request.param else say(200, json.dumps(WHOLE).encode())
    )
    with faultline(script) as line, open_house(upstream("one", "ollama", line.url, models=("m",))) as opened:
        yield opened, request.param


def ask(house: House, door: str, *, streamed: bool) -> list[dict[str, Any]]:
    """Every JSON object of an answer."""
    path, body = BODIES[door]
    if streamed and door == "gemini":
        path = path.replace("generate", "streamGenerate") + "?alt=sse"
    got = post(house.url, path, {"model": "m", "stream": streamed, **body} if door != "gemini" else body)
    assert got.status == 200, got.text
    if not streamed:
        return [got.json]
    return [
        json.loads(row[5:]) for row in got.text.splitlines() if row.startswith("data:") and row[5:].strip() != "[DONE]"
    ]


def find(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from find(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from find(inner, key)


REPLY_IDS: dict[str, Any] = {
    "anthropic": lambda found: {i for i in find(found, "id") if i.startswith("msg_")},
    "openai_chat": lambda found: {row["id"] for row in found},
    "openai_responses": lambda found: {i for i in find(found, "id") if i.startswith("resp_")},
    "gemini": lambda found: set(find(found, "responseId")),
}
CALL_IDS: dict[str, Any] = {
    "anthropic": lambda found: (
        {b["id"] for b in find(found, "content_block")} | {b["id"] for c in find(found, "content") for b in c}
    ),
    "openai_chat": lambda found: {call["id"] for calls in find(found, "tool_calls") for call in calls if "id" in call},
    "openai_responses": lambda found: set(find(found, "call_id")),
    "gemini": lambda found: {call["id"] for call in find(found, "functionCall")},
}
PREFIXES = {"anthropic": "msg_", "openai_chat": "chatcmpl-", "openai_responses": "resp_", "gemini": ""}


@pytest.mark.parametrize("door", BODIES)
def test_two_answers_of_an_upstream_without_ids_share_no_id(house: tuple[House, bool], door: str) -> None:
    opened, streamed = house
    first, second = (ask(opened, door, streamed=streamed) for _ in range(2))
    for find_ids in (REPLY_IDS[door], CALL_IDS[door]):
        ids = [find_ids(first), find_ids(second)]
        assert [len(found) for found in ids] == [1, 1]
        assert "" not in ids[0] | ids[1]
        assert not ids[0] & ids[1]
    assert all(i.startswith(PREFIXES[door]) for i in REPLY_IDS[door](first))


IDLESS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "openai_chat": {
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    },
    "openai_responses": {
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}],
    },
}


@pytest.mark.parametrize("given", [{}, {"id": ""}], ids=["missing", "empty"])
@pytest.mark.parametrize("door", IDLESS)
def test_a_whole_answer_of_the_same_dialect_without_an_id_gets_one(door: str, given: dict[str, Any]) -> None:
    """Claude Code takes two messages of one id for one message, and "" is an id too."""
    path, body = BODIES[door]
    with (
        faultline(say(200, json.dumps({**given, **IDLESS[door]}).encode())) as line,
        open_house(upstream("one", door, line.url, models=("m",))) as house,
    ):
        first, second = (post(house.url, path, {"model": "m", **body}).json for _ in range(2))
        assert first["id"].startswith(PREFIXES[door])
        assert len({first["id"], second["id"]}) == 2


USE = {"type": "tool_use", "name": "f", "input": {}}
TEXTS = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
ODD_WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "a call without an id": ("anthropic", {"content": [USE, USE], "stop_reason": "tool_use"}),
    "no model": ("anthropic", {"model": None}),
    "a thought without a signature": (
        "anthropic",
        {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "hi"}]},
    ),
    "a list of texts": ("openai_chat", {"role": "assistant", "content": TEXTS}),
    "a thought in the content": ("openai_chat", {"role": "assistant", "content": [THOUGHT, TEXTS[0]]}),
    "a call without arguments": (
        "openai_chat",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
    ),
}


@pytest.mark.parametrize(("door", "odd"), ODD_WHOLE.values(), ids=ODD_WHOLE)
def test_a_whole_answer_that_its_own_clients_cannot_read_is_mended(door: str, odd: dict[str, Any]) -> None:
    path, body = BODIES[door]
    sent: dict[str, Any] = {"id": "x", **IDLESS[door]}
    if door == "openai_chat":
        sent["choices"] = [{"index": 0, "message": odd, "finish_reason": "stop"}]
    else:
        sent |= odd
    with (
        faultline(say(200, json.dumps(sent).encode())) as line,
        open_house(upstream("one", door, line.url, models=("m",))) as house,
    ):
        got = post(house.url, path, {"model": "m", **body}).json
    if door == "anthropic":
        message = anthropic.types.Message.model_validate(got)
        calls = [block.id for block in message.content if block.type == "tool_use"]
        assert len(set(calls)) == len(calls)
    else:
        answer = openai.types.chat.ChatCompletion.model_validate(got).choices[0].message
        assert answer.content in ("hi", "h", None)
        assert [call.function.arguments for call in answer.tool_calls or () if call.type == "function"] in ([], ["{}"])


def test_an_id_of_another_dialects_form_becomes_one_of_the_doors() -> None:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
    }
    answer = {**body, "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
    with (
        faultline(say(200, json.dumps(answer).encode())) as line,
        open_house(upstream("one", "anthropic", line.url, models=("m",))) as house,
    ):
        got = post(house.url, "/v1/chat/completions", {"model": "m", "messages": TURN}).json
        assert got["id"].startswith("chatcmpl-")


def test_a_request_id_that_a_client_repeats_names_no_two_answers() -> None:
    with open_house() as house:
        asked = {"model": "demo", "input": "say hi"}
        ids = {post(house.url, "/v1/responses", asked, {"x-request-id": "mine"}).json["id"] for _ in range(2)}
        assert len(ids) == 2
