"""Reads JSON objects key by key, and writes back the keys that no decoder knows.

A decoder *takes* the keys it knows out of the object. The rest are the object's extras. A null value is not taken: it
carries nothing, and as an extra it is written back as null. Error messages cost nothing unless there is an error: a
DecodeError collects its path while it is raised.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, TypeVar

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import SILENT, Extras
from dragoman.notes import At, Notes

T = TypeVar("T")

OMIT = "~omit"  # spelling: keys that the encoder always writes and this body lacked


SPELLING = "~"  # our own keys that remember a spelling begin with it
OPAQUE = frozenset({"input", "args", "arguments", "parameters", "input_schema", "schema", "metadata", "response"})


class ReplyRules(Struct, frozen=True):
    """Which spellings of a server the clients of its dialect cannot read."""

    required: frozenset[str] = frozenset()  # keys that no reply may lack
    wrong: dict[str, tuple[object, ...]] = {}  # spellings that no reply may have, except with these values
    wrong_values: dict[str, tuple[object, ...]] = {}  # spellings that no reply may have with these values
    one_text: bool = False  # the text of an answer is one string
    ends_calls: bool = False  # an answer with calls does not end with the word for `stop`
    old_form: str = ""  # a call with this spelling has an older form, and its answer may end with any word


def expected(what: str, value: object, key: str) -> DecodeError:
    """The error for a value of the wrong type."""
    return DecodeError(f"expected {what}, found {kind_of(value)}", key)


def take_word(holder: JsonObject, key: str) -> str | None:
    """Take a string. Any other value stays in `holder`."""
    value = holder.get(key)
    if type(value) is not str:
        return None
    del holder[key]
    return value


def need_object(value: object, *at: str) -> JsonObject:
    """Check that a value is an object. `at`: its keys, for the error."""
    if type(value) is dict:
        return value
    raise DecodeError(f"expected object, found {kind_of(value)}", *at)


def need_text(value: object, key: str) -> None:
    """Check that a value is a text, or not there."""
    if value is not None and type(value) is not str:
        raise expected("string", value, key)


def look_list(obj: JsonObject, key: str) -> list[Any]:
    """Read a list without taking it. A missing list is empty."""
    value = obj.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise expected("array", value, key)
    return value


def take_text(obj: JsonObject, key: str) -> str:
    value = obj.pop(key, None)
    if type(value) is str:
        return value
    raise expected("string", value, key)


def take_text_or_none(obj: JsonObject, key: str) -> str | None:
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is not str:
        raise expected("string", value, key)
    del obj[key]
    return value


def take_flag_or_none(obj: JsonObject, key: str) -> bool | None:
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is not bool:
        raise expected("boolean", value, key)
    del obj[key]
    return value


def take_integer_or_none(obj: JsonObject, key: str) -> int | None:
    """Take a whole number. 3.0 is accepted too, because JavaScript clients send it."""
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is int:
        del obj[key]
        return value
    if type(value) is float and value.is_integer():
        del obj[key]
        return int(value)
    raise expected("whole number", value, key)


def take_number_or_none(obj: JsonObject, key: str) -> float | None:
    """Take a number, integer or float, unchanged."""
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is not float and type(value) is not int:
        raise expected("number", value, key)
    del obj[key]
    return value


LAST_SECOND = 253_402_300_799  # of the year 9999, the last that datetime knows


def take_time_or_none(obj: JsonObject, key: str) -> float | None:
    """Take seconds since 1970. A number outside the calendar (for example milliseconds) stays an extra."""
    value = obj.get(key)
    return take_number_or_none(obj, key) if not is_number(value) or 0 <= value <= LAST_SECOND else None


def is_number(value: object) -> TypeGuard[float]:
    return type(value) is float or type(value) is int


def take_object_or_none(obj: JsonObject, key: str) -> JsonObject | None:
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is not dict:
        raise expected("object", value, key)
    del obj[key]
    return value


def take_object(obj: JsonObject, key: str) -> JsonObject:
    value = obj.pop(key, None)
    if type(value) is dict:
        return value
    raise expected("object", value, key)


def take_list_or_none(obj: JsonObject, key: str) -> list[Any] | None:
    value = obj.get(key)
    if value is None:
        return None
    if type(value) is not list:
        raise expected("array", value, key)
    del obj[key]
    return value


def take_texts_or_none(obj: JsonObject, key: str) -> tuple[str, ...] | None:
    """Take a list of strings."""
    value = take_list_or_none(obj, key)
    if value is None:
        return None
    for i, item in enumerate(value):
        if type(item) is not str:
            raise DecodeError(f"expected string, found {kind_of(item)}", key, i)
    return tuple(value)


def take_each(obj: JsonObject, key: str, decode: Callable[[JsonObject], T]) -> tuple[T, ...]:
    """Take a list of objects and decode each. A missing or null list is empty. A tuple was decoded before (see
    `bodies.load_apart`)."""
    value = obj.get(key)
    if value is None:
        return ()
    if type(value) is tuple:
        del obj[key]
        return value
    if type(value) is not list:
        raise expected("array", value, key)
    del obj[key]
    return decode_each(value, key, decode)


def decode_each(items: list[Any], key: str, decode: Callable[[JsonObject], T]) -> tuple[T, ...]:
    done: list[T] = []
    try:
        for item in items:
            if type(item) is not dict:
                raise DecodeError(f"expected object, found {kind_of(item)}")
            done.append(decode(item))
    except DecodeError as error:
        raise error.under(key, len(done)) from None
    return tuple(done)


def take_one(obj: JsonObject, key: str, decode: Callable[[JsonObject], T]) -> T | None:
    """Take an object and decode it. None if it is missing or null."""
    value = take_object_or_none(obj, key)
    if value is None:
        return None
    try:
        return decode(value)
    except DecodeError as error:
        raise error.under(key) from None


def take_choice(obj: JsonObject, key: str, words: Mapping[str, T]) -> T:
    """Take a string that must be a key of `words`, and return its value."""
    word = take_text(obj, key)
    found = words.get(word)
    if found is None:
        raise DecodeError(f"expected one of {', '.join(words)}, found {word!r}", key)
    return found


def drop_constant(obj: JsonObject, key: str, value: object) -> None:
    """Remove a key that has its constant value (`type: message`). Any other value stays an extra."""
    if key in obj and obj[key] == value:
        del obj[key]


def leftovers(obj: JsonObject, name: str) -> Extras:
    """The keys that no decoder took, under the dialect's name."""
    return {name: obj} if obj else {}


