"""Gemini generateContent: pairs results with calls. Most of them come without ids (CLIENTS 15).

An id that we make depends only on the turns before it, so the same history gets the same ids on the next turn. In a
request we count the calls of the whole history. In a reply the ids contain the reply's id, because a client of another
dialect sends them back together with the calls of earlier replies.
"""

from typing import NamedTuple, Protocol
from zlib import crc32


class Calls(Protocol):
    """Gives ids to the calls and results of a decoder, in their order."""

    def call(self, given: str | None, name: str, arguments: str) -> str: ...
    def result(self, given: str | None, name: str | None) -> str: ...


class _OpenCall(NamedTuple):
    id: str
    name: str
    turn: int


class CallHistory:
    """The calls of a request, in the order in which they are read."""

    def __init__(self) -> None:
        self._waiting: list[_OpenCall] = []
        self._last: dict[str, str] = {}  # name -> id of its latest call
        self._count = 0
        self._orphans = 0
        self._turn = 0
        self._model_spoke = False

    def begin(self, *, model: bool) -> None:
        """Begin a new content. Several contents of the model in a row are one turn."""
        if model and not self._model_spoke:
            self._turn += 1
        self._model_spoke = model

    def call(self, given: str | None, name: str, arguments: str) -> str:
        call_id = given or f"call_gemini_{self._count}"
        self._count += 1
        self._waiting.append(_OpenCall(call_id, name, self._turn))
        self._last[name] = call_id
        return call_id

    def result(self, given: str | None, name: str | None) -> str:
        """The id of the call that a result answers: its own, else by name, else by position (a name may be a UUID)."""
        if given:
            self._claim([call for call in self._waiting if call.id == given])
            return given
        named = [call for call in self._waiting if call.name == name]
        if not named and name in self._last:
            return self._last[name]  # a resumed conversation repeats a result
        found = self._claim(named or self._waiting)
        if found is not None:
            return found
        self._orphans += 1
        return f"call_gemini_orphan_{self._orphans - 1}"

    def _claim(self, calls: list[_OpenCall]) -> str | None:
        """Take the first call of the latest turn. Open calls of earlier turns were given up."""
        found = next((call for call in calls if call.turn == calls[-1].turn), None)
        if found is None:
            return None
        self._waiting.remove(found)
        return found.id


class Fresh:
    """The calls of one reply."""

    def __init__(self, reply_id: str) -> None:
        self._reply_id = reply_id
        self._count = 0

    def call(self, given: str | None, name: str, arguments: str) -> str:
        number = self._count
        self._count += 1
        if given:
            return given
        mark = self._make_mark() or format(crc32(f"{name} {arguments}".encode()), "08x")
        return f"call_{mark}_{number}"

    def _make_mark(self) -> str:
        legal = [char if char.isascii() and (char.isalnum() or char in "_-") else "-" for char in self._reply_id[:40]]
        return "".join(legal)

    def result(self, given: str | None, name: str | None) -> str:
        return given or "call_gemini_orphan_0"
