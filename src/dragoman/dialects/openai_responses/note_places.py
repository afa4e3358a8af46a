"""OpenAI Responses: where a place of the canonical value is in a body.

Several items of the input are one turn (see items.py), and several parts are one item. So an item's number is counted
over the turns before it.
"""

from collections.abc import Sequence

from dragoman.dialects._note_places import PlaceNames, in_part, look_up, under
from dragoman.dialects._tools import is_plain
from dragoman.dialects.openai_responses.items import Group, group_parts, place_of
from dragoman.dialects.openai_responses.parts import is_content
from dragoman.dialects.openai_responses.tools import find_brought
from dragoman.dialects.openai_responses.words import NAME
from dragoman.fields import spelled
from dragoman.model.messages import (
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.reply import Reply
from dragoman.model.request import CustomTool, Request
from dragoman.note_places import Place

CACHE = under("cache=prompt_cache_breakpoint", {"": "*"})
CITATION: PlaceNames = {"": "*", "start": "start_index", "end": "end_index"}
TOKEN: PlaceNames = {"": "*", "top": "top_logprobs", "top/#": "top_logprobs/#/*"}
PARTS: dict[type[Part], PlaceNames] = {
    Text: {
        "text": "text",
        "citations": "annotations",
        **under("citations/#=annotations/#", CITATION),
        "logprobs": "logprobs",
        **under("logprobs/#=logprobs/#", TOKEN),
        **CACHE,
    },
    Refusal: {"text": "refusal"},
    Image: {
        **dict.fromkeys(("data", "url", "media_type"), "image_url"),
        "file_id": "file_id",
        "detail": "detail",
        **CACHE,
    },
    Document: {
        **dict.fromkeys(("data", "media_type"), "file_data"),
        "url": "file_url",
        "file_id": "file_id",
        "name": "filename",
        **CACHE,
    },
    Opaque: {"body": "*"},
}
CALL: PlaceNames = {"id": "call_id", "name": "name", "arguments": "arguments"}
FREEFORM: PlaceNames = {"id": "call_id", "name": "name", "arguments": "input", "freeform": "type"}
RESULT: PlaceNames = {"call_id": "call_id", "name": "name", "parts": "output", "failed": "output", "freeform": "type"}
TOOL: PlaceNames = {"": "*", "parameters": "parameters/*", "body": "*"}
CUSTOM: PlaceNames = {"": "*", "syntax": "format/syntax", "grammar": "format/definition"}
SETTINGS: PlaceNames = {
    **{key: key for key in ("model", "tools", "tool_choice", "stream", "temperature", "top_p", "top_logprobs")},
    **{key: key for key in ("service_tier", "store")},
    "messages": "input",
    "tool_choice/mode": "tool_choice/mode",
    "tool_choice/names": "tool_choice",
    "parallel_calls": "parallel_tool_calls",
    "max_output": "max_output_tokens",
    "output": "text/format/*",
    "verbosity": "text/verbosity",
    "reasoning": "reasoning",
    "reasoning/mode": "reasoning/effort",
    "reasoning/effort": "reasoning/effort",
    "reasoning/show": "reasoning/summary",
    "logprobs": "include",
    "metadata": "metadata/*",
    "cache": "prompt_cache_options/*",
    "cache_key": "prompt_cache_key",
}
REPLY: PlaceNames = {
    **{key: key for key in ("id", "model", "service_tier", "usage")},
    "created": "created_at",
    "choices": "output",
    "choices/#": "output",
    "choices/#/parts": "output",
    "choices/#/finish": "status",
    "choices/#/finish/reason": "status",
    "usage/input": "usage/input_tokens",
    "usage/output": "usage/output_tokens",
    "usage/cache_read": "usage/input_tokens_details/cached_tokens",
    "usage/cache_write": "usage/input_tokens_details/cache_write_tokens",
    "usage/reasoning": "usage/output_tokens_details/reasoning_tokens",
}
# Keys of an item that its first or last part keeps (see items.py).
ITEM_KEYS = ("id", "phase", "status")


def locate_request(request: Request, place: Place) -> Place:
    match place:
        case ("messages", int(i), *rest):
            return _in_turn(request, i, tuple(rest))
        case ("tools", int(i), *rest):
            return _in_tool(request, i, tuple(rest))
        case ("user", *_):
            return (str(spelled(request.extras, NAME, "~user") or "safety_identifier"),)
        case ("tool_choice", "mode") if spelled_choice(request) is None:
            return ("tool_choice",)
        case _:
            return look_up(SETTINGS, place, NAME)


def spelled_choice(request: Request) -> object:
    """Whether the choice is an object that says its mode."""
    choice = request.tool_choice
    return None if choice is None else spelled(choice.extras, NAME, "~kinds")


def _in_tool(request: Request, i: int, rest: Place) -> Place:
    tool = (request.tools or ())[i]
    brought = find_brought(request, i)
    if brought is not None:
        return _in_bringer(request, brought, rest)
    return ("tools", i, *look_up(CUSTOM if isinstance(tool, CustomTool) else TOOL, rest, NAME))


def _in_bringer(request: Request, brought: tuple[Place, Place], rest: Place) -> Place:
    """A tool that stands in another one, or in an item of the input."""
    holder, inside = brought
    return (*locate_request(request, holder), *inside, *look_up(TOOL, rest, NAME))


def _in_turn(request: Request, i: int, rest: Place) -> Place:
    messages, own = request.messages, request.extras.get(NAME, {})
    lead = "~instructions" not in own and is_instructions(messages[0])
    if lead and i == 0:
        return ("instructions",)
    if own.get("~input") == "string":
        return ("input",)
    number = sum(len(items_of(message)) for message in messages[lead:i])
    return ("input", *_in_items(messages[i], number, rest))


def is_instructions(message: Message) -> bool:
    """Whether a turn fits into `instructions`: a system turn of one plain text."""
    return message.role == "system" and len(message.parts) == 1 and is_plain(message.parts[0])


def items_of(message: Message) -> list[Group]:
    """The parts of a turn, item by item. What a user says is one item; results and items of their own are one each."""
    if message.role == "assistant":
        return group_parts(message.parts)
    if any(isinstance(part, ToolResult) or _is_item(part) for part in message.parts):
        return [[(j, part)] for j, part in enumerate(message.parts)]
    return [list(enumerate(message.parts))]


def _is_item(part: Part) -> bool:
    return isinstance(part, Opaque) and part.dialect == NAME and not is_content(part.body)


def _in_items(message: Message, number: int, rest: Place) -> Place:
    match rest:
        case ("parts", int(j), *more):
            for i, group in enumerate(items_of(message)):
                if any(k == j for k, _ in group):
                    return (number + i, *_in_item(message, group, j, tuple(more)))
            return (number,)
        case ("parts", *_) if message.role != "assistant" and not isinstance(message.parts[:1], ToolResult):
            return (number, "content") if len(items_of(message)) == 1 and not _is_lone(message) else (number,)
        case _:
            return (number, *look_up({"role": "role"}, rest, NAME))


def _is_lone(message: Message) -> bool:
    return len(message.parts) == 1 and (isinstance(message.parts[0], ToolResult) or _is_item(message.parts[0]))


def _in_item(message: Message | None, group: Group, j: int, rest: Place) -> Place:
    part = next(other for k, other in group if k == j)
    match part:
        case ToolCall():
            return look_up(FREEFORM if part.freeform else CALL, rest, NAME)
        case ToolResult():
            return _in_result(part, rest)
        case Reasoning():
            return _in_thought(group, part, rest)
        case Opaque() if _is_item(part):
            return look_up({"body": "*"}, rest, NAME)
        case Image() if message is None:
            return look_up({"data": "result", "media_type": "output_format"}, rest, NAME)
        case _:
            return _in_content(message, group, part, rest)


def _in_result(part: ToolResult, rest: Place) -> Place:
    match rest:
        case ("parts", int(k), *more):
            listed = len(part.parts) > 1 or not is_plain(part.parts[0]) or spelled(part.extras, NAME, "~output")
            return ("output", k, *in_part(PARTS, part.parts[k], tuple(more), NAME)) if listed else ("output",)
        case _:
            return look_up(RESULT, rest, NAME)


def _in_thought(group: Group, part: Reasoning, rest: Place) -> Place:
    place = place_of(part)
    if rest[:1] == ("seal",):
        return ("encrypted_content",)
    if rest[:2] == ("extras", NAME) and rest[2:3] != ("part",):
        return look_up({}, rest, NAME)
    if place == "none" or (not rest and part.seal is not None):  # the item, with its seal
        return ()
    before = [other for _, other in group[: group.index(next(pair for pair in group if pair[1] is part))]]
    number = sum(isinstance(other, Reasoning) and place_of(other) == place for other in before)
    return (place, number, *look_up({"text": "text"}, _without_part(rest), NAME))


def _without_part(rest: Place) -> Place:
    """Keys that a part and its item both have are kept apart, under `part`."""
    return (*rest[:2], *rest[3:]) if rest[:3] == ("extras", NAME, "part") else rest


def _in_content(message: Message | None, group: Group, part: Part, rest: Place) -> Place:
    if rest[:2] == ("extras", NAME) and rest[2:3] and rest[2] in (*ITEM_KEYS, "item"):
        return rest[3:] if rest[2] == "item" else rest[2:]
    number = [other for _, other in group].index(part)
    if len(group) == 1 and _is_string(message, part):
        return ("content",)
    return ("content", number, *in_part(PARTS, part, _without_part(rest), NAME))


def _is_string(message: Message | None, part: Part) -> bool:
    """Whether the content of a message is a bare string."""
    if message is None or not isinstance(part, Text):
        return False
    if message.role == "assistant":
        return bool(spelled(part.extras, NAME, "~content") == "string")
    return is_plain(part) and spelled(message.extras, NAME, "~content") != "list"


def locate_reply(reply: Reply, place: Place) -> Place:
    match place:
        case ("choices", 0, "parts", int(j), *rest):
            return _in_output(reply.choices[0].parts, j, tuple(rest))
        case ("choices", _, "finish", "extras", _, *key):
            return tuple(key)
        case _:
            return look_up(REPLY, place, NAME)


def _in_output(parts: Sequence[Part], j: int, rest: Place) -> Place:
    for i, group in enumerate(group_parts(tuple(parts))):
        if any(k == j for k, _ in group):
            return ("output", i, *_in_item(None, group, j, rest))
    return ("output",)
