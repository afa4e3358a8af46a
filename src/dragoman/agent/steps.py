"""Limits, and the steps that a caller of the loop sees.

    (TurnStarted TurnEvent* TurnFinished (CallStarted | CallFinished)*)+ Stopped

The calls of one turn run at the same time, so their steps interleave. A turn that fails or takes too long has no
TurnFinished.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.failure import Failure
from dragoman.model.events import Event
from dragoman.model.messages import Message, ToolCall, ToolResult
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Note

StopReason: TypeAlias = Literal[
    "done",  # the model has finished; the finish of the reply says how
    "turns",  # the limit of turns
    "calls",  # the limit of calls
    "tool_repeat",  # the model repeated the same call
    "time",  # the limit of the total time
    "tokens",  # another turn would exceed the limit of tokens
    "cost",  # another turn would exceed the limit of the cost
    "caller",  # the model called a tool that the caller runs itself
    "failed",  # a model turn failed; `failure` says why
]


class Price(Struct, frozen=True, kw_only=True):
    """The price of a million tokens, in any currency. There is no built-in list, because prices change."""

    input: float
    output: float  # also for reasoning
    cache_read: float | None = None  # None: the same as input
    cache_write: float | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one loop. A `cost` needs a `price`. (RELIABILITY 2.2)"""

    turns: int = 10
    calls: int = 32
    repeats: int = 3  # of identical calls in a row
    tool_s: float = 120.0
    total_s: float = 300.0
    result_bytes: int = 256 * 1024  # of text in each result
    media_bytes: int = 4 * 1024 * 1024  # of pictures and files in each result
    at_once: int = 8  # calls that may run at the same time
    tokens: int | None = 4_000_000  # input and output of all turns together
    cost: float | None = None  # of all turns together, at `price`
    price: Price | None = None
    depth: int = 4  # of loops that run inside tools of other loops


class TurnStarted(Struct, frozen=True, kw_only=True):
    turn: int  # the first is 1


class TurnEvent(Struct, frozen=True, kw_only=True):
    """One event of the model's streamed reply."""

    turn: int
    event: Event


class TurnFinished(Struct, frozen=True, kw_only=True):
    turn: int
    reply: Reply
    notes: tuple[Note, ...] = ()  # what was lost or changed in the conversions of this turn


class CallStarted(Struct, frozen=True, kw_only=True):
    turn: int
    call: ToolCall


class CallFinished(Struct, frozen=True, kw_only=True):
    turn: int
    call: ToolCall
    result: ToolResult
    seconds: float


class Stopped(Struct, frozen=True, kw_only=True):
    """The last step of every loop."""

    reason: StopReason
    reply: Reply | None  # of the last finished turn
    messages: tuple[Message, ...]  # the whole conversation, including the last reply
    usage: Usage  # of all turns
    turns: int
    calls: int  # number of calls that were run
    failure: Failure | None = None
    notes: tuple[Note, ...] = ()  # of all turns, without duplicates


Step: TypeAlias = TurnStarted | TurnEvent | TurnFinished | CallStarted | CallFinished | Stopped


def count_tokens(usage: Usage) -> int:
    counts = (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning)
    return sum(count for count in counts if count is not None)


def count_cost(usage: Usage, price: Price) -> float:
    read_price = price.input if price.cache_read is None else price.cache_read
    write_price = price.input if price.cache_write is None else price.cache_write
    return (
        (usage.input or 0) * price.input
        + (usage.cache_read or 0) * read_price
        + (usage.cache_write or 0) * write_price
        + ((usage.output or 0) + (usage.reasoning or 0)) * price.output
    ) / 1_000_000
