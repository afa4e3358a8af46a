"""Names of properties in arguments and answers: the target's where it reads them, the client's where it does.

passes/schema_rewrite.py renames them in schemas. Names go by tool, at any depth: an alias ends in a digest of its own
name, so it is never anybody else's key.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.messages import Message, Part, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


def rename_keys(text: str, names: dict[str, str]) -> str:
    """A JSON text with other keys; the same text if there is nothing to rename, or it is no JSON."""
    try:
        value = load_json(text)
    except DecodeError:
        return text
    renamed = _rename(value, names)
    return text if renamed == value else dump_text(renamed)


def _rename(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _rename(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rename(inner, names) for inner in value]
    return value


def rename_arguments(request: Request, aliases: dict[str, dict[str, str]], notes: Notes) -> Request:
    """Calls of the history in the words their tools now have."""
    words = {tool: {own: alias for alias, own in names.items()} for tool, names in aliases.items()}
    messages = tuple(_rename_message(message, i, words, notes) for i, message in enumerate(request.messages))
    if all(a is b for a, b in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=messages)


def _rename_message(message: Message, i: int, words: dict[str, dict[str, str]], notes: Notes) -> Message:
    parts: list[Part] = list(message.parts)
    for j, part in enumerate(parts):
        if not isinstance(part, ToolCall) or part.name not in words or part.freeform:
            continue
        arguments = rename_keys(part.arguments, words[part.name])
        if arguments != part.arguments:
            at: At = (((((ROOT, "messages"), i), "parts"), j), "arguments")
            notes.altered(at, "properties as the target calls them")
            parts[j] = replace(part, arguments=arguments)
    same = all(a is b for a, b in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=tuple(parts))
