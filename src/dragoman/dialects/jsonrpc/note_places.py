"""JSON-RPC: where a place of the canonical value is in a call. Everything of a request is in its `params`."""

from dragoman.dialects._note_places import PlaceNames, look_up, under
from dragoman.dialects.jsonrpc.words import NAME
from dragoman.fields import spelled
from dragoman.model.messages import Extras, Message, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.note_places import Place

TOOL: PlaceNames = {"": "*", "parameters": "parameters/*"}
SETTINGS: PlaceNames = {
    **{key: key for key in ("model", "messages", "tools", "tool_choice", "stream", "stop", "temperature", "top_p")},
    **{key: key for key in ("top_k", "seed", "user")},
    **under("tools/#=tools/#", TOOL),
    "tool_choice/mode": "tool_choice",
    "max_output": "max_output_tokens",
    "output": "response_schema",
    "output/schema": "response_schema/*",
}
CALL: PlaceNames = {"id": "id", "name": "name", "arguments": "arguments"}
RESULT: PlaceNames = {"call_id": "tool_call_id", "name": "name", "failed": "failed"}


def locate_request(request: Request, place: Place) -> Place:
    match place:
        case ("messages", int(i), *rest):
            return ("params", *_in_turn(request, i, tuple(rest)))
        case _:
            return ("params", *look_up(SETTINGS, place, NAME))


def _in_turn(request: Request, i: int, rest: Place) -> Place:
    lead = spelled(request.extras, NAME, "~system") is not None
    if lead and i == 0:
        return ("system",)
    return ("messages", i - lead, *_in_message(request.messages[i], rest))


def _in_message(message: Message, rest: Place) -> Place:
    only = message.parts[0] if len(message.parts) == 1 else None
    match rest:
        case ("parts", 0, *more) if isinstance(only, ToolResult):
            return _in_result(only, tuple(more))
        case ("parts", int(j), *more) if isinstance(message.parts[j], ToolCall):
            before = sum(isinstance(part, ToolCall) for part in message.parts[:j])
            return ("tool_calls", before, *look_up(CALL, tuple(more), NAME))
        case ("parts", int(j), *_):
            return _in_list(message.extras, j)
        case ("parts",):
            return _in_list(message.extras, None)
        case _:
            return look_up({"role": "role"}, rest, NAME)


def _in_result(result: ToolResult, rest: Place) -> Place:
    match rest:
        case ("parts", int(k), *_):
            return _in_list(result.extras, k)
        case ("parts",):
            return _in_list(result.extras, None)
        case _:
            return look_up(RESULT, rest, NAME)


def _in_list(extras: Extras, number: int | None) -> Place:
    """`content` or `parts`, each a string or a list."""
    listed = spelled(extras, NAME, "~list")
    if listed is not None:
        return (listed,) if number is None else (listed, number)
    return (spelled(extras, NAME, "~string") or "content",)
