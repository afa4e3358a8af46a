"""Neighbouring turns of one role, joined or set apart as a target reads them."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.model.fold import merge_extras
from dragoman.model.messages import Message, Part, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes

Fits: TypeAlias = Callable[[Message, Message], bool]


def join_calls(request: Request, notes: Notes) -> Request:
    """The calls of one turn in one message: "insufficient tool messages following tool_calls" (FIELD-CASES 4)."""
    return _join(request, lambda last, new: new.role == "assistant" and _holds(last, ToolCall))


def join_apart(request: Request, notes: Notes) -> Request:
    """Neighbours of one role as one turn, but results apart from what the user says after them (Gemini)."""
    return _join(request, lambda last, new: _holds(last, ToolResult) == _holds(new, ToolResult))


def _join(request: Request, fits: Fits) -> Request:
    if not _any_fit(request.messages, fits):  # fast path: turns apart
        return request
    joined: list[Message] = []
    for message in request.messages:
        last = joined[-1] if joined else None
        if last is not None and last.role == message.role and fits(last, message):
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
