"""Surrogate pairs that a server splits over two events: `"\\ud83d"` in one and `"\\ude00"` in the next.

Either half alone is no text. Servers do this whose tokens are pieces of UTF-16, and whose JSON is ASCII.
"""

import re

# Every escape, with groups for a lone first half at the end of a string and for any other lone half.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89abAB][0-9a-fA-F]{2})(?=\")|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_BEGUN = re.compile(rb"\\(?:u(?:[dD].*)?)?$", re.DOTALL)  # perhaps a half, or the first of two


class PairJoiner:
    """Joins pairs in the bytes of a stream, in whatever pieces they come. Lines without halves pass unchanged."""

    __slots__ = ("_first", "_held")

    def __init__(self) -> None:
        self._first = b""  # a first half that waits for its second
        self._held = b""  # a line that is not complete yet

    def feed(self, piece: bytes) -> bytes:
        if not self._held and not self._first and b"\\" not in piece:  # most pieces
            return piece
        data = self._held + piece
        cut = data.rfind(b"\n") + 1
        if not _BEGUN.search(data, cut) and b"\\ud" not in data[cut:].lower():
            cut = len(data)
        self._held = data[cut:]
        return self._join(data[:cut])

    def close(self) -> bytes:
        held, self._held = self._held, b""
        return self._join(held)

    def _join(self, data: bytes) -> bytes:
        if b"\\ud" not in data and b"\\uD" not in data:
            return data
        return _ESCAPE.sub(self._mend, data)

    def _mend(self, found: re.Match[bytes]) -> bytes:
        if found[1]:
            self._first = found[0]
            return b""
        if not found[2]:
            return found[0]
        first, self._first = self._first, b""
        return first + found[0] if first and found[0][3:4].lower() in b"cdef" else b"\\ufffd"
