"""Server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html (read 2026-11-15).

Lines are split as bytes, so that a character which the network cut in two is never decoded in halves.
"""

import re

from msgspec import Struct

from dragoman.errors import DecodeError
from dragoman.jsontypes import load_string

MAX_FRAME_BYTES = 4 * 1024 * 1024
CR, LF = 13, 10  # as numbers: a search for 10 is ten times faster than a search for b"\n"
LEARN_EVERY_MISSES = 16  # a stream whose frames change all the time pays for learning only this often
QUOTE, BACKSLASH = 34, 92
# The inside of a JSON string that is spelled as msgspec spells it. `++`: nothing is tried twice, however long it is.
_PLAIN = re.compile(rb'(?:[^"\\\x00-\x1f\x7f]++|\\["\\bfnrt])++')
_STRING = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


class SseFrame(Struct, frozen=True, gc=False):
    event: str  # "" where the stream does not name it
    data: bytes


class SseDecoder:
    """Takes bytes as they come and gives the frames that they complete. It skips comments and empty events."""

    __slots__ = ("_buffer", "_ended_in_cr", "_max_frame_bytes", "_started")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = b""
        self._max_frame_bytes = max_frame_bytes
        self._ended_in_cr = False  # the CR was read as a line end; a LF that follows belongs to it
        self._started = False

    def feed(self, piece: bytes) -> list[SseFrame]:
        return [frame for block in self.split(piece) if (frame := read_frame(block)) is not None]

    def split(self, piece: bytes) -> list[bytes]:
        """The blocks of lines that these bytes complete, one per frame, for a caller that does not read them all."""
        if self._ended_in_cr and piece:
            self._ended_in_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        data = self._buffer + piece if self._buffer else piece
        if not self._started and not (data := self._skip_byte_order_mark(data)):
            return []
        if CR in data:
            self._ended_in_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        if len(data) > self._max_frame_bytes and max(map(len, blocks)) > self._max_frame_bytes:
            raise DecodeError(f"a stream event is larger than {self._max_frame_bytes} bytes")
        self._buffer = blocks.pop()
        return blocks

    def look(self, piece: bytes) -> bytes | None:
        """The next bytes, with plain line ends, if they begin with a frame. The decoder does not take them: a caller
        that can read them in another way does not feed them."""
        if self._buffer or self._ended_in_cr:
            return None
        return piece.replace(b"\r\n", b"\n") if CR in piece else piece

    def close(self) -> list[SseFrame]:
        """The last frame, if the stream ended without the blank line behind it."""
        block, self._buffer = self._buffer, b""
        frame = read_frame(block)
        return [] if frame is None else [frame]

    def _skip_byte_order_mark(self, data: bytes) -> bytes:
        """Removes the byte-order mark at the start; empty while there are too few bytes to see one."""
        if len(data) < 3 and BYTE_ORDER_MARK.startswith(data):
            self._buffer = data
            return b""
        self._started, self._buffer = True, b""  # the mark may have been the whole buffer
        return data.removeprefix(BYTE_ORDER_MARK)


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_frame(block: bytes) -> SseFrame | None:
    """The frame in a block of lines; None without data. The two usual forms are read without splitting the lines."""
    if block[:6] == b"data: " and LF not in block:  # fast path: sse data
        return SseFrame("", block[6:]) if len(block) > 6 else None
    head, found, data = block.partition(b"\ndata: ")
    if found and head[:7] == b"event: " and data and LF not in data and LF not in head:  # fast path: sse event
        return SseFrame(_event_name(head[7:]), data)
    return _read_lines(block)


def _read_lines(block: bytes) -> SseFrame | None:
    event, is_error = "", False
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line[:5] == b"data:":
            value = line[6:] if line[5:6] == b" " else line[5:]
            if value or data:
                data.append(value)
        elif line[:6] == b"event:":
            event = _event_name(line[6:])
        elif line and (is_error or line[:1] == b"{" or line[:6] == b"error:"):
            # Not SSE, but sent as errors: gpustack writes a line `error: {...}`, Google a bare JSON object.
            event, is_error = event or "error", True
            data.append(line.removeprefix(b"error:"))
    return SseFrame(event, b"\n".join(data)) if data else None


