"""Turns: joined where a target wants them joined, results in front where it wants them in front."""

from msgspec.structs import replace

from dragoman.model.fold import merge_extras
from dragoman.model.messages import Extras, Message, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


def join_turns(request: Request, notes: Notes) -> Request:
    """Neighbours of one role become one turn: the same conversation (see Message), in the form the target checks."""
    if not _has_neighbours(request.messages):  # fast path: turns apart
        return request
    joined: list[Message] = []
    for i, message in enumerate(request.messages):
        last = joined[-1] if joined else None
        if last is not None and last.role == message.role:
            _note_clashes(last.extras, message.extras, ((ROOT, "messages"), i - 1), notes)
            extras = merge_extras(last.extras, message.extras)
            joined[-1] = replace(last, parts=last.parts + message.parts, extras=extras)
        else:
            joined.append(message)
    return replace(request, messages=tuple(joined))


def _has_neighbours(messages: tuple[Message, ...]) -> bool:
    """Whether a turn follows another of its role."""
    last_role = None
    for message in messages:
        if message.role == last_role:
            return True
        last_role = message.role
    return False


def _note_clashes(first: Extras, second: Extras, at: At, notes: Notes) -> None:
    """What both turns say, and a joined turn can say only once."""
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
