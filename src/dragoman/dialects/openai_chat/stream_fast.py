"""OpenAI Chat Completions: the state of one choice while it is written.

Chunks have no part indexes. If another part interrupted a text or thought, the client would see two of them. So one
part is open at a time, and the others wait for its end. Calls have indexes, so several can be open together.
"""

from collections.abc import Iterator
from typing import TypeAlias

from dragoman.framing.templates import write_frames
from dragoman.model.events import PartDelta, PartEnd, PartStart
from dragoman.model.messages import Part, Reasoning, ToolCall
from dragoman.notes import At

TEXT_END = b'},"logprobs":null,"finish_reason":null}]}\n\n'
PartEvent: TypeAlias = PartStart | PartDelta | PartEnd


class Growing:
    """A part that is being written."""

    __slots__ = (
        *("at", "call", "citations", "cited", "head", "joined", "kind", "length", "part", "pieces", "position"),
        "tail",
    )

    def __init__(self, part: Part, position: int, at: At) -> None:
        self.part = part
        self.kind: type[Part] = type(part)
        self.position = position  # among the written parts of its choice
        self.at = at
        self.call = -1  # index of a call
        self.pieces: list[str] = []  # text of a thought, for the side field
        self.joined = False  # a thought behind another one, which the client reads as one
        self.length = 0  # of what was written, in code points
        self.citations = 0  # citations of a text
        self.cited = 0  # citations that were written
        self.head = b""  # the bytes of a frame before the text, if there is nothing else in it
        self.tail = TEXT_END  # and those behind it

    def grow(self, text: str) -> None:
        self.length += len(text)
        if self.kind is Reasoning:
            self.pieces.append(text)

    def write(self, text: str, pieces: list[bytes]) -> bytes:
        self.grow(text)
        return write_frames(self.head, pieces, self.tail)


class ChoiceState:
    """One choice: its open parts, its waiting parts, and counts of the written ones."""

    __slots__ = (
        "calls",
        "entries",
        "kept",
        "last",
        "legacy",
        "open",
        "refused",
        "sealed",
        "spoken",
        "texts",
        "waiting",
    )

    def __init__(self) -> None:
        self.kept = 0  # parts that were written
        self.calls = 0
        self.entries = 0  # in the side field
        self.open: dict[int, Growing | None] = {}  # None: a part that Chat cannot express
        self.waiting: dict[int, list[PartEvent]] = {}
        self.texts = 0  # code points of text before the open one
        self.sealed = False
        self.refused = False
        self.spoken = False  # a sound was written: a message has only one
        self.legacy = False  # a function_call was written
        self.last: type[Part] | None = None  # Text or Refusal if that was written last, else None

    def order(self, event: PartEvent) -> Iterator[PartEvent]:
        """The events that can be written now. The caller updates `open` after each one."""
        if event.index in self.waiting:
            self.waiting[event.index].append(event)
            return
        if isinstance(event, PartStart) and self.open and (self.waiting or not self._fits(event.part)):
            self.waiting[event.index] = [event]
            return
        yield event
        while not self.open and self.waiting:
            yield from self.waiting.pop(next(iter(self.waiting)))

    def forget_waiting(self) -> list[PartEvent]:
        """The events that wait. They come at once from here on."""
        waiting, self.waiting = self.waiting, {}
        return [event for events in waiting.values() for event in events]

    def _fits(self, part: Part) -> bool:
        return isinstance(part, ToolCall) and all(
            growing is not None and growing.kind is ToolCall for growing in self.open.values()
        )
