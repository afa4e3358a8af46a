"""Turns of which a dialect can say nothing."""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.model.messages import Message
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


def leave_out_unheard(request: Request, is_heard: Callable[[Message], bool], dialect: str, notes: Notes) -> Request:
    """They would be empty turns, which are refused; their neighbours then meet, so this comes before any joining."""
    kept = tuple(message for message in request.messages if is_heard(message))
    if len(kept) == len(request.messages):
        return request
    for i, message in enumerate(request.messages):
        if not is_heard(message):
            notes.dropped(((ROOT, "messages"), i), f"{dialect} can say nothing of this turn")
    return replace(request, messages=kept)
