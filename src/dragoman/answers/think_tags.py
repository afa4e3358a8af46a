"""Finds thoughts that a server leaves between tags in the text, only at the start of an answer.

It is used only for servers whose profile has `think_tags`: elsewhere a `<think>` is ordinary text (FIELD-CASES 73). A
tag may arrive in pieces, so text that could be its beginning is held back. `think_opened` is for servers whose prompt
ends with the opening tag.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Reasoning, Text
from dragoman.model.reply import Reply


def find_thoughts(reply: Reply, tags: tuple[str, ...], *, opened: bool = False) -> Reply:
    """A whole reply with its thoughts as parts of their own. Its stream gives the same."""
    finder = ThoughtFinder(tags, opened=opened)
    found = fold([out for event in unfold(reply) for out in finder.feed(event)])
    return found if isinstance(found, Reply) else reply


class ThoughtFinder:
    """Takes the events of an answer, and gives events in which thoughts are parts of their own."""

    def __init__(self, tags: tuple[str, ...], *, opened: bool = False) -> None:
        self._pairs = [(f"<{tag}>", f"</{tag}>") for tag in tags]
        self._opened = opened
        self._places: dict[int, int] = {}  # of parts: theirs -> ours
        self._next = 0
        self._begun: set[int] = set()  # choices whose answer has begun
        self._reading: dict[int, _Reading] = {}

    def feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartStart():
                yield from self._start(event)
            case PartDelta():
                reading = self._reading.get(event.index)
                if reading is None:
                    yield replace(event, index=self._places[event.index])
                else:
                    yield from self._grow(reading, event.text)
            case PartEnd():
                reading = self._reading.pop(event.index, None)
                if reading is not None:
                    yield from self._end(reading, event)
                else:
                    yield replace(event, index=self._places[event.index])
            case _:
                yield event

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _start(self, event: PartStart) -> Iterator[Event]:
        first = event.choice not in self._begun
        self._begun.add(event.choice)
        if first and isinstance(event.part, Text):
            self._reading[event.index] = reading = _Reading(event)
            if self._opened:
                reading.close = self._pairs[0][1]
                yield from self._open(reading, Reasoning(text=""))
            yield from self._grow(reading, event.part.text)
            return
        self._places[event.index] = self._number()
        yield replace(event, index=self._places[event.index])

    def _open(self, reading: "_Reading", part: Reasoning | Text) -> Iterator[Event]:
        reading.place = self._number()
        yield PartStart(index=reading.place, part=part, choice=reading.start.choice)

    def _grow(self, reading: "_Reading", text: str) -> Iterator[Event]:
        reading.held += text
        if reading.after and reading.place is None:
            yield from self._answer(reading)
        elif reading.place is None:
            yield from self._begin(reading)
        if reading.close is not None:
            yield from self._think(reading)
        elif reading.place is not None and reading.held:
            yield PartDelta(index=reading.place, text=reading.held)
            reading.held = ""

    def _begin(self, reading: "_Reading") -> Iterator[Event]:
        """Holds the text back until it is known whether it begins with a tag."""
        bare = reading.held.lstrip()
        for opening, closing in self._pairs:
            if bare.startswith(opening):
                reading.held, reading.close = bare[len(opening) :], closing
                yield from self._open(reading, Reasoning(text=""))
                return
        if bare and not any(opening.startswith(bare) for opening, _ in self._pairs):
            yield from self._open(reading, reading.text)

    def _think(self, reading: "_Reading") -> Iterator[Event]:
        closing = reading.close or ""
        thought, found, rest = reading.held.partition(closing)
        keep = 0 if found else _held_back(thought, closing)
        safe = thought[: len(thought) - keep]
        if safe and reading.place is not None:
            yield PartDelta(index=reading.place, text=safe)
        reading.held = rest if found else thought[len(thought) - keep :]
        if found and reading.place is not None:
            yield PartEnd(index=reading.place)
            reading.place, reading.close, reading.after = None, None, True
            yield from self._answer(reading)

    def _answer(self, reading: "_Reading") -> Iterator[Event]:
        """The text after the thought. White space between the thought and the answer is left out."""
        reading.held = reading.held.lstrip()
        if reading.held:
            yield from self._open(reading, reading.text)
            yield PartDelta(index=reading.place or 0, text=reading.held)
            reading.held = ""

    def _end(self, reading: "_Reading", event: PartEnd) -> Iterator[Event]:
        if reading.place is None and not reading.after:
            yield from self._open(reading, reading.text)
        if reading.place is None:
            return  # a thought, and nothing after it
        if reading.held:
            yield PartDelta(index=reading.place, text=reading.held)
        yield replace(event, index=reading.place)


class _Reading:
    """A text that may begin with a thought."""

    __slots__ = ("after", "close", "held", "place", "start")

    def __init__(self, start: PartStart) -> None:
        self.start = start
        self.held = ""
        self.place: int | None = None
        self.close: str | None = None  # what ends the thought we are in
        self.after = False

    @property
    def text(self) -> Text:
        part = self.start.part
        return replace(part, text="") if isinstance(part, Text) else Text(text="")


def _held_back(text: str, closing: str) -> int:
    """How many last characters may be the beginning of the closing tag."""
    for size in range(min(len(closing) - 1, len(text)), 0, -1):
        if closing.startswith(text[-size:]):
            return size
    return 0
