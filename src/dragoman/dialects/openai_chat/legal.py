"""Passes that make a conversation legal for Chat Completions."""

from msgspec.structs import replace

from dragoman.dialects.openai_chat.messages import encode_message
from dragoman.model.fold import merge_extras
from dragoman.model.messages import Extras, Message, Text, ToolCall, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


def leave_out_unsayable_turns(request: Request, notes: Notes) -> Request:
    """Leave out turns that would be empty in Chat. This comes first, because then their neighbours can be joined."""
    if _are_sure(request.messages):  # fast path: sayable turns
        return request
    kept: list[Message] = []
    for i, message in enumerate(request.messages):
        if encode_message(message, ROOT, Notes()):
            kept.append(message)
        else:
            notes.dropped(((ROOT, "messages"), i), "nothing in this turn that openai_chat could say")
    return request if len(kept) == len(request.messages) else replace(request, messages=tuple(kept))


SURE = frozenset({Text, ToolCall, ToolResult})  # a turn that begins with one of these is never empty in Chat


def _are_sure(messages: tuple[Message, ...]) -> bool:
    for message in messages:  # noqa: SIM110  # a loop, because this runs for every request
        if not message.parts or type(message.parts[0]) not in SURE:
            return False
    return True


def join_assistant_turns(request: Request, notes: Notes) -> Request:
    """Join assistant turns in a row, because results must follow one message that has all their calls (FIELD-CASES 4).
    Two turns that only have text stay apart."""
    if not _has_neighbours(request.messages):  # fast path: chat turns apart
        return request
    joined: list[Message] = []
    for i, message in enumerate(request.messages):
        last = joined[-1] if joined else None
        if last is not None and last.role == message.role == "assistant" and not (_is_text(last) and _is_text(message)):
            _note_clashes(last.extras, message.extras, ((ROOT, "messages"), i), notes)
            extras = merge_extras(last.extras, message.extras)
            joined[-1] = replace(last, parts=last.parts + message.parts, extras=extras)
        else:
            joined.append(message)
    return request if len(joined) == len(request.messages) else replace(request, messages=tuple(joined))


def _has_neighbours(messages: tuple[Message, ...]) -> bool:
    """Whether an assistant turn follows another one."""
    last = ""
    for message in messages:
        if message.role == last == "assistant":
            return True
        last = message.role
    return False


def _is_text(message: Message) -> bool:
    return all(isinstance(part, Text) for part in message.parts)


def _note_clashes(first: Extras, second: Extras, at: At, notes: Notes) -> None:
    for dialect, keys in first.items():
        for key, value in keys.items():
            if value is not None and key[:1] != "~" and second.get(dialect, {}).get(key, value) != value:
                notes.dropped((((at, "extras"), dialect), key), "joined with a turn that says another")
