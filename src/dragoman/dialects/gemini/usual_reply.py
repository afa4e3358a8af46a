"""The replies that Gemini mostly sends, one candidate of texts, thoughts and calls, read in one step."""

from functools import cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.dialects._usual_replies import ReplyReader, Some
from dragoman.dialects.gemini.calls import Fresh
from dragoman.dialects.gemini.parts import decode_parts
from dragoman.dialects.gemini.reply import decode_candidate, take_created, take_finish, take_usage
from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Extras, ToolCall
from dragoman.model.reply import Choice, Finish, Reply


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    role: Literal["model"]


class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    finishReason: Literal["STOP", "MAX_TOKENS"]
    index: Literal[0] | UnsetType = UNSET


class _UsualReply(Struct, forbid_unknown_fields=True, gc=False):
    candidates: Annotated[list[_Candidate], Meta(min_length=1, max_length=1)]
    modelVersion: Some
    responseId: Some
    usageMetadata: dict[str, Any] | UnsetType = UNSET
    createTime: str | UnsetType = UNSET


_read = ReplyReader(_UsualReply).read


def read_usual_reply(raw: bytes) -> Reply | None:
    reply = _read(raw)
    if reply is None:
        return None
    candidate = reply.candidates[0]
    try:
        parts = decode_parts(candidate.content.parts, Fresh(reply.responseId))
    except DecodeError:
        return None
    usage, tier = (None, None) if reply.usageMetadata is UNSET else take_usage({"usageMetadata": reply.usageMetadata})
    finish = _find_finish(candidate.finishReason, ToolCall in map(type, parts))
    rest: JsonObject = {} if reply.createTime is UNSET else {"createTime": reply.createTime}
    return Reply(
        id=reply.responseId,
        model=reply.modelVersion,
        choices=(Choice(parts=parts, finish=finish, extras=_find_extras(candidate.index is UNSET)),),
        usage=usage,
        created=take_created(rest),
        service_tier=tier,
        extras=leftovers(rest, NAME),
    )


@cache
def _find_finish(word: str, called: bool) -> Finish | None:
    return take_finish({"finishReason": word}, called)


@cache
def _find_extras(no_index: bool) -> Extras:
    """What is kept of a key that some servers leave out: as the slow reader has it."""
    candidate: JsonObject = {"content": {"parts": [{"text": "words"}], "role": "model"}, "finishReason": "STOP"}
    return decode_candidate(candidate if no_index else {"index": 0, **candidate}, 0, Fresh("")).extras
