"""Our own form as a dialect. `convert --to canonical` prints it, and golden files are written in it."""

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import ValidationError, convert

from dragoman.dialects._base import Dialect, What
from dragoman.dialects._streams import CUT_OFF, StreamMarks
from dragoman.errors import DecodeError
from dragoman.failure import Failure, status_of
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Event, ReplyEnd, ReplyFailed
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.wire import WireReply, WireRequest

NAME = "canonical"
T = TypeVar("T")


def _read(value: object, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise DecodeError(str(error)) from error


def _write(value: object) -> Any:
    return load_json(dump_json(value))  # gives lists, where to_builtins leaves tuples


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    return _read(wire.body, Request)  # type: ignore[no-any-return]  # convert returns the given type


def encode_request(request: Request, notes: Notes) -> WireRequest:
    return WireRequest(body=_write(request))


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    return _read(wire.body, Reply)  # type: ignore[no-any-return]


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    return WireReply(body=_write(reply))


def decode_failure(wire: WireReply) -> Failure:
    return _read(wire.body, Failure)  # type: ignore[no-any-return]


def encode_failure(failure: Failure) -> WireReply:
    return WireReply(body=_write(failure), status=status_of(failure))


class StreamDecoder(StreamMarks):
    """Decodes one event per line."""

    def __init__(self, notes: Notes) -> None:
        self._lines = NdjsonDecoder()
        self._ended = False

    def feed(self, piece: bytes) -> list[Event]:
        return [self._decode(line) for line in self._lines.feed(piece)]

    def close(self) -> list[Event]:
        events = [self._decode(line) for line in self._lines.close()]
        if not self._ended:
            events.append(CUT_OFF)
        return events

    def _decode(self, line: bytes) -> Event:
        event: Event = _read(load_json(line), Event)
        self._ended = self._ended or isinstance(event, ReplyEnd | ReplyFailed)
        return event


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._ended = False

    def feed(self, events: Iterable[Event]) -> bytes:
        lines = []
        for event in events:
            self._ended = self._ended or isinstance(event, ReplyEnd | ReplyFailed)
            lines.append(dump_json(event) + b"\n")
        return b"".join(lines)

    def close(self) -> bytes:
        if self._ended:
            return b""
        return self.feed([CUT_OFF])


def recognise(body: JsonObject, what: What) -> int:
    match what:
        case "request":
            messages = body.get("messages")
            first = messages[0] if type(messages) is list and messages else None
            return 100 if type(first) is dict and "parts" in first and "role" in first else 0
        case "reply":
            choices = body.get("choices")
            first = choices[0] if type(choices) is list and choices else None
            return 100 if type(first) is dict and "parts" in first else 0
        case "stream":
            return 100 if body.get("kind") in ("reply_start", "reply_failed", "aside") else 0
        case "failure":
            return 100 if "kind" in body and "message" in body else 0


DIALECT = Dialect(
    name=NAME,
    title="dragoman's own form",
    profile=Profile(kind=NAME, dialect=NAME, pairing="keep"),
    decode_request=decode_request,
    encode_request=encode_request,
    decode_reply=decode_reply,
    encode_reply=encode_reply,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    recognise=recognise,
    media_type="application/x-ndjson",
    reply_keys=("choices",),
)