ValueTypes = Mapping[str, tuple[type, ...]]  # the types that the value of a key may have, by the key
NUMBER: tuple[type, ...] = (int, float)
_TYPE_WORDS = {str: "string", dict: "object", list: "array", bool: "boolean", int: "number", float: "number"}


def checked_leftovers(obj: JsonObject, name: str, types: ValueTypes) -> Extras:
    """The same for a request. A known key is left over only if its value has a wrong type, which the provider would
    refuse too. That is the client's mistake, so it is a DecodeError and not an extra."""
    for key in obj:
        if key in types:
            check_type(obj, key, types)
    return {name: obj} if obj else {}


def check_type(obj: JsonObject, key: str, types: ValueTypes) -> None:
    value, allowed = obj[key], types[key]
    if value is not None and type(value) not in allowed:
        raise expected(" or ".join(dict.fromkeys(_TYPE_WORDS[kind] for kind in allowed)), value, key)


def refuse_spellings(body: JsonObject) -> None:
    """Raises a DecodeError for a key of a request that an encoder would take for a spelling of ours. Such a key could
    change something that was already checked, such as the model."""
    if max(body, default="") >= SPELLING:  # seldom: it is the last letter of ASCII
        for key in body:
            if key[:1] == SPELLING:
                raise DecodeError("no API has keys that begin with ~", key)


def drop_spellings(value: object) -> None:
    """Deletes keys that begin like our spellings from a server's answer, but not from the model's own words."""
    left = [value]
    while left:
        at = left.pop()
        if type(at) is list:
            left += at
        elif type(at) is dict:
            for key in [key for key in at if key[:1] == SPELLING]:
                del at[key]
            left += [inner for key, inner in at.items() if key not in OPAQUE or type(inner) is list]


def spelled(extras: Extras, name: str, key: str) -> Any:
    """The spelling that this dialect remembered under a key, or None."""
    own = extras.get(name)
    return None if own is None else own.get(key)


def listed(own: JsonObject, key: str) -> list[Any]:
    """The list under a key of ours; an empty one if a client has put another thing there."""
    value = own.get(key)
    return value if type(value) is list else []


def note_spelling(obj: JsonObject, key: str, value: object) -> None:
    """Remember a spelling in the object whose leftovers become extras."""
    obj["~" + key] = value


def note_omitted(obj: JsonObject, present: Mapping[str, object], *keys: str) -> None:
    """Remember which keys this body lacks, of those that encoders always write."""
    missing = [key for key in keys if key not in present]
    if missing:
        obj[OMIT] = missing


def note_silent(obj: JsonObject, *keys: str) -> None:
    """Remember which of these keys, if present, mean nothing in other dialects."""
    silent = [key for key in keys if key in obj]
    if silent:
        obj[SILENT] = [*listed(obj, SILENT), *silent]


def is_silent(extras: Extras, name: str) -> bool:
    """Whether the extras have nothing for this dialect to write and nothing to note."""
    for dialect, keys in extras.items():
        if dialect == name:
            return False
        for key, value in keys.items():
            if key[:1] != "~" and value is not None and key not in listed(keys, SILENT):
                return False
    return True


def add_extras(body: JsonObject, extras: Extras, name: str, at: At, notes: Notes) -> None:
    """Write a value's own extras into its wire object. Each extra of another dialect becomes a note.

    An extra replaces what the encoder wrote, because it is the original and more exact. A null is written only if the
    key is absent.
    """
    for dialect, keys in extras.items():
        if dialect == name:
            for key, value in keys.items():
                if key == OMIT:
                    for omitted in listed(keys, OMIT):
                        if type(omitted) is str:
                            body.pop(omitted, None)
                elif key[:1] != "~":
                    if value is None:
                        body.setdefault(key, None)
                    else:
                        body[key] = value
        else:
            silent = listed(keys, SILENT)
            for key, value in keys.items():
                if value is not None and key[:1] != "~" and key not in silent:
                    notes.dropped((((at, "extras"), dialect), key), f"only {dialect} has {key}")
