"""Turns: joined or set apart as the target reads them, results in front, developer said as system."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.model.fold import merge_extras
from dragoman.model.messages import Extras, Message, Part, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

Fits: TypeAlias = Callable[[Message, Message], bool]


def join_turns(request: Request, notes: Notes) -> Request:
    """Neighbours of one role become one turn: the same conversation (see Message), in the form the target checks."""
    return _join(request, notes, lambda last, new: True)


def join_calls(request: Request, notes: Notes) -> Request:
    """The calls of one turn in one message: "insufficient tool messages following tool_calls" (FIELD-CASES 4)."""
    return _join(request, notes, lambda last, new: new.role == "assistant" and _holds(last, ToolCall))


def join_apart(request: Request, notes: Notes) -> Request:
    """Neighbours of one role as one turn, but results apart from what the user says after them (Gemini)."""
    return _join(request, notes, lambda last, new: _holds(last, ToolResult) == _holds(new, ToolResult))


def _join(request: Request, notes: Notes, fits: Fits) -> Request:
    if not _any_fit(request.messages, fits):  # fast path: turns apart
        return request
    joined: list[Message] = []
    for i, message in enumerate(request.messages):
        last = joined[-1] if joined else None
        if last is not None and last.role == message.role and fits(last, message):
            _note_clashes(last.extras, message.extras, ((ROOT, "messages"), i - 1), notes)
            extras = merge_extras(last.extras, message.extras)
            joined[-1] = replace(last, parts=last.parts + message.parts, extras=extras)
        else:
            joined.append(message)
    return replace(request, messages=tuple(joined))


def _any_fit(messages: tuple[Message, ...], fits: Fits) -> bool:
    for i in range(1, len(messages)):
        if messages[i - 1].role == messages[i].role and fits(messages[i - 1], messages[i]):
            return True
    return False


def _holds(message: Message, kind: type[Part]) -> bool:
    return any(isinstance(part, kind) for part in message.parts)


def _note_clashes(first: Extras, second: Extras, at: At, notes: Notes) -> None:
    """Both turns say a key, with different values. A joined turn can say it only once: the second one stays."""
    for dialect, keys in first.items():
        for key, value in keys.items():
            if value is not None and key[:1] != "~" and second.get(dialect, {}).get(key, value) != value:
                notes.dropped((((at, "extras"), dialect), key), "joined with a turn that says another")


def put_results_first(request: Request, notes: Notes) -> Request:
    """Tool results open their turn ("tool_result blocks must come first", Anthropic and Gemini refuse text before)."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if len(message.parts) < 2 or message.role != "user":
            continue
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if results and tuple(results) != message.parts[: len(results)]:
            others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
            changed[i] = replace(message, parts=(*results, *others))
            notes.repaired(((ROOT, "messages"), i), "tool results moved to the front of their turn")
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def set_results_apart(request: Request, notes: Notes) -> Request:
    """A turn with results holds nothing else; what the user says with them follows in a turn of its own (Gemini)."""
    if not any(_is_mixed(message) for message in request.messages):  # fast path: results apart
        return request
    messages: list[Message] = []
    for i, message in enumerate(request.messages):
        if not _is_mixed(message):
            messages.append(message)
            continue
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        messages += [Message(role="user", parts=results), replace(message, parts=others)]
        notes.repaired(((ROOT, "messages"), i), "tool results set apart from what is said with them")
    return replace(request, messages=tuple(messages))


def _is_mixed(message: Message) -> bool:
    if message.role != "user" or len(message.parts) < 2:
        return False
    count = sum(isinstance(part, ToolResult) for part in message.parts)
    return 0 < count < len(message.parts)


def say_developer_as_system(request: Request, notes: Notes) -> Request:
    """Both are instructions; only OpenAI ranks them."""
    found = [i for i, message in enumerate(request.messages) if message.role == "developer"]
    if not found:
        return request
    messages = list(request.messages)
    for i in found:
        notes.altered((((ROOT, "messages"), i), "role"), "the target does not tell developer from system")
        messages[i] = replace(messages[i], role="system")
    return replace(request, messages=tuple(messages))
