"""Splice: deltas that come without anything else, from the provider's frames straight into the client's.

While a text grows, the provider's frames differ in their text only, and so do the client's. If nothing on the way looks
at texts, the bytes of the text are put from one frame into the other. A piece that is anything else goes the long way,
which also ends the splice: it is made anew when only text comes again.
"""

from collections.abc import Callable
from typing import Protocol

from dragoman.dialects._base import WritePieces
from dragoman.framing.templates import LearntDelta
from dragoman.gateway.http import DirectWriter
from dragoman.gateway.scope import Scope

CR = 13


class Writer(Protocol):
    """What a splice needs of its StreamWriter."""

    written: float
    passed: bytes

    def now(self) -> float: ...


class Splice:
    __slots__ = ("_alone", "_check", "_direct", "_keeps", "_scope", "_template", "_write", "_writer")

    def __init__(
        self,
        writer: Writer,
        scope: Scope,
        direct: DirectWriter,
        learnt: LearntDelta,
        write: WritePieces | None,
        *keeps: Callable[[str], object],
    ) -> None:
        """`write`: None if the client gets the provider's frames. `keeps`: get each text that is passed on."""
        self._writer, self._scope, self._direct = writer, scope, direct
        self._template, self._check, self._write = learnt.template, learnt.check, write
        self._keeps = keeps if learnt.keep is None else (learnt.keep, *keeps)
        self._alone = True  # the last frame came alone

    def take(self, raw: bytes) -> bool:
        """Writes a piece of whole frames with plain texts. False: it is not that, or it cannot be written now."""
        scope, direct = self._scope, self._direct
        if scope.ending is not None or not direct.is_ready():
            return False
        frames = raw if CR not in raw else raw.replace(b"\r\n", b"\n")
        text = self._template.read_one(frames) if self._alone else ""
        if text:
            pieces = [text.encode()]
        else:
            text, pieces, rest = self._template.read_run(frames)
            if not pieces or rest:
                return False
            self._alone = len(pieces) == 1
        if self._check is not None and not self._check(text):
            return False
        for keep in self._keeps:
            keep(text)
        if self._write is None:
            out = self._writer.passed = raw
        else:
            out = self._write(text, pieces)
        scope.events += len(pieces)
        scope.streamed += len(out)
        if out:
            self._writer.written = self._writer.now()
            direct.put(out)
        return True
