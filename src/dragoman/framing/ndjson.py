"""One JSON value per line."""

from dragoman.errors import DecodeError

MAX_LINE_BYTES = 4 * 1024 * 1024
LF = 10  # as a number: a search for it is ten times faster than a search for b"\n"


class NdjsonDecoder:
    """Takes bytes as they come and gives whole lines, without blank ones. The last line may lack its newline."""

    __slots__ = ("_buffer", "_max_line_bytes")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._buffer: bytes | bytearray = b""  # of the line that has begun; it grows in place
        self._max_line_bytes = max_line_bytes

    def feed(self, piece: bytes) -> list[bytes]:
        if self._buffer and LF not in piece:
            self._buffer = self._buffer if type(self._buffer) is bytearray else bytearray(self._buffer)
            self._buffer += piece
            lines = []
        else:
            lines = (bytes(self._buffer) + piece if self._buffer else piece).split(b"\n")
            self._buffer = lines.pop()
        if len(self._buffer) > self._max_line_bytes:
            raise DecodeError(f"a stream line is larger than {self._max_line_bytes} bytes")
        return [stripped for line in lines if (stripped := line.strip())]

    def is_between(self) -> bool:
        """Whether the next bytes begin a line."""
        return not self._buffer

    def gather(self, piece: bytes) -> bytes | None:
        """The bytes of the line that has begun, and these behind them. The caller takes whole lines from their start
        and gives the rest to `feed`. None if the line is not whole yet: then all goes to `feed`."""
        if self._buffer:
            if LF not in piece:
                return None
            piece, self._buffer = bytes(self._buffer) + piece, b""
        return piece

    def close(self) -> list[bytes]:
        line, self._buffer = bytes(self._buffer).strip(), b""
        return [line] if line else []
