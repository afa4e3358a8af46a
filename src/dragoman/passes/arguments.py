"""Turns with calls in the history: their arguments, and the text that is not there.

vLLM, llama.cpp and strict relays read arguments before they pass them on and answer 400 to one broken string, on every
later turn (FIELD-CASES 28). The call and its result stay; the text is kept as it is, as the one value of an object.
Saying nothing beside a call is null, an empty string or no key at all: each is wrong somewhere (57).
"""

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.messages import Message, Text, ToolCall
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
    if text == "{}":  # fast path: empty arguments
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


_WORDS = {"null": None, "blank": "empty"}  # how the Chat dialect remembers what stood there


def spell_no_text(request: Request, profile: Profile) -> Request:
    """A turn that only calls, in the one way the target takes: a spelling, nothing is lost."""
    if profile.empty_content == "any":
        return request
    word = _WORDS[profile.empty_content]
    changed = {i: _spell(m, word, profile.dialect) for i, m in enumerate(request.messages) if _only_calls(m)}
    messages = tuple(changed.get(i, m) for i, m in enumerate(request.messages))
    same = all(a is b for a, b in zip(messages, request.messages, strict=True))
    return request if same else replace(request, messages=messages)


def _only_calls(message: Message) -> bool:
    kinds = {type(part) for part in message.parts}
    return message.role == "assistant" and ToolCall in kinds and Text not in kinds


def _spell(message: Message, word: str | None, dialect: str) -> Message:
    own = message.extras.get(dialect, {})
    if own.get("~content") == word:
        return message
    rest = {key: value for key, value in own.items() if key != "~content"}
    spelled = {**rest, "~content": word} if word else rest
    extras = {name: body for name, body in message.extras.items() if name != dialect}
    return replace(message, extras={**extras, dialect: spelled} if spelled else extras)
