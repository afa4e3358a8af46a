"""What a dialect has no word for, noted field by field. A new field of the model is noted here by itself."""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TypeVar

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from dragoman.dialects._settings import says_something
from dragoman.fields import add_extras
from dragoman.jsontypes import JsonObject
from dragoman.notes import At, Notes

T = TypeVar("T")


def add_rest(
    body: JsonObject, value: Struct, written: Collection[str], dialect: str, at: At, notes: Notes
) -> JsonObject:
    """Writes a value's own extras into its wire object, and a note for each field that is set and not `written`.

    Required fields count as written."""
    for field, default in _optional_fields(type(value)):
        said = getattr(value, field)
        if field == "extras":
            add_extras(body, said, dialect, at, notes)
        elif field not in written and said != default and says_something(field, said):
            notes.dropped((at, field), f"{dialect} has no {field}")
    return body


@cache
def _optional_fields(kind: type[Struct]) -> tuple[tuple[str, object], ...]:
    """Fields and their defaults. A default that is made anew for each value is an empty table."""
    return tuple((f.name, {} if f.default is NODEFAULT else f.default) for f in fields(kind) if not f.required)


def encode_each(
    items: Iterable[T], at: At, notes: Notes, encode: Callable[[T, At, Notes], JsonObject | None]
) -> list[JsonObject]:
    """A list of wire objects. `encode` gives None for an item the dialect cannot say, and has noted it."""
    found = [encode(item, (at, i), notes) for i, item in enumerate(items)]
    return [one for one in found if one is not None]
