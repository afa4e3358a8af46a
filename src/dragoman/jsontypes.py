"""JSON as values: the one place that dumps and loads it."""

from typing import Any, TypeAlias

import msgspec

from dragoman.errors import DecodeError

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def load_json(data: bytes | str) -> Json:
    """Any JSON text as plain objects; what is not JSON is a DecodeError that says where."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    except RecursionError as error:  # msgspec gives up on depth this way
        raise DecodeError("not JSON we read: nested too deeply") from error


def load_string(data: bytes) -> str | None:
    """What one JSON string says; None for anything else."""
    try:
        return _decode_string(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def load_members(data: bytes) -> dict[str, bytes]:
    """The members of a JSON object whose text is known to be good, each value as its own text."""
    return {key: bytes(value) for key, value in _decode_members(data).items()}


def load_object(data: bytes | str) -> JsonObject:
    """A JSON text that must be an object."""
    try:
        value = _decode(data)  # here and not in load_json: this runs for every streamed event
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = load_json(data)  # says what is wrong
    if type(value) is not dict:
        raise DecodeError(f"expected object, found {kind_of(value)}")
    return value


def dump_json(value: Json) -> bytes:
    """Compact JSON, keys in the order they were put in."""
    return _encode(value)


def dump_text(value: Json) -> str:
    return _encode(value).decode()


def format_json(value: Json) -> bytes:
    """JSON for people: two spaces, one key a line."""
    return msgspec.json.format(_encode(value), indent=2)


def copy_json(value: Json) -> Json:
    """A copy whose objects and lists are its own; decoders consume what they are given."""
    if type(value) is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in value]
    return value


def sort_keys(value: Json) -> Json:
    """The same JSON with sorted keys, so that equal values give equal text."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def kind_of(value: object) -> str:
    """The JSON word for a value's type, for messages to people."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__
