"""Refusals in the history, for targets that know only text: "unknown variant `refusal`, expected `text`"."""

from msgspec.structs import replace

from dragoman.model.messages import Message, Part, Refusal, Text
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


def say_refusals_as_text(request: Request, notes: Notes) -> Request:
    if not _any_refusal(request.messages):  # fast path: no refusal
        return request
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if any(type(part) is Refusal for part in message.parts):
            parts: list[Part] = list(message.parts)
            for j, part in enumerate(parts):
                if isinstance(part, Refusal):
                    parts[j] = Text(text=part.text)
                    notes.altered(((((ROOT, "messages"), i), "parts"), j), "a refusal is said as text here")
            changed[i] = replace(message, parts=tuple(parts))
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _any_refusal(messages: tuple[Message, ...]) -> bool:
    for message in messages:
        for part in message.parts:
            if type(part) is Refusal:
                return True
    return False
