"""Roles: for targets that do not tell developer from system."""

from msgspec.structs import replace

from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


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
