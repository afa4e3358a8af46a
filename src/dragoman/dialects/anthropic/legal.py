"""Passes that make a conversation legal for Messages."""

from dragoman.dialects._unsayable import leave_out_unsayable
from dragoman.dialects.anthropic.parts import encode_part
from dragoman.dialects.anthropic.words import NAME
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes

_SURE = frozenset({Text, ToolCall, ToolResult})  # a turn that begins with one of these is never empty


def leave_out_unsayable_turns(request: Request, notes: Notes) -> Request:
    """Leave out turns that would be empty here, because Anthropic refuses empty turns and an empty `system`. This comes
    before turns are joined, because it makes new neighbours."""
    if all(
        message.parts and type(message.parts[0]) in _SURE for message in request.messages
    ):  # fast path: sayable turns
        return request
    return leave_out_unsayable(request, _is_turn_sayable, NAME, notes)


def _is_turn_sayable(message: Message) -> bool:
    return not message.parts or any(encode_part(part, ROOT, Notes()) is not None for part in message.parts)
