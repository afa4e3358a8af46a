"""Refusals in the history, for targets that know only text: "unknown variant `refusal`, expected `text`"."""

from msgspec.structs import replace

from dragoman.model.messages import Message, Part, Refusal, Text
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


def say_refusals_as_text(request: Request, notes: Notes) -> Request:
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if any(type(part) is Refusal for part in message.parts):
            parts: list[Part] = list(message.parts)
            for j, part in enumerate(parts):
                if isinstance(part, Refusal):
                    parts[j] = Text(text=part.text)
                    notes.altered(((((ROOT, "messages"), i), "parts"), j), "a refusal is said as text here")
            changed[i] = replace(message, parts=tuple(parts))
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))
