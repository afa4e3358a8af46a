"""JSON as values. Only this module dumps and loads JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from dragoman.errors import DecodeError, pointer

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
SchemaPath: TypeAlias = tuple[str | int, ...]  # keys and numbers that lead to a place in a JSON Schema

_decode = msgspec.json.Decoder().decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_strings = msgspec.json.Decoder(list[str]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_objects = msgspec.json.Decoder(dict).decode_lines
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
MOST_VALUES = 400_000  # of a text from outside: to read that many takes about 40 ms, in which nothing else is done
_MEMBER = re.compile(rb'[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)  # the key and colon before a value


def load_json(data: bytes | str, *, strict: bool = False) -> Json:
    """Load any JSON text as plain objects. Invalid JSON raises a DecodeError with its position.

    Half a surrogate pair becomes U+FFFD: agents cut texts in the middle of an emoji. `strict`: it is an error."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        mended = mend_surrogates(data.encode("utf-8", "replace") if isinstance(data, str) else data)
        if mended is None or strict:
            raise DecodeError(f"not JSON: {error}") from error
        return load_json(mended)
    except RecursionError as error:  # msgspec raises this for deep nesting
        raise DecodeError("JSON that is nested too deeply") from error


# Every escape of a string, so that an escaped backslash before a `u` is not taken for one; a group for lone halves.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def mend_surrogates(data: bytes) -> bytes | None:
    """A JSON text with U+FFFD for each lone half of a surrogate pair; None if it has none."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    mended = _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)
    return None if mended == data else mended


def find_surrogates(data: bytes) -> list[str]:
    """Where lone halves of surrogate pairs stand in a JSON text, as JSON pointers."""
    try:
        return [pointer(place) for place in _find_odd_texts(json.loads(data), ())]
    except (ValueError, RecursionError):
        return []


def _find_odd_texts(value: Json, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            yield place
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_odd_texts(item, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _find_odd_texts(item, (*place, i))


def are_objects(texts: list[str]) -> bool:
    """Whether each of these texts is a JSON object. False also if that would have to be looked at one by one."""
    lines = "\n".join(texts)
    if lines.count("\n") >= len(texts):
        return False
    try:
        return len(_decode_objects(lines)) == len(texts)  # empty lines are passed over
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def load_string(data: bytes) -> str | None:
    """Load one JSON string. None for any other text."""
    try:
        return _decode_string(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def load_strings(data: bytes) -> list[str] | None:
    """Load a JSON array of strings. None for any other text."""
    try:
        return _decode_strings(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def load_members(data: bytes) -> dict[str, bytes]:
    """Load the members of a JSON object with each value as text. The text must be valid JSON."""
    return {key: bytes(value) for key, value in _decode_members(data).items()}


def load_object(data: bytes | str) -> JsonObject:
    """Load a JSON text that must be an object."""
    if len(data) > MOST_VALUES and has_more_values(data if isinstance(data, bytes) else data.encode(), MOST_VALUES):
        raise DecodeError(f"more than {MOST_VALUES} values")
    try:
        value = _decode(data)  # not through load_json, because this runs for every streamed event
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = load_json(data)  # raises the DecodeError
    if type(value) is not dict:
        raise DecodeError(f"expected object, found {kind_of(value)}")
    return value


def dump_json(value: Json) -> bytes:
    """Compact JSON. Keys keep their order. Half a surrogate pair, which UTF-8 cannot say, becomes U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=_decode)))  # the hook is for `Raw`


