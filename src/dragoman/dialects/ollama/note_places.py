"""Ollama: where a place of the canonical value is in a body.

A message is four fields: `thinking`, `content`, `images` and `tool_calls`. `/api/generate` has no messages: its
`system` and `prompt` are the two turns.
"""

from dragoman.dialects._note_places import LOGPROBS, PlaceNames, look_up, under
from dragoman.dialects.ollama.words import FORM, NAME, OPTIONS, says_generate
from dragoman.fields import spelled
from dragoman.model.messages import Audio, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_places import Place

CALL: PlaceNames = {"id": "id", "name": "function/name", "arguments": "function/arguments", "body": "*"}
RESULT: PlaceNames = {"call_id": "tool_call_id", "parts": "content", "failed": "content"}
TOOL: PlaceNames = {
    "name": "function/name",
    "description": "function/description",
    "parameters": "function/parameters/*",
    "body": "*",
}
SETTINGS: PlaceNames = {
    **{field: f"options/{key}" for key, (field, _) in OPTIONS.items()},
    **{key: key for key in ("model", "messages", "tools", "tool_choice", "stream", "logprobs", "top_logprobs")},
    **under("tools/#=tools/#", {**TOOL, "": ""}),
    "output": "format",
    "output/schema": "format/*",
    "reasoning": "think",
}
REPLY: PlaceNames = {
    "model": "model",
    "created": "created_at",
    "choices": "message",
    "choices/#": "message",
    "choices/#/parts": "message",
    "choices/#/finish": "done_reason",
    "usage/input": "prompt_eval_count",
    "usage/output": "eval_count",
}


def locate_request(request: Request, place: Place) -> Place:
    match place:
        case ("messages", int(i), *rest) if says_generate(request.extras):
            return _in_generate(request.messages[i], tuple(rest))
        case ("messages",) if says_generate(request.extras):
            return ("prompt",)
        case ("messages", int(i), *rest):
            return ("messages", i, *_in_message(request.messages[i], tuple(rest)))
        case _:
            return look_up(SETTINGS, place, NAME)


def _in_generate(message: Message, rest: Place) -> Place:
    if message.role == "system":
        return ("system",)
    found = _in_message(message, rest)
    return ("prompt",) if not found or found[0] in ("content", "role") else found


def _in_message(message: Message, rest: Place) -> Place:
    only = message.parts[0] if len(message.parts) == 1 else None
    match rest:
        case ("parts", 0, *more) if isinstance(only, ToolResult):
            return _in_result(only, tuple(more))
        case ("parts", int(j), *more):
            return find_part(message.parts, j, tuple(more))
        case ("parts", *_):
            return ()
        case _:
            return look_up({"role": "role"}, rest, NAME)


def _in_result(result: ToolResult, rest: Place) -> Place:
    match rest:
        case ("parts", int(k), *more):
            return find_part(result.parts, k, tuple(more))
        case ("name", *_):
            old = spelled(result.extras, NAME, "~tool_name") == "name"
            return ("name",) if old else ("tool_name",)
        case _:
            return look_up(RESULT, rest, NAME)


def find_part(parts: tuple[Part, ...], j: int, rest: Place) -> Place:
    """Where a part is in its message."""
    kind = key_of(parts[j])
    number = sum(key_of(other) == kind for other in parts[:j])
    match kind:
        case "tool_calls":
            return (kind, number, *look_up(CALL, rest, NAME))
        case "images":
            return (kind, number)
        case _:
            return (kind,)


def key_of(part: Part) -> str:
    match part:
        case ToolCall() | Opaque():
            return "tool_calls"
        case Image() | Audio():
            return "images"
        case Reasoning():
            return "thinking"
        case _:
            return "content"


def locate_reply(reply: Reply, place: Place) -> Place:
    flat = spelled(reply.extras, NAME, FORM) is not None
    base: Place = () if flat else ("message",)
    match place:
        case ("choices", 0, "parts", int(j), "logprobs", *rest) if isinstance(reply.choices[0].parts[j], Text):
            return ("logprobs", *look_up(under("#=#", LOGPROBS), tuple(rest), NAME))
        case ("choices", 0, "parts", int(j), *rest):
            found = find_part(reply.choices[0].parts, j, tuple(rest))
            return ("response", *found[1:]) if flat and found[0] == "content" else (*base, *found)
        case ("choices", _, "finish", "extras", _, *key):
            return tuple(key)
        case ("choices", *rest) if flat:
            return look_up(REPLY, place, NAME)[1:] if rest[1:2] != ["finish"] else ("done_reason",)
        case _:
            return look_up(REPLY, place, NAME)
