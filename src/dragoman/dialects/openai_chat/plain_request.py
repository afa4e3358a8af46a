"""A small Chat request of texts alone, read in one step. None for any other: then it is read key by key."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.dialects.openai_chat.words import SPEAKERS
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request

MOST_BYTES = 16 * 1024  # of a longer one the search for a second key takes as long as the reading
KEYS = (b'"model"', b'"messages"', b'"stream"')
_ESCAPED_LETTER = b"\\u00"  # a key may be spelled with it


class _Turn(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Meta(min_length=1)]


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    messages: Annotated[list[_Turn], Meta(min_length=1)]
    stream: bool | UnsetType = UNSET


_read = msgspec.json.Decoder(_Request).decode


def read_plain_request(raw: bytes) -> Request | None:
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
    return Request(
        model=found.model,
        messages=tuple(
            [Message(role=SPEAKERS[turn.role], parts=(Text(text=turn.content),)) for turn in found.messages]
        ),
        stream=None if found.stream is UNSET else found.stream,
    )
