"""OpenAI Chat Completions: one choice while it is written.

Chunks have no part indexes: a text or thought that another part interrupts would come back in two. So one part is open
at a time, and others wait for its end; only calls, which have indexes, grow side by side.
"""

from collections.abc import Iterator
from typing import TypeAlias

from dragoman.model.events import PartDelta, PartEnd, PartStart
from dragoman.model.messages import Part, ToolCall
from dragoman.notes import At

PartEvent: TypeAlias = PartStart | PartDelta | PartEnd


class Growing:
    """A part that is being written."""

    __slots__ = ("at", "call", "citations", "cited", "head", "kind", "length", "part", "pieces", "position", "side")

    def __init__(self, part: Part, position: int, at: At) -> None:
        self.part = part
        self.kind: type[Part] = type(part)
        self.position = position  # among the parts of its choice that were said
        self.at = at
        self.call = -1  # index of a call
        self.pieces: list[str] = []  # of a thought, for the side field
        self.side: int | None = None  # index of a thought's entry there
        self.length = 0  # of a text, in code points
        self.citations = 0  # of a text, and how many could be said
        self.cited = 0
        self.head = b""  # of a text or refusal: all of a frame before its words


class Lane:
    """One choice: what is open, what waits, what was said."""

    __slots__ = (
        "calls",
        "entries",
        "kept",
        "last",
        "legacy",
        "open",
        "parts",
        "refused",
        "sealed",
        "spoken",
        "texts",
        "waiting",
    )

    def __init__(self) -> None:
        self.parts = 0
        self.kept = 0  # of them said
        self.calls = 0
        self.entries = 0  # in the side field
        self.open: dict[int, Growing | None] = {}  # None: a part that cannot be said
        self.waiting: dict[int, list[PartEvent]] = {}
        self.texts = 0  # code points of text before the open one
        self.sealed = False
        self.refused = False
        self.spoken = False  # there is one sound in a message
        self.legacy = False  # a function_call was said
        self.last: type[Part] | None = None  # the kind of prose said last, with nothing after it

    def order(self, event: PartEvent) -> Iterator[PartEvent]:
        """What can be written now; the writer keeps `open` up to date between the events."""
        if event.index in self.waiting:
            self.waiting[event.index].append(event)
            return
        if isinstance(event, PartStart) and self.open and (self.waiting or not self._fits(event.part)):
            self.waiting[event.index] = [event]
            return
        yield event
        while not self.open and self.waiting:
            yield from self.waiting.pop(next(iter(self.waiting)))

    def _fits(self, part: Part) -> bool:
        return isinstance(part, ToolCall) and all(
            growing is not None and growing.kind is ToolCall for growing in self.open.values()
        )
