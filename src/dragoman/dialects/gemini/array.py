"""Reads a stream that is one JSON array, element by element. Gemini sends it without `alt=sse` (CLIENTS 17).

[{...},\\r\\n{...}]
"""

import re

from dragoman.errors import DecodeError
from dragoman.framing.sse import SseFrame

_OUTSIDE = re.compile(rb'[{}"]')
_INSIDE = re.compile(rb'["\\]')


class ArrayDecoder:
    """Takes bytes as they come, and returns the objects of the array that are complete."""

    __slots__ = ("_buffer", "_depth", "_inside", "_max", "_place", "_start")

    def __init__(self, max_frame_bytes: int) -> None:
        self._buffer = bytearray()  # it grows in place: a large object may come in thousands of pieces
        self._place = 0  # the buffer has been searched up to here
        self._start = -1  # of the current object
        self._depth = 0
        self._inside = False  # whether we are inside a string
        self._max = max_frame_bytes

    def feed(self, piece: bytes) -> list[SseFrame]:
        data = self._buffer
        data += piece
        frames: list[SseFrame] = []
        place = self._place
        while True:
            found = (_INSIDE if self._inside else _OUTSIDE).search(data, place)
            if found is None:
                place = max(place, len(data))
                break
            place = found.end()
            match found[0]:
                case b'"':
                    self._inside = not self._inside
                case b"\\":
                    place += 1  # skip the escaped character, which may come with the next bytes
                case b"{":
                    self._start = place - 1 if self._depth == 0 else self._start
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        frames.append(SseFrame("", bytes(data[self._start : place])))
                        self._start = -1
        kept = self._start if self._start >= 0 else min(place, len(data))
        del data[:kept]
        self._place = place - kept
        self._start = 0 if self._start >= 0 else -1
        if len(data) > self._max:
            raise DecodeError(f"a stream event is larger than {self._max} bytes")
        return frames

    def close(self) -> list[SseFrame]:
        """An incomplete element is not returned."""
        return []
