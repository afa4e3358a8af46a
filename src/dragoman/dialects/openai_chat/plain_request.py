"""A small Chat request of texts and usual settings, read in one step. None for any other: it is read key by key."""

from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.dialects._base import PlainRequest
from dragoman.dialects.openai_chat.words import LIMITS, NAME, SPEAKERS
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request

MOST_BYTES = 16 * 1024  # of a longer one the search for a second key takes as long as the reading
KEYS = (b'"model"', b'"messages"', b'"stream"')
_ESCAPED_LETTER = b"\\u00"  # a key may be spelled with it


class _Turn(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Meta(min_length=1)]


Number: TypeAlias = int | float | UnsetType
Whole: TypeAlias = Annotated[int, Meta(ge=-(2**53), le=2**53)] | UnsetType


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    messages: Annotated[list[_Turn], Meta(min_length=1)]
    stream: bool | UnsetType = UNSET
    temperature: Number = UNSET
    top_p: Number = UNSET
    seed: Whole = UNSET
    max_tokens: Whole = UNSET
    max_completion_tokens: Whole = UNSET


_read = msgspec.json.Decoder(_Request).decode
_SETTINGS = tuple((f'"{name}"'.encode(), name) for name in _Request.__struct_fields__[3:])
_read_settings = attrgetter(*[name for _, name in _SETTINGS])
_NO_SETTINGS = (UNSET,) * len(_SETTINGS)


def read_plain_request(raw: bytes) -> Request | None:
    found = _find(raw)
    settings = None if found is None else _take_settings(raw, found)
    if found is None or settings is None:
        return None
    return Request(
        model=found.model,
        messages=tuple(
            [Message(role=SPEAKERS[turn.role], parts=(Text(text=turn.content),)) for turn in found.messages]
        ),
        stream=None if found.stream is UNSET else found.stream,
        **settings,
    )


def look_at_request(raw: bytes) -> PlainRequest | None:
    """None where `read_plain_request` is None."""
    found = _find(raw)
    settings = None if found is None else _take_settings(raw, found)
    if found is None or settings is None:
        return None
    roles = tuple([turn.role for turn in found.messages])
    return PlainRequest(found.model, roles, found.stream is True, _read_settings(found), settings.get("max_output"))


def _find(raw: bytes) -> _Request | None:
    if len(raw) > MOST_BYTES:
        return None
    try:
        found = _read(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if _ESCAPED_LETTER in raw:
        return None
    for key in KEYS:  # with two of a key, we might read one and the provider the other
        if raw.find(key, raw.find(key) + 1) >= 0:
            return None
    return found


def _take_settings(raw: bytes, found: _Request) -> dict[str, Any] | None:
    """As fields of a Request. None: one is said twice."""
    if _read_settings(found) == _NO_SETTINGS:
        return {}
    settings: dict[str, Any] = {}
    for key, name in _SETTINGS:
        value = getattr(found, name)
        if value is UNSET:
            continue
        if raw.find(key, raw.find(key) + 1) >= 0:
            return None
        if name not in LIMITS:
            settings[name] = value
        elif "max_output" in settings:
            return None
        else:
            settings["max_output"] = value
            if name != LIMITS[0]:
                settings["extras"] = {NAME: {"~limit": name}}
    return settings
