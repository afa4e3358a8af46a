"""Base classes for stream codecs with server-sent events.

A dialect fills in `decode_frame` and `encode_event`. Dialects that must be fast have their own loops.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.framing.sse import SseDecoder, SseFrame
from dragoman.framing.templates import LearntDelta
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Event, PartEnd, PartStart, ReplyEnd, ReplyFailed
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

CUT = Failure(kind="cut_off", message="the stream was cut off")
CUT_OFF = ReplyFailed(failure=CUT)


class OpenFrame(Struct):
    """The frames of a part that grows: the bytes before each piece of its text, and those behind it."""

    head: bytes
    tail: bytes
    keep: Callable[[str], object] | None = None  # gets what was written
    between: bytes = b""  # one piece and the next

    def __post_init__(self) -> None:
        self.between = b'"%b%b"' % (self.tail, self.head)

    def write(self, text: str, pieces: list[bytes]) -> bytes:
        if self.keep is not None:
            self.keep(text)
        return b'%b"%b"%b' % (self.head, self.between.join(pieces), self.tail)


def hold(held: list[str], text: str, _: list[bytes]) -> bytes:
    """WritePieces of a part that is written when it is complete."""
    held.append(text)
    return b""


class StreamMarks:
    """What a decoder says about the bytes it has read (see StreamDecoder)."""

    irregular = False
    finishing = False
    holds = False
    joins = False

    def learnt(self) -> LearntDelta | None:
        """See StreamDecoder."""
        return None


class SseStreamDecoder(StreamMarks, ABC):
    """Decodes each frame into one event. A stream without an end event is cut off."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._frames = SseDecoder()
        self._ended = False

    @abstractmethod
    def decode_frame(self, frame: SseFrame) -> Event: ...

    def feed(self, piece: bytes) -> list[Event]:
        return self._decode(self._frames.feed(piece))

    def close(self) -> list[Event]:
        events = self._decode(self._frames.close())
        return events if self._ended else [*events, CUT_OFF]

    def _decode(self, frames: list[SseFrame]) -> list[Event]:
        events = [self.decode_frame(frame) for frame in frames]
        self._ended = self._ended or any(isinstance(event, ReplyEnd | ReplyFailed) for event in events)
        return events


class SseStreamEncoder(ABC):
    """Encodes each event as one frame or none. `places` has the place of each open part, for notes."""

    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self.notes = notes
        self.places: dict[int, At] = {}  # by the index of the part
        self._parts: Counter[int] = Counter()  # by choice
        self._ended = False

    @abstractmethod
    def encode_event(self, event: Event) -> bytes: ...

    def leave_out(self, event: PartStart) -> bytes:
        """Leave out a part. Without a place, its later events are left out too."""
        del self.places[event.index]
        return b""

    def feed(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._encode(event) for event in events])

    def close(self) -> bytes:
        return b"" if self._ended else self.feed([CUT_OFF])

    def _encode(self, event: Event) -> bytes:
        self._ended = self._ended or isinstance(event, ReplyEnd | ReplyFailed)
        if isinstance(event, PartStart):
            parts: At = (((ROOT, "choices"), event.choice), "parts")
            self.places[event.index] = (parts, self._parts[event.choice])
            self._parts[event.choice] += 1
        frame = self.encode_event(event)
        if isinstance(event, PartEnd):
            self.places.pop(event.index, None)
        return frame


def write_frame(event: str, body: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), dump_json(body))


def is_last(key: str, *values: object) -> Callable[[bytes], bool]:
    """Tells the last frame of a stream: it has one of these values under this key."""

    def is_end(data: bytes) -> bool:
        try:
            body = load_json(data)
        except DecodeError:
            return False
        return type(body) is dict and body.get(key) in values

    return is_end
