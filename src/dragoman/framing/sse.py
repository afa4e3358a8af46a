"""Server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html (read 2026-11-15).

Lines are cut on bytes, so a character cut in two by the network is never decoded in halves.
"""

from typing import NamedTuple

from dragoman.errors import DecodeError

MAX_FRAME_BYTES = 4 * 1024 * 1024


class SseFrame(NamedTuple):
    event: str  # "" where the stream names none
    data: bytes


class SseDecoder:
    """Feed it bytes as they come; it gives back the frames they complete. Comments and empty events are skipped."""

    __slots__ = ("_bare", "_buffer", "_data", "_event", "_max", "_size", "_started", "_tail_cr")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = b""
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._max = max_frame_bytes
        self._tail_cr = False  # the last line ended in CR at the end of a piece: a LF may follow
        self._started = False
        self._bare = False  # inside a JSON text without `data:`

    def feed(self, piece: bytes) -> list[SseFrame]:
        if not piece:
            return []
        if self._tail_cr:
            self._tail_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        data = self._buffer + piece if self._buffer else piece
        if not self._started and data:
            if len(data) < 3 and b"\xef\xbb\xbf".startswith(data):
                self._buffer = data
                return []
            self._started = True
            if data.startswith(b"\xef\xbb\xbf"):
                data = data[3:]
        if b"\r" in data:
            self._tail_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        self._buffer = lines.pop()
        frames: list[SseFrame] = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                frames.append(self._finish())
            else:
                self._event = ""
        if len(self._buffer) + self._size > self._max:
            raise DecodeError(f"a stream event is larger than {self._max} bytes")
        return frames

    def close(self) -> list[SseFrame]:
        """A stream may end without its last blank line; the frame counts all the same."""
        if self._buffer:
            line, self._buffer = self._buffer, b""
            self._take(line)
        return [self._finish()] if self._data else []

    def _take(self, line: bytes) -> None:
        # Nearly every line is data, so that test comes first.
        if line[:5] == b"data:":
            value = line[6:] if line[5:6] == b" " else line[5:]
            if value or self._data:
                self._data.append(value)
                self._size += len(value)
                if self._size > self._max:
                    raise DecodeError(f"a stream event is larger than {self._max} bytes")
        elif line[:6] == b"event:":
            self._event = line[6:].strip().decode("utf-8", "replace")
        elif self._bare or line[:1] == b"{" or line[:6] == b"error:":
            # gpustack writes a line `error: {...}`, Google a bare JSON object: not SSE, but meant to be read.
            self._event = self._event or "error"
            self._bare = True
            self._data.append(line[6:] if line[:6] == b"error:" else line)
            self._size += len(line)

    def _finish(self) -> SseFrame:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        frame = SseFrame(self._event, data)
        self._event, self._data, self._size, self._bare = "", [], 0, False
        return frame
