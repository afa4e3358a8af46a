"""Claude Code's billing line: a system text that only Anthropic reads, and that differs in every request.

At any other server it is the first thing in the prompt and undoes the cache of all that follows: minutes on local
hardware (FIELD-CASES 91, ggml-org/llama.cpp #19494).
"""

from msgspec.structs import replace

from dragoman.model.messages import Message, Part, Text
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes
from dragoman.passes.system import count_lead

BILLING = "x-anthropic-billing-header:"


def drop_billing(request: Request, notes: Notes) -> Request:
    lead = count_lead(request.messages)
    if not any(
        _is_billing(part) for message in request.messages[:lead] for part in message.parts
    ):  # fast path: no billing
        return request
    kept: list[Message] = []
    for i, message in enumerate(request.messages[:lead]):
        parts = []
        for j, part in enumerate(message.parts):
            if _is_billing(part):
                notes.dropped(((((ROOT, "messages"), i), "parts"), j), "only Anthropic reads this line")
            else:
                parts.append(part)
        if len(parts) == len(message.parts):
            kept.append(message)
        elif parts:
            kept.append(replace(message, parts=tuple(parts)))
    return replace(request, messages=(*kept, *request.messages[lead:]))


def _is_billing(part: Part) -> bool:
    return type(part) is Text and part.text.startswith(BILLING)
