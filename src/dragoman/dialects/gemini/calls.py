"""Gemini generateContent: who answers whom. Most calls and results come without ids (CLIENTS 15).

A made-up id is a function of what came before it, so the same history has the same ids on the next turn. Calls of a
request are counted over the whole history; calls of a reply bear its id, because a client of another dialect sends them
back among those of earlier replies.
"""

from typing import NamedTuple, Protocol
from zlib import crc32


class Calls(Protocol):
    """Ids for the calls and results a decoder meets, in their order."""

    def call(self, given: str | None, name: str, arguments: str) -> str: ...
    def result(self, given: str | None, name: str | None) -> str: ...


class _OpenCall(NamedTuple):
    id: str
    name: str
    turn: int


class History:
    """The calls of a request as they are read, first to last."""

    def __init__(self) -> None:
        self._waiting: list[_OpenCall] = []
        self._last: dict[str, str] = {}  # name -> id of its latest call
        self._count = 0
        self._orphans = 0
        self._turn = 0
        self._model_spoke = False

    def begin(self, *, model: bool) -> None:
        """A new content; several of the model's in a row are one turn."""
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
        """The id of the call a result answers: its own, else by name, else (a name may be a UUID) by position."""
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
        """The first of the latest turn: what an earlier one left open was given up."""
        found = next((call for call in calls if call.turn == calls[-1].turn), None)
        if found is None:
            return None
        self._waiting.remove(found)
        return found.id


class Fresh:
    """The calls of one reply."""

    def __init__(self, reply_id: str) -> None:
        kept = (char if char.isascii() and (char.isalnum() or char in "_-") else "-" for char in reply_id[:40])
        self._mark = "".join(kept)
        self._count = 0

    def call(self, given: str | None, name: str, arguments: str) -> str:
        number = self._count
        self._count += 1
        if given:
            return given
        mark = self._mark or format(crc32(f"{name} {arguments}".encode()), "08x")
        return f"call_{mark}_{number}"

    def result(self, given: str | None, name: str | None) -> str:
        return given or "call_gemini_orphan_0"
