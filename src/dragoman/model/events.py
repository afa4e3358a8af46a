"""Event and its kinds: a Reply in pieces.

    ReplyStart (PartStart PartDelta* PartEnd)* (ReplyEnd | ReplyFailed)      Aside anywhere

Parts may interleave; `index` tells them apart over the whole stream, whatever their choice. `PartStart` carries the
part as far as it is known, `PartDelta` makes it grow, `PartEnd` completes it. What grows is the text of Text, Refusal
and Reasoning and the arguments of ToolCall; every other part comes whole in its PartStart.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from dragoman.failure import Failure
from dragoman.model.messages import Citation, Extras, Part, Seal, TokenLogprob
from dragoman.model.reply import Finish, Usage


class ReplyStart(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_start"):
    id: str
    model: str
    created: float | None = None
    usage: Usage | None = None  # what is known already; ReplyEnd has all of it
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


class PartEnd(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="part_end"):
    index: int
    seal: Seal | None = None
    extras: Extras = {}  # added to those of the PartStart, key by key


class ReplyEnd(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_end"):
    finishes: tuple[Finish | None, ...] = ()  # one per choice
    usage: Usage | None = None
    service_tier: str | None = None
    choice_extras: tuple[Extras, ...] = ()  # one per choice, or none at all
    extras: Extras = {}  # added to those of the ReplyStart


class ReplyFailed(
    Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="reply_failed"
):
    failure: Failure


class Aside(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="aside"):
    """A whole frame only one dialect knows: a ping, a progress report."""

    dialect: str
    body: dict[str, Any]


Event: TypeAlias = ReplyStart | PartStart | PartDelta | PartEnd | ReplyEnd | ReplyFailed | Aside
