"""Arguments of calls in the history: for targets that read them before they pass them on.

vLLM, llama.cpp and strict relays answer 400 to one broken string, on every later turn (FIELD-CASES 28). The call and
its result stay; the text is kept as it is, as the one value of an object.
"""

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.messages import Message, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes
from dragoman.passes.profile import Profile

RAW = "_raw"  # as the dialects do whose calls bear objects


def mend_arguments(request: Request, profile: Profile, notes: Notes) -> Request:
    if profile.arguments != "object":
        return request
    changed = {i: _mend(message, i, notes) for i, message in enumerate(request.messages) if _is_broken(message)}
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _is_broken(message: Message) -> bool:
    return any(
        type(part) is ToolCall and not part.freeform and not _is_object(part.arguments) for part in message.parts
    )


def _is_object(text: str) -> bool:
    if text == "{}":
        return True
    try:
        return type(load_json(text)) is dict
    except DecodeError:
        return False


def _mend(message: Message, i: int, notes: Notes) -> Message:
    parts = list(message.parts)
    for j, part in enumerate(parts):
        if type(part) is ToolCall and not part.freeform and not _is_object(part.arguments):
            at = (((((ROOT, "messages"), i), "parts"), j), "arguments")
            empty = not part.arguments.strip() or part.arguments.strip() == "null"
            notes.repaired(at, "no arguments are an empty object" if empty else f"not a JSON object: kept under {RAW}")
            parts[j] = replace(part, arguments="{}" if empty else dump_text({RAW: part.arguments}))
    return replace(message, parts=tuple(parts))
