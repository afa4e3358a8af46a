"""Several answers from a target that gives one: the same request is sent several times at once, as one answer.

passes/emulate.py decides how often. A copy that has ended gives back its place at once: if fewer requests may run at
once than there are copies, the others wait for it.
"""

import asyncio
from collections.abc import Iterator
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.errors import DragomanError, UpstreamError
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.messages import Extras
from dragoman.model.reply import Finish, Reply, Usage, add_usage
from dragoman.notes import Notes
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import Job
from dragoman.upstream.failures import malformed
from dragoman.upstream.open_answer import Piece
from dragoman.upstream.send import Sender

Heard: TypeAlias = "Piece | None"


async def ask_each(sender: Sender, job: Job, copies: int) -> "FanOutAnswer":
    """One answer made of several. If one copy fails before anything was said, all fail."""
    asking = [asyncio.create_task(sender.ask(job)) for _ in range(copies)]
    try:
        if not job.stream:
            replies = await asyncio.gather(*[_whole(ask) for ask in asking])
            return FanOutAnswer(asking, _join_replies(replies))
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        first = next(ask for ask in asking if ask.done())
        await first  # raises if it failed
        return FanOutAnswer(asking, None)
    except BaseException:
        for ask in asking:
            _drop(ask)
        raise


async def _whole(ask: "asyncio.Task[UpstreamAnswer]") -> Reply:
    answer = await ask
    answer.close()
    if answer.reply is None:
        raise UpstreamError(malformed("the upstream sent an empty answer"))
    return answer.reply


def _drop(ask: "asyncio.Task[UpstreamAnswer]") -> None:
    """Ends it, whether it has begun or not, and gives back what it uses."""

    def close(done: "asyncio.Task[UpstreamAnswer]") -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    ask.cancel()
    ask.add_done_callback(close)


def _join_replies(replies: list[Reply]) -> Reply:
    usage: Usage | None = None
    for reply in replies:
        usage = add_usage(usage, reply.usage) if reply.usage is not None else usage
    choices = tuple(choice for reply in replies for choice in reply.choices[:1])
    return replace(replies[0], choices=choices, usage=usage)


class FanOutAnswer:
    """The copies as one answer (an OpenAnswer). Its target and its headers are those of the first copy."""

    def __init__(self, asking: "list[asyncio.Task[UpstreamAnswer]]", reply: Reply | None) -> None:
        first = next(ask.result() for ask in asking if ask.done())
        self.target, self.dialect, self.as_is = first.target, first.dialect, first.as_is
        self.notes, self.headers = first.notes, first.headers
        self.raw = b""
        self.reply, self.complete, self.plain = reply, reply is not None, False
        self.usage = None if reply is None else reply.usage
        self.failure: Failure | None = None
        self._asking = asking
        self._begun: dict[int, UpstreamAnswer] = {}
        self._reading: dict[asyncio.Task[Heard] | asyncio.Task[UpstreamAnswer], int] = {}
        self._ends: dict[int, ReplyEnd] = {}
        self._started = self._over = False
        if reply is None:
            self._reading = {ask: number for number, ask in enumerate(asking)}
        else:
            for number, ask in enumerate(asking):
                _add_notes(self.notes, ask.result().notes, number)

    async def next(self) -> Piece | None:
        while self._reading and not self._over:
            done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
            events = [event for ready in done for event in self._take(ready)]
            if events:
                return Piece(b"", events)
        return None

    def _take(self, ready: "asyncio.Task[Heard] | asyncio.Task[UpstreamAnswer]") -> list[Event]:
        """The events of one copy. It is read until its end."""
        number = self._reading.pop(ready)
        try:
            arrived = ready.result()
        except UpstreamError as error:
            return self._fail(error.failure)
        except DragomanError as error:  # another target than the first copy's may have to refuse the request
            return self._fail(Failure(kind="invalid_request", message=str(error)))
        if isinstance(arrived, UpstreamAnswer):
            self._begun[number] = arrived
        events = list(self._renumber(arrived.events, number)) if isinstance(arrived, Piece) else []
        if arrived is None or number in self._ends:
            events += self._end(number)
        elif not self._over:
            self._reading[asyncio.create_task(self._begun[number].next())] = number
        return events

    def _renumber(self, events: list[Event], number: int) -> Iterator[Event]:
        """A copy's parts, numbered among those of the others. There is one start and one end in all."""
        copies = len(self._asking)
        for event in events:
            match event:
                case PartDelta() | PartEnd():
                    yield replace(event, index=event.index * copies + number)
                case PartStart():
                    yield replace(event, index=event.index * copies + number, choice=number)
                case ReplyStart() if self._started:
                    pass
                case ReplyStart():
                    self._started = True
                    yield event
                case ReplyEnd():
                    self._ends[number] = event
                case ReplyFailed():
                    yield from self._fail(event.failure)
                    return
                case _:
                    yield event

    def _end(self, number: int) -> list[Event]:
        """A copy has ended and gives back its place. The last one ends the whole answer."""
        answer = self._begun[number]
        answer.close()
        _add_notes(self.notes, answer.notes, number)
        if number not in self._ends:
            return self._fail(Failure(kind="cut_off", message="one of the answers was cut off"))
        if len(self._ends) < len(self._asking) or self._over:
            return []
        self._over = True
        ends = [self._ends[i] for i in range(len(self._asking))]
        usage: Usage | None = None
        for end in ends:
            usage = add_usage(usage, end.usage) if end.usage is not None else usage
        self.usage = usage
        finishes: tuple[Finish | None, ...] = tuple(end.finishes[0] if end.finishes else None for end in ends)
        extras: tuple[Extras, ...] = tuple(end.choice_extras[0] if end.choice_extras else {} for end in ends)
        choice_extras = extras if any(extras) else ()
        return [replace(ends[0], finishes=finishes, choice_extras=choice_extras, usage=usage)]

    def _fail(self, failure: Failure) -> list[Event]:
        if self._over:
            return []
        self._over = True
        self.failure = failure
        return [ReplyFailed(failure=failure)]

    def close(self) -> None:
        for reading in self._reading:
            if reading not in self._asking:
                reading.cancel()
                reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        for ask in self._asking:
            _drop(ask)
        self._reading = {}


def _add_notes(notes: Notes, more: Notes, number: int) -> None:
    """The notes that only this copy has. They name the choice that the copy has become."""
    for note in list(more.items):
        canonical = note.canonical
        if number and canonical.startswith("/choices/0"):
            canonical = f"/choices/{number}{canonical.removeprefix('/choices/0')}"
        placed = replace(note, canonical=canonical)
        if placed not in notes.items:
            notes.extend([placed])
