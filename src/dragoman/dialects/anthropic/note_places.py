"""Anthropic Messages: where a place of the canonical value is in a body."""

from collections.abc import Sequence

from dragoman.dialects._note_places import PlaceNames, in_part, look_up, under
from dragoman.dialects._tools import is_plain
from dragoman.dialects.anthropic.parts import LATE
from dragoman.dialects.anthropic.request import BETA
from dragoman.dialects.anthropic.words import NAME
from dragoman.fields import spelled
from dragoman.model.messages import (
    Document,
    Extras,
    Image,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_places import Place

CACHE = under("cache=cache_control", {"": "*"})
CITATION: PlaceNames = {"": "*", "quote": "cited_text"}
SOURCE: PlaceNames = {key: f"source/{key}" for key in ("data", "url", "file_id", "media_type")}
PARTS: dict[type[Part], PlaceNames] = {
    Text: {"text": "text", "citations": "citations", **under("citations/#=citations/#", CITATION), **CACHE},
    Image: {**SOURCE, **CACHE},
    Document: {**SOURCE, "text": "source/data", "name": "title", **CACHE},
    Reasoning: {"text": "thinking", "seal": "signature"},
    ToolCall: {"id": "id", "name": "name", "arguments": "input", **CACHE},
    ToolResult: {"call_id": "tool_use_id", "failed": "is_error", "parts": "content", **CACHE},
    Opaque: {"body": "*"},
}
REDACTED: PlaceNames = {"seal": "data"}
TOOL: PlaceNames = {"": "*", "parameters": "input_schema/*", "body": "*", **CACHE}
SETTINGS: PlaceNames = {
    "model": "model",
    "messages": "messages",
    "tools": "tools",
    **under("tools/#=tools/#", TOOL),
    "tool_choice": "tool_choice",
    "tool_choice/mode": "tool_choice/type",
    "tool_choice/names": "tool_choice/name",
    "parallel_calls": "tool_choice/disable_parallel_tool_use",
    "stream": "stream",
    "max_output": "max_tokens",
    "stop": "stop_sequences/*",
    "reasoning": "thinking",
    "reasoning/mode": "thinking/type",
    "reasoning/budget": "thinking/budget_tokens",
    "reasoning/show": "thinking/display",
    "reasoning/effort": "output_config/effort",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "user": "metadata/user_id",
    "service_tier": "service_tier",
    **CACHE,
}
REPLY: PlaceNames = {
    "id": "id",
    "model": "model",
    "choices": "content",
    "choices/#/parts": "content",
    "choices/#/finish": "stop_reason",
    "choices/#/finish/sequence": "stop_sequence",
    "choices/#/finish/message": "stop_details/explanation",
    "service_tier": "usage/service_tier",
    "usage": "usage",
    "usage/input": "usage/input_tokens",
    "usage/cache_read": "usage/cache_read_input_tokens",
    "usage/cache_write": "usage/cache_creation_input_tokens",
    "usage/output": "usage/output_tokens",
    "usage/reasoning": "usage/output_tokens_details/thinking_tokens",
}


def locate_request(request: Request, place: Place) -> Place:
    if len(place) > 1 and place[0] == "messages" and type(place[1]) is int:  # most notes are about a turn
        return _in_turn(request, place[1], place[2:])
    match place:
        case ("reasoning", *_) if _says_effort_alone(request):
            return ("output_config", "effort")
        case ("output", *rest):
            return _in_output(request, tuple(rest))
        case ("extras", _, key, *_) if key == BETA:
            return ()  # a header
        case _:
            return look_up(SETTINGS, place, NAME)


def locate_reply(reply: Reply, place: Place) -> Place:
    match place:
        case ("choices", 0, "parts", int(j), *rest):
            return _in_content(reply.choices[0].parts, j, tuple(rest))
        case ("choices", _, "finish", "extras", _, *key):
            return tuple(key)  # beside the reason to stop
        case _:
            return look_up(REPLY, place, NAME)


def _says_effort_alone(request: Request) -> bool:
    setting = request.reasoning
    return setting is not None and setting.mode is None and setting.budget is None and setting.show is None


def _in_output(request: Request, rest: Place) -> Place:
    output = request.output
    old = output is not None and spelled(output.extras, NAME, "~place") is not None
    base: Place = ("output_format",) if old else ("output_config", "format")
    return (*base, *look_up({"": "*"}, rest, NAME))


_ROLE: PlaceNames = {"role": "role"}


def _in_turn(request: Request, i: int, rest: Place) -> Place:
    message = request.messages[i]
    first = request.messages[0].role == "system" and spelled(request.extras, NAME, "~system") is None
    lead = first and i == 0
    base: Place = ("system",) if lead else ("messages", i - first)
    content: Place = base if lead else (*base, "content")
    if not rest or rest[0] != "parts":
        return base if lead else (*base, *look_up(_ROLE, rest, NAME))
    if len(rest) == 1 or type(rest[1]) is not int:
        return content
    return (*content, *_in_list(message.parts, message.extras, rest[1], rest[2:]))


def _in_list(parts: Sequence[Part], extras: Extras, j: int, rest: Place) -> Place:
    """Inside `content`: a bare string has no places in it."""
    if len(parts) == 1 and is_plain(parts[0]) and spelled(extras, NAME, "~content") is None:
        return ()
    return _in_block(parts, j, rest)


def _in_content(parts: Sequence[Part], j: int, rest: Place) -> Place:
    return ("content", *_in_block(parts, j, rest))


def _in_block(parts: Sequence[Part], j: int, rest: Place) -> Place:
    part = parts[j]
    number = j + sum([type(p) is Reasoning and spelled(p.extras, NAME, LATE) is not None for p in parts[:j]])
    match part, rest:
        case ToolResult(), ("parts", int(k), *more):
            return (number, "content", *_in_list(part.parts, part.extras, k, tuple(more)))
        case Reasoning(), ("seal", *_) if part.seal is not None and part.seal.form == "redacted":
            return (number, "data")
        case _:
            return (number, *in_part(PARTS, part, rest, NAME))
