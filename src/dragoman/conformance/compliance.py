"""The two lists of fields that the mission names: Anthropic's request to OpenAI Chat (C1), OpenAI Chat's reply to
Anthropic (C2). For each field there is a body that has it, and its place and value in the other dialect."""

from typing import Any

from msgspec import Struct

from dragoman.convert import convert, convert_reply
from dragoman.jsontypes import JsonObject, load_json

SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}


class Demand(Struct, frozen=True):
    field: str
    says: JsonObject  # is added to the body of the test
    where: tuple[str | int, ...]  # the place of the value in the other dialect
    means: Any


ASKED_IN, ANSWERED_IN = "anthropic", "openai_chat"  # the client's dialect, and the provider's
ASKED: JsonObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Get Paris weather"}],
}
WEATHER = {"name": "get_weather", "description": "Get weather", "input_schema": SCHEMA}

# mission C1: eleven of eleven
REQUEST = (
    Demand("model", {}, ("model",), "claude-sonnet-4-5"),
    Demand("max_tokens", {}, ("max_tokens",), 1024),
    Demand("system", {"system": "You are helpful"}, ("messages", 0), {"role": "system", "content": "You are helpful"}),
    Demand("messages", {}, ("messages", 0), {"role": "user", "content": "Get Paris weather"}),
    Demand("temperature", {"temperature": 0.5}, ("temperature",), 0.5),
    Demand("top_p", {"top_p": 0.9}, ("top_p",), 0.9),
    Demand("stream", {"stream": True}, ("stream",), True),
    Demand("stop_sequences", {"stop_sequences": ["END"]}, ("stop",), ["END"]),
    Demand(
        "tools",
        {"tools": [WEATHER]},
        ("tools", 0, "function"),
        {"name": "get_weather", "description": "Get weather", "parameters": SCHEMA},
    ),
    Demand(
        "tool_choice",
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}},
        ("tool_choice",),
        {"type": "function", "function": {"name": "get_weather"}},
    ),
    Demand("metadata", {"metadata": {"user_id": "u-1"}}, ("safety_identifier",), "u-1"),
)

ANSWERED: JsonObject = {
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
    Demand("id", {}, ("id",), "chatcmpl-123"),
    Demand("model", {}, ("model",), "gpt-4"),
    Demand("type", {}, ("type",), "message"),
    Demand("role", {}, ("role",), "assistant"),
    Demand("content", {}, ("content",), [{"type": "text", "text": "Hi!"}]),
    Demand("stop_reason", _choice({"content": "Hi"}, "length"), ("stop_reason",), "max_tokens"),
    Demand("usage", {}, ("usage",), {"input_tokens": 10, "output_tokens": 5}),
    Demand("stop_sequence", _choice({"content": "Hi"}, "stop", stop_reason="END"), ("stop_sequence",), "END"),
    Demand(
        "function_call",
        _choice({"content": None, "function_call": {"name": "get_weather", "arguments": ARGUMENTS}}, "function_call"),
        ("content", 0),
        CALLED,
    ),
    Demand(
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


class Met(Struct, frozen=True):
    field: str
    where: str
    found: Any
    met: bool


def check_request() -> list[Met]:
    bodies = [(demand, convert({**ASKED, **demand.says}, source=ASKED_IN, to=ANSWERED_IN)) for demand in REQUEST]
    return [_check(demand, load_json(result.json())) for demand, result in bodies]


def check_reply() -> list[Met]:
    bodies = [(demand, convert_reply({**ANSWERED, **demand.says}, source=ANSWERED_IN, to=ASKED_IN)) for demand in REPLY]
    return [_check(demand, load_json(result.json())) for demand, result in bodies]


def _check(demand: Demand, body: Any) -> Met:
    for step in demand.where:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            body = None
    where = ".".join(str(step) for step in demand.where).replace(".0", "[0]")
    return Met(demand.field, where, body, _says(demand.means, body))


def _says(meant: Any, found: Any) -> bool:
    """Whether every expected value is there. The id of a call may differ."""
    if isinstance(meant, dict):
        return isinstance(found, dict) and all(_says(meant[key], found.get(key)) for key in meant)
    return bool(meant == found)
