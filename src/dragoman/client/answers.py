"""Answer, AsyncStream, RunAnswer: the results of a client's calls."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.accounts.money import read_currency, read_micros
from dragoman.accounts.prices import Cost, PriceTable, count_cost
from dragoman.agent.steps import Stopped, StopReason
from dragoman.client.outputs import parse
from dragoman.client.prompts import BuiltRequest
from dragoman.client.upstreams import GATEWAY
from dragoman.dialects import CANONICAL
from dragoman.errors import DecodeError, DragomanError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyFailed
from dragoman.model.fold import ReplyBuilder, merge_extras
from dragoman.model.messages import Message, Part, Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, FinishReason, Reply, Usage
from dragoman.notes import Note
from dragoman.upstream.open_answer import OpenAnswer

COST_HEADER = "x-dragoman-cost"  # of a gateway
NOTES_HEADER = "x-dragoman-notes"
LATE_NOTES = "x-dragoman-notes late"  # our name for notes that came after the answer
T_co = TypeVar("T_co", covariant=True)


# What answers of other clients have.
_ELSEWHERE = {
    "choices": "its text is .text, its calls are .calls; client.openai returns OpenAI's form",
    "message": "its text is .text, all of it is .reply",
    "content": "its text is .text, all of it is .reply",
    "output_text": "its text is .text",
    "tool_calls": "its calls are .calls",
}


class Answer(Generic[T_co]):
    """One answer. `reply` holds all of it. The other properties are shortcuts to its parts. `Answer[City]` is what
    `chat(..., output=City)` returns: its `parsed` is a City."""

    if not TYPE_CHECKING:  # a type checker has to see which names there are

        def __getattr__(self, name: str) -> Any:
            hint = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise AttributeError(f"an answer has no {name}{hint}")

    def __init__(
        self,
        reply: Reply,
        *,
        notes: tuple[Note, ...] = (),
        upstream: str = "",
        output: Any = None,
        costs: Callable[[], Cost | None] = lambda: None,
    ) -> None:
        self.reply = reply
        self._costs = costs
        self.notes = notes  # losses and changes in the request and in the reply
        self.upstream = upstream  # the name of the upstream that answered
        self._output = output

    @property
    def cost(self) -> Cost | None:
        """What it cost, in whole micro-units of a currency; None if that is unknown."""
        return self._costs()

    @property
    def _choice(self) -> Choice:
        return self.reply.choices[0] if self.reply.choices else Choice(parts=())

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._choice.parts

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def finish(self) -> FinishReason | None:
        """Why it ended: "stop", "tool_call", "length", ... (model/reply.py)."""
        return self._choice.finish.reason if self._choice.finish is not None else None

    @property
    def usage(self) -> Usage:
        return self.reply.usage or Usage()

    @property
    def model(self) -> str:
        return self.reply.model

    @property
    def id(self) -> str:
        return self.reply.id

    @cached_property
    def message(self) -> Message:
        """The assistant's turn. Put it into the next prompt."""
        return Message(role="assistant", parts=self.parts)

    @property
    def parsed(self) -> T_co:
        """The text as a value of `output`. Raises DecodeError if the text does not fit."""
        if self._output is None:
            raise DragomanError("nothing to parse: ask with output=")
        return cast(T_co, parse(self._output, self.text))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON: the reply in dragoman's own form, the notes and the upstream."""
        return {
            "text": self.text,
            "reply": load_json(dump_json(self.reply)),
            "usage": {**to_builtins(self.usage), "total": self.usage.total},
            "upstream": self.upstream,
            "notes": [{"rank": note.rank, **to_builtins(note)} for note in self.notes],
        }

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model} {self.finish}: {self.text[:60]!r}, {len(self.calls)} calls>"


