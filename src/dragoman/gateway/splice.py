"""Splice: deltas that come without anything else, from the provider's frames straight into the client's.

While a text grows, the provider's frames differ in their text only, and so do the client's. If nothing on the way looks
at texts, the bytes of the text are put from one frame into the other. A piece that is anything else goes the long way,
which also ends the splice: it is made anew when only text comes again.
"""

from typing import Protocol

from dragoman.dialects._base import OpenText
from dragoman.framing.templates import BACKSLASH, QUOTE, DeltaTemplate
from dragoman.gateway.http import DirectWriter
from dragoman.gateway.scope import Scope

NO_HEAD = b"\x00"  # no frame starts with it


class Writer(Protocol):
    """What a splice needs of its StreamWriter."""

    written: float

    def now(self) -> float: ...

    def note_said(self, index: int, text: str) -> None:
        """Of bytes that were passed on unchanged."""


class Splice:
    __slots__ = (
        *("_between", "_direct", "_end", "_head", "_index", "_open", "_scope", "_start", "_stop"),
        *("_tail", "_template", "_to", "_writer"),
    )

    def __init__(
        self,
        writer: Writer,
        scope: Scope,
        direct: DirectWriter,
        index: int,
        template: DeltaTemplate,
        there: OpenText | None,
    ) -> None:
        """`index`: of the part. `template`: of the provider's frames. `there`: None if the client gets these."""
        self._writer, self._scope, self._direct, self._index = writer, scope, direct, index
        self._template, self._open = template, there
        self._head, self._end = template.head if not template.varying else NO_HEAD, template.end
        self._start, self._stop = len(self._head), -len(self._end)
        self._to, self._tail = (there.head + b'"', b'"' + there.tail) if there is not None else (b"", b"")
        self._between = self._tail + self._to

    def take(self, raw: bytes) -> bool:
        """Writes a piece of whole frames with plain texts. False: it is not that, or it cannot be written now."""
        count, text, inside = 1, "", b""
        if raw.startswith(self._head) and raw.endswith(self._end):
            inside = raw[self._start : self._stop]
            if QUOTE not in inside and BACKSLASH not in inside and inside.isascii():  # mostly one frame
                text = inside.decode()
        if not text or not text.isprintable():
            text, pieces, rest = self._template.read_run(raw)
            if not pieces or rest:
                return False
            inside, count = self._between.join(pieces), len(pieces)
        scope, direct = self._scope, self._direct
        if scope.ending is not None or not direct.is_ready():
            return False
        if self._open is None:
            out = raw
            self._writer.note_said(self._index, text)
        else:
            out = b"%b%b%b" % (self._to, inside, self._tail)
            self._open.length += len(text)
        scope.events += count
        scope.streamed += len(out)
        self._writer.written = self._writer.now()
        direct.put(out)
        return True
