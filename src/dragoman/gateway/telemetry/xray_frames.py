"""The frames of a kept stream with their times: at the provider, in the neutral form, at the client."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from dragoman.convert import StreamConverter, convert_reply
from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DecodeError, DragomanError
from dragoman.jsontypes import Json, load_json

CANONICAL = "canonical"
SSE = "text/event-stream"


class WireFrame(Struct, frozen=True, kw_only=True):
    ms: float  # since the request began
    step: int  # its number; of an event, the number of the frame that it came in
    event: str = ""  # as an event stream names it
    value: Json = None  # its JSON, or its text


Pieces = Sequence[tuple[float, bytes]]  # milliseconds and bytes


def split_frames(pieces: Pieces, dialect: str) -> list[WireFrame]:
    return [read_frame(ms, block, i) for i, (ms, block) in enumerate(split_blocks(pieces, dialect))]


def split_blocks(pieces: Pieces, dialect: str) -> list[tuple[float, bytes]]:
    """The bytes of each frame. It has the time at which its last byte was there."""
    media = find_dialect(dialect).media_type if dialect in NAMES else ""
    if not pieces or not media or pieces[0][1].lstrip()[:1] == b"[":  # Gemini's stream may be one JSON array
        return [(ms, piece) for ms, piece in pieces if piece.strip()]
    end = b"\n\n" if media == SSE else b"\n"
    found: list[tuple[float, bytes]] = []
    rest = b""
    for ms, piece in pieces:
        *whole, rest = (rest + piece).replace(b"\r\n", b"\n").split(end)
        found += [(ms, block + end) for block in whole if block.strip()]
    if rest.strip():
        found.append((pieces[-1][0], rest))
    return found


def read_frame(ms: float, block: bytes, step: int) -> WireFrame:
    event, data = "", []
    for line in block.split(b"\n"):
        if line.startswith(b"event:"):
            event = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    body = b"\n".join(data) if data else block
    try:
        return WireFrame(ms=ms, step=step, event=event, value=load_json(body))
    except DecodeError:
        return WireFrame(ms=ms, step=step, event=event, value=body.decode("utf-8", "replace").strip())


def convert_frames(pieces: Pieces, dialect: str) -> list[WireFrame]:
    """The events that a stream stands for. They end where the stream cannot be read."""
    blocks = split_blocks(pieces, dialect)
    if dialect not in NAMES or not blocks:
        return []
    converter = StreamConverter(dialect, CANONICAL)
    found: list[WireFrame] = []
    try:
        for step, (ms, block) in enumerate(blocks):
            found += _events(ms, step, converter.feed(block))
        found += _events(blocks[-1][0], len(blocks) - 1, converter.close())
    except DragomanError:
        pass
    return found


def _events(ms: float, step: int, out: bytes) -> list[WireFrame]:
    return [read_frame(ms, line, step) for line in out.split(b"\n") if line.strip()]


def convert_whole(reply: bytes, dialect: str) -> Json:
    """An unstreamed answer in the neutral form; None if it is none."""
    if dialect not in NAMES or not reply:
        return None
    try:
        return convert_reply(reply, to=CANONICAL, source=dialect).body
    except DragomanError:
        return None


def to_ms(pieces: Iterable[tuple[float, bytes]], began: float) -> list[tuple[float, bytes]]:
    return [(round((at - began) * 1000, 1), data) for at, data in pieces]
