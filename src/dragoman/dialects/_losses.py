"""Notes each field that a dialect cannot express. A new field of the model is noted automatically."""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TypeVar

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from dragoman.dialects._settings import says_something
from dragoman.fields import add_extras
from dragoman.jsontypes import JsonObject
from dragoman.notes import At, Notes

# For an answer that does not tell why it ended. It may be whole or not, and no client may take it for a whole one.
# Anthropic (null) and Gemini (no reason) can say just that. The others choose the word for an incomplete answer.
NO_REASON = "the answer does not tell why it ended, and may be incomplete"

T = TypeVar("T")


def add_rest(
    body: JsonObject, value: Struct, written: Collection[str], dialect: str, at: At, notes: Notes
) -> JsonObject:
    """Write a value's own extras into its wire object, and a note for each field that is set but not in `written`.

    Required fields count as written."""
    for field, default in _optional_fields(type(value)):
        left = getattr(value, field)
        if field == "extras":
            add_extras(body, left, dialect, at, notes)
        elif field not in written and left != default and says_something(field, left):
            notes.dropped((at, field), f"{dialect} has no {field}")
    return body


@cache
def _optional_fields(kind: type[Struct]) -> tuple[tuple[str, object], ...]:
    """Fields and their defaults. A default that a factory makes is an empty dict."""
    return tuple((f.name, {} if f.default is NODEFAULT else f.default) for f in fields(kind) if not f.required)


def encode_each(
    items: Iterable[T], at: At, notes: Notes, encode: Callable[[T, At, Notes], JsonObject | None]
) -> list[JsonObject]:
    """Encode each item. `encode` returns None, after a note, for an item that the dialect cannot express."""
    found = [encode(item, (at, i), notes) for i, item in enumerate(items)]
    return [one for one in found if one is not None]
