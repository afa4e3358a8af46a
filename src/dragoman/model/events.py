"""Event and its kinds: a Reply as a stream. Sequencer: puts interleaved parts one after another.

    ReplyStart (PartStart PartDelta* PartEnd)* (ReplyEnd | ReplyFailed)      Aside anywhere

Parts may interleave. An `index` is unique in the whole stream, also across choices. `PartStart` carries the part as far
as it is known, `PartDelta` appends to it, `PartEnd` completes it. A delta appends to the text of Text, Refusal and
Reasoning and to the arguments of ToolCall. Every other part is complete in its PartStart.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from dragoman.failure import Failure
from dragoman.jsontypes import load_json
from dragoman.model.messages import Citation, Extras, Part, Seal, TokenLogprob
from dragoman.model.reply import Finish, Usage


class ReplyStart(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_start"):
    id: str
    model: str
    created: float | None = None
    usage: Usage | None = None  # as far as it is known; ReplyEnd has the whole usage
    service_tier: str | None = None
    extras: Extras = {}


class PartStart(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="part_start"):
    index: int
    part: Part
    choice: int = 0


class PartDelta(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="part_delta"):
    index: int
    text: str = ""
    citations: tuple[Citation, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None


class TextRun(PartDelta, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Deltas of one part that came together, as one delta. Only a reader that was asked to join gives it, for encoders
    that write each piece by itself (`Dialect.writes_runs`)."""

    pieces: list[bytes]  # each is the inside of a JSON string, spelled as `dump_json` spells it

    def spread(self) -> list[PartDelta]:
        """The deltas as they came."""
        return [PartDelta(index=self.index, text=load_json(b'"%b"' % piece)) for piece in self.pieces]


class PartEnd(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="part_end"):
    index: int
    seal: Seal | None = None
    extras: Extras = {}  # merged into the extras of the part, key by key


class ReplyEnd(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_end"):
    finishes: tuple[Finish | None, ...] = ()  # one per choice
    usage: Usage | None = None
    service_tier: str | None = None
    choice_extras: tuple[Extras, ...] = ()  # one per choice, or empty
    extras: Extras = {}  # merged into the extras of the ReplyStart, key by key


class ReplyFailed(
    Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_failed"
):
    failure: Failure


class Aside(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="aside"):
    """A whole frame that only one dialect has, such as a ping or a progress report."""

    dialect: str
    body: dict[str, Any]


Event: TypeAlias = ReplyStart | PartStart | PartDelta | PartEnd | ReplyEnd | ReplyFailed | Aside


class PartPlaces:
    """Tells where each part stands in its choice, for notes. Parts may begin in any order: their indices count."""

    __slots__ = ("_choices", "_places")

    def __init__(self) -> None:
        self._choices: dict[int, int] = {}  # part index -> choice
        self._places: dict[int, int] = {}

    def __getitem__(self, index: int) -> int:
        return self._places[index]

    def add(self, event: PartStart) -> int:
        self._choices[event.index] = event.choice
        others = (i for i, choice in self._choices.items() if i < event.index and choice != event.choice)
        place = self._places[event.index] = event.index - sum(1 for _ in others)
        return place


class Sequencer:
    """Puts interleaved parts one after another, for dialects whose streams cannot interleave them.

    Events of the open part pass at once. Events of the other parts wait until it has ended.
    """

    __slots__ = ("_open_index", "_waiting")

    def __init__(self) -> None:
        self._open_index: int | None = None
        self._waiting: dict[int, list[Event]] = {}  # by part index, in the order of their PartStart

    def feed(self, event: Event) -> tuple[Event, ...] | list[Event]:
        if type(event) is PartDelta and event.index == self._open_index:  # fast path: delta of the open part
            return (event,)
        if not isinstance(event, PartDelta | PartStart | PartEnd):
            return (event,)
        if self._open_index is None or event.index == self._open_index:
            if isinstance(event, PartEnd):
                self._open_index = None
                return [event, *self._release()] if self._waiting else (event,)
            self._open_index = event.index
            return (event,)
        self._waiting.setdefault(event.index, []).append(event)
        return ()

    def forget_ended(self) -> list[Event]:
        """The events of waiting parts that have ended. They are not released later."""
        ended = [index for index, events in self._waiting.items() if isinstance(events[-1], PartEnd)]
        return [event for index in ended for event in self._waiting.pop(index)]

    def _release(self) -> list[Event]:
        """The events of the waiting parts, up to and including the first part that is still open."""
        ready: list[Event] = []
        while self._open_index is None and self._waiting:
            index = next(iter(self._waiting))
            events = self._waiting.pop(index)
            if not isinstance(events[-1], PartEnd):
                self._open_index = index
            ready.extend(events)
        return ready
