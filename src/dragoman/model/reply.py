"""Reply, Finish, Usage: the canonical answer. Usage of several replies can be added up."""

from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.model.messages import Extras, Part

FinishReason: TypeAlias = Literal[
    "stop",  # the model finished by itself
    "sequence",  # a stop sequence
    "length",  # the output limit
    "context",  # the context window is full
    "tool_call",  # the caller has to run tools now
    "filter",  # a content filter cut the answer
    "refusal",  # the model refused
    "pause",  # the provider paused; send the reply back to continue
    "malformed",  # the model wrote an unreadable tool call
    "other",
]


class Finish(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why a choice ended. If the wire's word says more than ours, it is in extras under the wire's own key."""

    reason: FinishReason
    sequence: str | None = None  # which stop sequence
    message: str | None = None  # the provider's explanation
    extras: Extras = {}


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Token counters. None is unknown, not zero. The counters do not overlap, with one exception: audio tokens are
    also part of input and output, because no provider tells how audio and cache overlap."""

    input: int | None = None  # neither read from a cache nor written to one
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None  # without reasoning
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    extras: Extras = {}

    @property
    def total(self) -> int:
        """All tokens, as far as they are known."""
        return sum(n or 0 for n in (self.input, self.cache_read, self.cache_write, self.output, self.reasoning))


class Choice(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One answer. Nearly every reply has exactly one."""

    parts: tuple[Part, ...]
    finish: Finish | None = None
    extras: Extras = {}


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    id: str
    model: str
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    created: float | None = None  # seconds since 1970
    service_tier: str | None = None
    extras: Extras = {}


def add_usage(first: Usage | None, second: Usage | None) -> Usage:
    """The sum. A counter that only one side knows counts; a counter that neither side knows stays unknown."""
    if first is None or second is None:
        return first or second or Usage()
    return Usage(
        input=_add(first.input, second.input),
        cache_read=_add(first.cache_read, second.cache_read),
        cache_write=_add(first.cache_write, second.cache_write),
        output=_add(first.output, second.output),
        reasoning=_add(first.reasoning, second.reasoning),
        input_audio=_add(first.input_audio, second.input_audio),
        output_audio=_add(first.output_audio, second.output_audio),
    )


def _add(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second