class RunAnswer(Answer[T_co]):
    """The last answer of a tool loop, with the conversation that led to it."""

    def __init__(self, stopped: Stopped, **more: Any) -> None:
        reply = stopped.reply or Reply(id="", model="", choices=())
        super().__init__(reply, **more)
        self._stopped = stopped

    @property
    def stopped(self) -> StopReason:
        """`done`, or the limit that ended it."""
        return self._stopped.reason

    @property
    def usage(self) -> Usage:
        """The sum over all turns."""
        return self._stopped.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, this answer included."""
        return self._stopped.messages

    @property
    def turns(self) -> int:
        return self._stopped.turns

    @property
    def calls_run(self) -> int:
        return self._stopped.calls


class StreamEvent(Struct, frozen=True, kw_only=True):
    """One event of a stream. `text`, `reasoning` and `call` are taken out of it for easy reading."""

    event: Event
    text: str = ""  # of the answer
    reasoning: str = ""
    call: ToolCall | None = None  # the complete call, set when it ends


class EventReader:
    """Turns Events into StreamEvents. It reads only the first choice."""

    def __init__(self) -> None:
        self.builder = ReplyBuilder()
        self._open: dict[int, Part] = {}
        self._arguments: dict[int, list[str]] = {}

    def read(self, event: Event) -> StreamEvent:
        self.builder.feed(event)
        match event:
            case PartDelta(index=index, text=text):
                part = self._open.get(index)
                if isinstance(part, Text):
                    return StreamEvent(event=event, text=text)
                if isinstance(part, Reasoning):
                    return StreamEvent(event=event, reasoning=text)
                if isinstance(part, ToolCall):
                    self._arguments.setdefault(index, []).append(text)
            case PartStart(index=index, part=part, choice=0):
                self._open[index] = part
                if isinstance(part, Text):
                    return StreamEvent(event=event, text=part.text)
                if isinstance(part, Reasoning):
                    return StreamEvent(event=event, reasoning=part.text)
            case PartEnd(index=index):
                part = self._open.pop(index, None)
                if isinstance(part, ToolCall):
                    return StreamEvent(event=event, call=self._complete(part, index, event))
            case _:
                pass
        return StreamEvent(event=event)

    def _complete(self, part: ToolCall, index: int, end: PartEnd) -> ToolCall:
        arguments = part.arguments + "".join(self._arguments.pop(index, ()))
        extras = merge_extras(part.extras, end.extras)
        return replace(part, arguments=arguments, seal=end.seal or part.seal, extras=extras)


class AsyncStream(Generic[T_co]):
    """A streamed answer: iterate over it, or over its `texts()`. To leave early, use `async with` or `close`.

    A stream that breaks yields all it received and then raises UpstreamError.
    """

    def __init__(
        self,
        events: AsyncIterator[list[Event]],
        close: Callable[[], Awaitable[None]],
        finish: Callable[[Reply], Answer[T_co]],
    ) -> None:
        self._events = events
        self._close = close
        self._finish = finish
        self._reader = EventReader()
        self._ready: list[Event] = []
        self._over = False

    def __aiter__(self) -> "AsyncStream[T_co]":
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            try:
                piece = await anext(self._events, None)
            except BaseException:
                await self.close()
                raise
            if piece is None:
                await self.close()
                continue
            self._ready = list(piece)
        event = self._ready.pop(0)
        stream_event = self._reader.read(event)
        if isinstance(event, ReplyFailed):
            await self.close()
            raise UpstreamError(event.failure)
        return stream_event

    async def next_batch(self) -> list[StreamEvent]:
        """The next event and the events that arrived with it. An empty list at the end."""
        try:
            batch = [await anext(self)]
        except StopAsyncIteration:
            return []
        while self._ready and not isinstance(self._ready[0], ReplyFailed):
            batch.append(self._reader.read(self._ready.pop(0)))
        return batch

    async def texts(self) -> AsyncIterator[str]:
        """Only the text of the answer, piece by piece."""
        async for stream_event in self:
            if stream_event.text:
                yield stream_event.text

    async def answer(self) -> Answer[T_co]:
        """Reads the rest of the stream and returns the whole answer."""
        async for _ in self:
            pass
        try:
            reply = self._reader.builder.reply()
        except ValueError as error:
            raise UpstreamError(Failure(kind="cut_off", message="the stream was closed before its end")) from error
        if isinstance(reply, Failure):
            raise UpstreamError(reply)
        return self._finish(reply)

    async def close(self) -> None:
        if not self._over:
            self._over = True
            await self._close()

    async def __aenter__(self) -> "AsyncStream[T_co]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


# ---------------------------------------------------------------- from an upstream's answer


def whole_reply(open_answer: OpenAnswer) -> Reply:
    if open_answer.reply is None:
        raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream sent an empty answer"))
    return open_answer.reply


def finish_chat(reply: Reply, open_answer: OpenAnswer, built: BuiltRequest) -> Answer[Any]:
    upstream, costs = open_answer.target.upstream.name, partial(find_cost, open_answer, reply.usage)
    return Answer(reply, notes=notes_of(open_answer), upstream=upstream, output=built.output, costs=costs)


def finish_run(stopped: Stopped, notes: list[Note], built: BuiltRequest, costs: list[Cost | None]) -> RunAnswer[Any]:
    """A loop that reached a limit has an answer. A loop whose model failed raises."""
    if stopped.failure is not None:
        raise UpstreamError(stopped.failure)
    return RunAnswer(stopped, notes=tuple(notes), output=built.output, costs=partial(add_costs, costs))


def find_cost(open_answer: OpenAnswer, usage: Usage | None) -> Cost | None:
    """The cost as the gateway reports it, else by our own prices."""
    header = open_answer.headers.get(COST_HEADER)
    if header is not None:
        with suppress(ValueError):
            amount, currency = header.split(" ")
            return Cost(read_micros(amount), read_currency(currency))
    target = open_answer.target
    return count_cost(PriceTable().find(target.upstream.name, target.upstream.kind, target.model), usage)


def add_costs(costs: list[Cost | None]) -> Cost | None:
    """The sum over turns; None if one of them is unknown, or if they are in two currencies."""
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs) or len({cost.currency for cost in known}) > 1:
        return None
    return Cost(sum(cost.micros for cost in known), known[0].currency)


def notes_of(open_answer: OpenAnswer) -> tuple[Note, ...]:
    """Our notes, and the notes that a gateway sends in its header."""
    notes = tuple(open_answer.notes)
    if not open_answer.target.upstream.name.startswith(GATEWAY):
        return notes
    headers = open_answer.headers
    values = [headers[name] for name in (NOTES_HEADER, LATE_NOTES) if name in headers]
    try:
        more = [_read_note(row) for header in values for row in load_json(header) if "kind" in row]
    except (DecodeError, KeyError, TypeError):
        return notes
    return (*notes, *more)


def _read_note(row: JsonObject) -> Note:
    """A note of a gateway. Its `where` is a place in the body that we sent. The caller knows the canonical form."""
    place = row["canonical"] if "canonical" in row else row["where"]
    return Note(row["kind"], place, row["why"], place, row.get("body") or "request")


def take_late(event: Event, open_answer: OpenAnswer) -> bool:
    """Whether an event is a header that a gateway knew only at the end: its late notes, or the cost."""
    if not (isinstance(event, Aside) and event.dialect == CANONICAL):
        return False
    headers = open_answer.headers
    late = {name: value for name, value in event.body.items() if isinstance(value, str)}
    if NOTES_HEADER in late and NOTES_HEADER in headers:
        late[LATE_NOTES] = late.pop(NOTES_HEADER)
    headers.update(late)
    return True
