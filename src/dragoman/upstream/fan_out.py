"""Several answers from a target that gives one: the same request several times at once, joined into one answer.

passes/emulate.py decides how often. An answer that has ended gives back its place at once: where there are fewer places
than copies, the others wait for it.
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
from dragoman.notes import Note, Notes
from dragoman.upstream.failures import malformed
from dragoman.upstream.send import Job, Piece, Sender, UpstreamAnswer

Heard: TypeAlias = "Piece | None"


async def ask_each(sender: Sender, job: Job, copies: int) -> UpstreamAnswer:
    """One answer made of several. A failure of one, before anything was said, is the failure of all."""
    asking = [asyncio.create_task(sender.ask(job)) for _ in range(copies)]
    try:
        if not job.stream:
            replies = await asyncio.gather(*[_whole(ask) for ask in asking])
            return _Joined(asking, _join_replies(replies))
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        first = next(ask for ask in asking if ask.done())
        await first  # its failure is ours
        return _Joined(asking, None)
    except BaseException:
        for ask in asking:
            _drop(ask)
        raise


async def _whole(ask: "asyncio.Task[UpstreamAnswer]") -> Reply:
    answer = await ask
    answer.close()
    if answer.reply is None:
        raise UpstreamError(malformed("the upstream said nothing"))
    return answer.reply


def _drop(ask: "asyncio.Task[UpstreamAnswer]") -> None:
    """Whatever state it is in, it holds nothing afterwards."""

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


class _Joined(UpstreamAnswer):
    """The copies as one answer: the first of them speaks for all, but for what is said."""

    def __init__(self, asking: "list[asyncio.Task[UpstreamAnswer]]", reply: Reply | None) -> None:
        first = next(ask.result() for ask in asking if ask.done())
        self.state, self.target, self.rendered = first.state, first.target, first.rendered
        self.headers, self.waited_s = first.headers, first.waited_s
        self.raw = b""
        self.reply = reply
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
                _tell(self.rendered.notes, ask.result().rendered.notes, number)

    async def next(self) -> Piece | None:
        while self._reading and not self._over:
            done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
            events = [event for ready in done for event in self._take(ready)]
            if events:
                return Piece(b"", events)
        return None

    def _take(self, ready: "asyncio.Task[Heard] | asyncio.Task[UpstreamAnswer]") -> list[Event]:
        """What one copy has said; it is listened to until its end."""
        number = self._reading.pop(ready)
        try:
            heard = ready.result()
        except UpstreamError as error:
            return self._fail(error.failure)
        except DragomanError as error:  # another target than the first one's may have to refuse what is asked
            return self._fail(Failure(kind="invalid_request", message=str(error)))
        if isinstance(heard, UpstreamAnswer):
            self._begun[number] = heard
        events = list(self._renumber(heard.events, number)) if isinstance(heard, Piece) else []
        if heard is None or number in self._ends:
            events += self._end(number)
        elif not self._over:
            self._reading[asyncio.create_task(self._begun[number].next())] = number
        return events

    def _renumber(self, events: list[Event], number: int) -> Iterator[Event]:
        """A copy's parts among those of the others; of starts and ends there is one each."""
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
        """A copy has ended: its place is given back, and after the last one all have."""
        answer = self._begun[number]
        answer.close()
        _tell(self.rendered.notes, answer.rendered.notes, number)
        if number not in self._ends:
            return self._fail(Failure(kind="cut_off", message="one of the answers ended before its end"))
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
        said = extras if any(extras) else ()
        return [replace(ends[0], finishes=finishes, choice_extras=said, usage=usage)]

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


def _tell(notes: Notes, more: Notes, number: int) -> None:
    """What only this copy has to say, about the answer it has become."""
    for note in list(more.items):
        where = note.where
        if number and where.startswith("/choices/0"):
            where = f"/choices/{number}{where.removeprefix('/choices/0')}"
        told = Note(note.kind, where, note.why)
        if told not in notes.items:
            notes.items.append(told)