_event_names: dict[bytes, str] = {}  # a stream repeats a few names thousands of times


def _event_name(raw: bytes) -> str:
    name = _event_names.get(raw)  # fast path: known event name
    if name is None:
        name = raw.strip().decode("utf-8", "replace")
        if len(_event_names) < 256:
            _event_names[raw] = name
    return name


def remove_between(block: bytes, start: bytes, end: bytes) -> bytes:
    """A frame without `start`, `end` and the bytes between them: padding or a counter, different in each frame."""
    start_at = block.find(start)
    end_at = block.find(end, start_at + len(start)) if start_at >= 0 else -1
    return block[:start_at] + block[end_at + len(end) :] if end_at >= 0 else block


def remove_each(frames: bytes, start: bytes, end: bytes) -> bytes | None:
    """The same for many frames; None if the bytes to remove are not a word or a number."""
    kept, *others = frames.split(start)
    pieces = [kept]
    for other in others:
        value, _, rest = other.partition(end)
        if value and not value.isalnum():
            return None
        pieces.append(rest)
    return b"".join(pieces)


class DeltaTemplate:
    """Reads stream frames that differ in their text only, without parsing the rest of each frame.

    Suppose a decoder parsed the frame `head "X" tail` and found a delta of the text X and nothing else. Then every
    frame `head "Y" tail`, where "Y" is one JSON string, is a delta of the text Y, because all other bytes are the same.
    The decoder gives the first such frame to `learn`. After that, `read` gives the text of the others.
    """

    __slots__ = ("_between", "_end", "_head", "_misses", "_tail", "_text_end", "_text_start")

    def __init__(self) -> None:
        self._head = b"\x00"  # no frame starts with it
        self._tail = b""
        self._text_start = self._text_end = 0
        self._end = self._between = b""  # behind each text of whole frames, and between two of them
        self._misses = 0

    def read(self, block: bytes) -> str | None:
        """The text of the frame, if the frame is like the learnt one."""
        if block.startswith(self._head) and block.endswith(self._tail):
            return load_string(block[self._text_start : self._text_end])
        return None

    def read_run(self, data: bytes) -> tuple[str, list[bytes]] | None:
        """The text of whole frames that are all like the learnt one, and the pieces of it: each is the inside of a JSON
        string, spelled as we spell it. None for any other data."""
        if not data.endswith(self._end) or not data.startswith(self._head):
            return None
        pieces = data[self._text_start + 1 : -len(self._end)].split(self._between)
        joined = b"".join(pieces)
        if b"" in pieces:
            return None
        if joined.isascii() and QUOTE not in joined and BACKSLASH not in joined:  # fast path: plain run
            text = joined.decode()
            return (text, pieces) if text.isprintable() else None
        if not all(map(_PLAIN.fullmatch, pieces)):
            return None
        texts = [read for piece in pieces if (read := load_string(b'"%b"' % piece)) is not None]
        return ("".join(texts), pieces) if len(texts) == len(pieces) else None

    def learn(self, block: bytes, key: bytes, text: str) -> bool:
        """Learns a frame whose only content is `text` under `key` (with its quotes). True if `read` can read it now."""
        if self.read(block) is not None:
            return True
        self._misses += 1
        if self._misses % LEARN_EVERY_MISSES != 1 or block.count(key) != 1:
            return False
        match = _STRING.match(block, block.index(key) + len(key))
        if match is None or load_string(match[1]) != text:
            return False
        start, end = match.span(1)
        self._head, self._tail = block[: start + 1], block[end - 1 :]
        self._text_start, self._text_end = start, 1 - len(self._tail)  # both include the quotes
        self._end = self._tail + b"\n\n"
        self._between = self._end + self._head
        return True
