"""Our own form as a dialect. `convert --to canonical` prints it, and golden files are written in it.

The gateway has a door for it, which our own client uses. Nothing is lost there: every field of the model is written
and read.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import ValidationError, convert
from msgspec.structs import replace

from dragoman.dialects._base import Dialect, Door, What
from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects._streams import CUT_OFF, StreamMarks
from dragoman.errors import DecodeError
from dragoman.failure import Failure, kind_of_status, status_of
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Aside, Event, ReplyEnd, ReplyFailed
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_places import Place
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.wire import WireReply, WireRequest

NAME = "canonical"
PATH = "/dragoman/v1/chat"
NOT_OURS = "not_dragoman"  # code of a failure: the error has the form of another server
T = TypeVar("T")
_FIELDS = frozenset(Request.__struct_fields__)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def _read(value: object, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except ValidationError as error:
        why, _, place = str(error).partition(" - at `$")
        raise DecodeError(why, *(name or int(number) for name, number in _STEP.findall(place))) from error


def _write(value: object) -> Any:
    return load_json(dump_json(value))  # gives lists, where to_builtins leaves tuples


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    """Keys of a newer version are kept as extras, as in every dialect: a target that cannot take them notes them."""
    request: Request = _read(wire.body, Request)
    newer = {key: wire.body[key] for key in wire.body.keys() - _FIELDS}
    return replace(request, extras={**request.extras, NAME: newer}) if newer else request


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body = _write(request)
    if NAME in request.extras:
        body |= body["extras"].pop(NAME)
    return WireRequest(body=body, path=PATH)


def locate_request(value: object, place: Place) -> Place:
    return place[2:] if place[:2] == ("extras", NAME) else place


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    return _read(wire.body, Reply)  # type: ignore[no-any-return]


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    return WireReply(body=_write(reply))


def decode_failure(wire: WireReply) -> Failure:
    try:
        return _read(wire.body, Failure)  # type: ignore[no-any-return]
    except DecodeError:  # of a proxy in front of a gateway, or of a server that is no gateway
        return Failure(
            kind=kind_of_status(wire.status),
            message=_find_message(wire.body),
            status=wire.status,
            code=NOT_OURS,
            retry_after_s=read_retry_after(wire.headers),
            request_id=wire.headers.get("x-request-id"),
        )


def _find_message(body: object) -> str:
    """The text of an error in a form that most servers use."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return message.strip() if isinstance(message, str) else ""


def encode_failure(failure: Failure) -> WireReply:
    return WireReply(body=_write(failure), status=status_of(failure), headers=write_retry_after(failure))


def write_late(name: str, value: str) -> bytes:
    """A header that is known only after the answer, as an event behind it."""
    return dump_json(Aside(dialect=NAME, body={name: value})) + b"\n"


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
    profile=Profile(kind=NAME, dialect=NAME, takes_all=True),
    locate_request=locate_request,
    doors=(Door(path=PATH),),
    keeps_seals=True,
    write_late=write_late,
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
    ping=b"\n",
)
