"""FIELD-CASES of whole answers: what an upstream really answers, by number and name, and what a client then hears."""

from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply
from tests.cases.summary import ANTH, CHAT, CLIENTS, GEM, OLL, RESP, Said, say
from tests.cases.test_streams import LESS_FINE, OSLO, THOUGHT, TWO


def decode(dialect: str, body: Any) -> Reply:
    return find_dialect(dialect).decode_reply(WireReply(body=copy_json(body)), Notes())


def encode(dialect: str, reply: Reply) -> dict[str, Any]:
    wire: dict[str, Any] = load_json(dump_json(find_dialect(dialect).encode_reply(reply, Notes()).body))
    return wire


def completion(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}


def function(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def candidates(*parts: dict[str, Any], finish: str = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}], **more}


def message(*content: dict[str, Any], stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return {
        **head,
        "content": list(content),
        "stop_reason": stop,
        "usage": {"input_tokens": 1, "output_tokens": 1} | usage,
    }


def chat(content: str = "", **more: Any) -> dict[str, Any]:
    body = {"model": "m", "created_at": "2026-11-15T00:00:00Z", "done": True, "done_reason": "stop"}
    return {**body, "message": {"role": "assistant", "content": content, **more}}


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    body = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "error": None}
    return {**body, "output": list(output), **more}


CASES: list[tuple[str, str, dict[str, Any], Said]] = [
    (
        "16 a call that ends with stop",
        CHAT,
        completion({"content": None, "tool_calls": [function("f", '{"city":"Oslo"}', id="a")]}),
        OSLO,
    ),
    ("16 a call that ends with STOP", GEM, candidates({"functionCall": {"name": "f", "args": {"city": "Oslo"}}}), OSLO),
    (
        "16 a call that ends with stop",
        OLL,
        chat(tool_calls=[{"function": {"name": "f", "arguments": {"city": "Oslo"}}}]),
        OSLO,
    ),
    (
        "16 a call whose response is completed",
        RESP,
        response({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"city":"Oslo"}'}),
        OSLO,
    ),
    (
        "31 no content and a reason that is no stop",
        GEM,
        {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]},
        [("end", "malformed")],
    ),
    ("31 an image that was not drawn", GEM, {"candidates": [{"finishReason": "NO_IMAGE"}]}, [("end", "other")]),
    ("31 a reason of tomorrow", GEM, {"candidates": [{"finishReason": "TIRED"}]}, [("end", "other")]),
    ("31 a reason of tomorrow", CHAT, completion({"content": "hi"}, "tired"), [("text", "hi"), ("end", "other")]),
    (
        "31 a reason of tomorrow",
        ANTH,
        message({"type": "text", "text": "hi"}, stop="tired"),
        [("text", "hi"), ("end", "other")],
    ),
    ("31 a refusal", ANTH, message(stop="refusal"), [("end", "refusal")]),
    (
        "31 a refusal in words",
        RESP,
        response(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "I will not."}],
            }
        ),
        [("text", "I will not."), ("end", "refusal")],
    ),
    *[
        (f"74 thoughts under {name}", CHAT, completion({"content": "ok", name: "hm"}), THOUGHT)
        for name in ("reasoning", "reasoning_content")
    ],
    (
        "74 thoughts under reasoning_details",
        CHAT,
        completion({"content": "ok", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        THOUGHT,
    ),
    (
        "74 the same thought twice is one",
        CHAT,
        completion({"content": "ok", "reasoning": "hm", "reasoning_content": "hm"}),
        THOUGHT,
    ),
    ("74 thinking", OLL, chat("ok", thinking="hm"), THOUGHT),
    ("79 no candidates at all", GEM, {"promptFeedback": {"blockReason": "SAFETY"}}, [("end", "filter")]),
    (
        "81 calls with object arguments and no ids",
        OLL,
        chat(
            tool_calls=[
                {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}},
                {"function": {"name": "get_time", "arguments": {"tz": "JST"}}},
            ]
        ),
        TWO,
    ),
    (
        "75 a call written as text stays text unless somebody asks for it",
        CHAT,
        completion({"content": '<tool_call>{"name":"rm","arguments":{}}</tool_call>'}),
        [("text", '<tool_call>{"name":"rm","arguments":{}}</tool_call>'), ("end", "stop")],
    ),
    (
        "73 a tag in the middle of an answer is left alone",
        CHAT,
        completion({"content": "Write `<think>` first."}),
        [("text", "Write `<think>` first."), ("end", "stop")],
    ),
]
IDS = [f"{row[0]} [{row[1]}]" for row in CASES]


@pytest.mark.parametrize(("name", "source", "body", "said"), CASES, ids=IDS)
def test_the_answer_says(name: str, source: str, body: dict[str, Any], said: Said) -> None:
    assert say(decode(source, body)) == said


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("name", "source", "body", "said"), CASES, ids=IDS)
def test_every_client_hears_the_same(name: str, source: str, body: dict[str, Any], said: Said, client: str) -> None:
    heard = say(decode(client, encode(client, decode(source, body))))
    words, end, meant = heard[:-1], heard[-1][1], said[-1][1]
    assert words == said[:-1]
    assert end == meant or (end, meant) in (*LESS_FINE[client], ("length", "other"), ("stop", "refusal"))
    assert end != "stop" or meant in ("stop", "refusal")  # a refusal in words ends as its dialect says


def _total(usage: Usage | None) -> int:
    counted = ("input", "cache_read", "cache_write", "output", "reasoning")
    return sum(getattr(usage, field) or 0 for field in counted)


COUNTED: list[tuple[str, str, dict[str, Any]]] = [
    (
        "25 cache tokens beside the input",
        ANTH,
        message(input_tokens=3, cache_creation_input_tokens=12304, cache_read_input_tokens=100, output_tokens=550),
    ),
    (
        "25 cache tokens inside the input",
        CHAT,
        completion(
            {"content": "hi"},
            usage={
                "prompt_tokens": 12407,
                "completion_tokens": 550,
                "total_tokens": 12957,
                "prompt_tokens_details": {"cached_tokens": 100},
            },
        ),
    ),
    (
        "25 cache tokens inside the input",
        GEM,
        candidates(
            {"text": "hi"},
            usageMetadata={
                "promptTokenCount": 12407,
                "cachedContentTokenCount": 100,
                "candidatesTokenCount": 550,
                "totalTokenCount": 12957,
            },
        ),
    ),
    (
        "25 cache tokens inside the input",
        RESP,
        response(
            usage={
                "input_tokens": 12407,
                "input_tokens_details": {"cached_tokens": 100},
                "output_tokens": 550,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 12957,
            }
        ),
    ),
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("name", "source", "body"), COUNTED, ids=[f"{row[0]} [{row[1]}]" for row in COUNTED])
def test_tokens_are_counted_once_in_every_dialect(name: str, source: str, body: dict[str, Any], client: str) -> None:
    reply = decode(source, body)
    assert reply.usage is not None
    assert reply.usage.cache_read == 100
    assert _total(reply.usage) == 12957
    assert _total(decode(client, encode(client, reply)).usage) == 12957


def test_case_25_chat_counts_what_was_cached_and_anthropic_does_not() -> None:
    reply = decode(ANTH, COUNTED[0][2])
    told = encode(CHAT, reply)["usage"]
    assert (told["prompt_tokens"], told["prompt_tokens_details"]["cached_tokens"]) == (12407, 100)
    assert encode(ANTH, decode(CHAT, COUNTED[1][2]))["usage"]["input_tokens"] == 12307
