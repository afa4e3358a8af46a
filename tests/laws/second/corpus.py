"""Recorded traffic through the public conversion, for the second reader."""

from collections.abc import Iterator
from typing import Any

import dragoman
from dragoman.dialects import NAMES
from dragoman.errors import DragomanError
from dragoman.notes import Note, Notes
from tests.laws.second.law import lost_facts
from tests.laws.second.streams import assemble
from tests.recorded import Case, cases

DIALECTS = tuple(name for name in NAMES if name != "canonical")
TALK = ("messages", "chat", "responses", "generate")


def problems_of(source: str, to: str, what: str, every: int = 1) -> Iterator[tuple[str, list[str]]]:
    """Recorded cases with what they lose on the way. One of `every` is tried."""
    for case in [case for case in cases(source) if case.meta["endpoint"] in TALK][::every]:
        tried = TRIES[what](case, source, to)
        if tried is not None:
            body, made, notes = tried
            found = lost_facts(source, to, "request" if what == "request" else "reply", body, made, notes)
            if found:
                yield case.name, found


def _request(case: Case, source: str, to: str) -> tuple[Any, Any, tuple[Note, ...]] | None:
    wire = case.request()
    if wire is None or case.failed:
        return None  # what its own provider refused need not be understood
    try:
        made = dragoman.convert(wire.body, source=source, to=to, path=wire.path, headers=wire.headers)
    except DragomanError:
        return None
    return wire.body, made.body, made.notes


def _reply(case: Case, source: str, to: str) -> tuple[Any, Any, tuple[Note, ...]] | None:
    wire = case.reply()
    if wire is None or case.failed or type(wire.body) is not dict or wire.body.get("error"):
        return None
    try:
        made = dragoman.convert_reply(wire.body, source=source, to=to)
    except DragomanError:
        return None
    return wire.body, made.body, made.notes


def _stream(case: Case, source: str, to: str) -> tuple[Any, Any, tuple[Note, ...]] | None:
    data = case.stream()
    if data is None or case.failed:
        return None
    notes = Notes()
    made = b"".join(dragoman.convert_stream([data], source=source, to=to, notes=notes))
    first, second = assemble(source, data), assemble(to, made)
    return None if first is None or second is None else (first, second, tuple(notes))


TRIES = {"request": _request, "reply": _reply, "stream": _stream}
