"""A provider's frames that are passed on to the client: where they end, and which of them the client must not get."""

import re
from collections.abc import Iterator

from dragoman.dialects._base import Dialect
from dragoman.framing.sse import read_frame


def frame_end(data: bytes, media_type: str) -> int:
    """Where the last complete frame ends."""
    if data[-2:] == b"\n\n":  # mostly whole frames come
        return len(data)
    if media_type != "text/event-stream":
        return data.rfind(b"\n") + 1
    if data[:1] == b"[" or data[:1] == b",":  # Gemini's array is passed on as it comes
        return len(data)
    plain, windows, old = data.rfind(b"\n\n"), data.rfind(b"\n\r\n"), data.rfind(b"\r\r")
    return max(plain + 2 if plain >= 0 else 0, windows + 3 if windows >= 0 else 0, old + 2 if old >= 0 else 0)


FRAME_ENDS = {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}
_FRAME_END = {
    "text/event-stream": re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n"),
    "application/x-ndjson": re.compile(rb"\n"),
}


def until_end(frames: bytes, dialect: Dialect) -> tuple[bytes, bool]:
    """Whole frames up to the one that ends the stream, and whether there is one."""
    if dialect.is_end is None:
        return frames, False
    first = 0  # a letter of an end word may be written as \\u006d: then every frame is read
    if b"\\u" not in frames:  # fast path: end words
        words = [frames.find(word) for word in dialect.end_words]
        first = frame_end(frames[: min((at for at in words if at >= 0), default=len(frames))], dialect.media_type)
    for start, end in split_frames(frames, dialect.media_type, first):
        if dialect.is_end(read_data(frames[start:end])):
            return frames[:end], True
    return frames, False


def leave_out_usage(frames: bytes, dialect: Dialect) -> bytes:
    """Whole frames without those that tell the usage, which we asked for and the client did not: a client that reads
    the first choice of every frame would fail."""
    if dialect.is_usage is None or dialect.usage_mark is None or b"usage" not in frames:
        return frames
    first = 0  # the mark may be written with \\u0063: then every frame is read
    if b"\\u" not in frames:  # fast path: usage mark
        found = dialect.usage_mark.search(frames)
        if found is None:
            return frames
        first = frame_end(frames[: found.start()], dialect.media_type)
    spans = split_frames(frames, dialect.media_type, first)
    kept = [frames[start:end] for start, end in spans if not dialect.is_usage(read_data(frames[start:end]))]
    return frames[:first] + b"".join(kept)


def split_frames(data: bytes, media_type: str, first: int = 0) -> Iterator[tuple[int, int]]:
    """Where each whole frame starts and ends, from the start of one of them on."""
    start = first
    for found in _FRAME_END[media_type].finditer(data, first):
        yield start, found.end()
        start = found.end()


def read_data(block: bytes) -> bytes:
    """The data of a frame; a line of NDJSON is its own."""
    frame = read_frame(block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n"))
    return block if frame is None else frame.data
