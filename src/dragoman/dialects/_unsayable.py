"""Leaves out turns that would be empty in a dialect."""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.model.messages import Message
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


def leave_out_unsayable(request: Request, is_sayable: Callable[[Message], bool], dialect: str, notes: Notes) -> Request:
    """Servers refuse empty turns. This comes before turns are joined, because it makes new neighbours."""
    kept = tuple(message for message in request.messages if is_sayable(message))
    if len(kept) == len(request.messages):
        return request
    for i, message in enumerate(request.messages):
        if not is_sayable(message):
            notes.dropped(((ROOT, "messages"), i), f"{dialect} can say nothing of this turn")
    return replace(request, messages=kept)
