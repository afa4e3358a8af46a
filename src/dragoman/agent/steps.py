"""Limits, and the steps a reader of the loop sees.

    (TurnStarted Heard* TurnDone (CallStarted | CallFinished)*)+ Stopped

Calls of one turn run at the same time, so their steps interleave. A turn that fails or takes too long has no TurnDone.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.failure import Failure
from dragoman.model.events import Event
from dragoman.model.messages import Message, ToolCall, ToolResult
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Note

StopReason: TypeAlias = Literal[
    "done",  # the model has said what it wanted; the reply's finish tells how
    "turns",  # it wanted more turns than it may have
    "calls",  # it wanted more calls
    "tool_repeat",  # it made the same call again and again
    "time",  # the whole took too long
    "tokens",  # another turn would take it over the tokens it may use
    "cost",  # or over what it may cost
    "caller",  # it called a tool that is the caller's own to run
    "failed",  # a model turn failed; `failure` says why
]


class Price(Struct, frozen=True, kw_only=True):
    """Of a million tokens, in whatever money its owner counts. We know no prices: they change without telling us."""

    input: float
    output: float  # of reasoning too
    cache_read: float | None = None  # None: as input
    cache_write: float | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """RELIABILITY 2.2. Each can be changed; a cost needs a price."""

    turns: int = 10
    calls: int = 32
    repeats: int = 3  # identical calls in a row
    tool_s: float = 120.0
    total_s: float = 300.0
    result_bytes: int = 256 * 1024  # of text, for each result
    media_bytes: int = 4 * 1024 * 1024  # of pictures and files, for each result
    at_once: int = 8  # calls that run at the same time
    tokens: int | None = 4_000_000  # of all turns together, what goes in and what comes out
    cost: float | None = None  # of all turns together, at `price`
    price: Price | None = None
    depth: int = 4  # loops within tools of loops


class TurnStarted(Struct, frozen=True, kw_only=True):
    turn: int  # the first is 1


class Heard(Struct, frozen=True, kw_only=True):
    """A piece of a model's turn."""

    turn: int
    event: Event


class TurnDone(Struct, frozen=True, kw_only=True):
    turn: int
    reply: Reply
    notes: tuple[Note, ...] = ()  # what this turn could not carry on its way there and back


class CallStarted(Struct, frozen=True, kw_only=True):
    turn: int
    call: ToolCall


class CallFinished(Struct, frozen=True, kw_only=True):
    turn: int
    call: ToolCall
    result: ToolResult
    seconds: float


class Stopped(Struct, frozen=True, kw_only=True):
    """The end, always the last step."""

    reason: StopReason
    reply: Reply | None  # of the last whole turn
    messages: tuple[Message, ...]  # the whole conversation, the last reply included
    usage: Usage  # of all turns
    turns: int
    calls: int  # that were run
    failure: Failure | None = None
    notes: tuple[Note, ...] = ()  # of all turns, each once


Step: TypeAlias = TurnStarted | Heard | TurnDone | CallStarted | CallFinished | Stopped


def count_tokens(usage: Usage) -> int:
    counts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
    return sum(count for count in counts if count is not None)


def count_cost(usage: Usage, price: Price) -> float:
    read = price.input if price.cache_read is None else price.cache_read
    written = price.input if price.cache_write is None else price.cache_write
    return (
        (usage.input or 0) * price.input
        + (usage.cache_read or 0) * read
        + (usage.cache_write or 0) * written
        + ((usage.output or 0) + (usage.reasoning or 0)) * price.output
    ) / 1_000_000
