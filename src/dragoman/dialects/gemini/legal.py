"""Passes that make a conversation legal for Gemini."""

from msgspec.structs import replace

from dragoman.dialects._unsayable import leave_out_unsayable
from dragoman.dialects.gemini.parts import is_sayable
from dragoman.dialects.gemini.words import NAME
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes
from dragoman.passes.system import MARK, mark_system


def leave_out_unsayable_turns(request: Request, notes: Notes) -> Request:
    """Leave out turns that would have no parts here, because Gemini refuses them. This comes before turns are joined,
    because it makes new neighbours. In the other turns the encoder leaves out single parts."""
    if all(
        message.parts and _is_surely_sayable(message.parts[0]) for message in request.messages
    ):  # fast path: sayable turns
        return request
    return leave_out_unsayable(request, _is_turn_sayable, NAME, notes)


def _is_surely_sayable(part: Part) -> bool:
    """A fast check. True is certain; False only means that the slow check must decide."""
    kind = type(part)
    return kind is ToolResult or kind is ToolCall or (type(part) is Text and part.text != "")


def _is_turn_sayable(message: Message) -> bool:
    return not message.parts or any(is_sayable(part) for part in message.parts)


def say_later_system_as_user(request: Request, notes: Notes) -> Request:
    """Gemini has system text only at the front. Later system text becomes a user turn, with a mark that tells the model
    that it is system text."""
    messages = list(request.messages)
    lead = next((i for i, message in enumerate(messages) if message.role not in ("system", "developer")), len(messages))
    late = [i for i in range(lead, len(messages)) if messages[i].role in ("system", "developer")]
    if not late:
        return request
    for i in late:
        notes.altered(
            ((ROOT, "messages"), i), f"gemini has system text only at the front: said by the user, marked {MARK}"
        )
        messages[i] = replace(messages[i], role="user", parts=mark_system(messages[i].parts))
    return replace(request, messages=tuple(messages))
