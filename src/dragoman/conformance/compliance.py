"""The two lists of fields that the mission names: Anthropic's request to OpenAI Chat (C1), OpenAI Chat's reply to
Anthropic (C2). For each field there is a body that has it, and its place and value in the other dialect."""

from typing import Any

from msgspec import Struct

from dragoman.convert import convert, convert_reply
from dragoman.jsontypes import JsonObject, load_json

SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}


class FieldCheck(Struct, frozen=True):
    field: str
    adds: JsonObject  # to the usual body, so that it has the field
    where: tuple[str | int, ...]  # the place of the value in the other dialect
    expected: Any


CLIENT_DIALECT, SERVER_DIALECT = "anthropic", "openai_chat"  # the client's dialect, and the provider's
USUAL_REQUEST: JsonObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Get Paris weather"}],
}
WEATHER = {"name": "get_weather", "description": "Get weather", "input_schema": SCHEMA}

# mission C1: eleven of eleven
REQUEST = (
    FieldCheck("model", {}, ("model",), "claude-sonnet-4-5"),
    FieldCheck("max_tokens", {}, ("max_tokens",), 1024),
    FieldCheck(
        "system", {"system": "You are helpful"}, ("messages", 0), {"role": "system", "content": "You are helpful"}
    ),
    FieldCheck("messages", {}, ("messages", 0), {"role": "user", "content": "Get Paris weather"}),
    FieldCheck("temperature", {"temperature": 0.5}, ("temperature",), 0.5),
    FieldCheck("top_p", {"top_p": 0.9}, ("top_p",), 0.9),
    FieldCheck("stream", {"stream": True}, ("stream",), True),
    FieldCheck("stop_sequences", {"stop_sequences": ["END"]}, ("stop",), ["END"]),
    FieldCheck(
        "tools",
        {"tools": [WEATHER]},
        ("tools", 0, "function"),
        {"name": "get_weather", "description": "Get weather", "parameters": SCHEMA},
    ),
    FieldCheck(
        "tool_choice",
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}},
        ("tool_choice",),
        {"type": "function", "function": {"name": "get_weather"}},
    ),
    FieldCheck("metadata", {"metadata": {"user_id": "u-1"}}, ("safety_identifier",), "u-1"),
)

USUAL_REPLY: JsonObject = {
    "id": "chatcmpl-123",
    "object": "chat.completion",
    "created": 1_790_000_000,
    "model": "gpt-4",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
ARGUMENTS = '{"location":"Paris"}'
CALLED = {"type": "tool_use", "name": "get_weather", "input": {"location": "Paris"}}


def _choice(message: JsonObject, reason: str, **more: Any) -> JsonObject:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason, **more}]}


# mission C2: nine of nine, by the names of Anthropic's reply; `function_call` is the older form of `tool_calls`
REPLY = (
    FieldCheck("id", {}, ("id",), "chatcmpl-123"),
    FieldCheck("model", {}, ("model",), "gpt-4"),
    FieldCheck("type", {}, ("type",), "message"),
    FieldCheck("role", {}, ("role",), "assistant"),
    FieldCheck("content", {}, ("content",), [{"type": "text", "text": "Hi!"}]),
    FieldCheck("stop_reason", _choice({"content": "Hi"}, "length"), ("stop_reason",), "max_tokens"),
    FieldCheck("usage", {}, ("usage",), {"input_tokens": 10, "output_tokens": 5}),
    FieldCheck("stop_sequence", _choice({"content": "Hi"}, "stop", stop_reason="END"), ("stop_sequence",), "END"),
    FieldCheck(
        "function_call",
        _choice({"content": None, "function_call": {"name": "get_weather", "arguments": ARGUMENTS}}, "function_call"),
        ("content", 0),
        CALLED,
    ),
    FieldCheck(
        "tool_calls",
        _choice(
            {
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
                ],
            },
            "tool_calls",
        ),
        ("content", 0),
        CALLED,
    ),
)


class FieldResult(Struct, frozen=True):
    field: str
    where: str
    found: Any
    met: bool


def check_request() -> list[FieldResult]:
    bodies = [
        (check, convert({**USUAL_REQUEST, **check.adds}, source=CLIENT_DIALECT, to=SERVER_DIALECT)) for check in REQUEST
    ]
    return [_check(check, load_json(result.json())) for check, result in bodies]


def check_reply() -> list[FieldResult]:
    bodies = [
        (check, convert_reply({**USUAL_REPLY, **check.adds}, source=SERVER_DIALECT, to=CLIENT_DIALECT))
        for check in REPLY
    ]
    return [_check(check, load_json(result.json())) for check, result in bodies]


def _check(check: FieldCheck, body: Any) -> FieldResult:
    for step in check.where:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            body = None
    where = ".".join(str(step) for step in check.where).replace(".0", "[0]")
    return FieldResult(check.field, where, body, _holds(check.expected, body))


def _holds(expected: Any, found: Any) -> bool:
    """Whether every expected value is there. The id of a call may differ."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(_holds(expected[key], found.get(key)) for key in expected)
    return bool(expected == found)
