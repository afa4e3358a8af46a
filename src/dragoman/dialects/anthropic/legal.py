"""What a conversation needs before it is said in Messages."""

from dragoman.dialects._unheard import leave_out_unheard
from dragoman.dialects.anthropic.parts import encode_part
from dragoman.dialects.anthropic.words import NAME
from dragoman.model.messages import Message, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes

_SURE = frozenset({Text, ToolCall, ToolResult})  # what a turn may begin with to be sure of saying something


def leave_out_unsayable_turns(request: Request, notes: Notes) -> Request:
    """A turn of which nothing can be said would be an empty one, or an empty `system`; its neighbours then meet, so
    this comes before they are joined."""
    if all(message.parts and type(message.parts[0]) in _SURE for message in request.messages):  # fast path: heard turns
        return request
    return leave_out_unheard(request, _is_heard, NAME, notes)


def _is_heard(message: Message) -> bool:
    return not message.parts or any(encode_part(part, ROOT, Notes()) is not None for part in message.parts)
