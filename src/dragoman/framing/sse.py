"""Server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html (read 2026-11-15).

Lines are cut on bytes, so a character cut in two by the network is never decoded in halves.
"""

from msgspec import Struct

from dragoman.errors import DecodeError

MAX_FRAME_BYTES = 4 * 1024 * 1024
CR, LF = 13, 10  # as numbers: looking for one in bytes is ten times quicker than looking for b"\n"


class SseFrame(Struct, frozen=True, gc=False):
    event: str  # "" where the stream names none
    data: bytes


class SseDecoder:
    """Feed it bytes as they come; it gives back the frames they complete. Comments and empty events are skipped."""

    __slots__ = ("_buffer", "_max", "_started", "_tail_cr")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = b""
        self._max = max_frame_bytes
        self._tail_cr = False  # the last piece ended in CR, now read as a line end: a LF may follow
        self._started = False

    def feed(self, piece: bytes) -> list[SseFrame]:
        return [frame for block in self.cut(piece) if (frame := read_block(block)) is not None]

    def cut(self, piece: bytes) -> list[bytes]:
        """The blocks these bytes complete, for who need not read them all; `read_block` makes a frame of one."""
        if self._tail_cr and piece:
            self._tail_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        data = self._buffer + piece if self._buffer else piece
        if not self._started and not (data := self._skip_mark(data)):
            return []
        if CR in data:
            self._tail_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        if len(data) > self._max and max(map(len, blocks)) > self._max:
            raise DecodeError(f"a stream event is larger than {self._max} bytes")
        self._buffer = blocks.pop()
        return blocks

    def close(self) -> list[SseFrame]:
        """A stream may end without its last blank line; the frame counts all the same."""
        block, self._buffer = self._buffer, b""
        frame = read_block(block)
        return [] if frame is None else [frame]

    def _skip_mark(self, data: bytes) -> bytes:
        """Without the byte-order mark a stream may begin with; nothing while that cannot be told yet."""
        if len(data) < 3 and MARK.startswith(data):
            self._buffer = data
            return b""
        self._started, self._buffer = True, b""  # the mark may have been all there was
        return data.removeprefix(MARK)


MARK = b"\xef\xbb\xbf"


def read_block(block: bytes) -> SseFrame | None:
    """One event's lines; None where they hold no data. The two usual forms are read without looking at each line."""
    if block[:6] == b"data: " and LF not in block:
        return SseFrame("", block[6:]) if len(block) > 6 else None
    head, found, data = block.partition(b"\ndata: ")
    if found and head[:7] == b"event: " and data and LF not in data and LF not in head:
        return SseFrame(_event_name(head[7:]), data)
    return _read_lines(block)


def _read_lines(block: bytes) -> SseFrame | None:
    event, bare = "", False
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line[:5] == b"data:":
            value = line[6:] if line[5:6] == b" " else line[5:]
            if value or data:
                data.append(value)
        elif line[:6] == b"event:":
            event = _event_name(line[6:])
        elif line and (bare or line[:1] == b"{" or line[:6] == b"error:"):
            # gpustack writes a line `error: {...}`, Google a bare JSON object: not SSE, but meant to be read.
            event, bare = event or "error", True
            data.append(line.removeprefix(b"error:"))
    return SseFrame(event, b"\n".join(data)) if data else None


_names: dict[bytes, str] = {}  # a stream repeats a handful of names thousands of times


def _event_name(raw: bytes) -> str:
    name = _names.get(raw)
    if name is None:
        name = raw.strip().decode("utf-8", "replace")
        if len(_names) < 256:
            _names[raw] = name
    return name