def _without_surrogates(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def dump_text(value: Json) -> str:
    return _encode(value).decode()


def dump_sorted(value: Json) -> str:
    """Equal values give equal text, whatever the order of their keys."""
    return msgspec.json.encode(value, order="sorted").decode()


def format_json(value: Json) -> bytes:
    """JSON for people: indented by two spaces, one key per line."""
    return msgspec.json.format(_encode(value), indent=2)


def copy_json(value: Json) -> Json:
    """A deep copy with lists for tuples. Callers need it because decoders change the objects they read.

    To write it and read it again is quicker than to walk through it, and unlike JSON MessagePack keeps NaN."""
    try:
        return _unpack(_pack(value))
    except (TypeError, OverflowError, UnicodeEncodeError):  # what MessagePack cannot say is kept as it is
        return _copy_by_hand(value)


def pack_json(value: Json) -> bytes | None:
    """The value as MessagePack, which tells all values apart that a copy tells apart. None if it has no form for it."""
    try:
        return _pack(value)
    except (TypeError, OverflowError, UnicodeEncodeError):
        return None


def unpack_json(data: bytes) -> Json:
    """What `pack_json` wrote, each time as new values."""
    return _unpack(data)


def _copy_by_hand(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy_by_hand(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy_by_hand(item) for item in value]
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


# ---------------------------------------------------------------- signs and words of a text

MOST_RARE = 64  # places of a rare letter that are looked at one by one


def has_more(data: bytes, sign: bytes, most: int) -> bool:
    """Whether one sign comes more than `most` times. `bytes.count` looks at each byte and takes twenty times as long as
    `replace`, which lets the C library jump from one to the next."""
    return len(data) > most and len(data) - len(data.replace(sign, b"", most + 1)) > most


def count_sign(data: bytes, sign: bytes) -> int:
    """How often one sign comes."""
    return len(data) - len(data.replace(sign, b""))


def has_word(data: bytes, word: bytes, rare: bytes) -> bool:
    """Whether a word is in a text. `rare` is a letter of it that most texts have seldom: to find one letter takes a
    hundredth of the time that a word takes."""
    shift = word.index(rare)
    at = data.find(rare, shift)
    for _ in range(MOST_RARE):
        if at < 0:
            return False
        if data.startswith(word, at - shift):
            return True
        at = data.find(rare, at + 1)
    return at >= 0 and data.find(word, at - shift) >= 0


# ---------------------------------------------------------------- the text of one object

LONG_BYTES = 64 * 1024  # of a JSON list that is decoded item by item
_PIECE_BYTES = 128 * 1024


def has_more_values(data: bytes, most: int) -> bool:
    """Whether a JSON text has more than about `most` values: it counts the commas and colons outside strings.

    To decode a text is one call, and no other thread runs meanwhile. This looks at a piece at a time.
    """
    count, in_string, at = 0, 0, 0
    while at < len(data) and count <= most:
        end = at + _PIECE_BYTES
        piece = data[at:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # do not cut an escape in two
            end += 1
            piece = data[at:end]
        texts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(texts[in_string::2])
        in_string = (in_string + len(texts) - 1) % 2
        count += outside.count(b",") + outside.count(b":")
        at = end
    return count > most


def top_spans(data: bytes) -> dict[str, tuple[int, int]]:
    """The position of each value of the outermost object. A duplicate key raises a DecodeError.

    Of two members with the same key the decoder keeps only the last. So we compare its members with the bytes: if the
    bytes are exactly these members in a row, there is no duplicate.
    """
    return _find_spans(data, load_members(data))


def split_members(data: bytes | str) -> dict[str, msgspec.Raw] | None:
    """The text of each value of the outermost object; None if that is not good JSON."""
    try:
        return _decode_members(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def load_in_pieces(members: dict[str, msgspec.Raw]) -> JsonObject | None:
    """The object of `split_members`, with a call for each item of its long lists: to decode a text is one call, and no
    other thread runs meanwhile. None if a part of it is not good JSON."""
    values: JsonObject = {}
    try:
        for key, text in members.items():
            long = len(memoryview(text)) > LONG_BYTES and memoryview(text)[0] == ord("[")
            values[key] = [_decode(item) for item in _decode_items(text)] if long else _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return values


def check_keys(data: bytes, members: dict[str, msgspec.Raw] | None = None) -> dict[str, tuple[int, int]]:
    """Raise a DecodeError for a duplicate key. Returns the position of each value, as `top_spans` does. The two most
    frequent ways to write JSON are compared with the text directly. `members`: of `split_members`, if that was called
    before."""
    members = _decode_members(data) if members is None else members
    spans = _find_plain_spans(data, members)
    if spans is not None:  # fast path: plain spelling
        return spans
    return _find_spans(data, {key: bytes(value) for key, value in members.items()})


def _find_plain_spans(data: bytes, members: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """None if the text is not exactly these members, with `,` and `:` or `, ` and `: ` between them. Nothing is copied:
    it may be long."""
    spans: dict[str, tuple[int, int]] = {}
    at, before, blank = 0, b"{", b""
    for key, value in members.items():
        start = b'%b"%b":' % (before, key.encode())
        if not at:
            blank = b" " if data.startswith(b" ", len(start)) else b""
            before = b"," + blank
        start += blank
        if not data.startswith(start, at):
            return None
        at += len(start)
        if not data.startswith(value, at):
            return None
        spans[key] = (at, at + len(memoryview(value)))
        at = spans[key][1]
    return spans if len(data) == at + 1 and at > 0 and data.endswith(b"}") else None


def _find_spans(data: bytes, members: dict[str, bytes]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    at = 0
    for key, value in members.items():
        start = _value_at(data, at, key)
        at = start + len(value)
        if data[start:at] != value:
            raise DecodeError("duplicate key", key)
        spans[key] = (start, at)
    if spans and data[at:].strip() != b"}":
        _value_at(data, at, None)
    return spans


def _value_at(data: bytes, at: int, key: str | None) -> int:
    """The position of the next value. A DecodeError if it belongs to another key."""
    match = _MEMBER.match(data, at)
    name = load_string(match[1]) if match is not None else None
    if match is None or name != key:
        raise DecodeError("duplicate key", name or "")
    return match.end()
