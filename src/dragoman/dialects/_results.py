"""Results of tools: marks that carry what a dialect has no slot for, and names that their calls say too."""

from collections.abc import Iterable

from dragoman.model.messages import Message, ToolCall, ToolResult
from dragoman.notes import ROOT, Notes

FAILED = "[ERROR] "  # a tool result that is an error, where the dialect has no flag for it (mission D9)


def mark_failed(text: str) -> str:
    return FAILED + text


def unmark_failed(text: str) -> str | None:
    """The text behind the mark, or None if it is not marked."""
    return text[len(FAILED) :] if text.startswith(FAILED) else None


def note_lost_names(messages: tuple[Message, ...], dialect: str, notes: Notes) -> None:
    """Where results have no names: nothing is lost with one that the call says too."""
    if not has_names(messages):  # fast path: results without names
        return
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        for j, part in enumerate(message.parts):
            if type(part) is ToolCall:
                names[part.id] = part.name
            elif type(part) is ToolResult and part.name is not None and part.name != names.get(part.call_id):
                if "~name" in part.extras.get(dialect, ()):
                    continue  # the dialect's own wire had it, and has it again
                at = ((((ROOT, "messages"), i), "parts"), j)
                notes.dropped((at, "name"), f"{dialect}'s results have no name, only the id of their call")


def has_names(messages: Iterable[Message]) -> bool:
    """A quick look, for the dialects whose results have none."""
    for message in messages:
        if message.role == "user":
            for part in message.parts:
                if type(part) is ToolResult and part.name is not None:
                    return True
    return False
