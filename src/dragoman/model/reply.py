"""Reply, Finish, Usage: the canonical answer."""

from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.model.messages import Extras, Part

FinishReason: TypeAlias = Literal[
    "stop",  # the model had said what it wanted
    "sequence",  # a stop sequence
    "length",  # the output limit
    "context",  # the context window is full
    "tool_call",  # it is the caller's turn to run tools
    "filter",  # a filter cut it
    "refusal",  # the model would not
    "pause",  # the provider paused; send it back to go on
    "malformed",  # the model wrote a call nobody can read
    "other",
]


class Finish(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why a choice ended. A wire word finer than ours is in extras under the wire's own key."""

    reason: FinishReason
    sequence: str | None = None  # which stop sequence
    message: str | None = None  # the provider's explanation
    extras: Extras = {}


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Disjoint counters of tokens; None is unknown, not zero. The audio counters are the exception: they are
    part of input and output, because no provider says how audio and cache overlap."""

    input: int | None = None  # read afresh
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None  # without reasoning
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    extras: Extras = {}


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
