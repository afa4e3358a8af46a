"""Server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html (read 2026-11-15).

Lines are split as bytes, so that a character which the network cut in two is never decoded in halves.
"""

from msgspec import Struct

from dragoman.errors import DecodeError

MAX_FRAME_BYTES = 4 * 1024 * 1024
CR, LF = 13, 10  # as numbers: a search for 10 is ten times faster than a search for b"\n"


class SseFrame(Struct, frozen=True, gc=False):
    event: str  # "" where the stream does not name it
    data: bytes


class SseDecoder:
    """Takes bytes as they come and gives the frames that they complete. It skips comments and empty events."""

    __slots__ = ("_buffer", "_ended_in_cr", "_max_frame_bytes", "_started")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer: bytes | bytearray = b""  # of the frame that has begun; it grows in place
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
        if CR in piece:
            self._ended_in_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._buffer and self._started and not self._may_complete(piece):
            self._grow(piece)
            return []
        data = bytes(self._buffer) + piece if self._buffer else piece
        if not self._started and not (data := self._skip_byte_order_mark(data)):
            return []
        blocks = data.split(b"\n\n")
        if len(data) > self._max_frame_bytes and max(map(len, blocks)) > self._max_frame_bytes:
            raise self._too_large()
        self._buffer = blocks.pop()
        return blocks

    def _may_complete(self, piece: bytes) -> bool:
        """Whether a piece may complete the frame that has begun. Only then is the frame looked at again: a large one in
        many small pieces would be read thousands of times."""
        return b"\n\n" in piece or (piece[:1] == b"\n" and self._buffer[-1:] == b"\n")

    def _grow(self, piece: bytes) -> None:
        if type(self._buffer) is bytes:
            self._buffer = bytearray(self._buffer)
        self._buffer += piece
        if len(self._buffer) > self._max_frame_bytes:
            raise self._too_large()

    def _too_large(self) -> DecodeError:
        return DecodeError(f"a stream event is larger than {self._max_frame_bytes} bytes")

    def is_between(self) -> bool:
        """Whether the next bytes begin a frame."""
        return not self._buffer and not self._ended_in_cr

    def gather(self, piece: bytes) -> bytes | None:
        """The bytes of the frame that has begun, and these behind them, with plain line ends. The caller takes whole
        frames from their start and gives the rest to `split`. None if the frame is not whole yet, or if it is not clear
        how the last line ended: then all goes to `split`."""
        if self._ended_in_cr:
            return None
        plain = piece.replace(b"\r\n", b"\n") if CR in piece else piece
        if not self._buffer:
            return plain
        if not self._may_complete(plain):
            return None
        plain, self._buffer = bytes(self._buffer) + plain, b""
        return plain

    def close(self) -> list[SseFrame]:
        """The last frame, if the stream ended without the blank line behind it."""
        block, self._buffer = bytes(self._buffer), b""
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


def find_cut(data: bytes, most: int, longest: int) -> int:
    """Where to cut: behind the last frame that ends within `most` bytes, so that frames stay whole if possible. Else
    behind the first frame, if it ends within `longest` bytes, or behind a line."""
    frame, windows = data.rfind(b"\n\n", 0, most), data.rfind(b"\n\r\n", 0, most) if CR in data else -1
    if frame >= 0 or windows >= 0:
        return max(frame + 2, windows + 3)
    end = data.find(b"\n\n", max(most - 1, 0), longest)
    if end >= 0:
        return end + 2
    return data.rfind(b"\n", 0, most) + 1 or most
