"""Events into a Reply, and back. A streamed and an unstreamed answer give the same Reply."""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from msgspec.structs import replace

from dragoman.failure import Failure
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import (
    Citation,
    Extras,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Choice, Reply


class GrammarError(ValueError):
    """The events break the grammar in events.py. That is a bug of a decoder of ours, never of a provider."""


class StartedParts:
    """The parts of a streamed answer that have begun, by choice: where they stand, for the places of notes. It has the
    shape of a Reply, as far as that is known while the stream goes on."""

    partial = True

    def __init__(self) -> None:
        self.choices: list[_StartedChoice] = []
        self.extras: Extras = {}
        self.usage = None

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            if type(event) is PartStart:
                self._open_choices(event.choice + 1)
                self.choices[event.choice].add(event)
            elif type(event) is ReplyEnd:
                self._open_choices(len(event.finishes))  # also those without any part

    def _open_choices(self, count: int) -> None:
        while len(self.choices) < count:
            self.choices.append(_StartedChoice())


class _StartedChoice:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.extras: Extras = {}
        self.finish = None
        self._indices: list[int] = []

    def add(self, start: PartStart) -> None:
        """Parts stand in the order of their indices, in whatever order they begin."""
        place = bisect(self._indices, start.index)
        self._indices.insert(place, start.index)
        self.parts.insert(place, start.part)


class _PartBuilder:
    """One part while its events arrive."""

    __slots__ = ("choice", "citations", "end", "logprobs", "part", "pieces")

    def __init__(self, start: PartStart) -> None:
        self.part = start.part
        self.choice = start.choice
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.logprobs: list[TokenLogprob] | None = None
        self.end: PartEnd | None = None


class ReplyBuilder:
    """Takes the events of one answer; `reply()` gives the answer once they have ended."""

    def __init__(self) -> None:
        self._start: ReplyStart | None = None
        self._end: ReplyEnd | ReplyFailed | None = None
        self._builders: dict[int, _PartBuilder] = {}

    def feed(self, event: Event) -> None:
        if self._end is not None and not isinstance(event, Aside):
            raise GrammarError(f"{type(event).__name__} came after the end of the reply")
        match event:
            case PartDelta():
                self._append(event)
            case PartStart():
                if self._start is None or event.index in self._builders:
                    raise GrammarError(f"part {event.index} starts twice, or before the reply")
                self._builders[event.index] = _PartBuilder(event)
            case PartEnd():
                self._find_open_part(event.index).end = event
            case ReplyStart():
                if self._start is not None:
                    raise GrammarError("the reply starts twice")
                self._start = event
            case ReplyEnd() | ReplyFailed():
                if isinstance(event, ReplyEnd):
                    self._check_complete()
                self._end = event
            case Aside():
                pass
            case _:
                assert_never(event)

    def find_keep(self, index: int) -> Callable[[str], object]:
        """Takes the next texts of an open part, instead of its deltas."""
        return self._find_open_part(index).pieces.append

    def reply(self) -> Reply | Failure:
        """The answer, or the failure that ended the stream."""
        if isinstance(self._end, ReplyFailed):
            return self._end.failure
        if self._start is None or self._end is None:
            raise GrammarError("the events stop before the end of the reply")
        start, end = self._start, self._end
        count = max(len(end.finishes), 1 + max((p.choice for p in self._builders.values()), default=-1))
        parts: list[list[Part]] = [[] for _ in range(count)]
        for index in sorted(self._builders):
            builder = self._builders[index]
            parts[builder.choice].append(_build_part(builder))
        return Reply(
            id=start.id,
            model=start.model,
            created=start.created,
            choices=tuple(
                Choice(
                    parts=tuple(finished),
                    finish=end.finishes[i] if i < len(end.finishes) else None,
                    extras=end.choice_extras[i] if i < len(end.choice_extras) else {},
                )
                for i, finished in enumerate(parts)
            ),
            usage=end.usage,
            service_tier=end.service_tier or start.service_tier,
            extras=merge_extras(start.extras, end.extras),
        )

    def _append(self, delta: PartDelta) -> None:
        builder = self._find_open_part(delta.index)
        if delta.text:
            builder.pieces.append(delta.text)
        if delta.citations:
            builder.citations.extend(delta.citations)
        if delta.logprobs is not None:
            builder.logprobs = [*(builder.logprobs or ()), *delta.logprobs]

    def _find_open_part(self, index: int) -> _PartBuilder:
        builder = self._builders.get(index)
        if builder is None or builder.end is not None:
            raise GrammarError(f"part {index} is not open")
        return builder

    def _check_complete(self) -> None:
        if self._start is None:
            raise GrammarError("the reply ends without a start")
        for index, builder in self._builders.items():
            if builder.end is None:
                raise GrammarError(f"part {index} has no end")


def _build_part(builder: _PartBuilder) -> Part:
    part, end, text = builder.part, builder.end, "".join(builder.pieces)
    if isinstance(part, Text):
        part = replace(
            part,
            text=part.text + text,
            citations=part.citations + tuple(builder.citations),
            logprobs=part.logprobs if builder.logprobs is None else (part.logprobs or ()) + tuple(builder.logprobs),
        )
    elif isinstance(part, Refusal):
        logprobs = part.logprobs if builder.logprobs is None else (part.logprobs or ()) + tuple(builder.logprobs)
        part = replace(part, text=part.text + text, logprobs=logprobs)
    elif isinstance(part, Reasoning):
        part = replace(part, text=part.text + text)
    elif isinstance(part, ToolCall):
        part = replace(part, arguments=part.arguments + text)
    if end is None:
        return part
    if end.seal is not None:
        part = replace(part, seal=end.seal)
    if end.extras and not isinstance(part, Opaque):
        part = replace(part, extras=merge_extras(part.extras, end.extras))
    return part


def fold(events: Iterable[Event]) -> Reply | Failure:
    """Turns all events of one answer into the answer."""
    builder = ReplyBuilder()
    for event in events:
        builder.feed(event)
    return builder.reply()


def unfold(reply: Reply) -> Iterator[Event]:
    """Turns an answer into the events of a stream, one delta per part."""
    yield ReplyStart(
        id=reply.id,
        model=reply.model,
        created=reply.created,
        usage=reply.usage,
        service_tier=reply.service_tier,
        extras=reply.extras,
    )
    index = 0
    for number, choice in enumerate(reply.choices):
        for part in choice.parts:
            yield from unfold_part(part, index, number)
            index += 1
    yield ReplyEnd(
        finishes=tuple(choice.finish for choice in reply.choices),
        usage=reply.usage,
        service_tier=reply.service_tier,
        choice_extras=tuple(c.extras for c in reply.choices) if any(c.extras for c in reply.choices) else (),
    )


def unfold_part(part: Part, index: int, choice: int) -> Iterator[Event]:
    """One whole part as start, delta and end."""
    match part:
        case Text(text=text):
            yield PartStart(index=index, choice=choice, part=replace(part, text="", citations=(), logprobs=None))
            if text or part.citations or part.logprobs is not None:
                yield PartDelta(index=index, text=text, citations=part.citations, logprobs=part.logprobs)
        case Refusal(text=text):
            yield PartStart(index=index, choice=choice, part=replace(part, text="", logprobs=None))
            if text or part.logprobs is not None:
                yield PartDelta(index=index, text=text, logprobs=part.logprobs)
        case Reasoning(text=text):
            yield PartStart(index=index, choice=choice, part=replace(part, text=""))
            if text:
                yield PartDelta(index=index, text=text)
        case ToolCall(arguments=text):
            yield PartStart(index=index, choice=choice, part=replace(part, arguments=""))
            if text:
                yield PartDelta(index=index, text=text)
        case _:
            yield PartStart(index=index, choice=choice, part=part)
    yield PartEnd(index=index)


def merge_extras(first: Extras, second: Extras) -> Extras:
    """Both together, key by key. Where both have a key, the second wins."""
    if not second:
        return first
    if not first:
        return second
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}
