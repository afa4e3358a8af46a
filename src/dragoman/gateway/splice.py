"""Splice: a delta that comes alone, from the provider's frame straight into the client's frame.

While a text grows, the provider's frames differ in their text only, and so do the client's. If nothing on the way looks
at texts, the bytes of the text are put from one frame into the other. A piece that is anything else goes the long way,
which also ends the splice: it is made anew when only text comes again.
"""

from typing import Protocol

from dragoman.dialects._base import OpenText
from dragoman.framing.templates import BACKSLASH, QUOTE
from dragoman.gateway.http import DirectWriter
from dragoman.gateway.scope import Scope


class Writer(Protocol):
    """What a splice needs of its StreamWriter."""

    written: float

    def now(self) -> float: ...

    def note_said(self, index: int, text: str) -> None:
        """Of bytes that were passed on unchanged."""


class Splice:
    __slots__ = ("_direct", "_end", "_head", "_index", "_open", "_scope", "_start", "_stop", "_tail", "_to", "_writer")

    def __init__(
        self,
        writer: Writer,
        scope: Scope,
        direct: DirectWriter,
        index: int,
        here: tuple[bytes, bytes],
        there: OpenText | None,
    ) -> None:
        """`index`: of the part. `here`: the bytes of the provider's frames before and behind the text. `there`: None if
        the client gets the provider's frames."""
        self._writer, self._scope, self._direct, self._open = writer, scope, direct, there
        self._head, self._end = here
        self._start, self._stop = len(self._head), -len(self._end)
        self._index = index
        self._to, self._tail = (there.head + b'"', b'"' + there.tail) if there is not None else (b"", b"")

    def take(self, raw: bytes) -> bool:
        """Writes a piece that is one frame with a plain text. False: it is not, or it cannot be written now."""
        if not raw.startswith(self._head) or not raw.endswith(self._end):
            return False
        piece = raw[self._start : self._stop]
        if QUOTE in piece or BACKSLASH in piece:
            return False
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            return False
        scope, direct = self._scope, self._direct
        if not text or not text.isprintable() or scope.ending is not None or not direct.is_ready():
            return False
        if self._open is None:
            out = raw
            self._writer.note_said(self._index, text)
        else:
            out = b"%b%b%b" % (self._to, piece, self._tail)
            self._open.length += len(text)
        scope.events += 1
        scope.streamed += len(out)
        self._writer.written = self._writer.now()
        direct.put(out)
        return True
