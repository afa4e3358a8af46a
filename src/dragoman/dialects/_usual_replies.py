"""Usual replies, read by typed classes in one step.

A dialect describes as classes what its servers mostly send, and `ReplyReader` reads a reply of that form. None for
anything unusual: then the reply is decoded key by key.
"""

from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from dragoman.jsontypes import MOST_VALUES

T = TypeVar("T")
Some = Annotated[str, Meta(min_length=1)]


class ReplyReader(Generic[T]):
    """Reads replies of one class."""

    def __init__(self, kind: type[T]) -> None:
        self._read = msgspec.json.Decoder(kind).decode

    def read(self, raw: bytes) -> T | None:
        if b"~" in raw or len(raw) > MOST_VALUES:  # a key with `~` is ours; a long reply may have too many values
            return None
        try:
            return self._read(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
