"""Dialect: the record each dialect fills in."""

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject
from dragoman.model.events import Event
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

Pass: TypeAlias = Callable[[Request, Notes], Request]
What: TypeAlias = Literal["request", "reply", "stream", "failure"]


class StreamDecoder(Protocol):
    """Provider bytes -> events. `close` ends a stream that was cut with ReplyFailed."""

    def feed(self, piece: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class StreamEncoder(Protocol):
    """Events -> client bytes, legal to the last byte. After `close` nothing follows."""

    def feed(self, events: Iterable[Event]) -> bytes: ...
    def close(self) -> bytes: ...


class EncodeReply(Protocol):
    def __call__(self, reply: Reply, notes: Notes, request: Request | None = None) -> WireReply: ...


class MakeStreamEncoder(Protocol):
    def __call__(self, notes: Notes, request: Request | None = None) -> StreamEncoder: ...


class Dialect(Struct, frozen=True, kw_only=True):
    """`request`, where an encoder takes it, is what the client asked: some dialects echo it in their replies."""

    name: str
    title: str
    media_type: str  # of its streams
    legal: tuple[Pass, ...]  # what makes any Request sayable in it
    decode_request: Callable[[WireRequest, Notes], Request]
    encode_request: Callable[[Request, Notes], WireRequest]
    decode_reply: Callable[[WireReply, Notes], Reply]
    encode_reply: EncodeReply
    stream_decoder: Callable[[Notes], StreamDecoder]
    stream_encoder: MakeStreamEncoder
    decode_failure: Callable[[WireReply], Failure]
    encode_failure: Callable[[Failure], WireReply]
    recognise: Callable[[JsonObject, What], int]  # 0 (not mine) to 100 (certainly mine), from one body or first frame
