"""The replies that most Chat servers send, read by typed classes in one step.

`look_at_reply` is for a Chat client: may the bytes stay as they are? It reads only keys that could be wrong, and
ignores unknown keys. `read_usual_reply` is for clients of other dialects: it reads all of a reply. Both return None for
anything unusual: then the reply is decoded key by key.
"""

from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.dialects._base import PlainReply
from dragoman.dialects._usual_replies import ReplyReader, Some
from dragoman.dialects.openai_chat.calls import ids_of_reply
from dragoman.dialects.openai_chat.reply import decode_choice, take_tier
from dragoman.dialects.openai_chat.usage import decode_usage
from dragoman.dialects.openai_chat.words import NAME
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Extras, Part, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply

Nothing = Literal[""] | None


class _Message(Struct):
    role: Literal["assistant"]
    content: Some
    refusal: Nothing = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None
    images: None = None
    reasoning: Nothing = None
    reasoning_content: Nothing = None
    thinking: Nothing = None
    reasoning_details: None = None
    dragoman: None = None  # our own side field, with a seal


class _Choice(Struct):
    index: int
    message: _Message
    finish_reason: Literal["stop", "length", "content_filter"]


class _Reply(Struct):
    id: Some
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: dict[str, Any] | None = None
    error: None = None


_read = msgspec.json.Decoder(_Reply).decode


def look_at_reply(raw: bytes) -> PlainReply | None:
    try:
        reply = _read(raw)
        raw.isascii() or str(raw, "utf-8")  # what is passed over is text, too
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    choices = reply.choices
    if choices[0].index != 0 or (
        len(choices) > 1 and [choice.index for choice in choices] != list(range(len(choices)))
    ):
        return None
    return PlainReply(None if reply.usage is None else decode_usage(reply.usage))


# ---------------------------------------------------------------- all of a reply


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: Some
    arguments: str


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    id: Some
    type: Literal["function"]
    function: _Function


class _UsualMessage(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["assistant"]
    content: Some | None
    refusal: UnsetType | None = UNSET
    annotations: Annotated[list[None], Meta(max_length=0)] | UnsetType = UNSET
    tool_calls: Annotated[list[_Call], Meta(min_length=1)] | UnsetType = UNSET


class _UsualChoice(Struct, forbid_unknown_fields=True, gc=False):
    message: _UsualMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    index: Literal[0]
    logprobs: UnsetType | None = UNSET


class _UsualReply(Struct, forbid_unknown_fields=True, gc=False):
    id: Some
    object: Literal["chat.completion"]
    created: Annotated[int, Meta(gt=0, lt=2**53)]
    model: Some
    choices: Annotated[list[_UsualChoice], Meta(min_length=1, max_length=1)]
    usage: dict[str, Any] | UnsetType = UNSET
    service_tier: str | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType | None = UNSET


_read_usual = ReplyReader(_UsualReply).read
_FINISHES = {
    "stop": Finish(reason="stop"),
    "length": Finish(reason="length"),
    "tool_calls": Finish(reason="tool_call"),
}


def read_usual_reply(raw: bytes) -> Reply | None:
    """A reply of one text, of calls, or of both. Its calls are as they came: their arguments may be broken."""
    reply = _read_usual(raw)
    if reply is None:
        return None
    choice = reply.choices[0]
    message, calls = choice.message, choice.message.tool_calls
    parts: list[Part] = [] if message.content is None else [Text(text=message.content)]
    if calls is not UNSET:
        parts += [ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments) for call in calls]
    if not parts or (calls is UNSET) == (choice.finish_reason == "tool_calls"):
        return None
    extras: Extras = {}
    tier: str | None = None
    if reply.service_tier is not UNSET or reply.system_fingerprint is not UNSET:
        extras, tier = _read_rest(reply)
    return Reply(
        id=reply.id,
        model=reply.model,
        choices=(
            Choice(
                parts=tuple(parts),
                finish=_FINISHES[choice.finish_reason],
                extras=_find_extras(message.refusal is UNSET, message.annotations is UNSET, choice.logprobs is UNSET),
            ),
        ),
        usage=None if reply.usage is UNSET else decode_usage(reply.usage),
        created=reply.created,
        service_tier=tier,
        extras=extras,
    )


@cache
def _find_extras(no_refusal: bool, no_annotations: bool, no_logprobs: bool) -> Extras:
    """What is kept of keys that some servers leave out: as the slow reader has it."""
    message: JsonObject = {"role": "assistant", "content": "words"}
    message |= ({} if no_refusal else {"refusal": None}) | ({} if no_annotations else {"annotations": []})
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": "stop"}
    choice |= {} if no_logprobs else {"logprobs": None}
    return decode_choice(choice, 0, ids_of_reply("")).extras


def _read_rest(reply: _UsualReply) -> tuple[Extras, str | None]:
    rest: JsonObject = {}
    if reply.service_tier is not UNSET:
        rest["service_tier"] = reply.service_tier
    if reply.system_fingerprint is not UNSET:
        rest["system_fingerprint"] = reply.system_fingerprint
    tier = take_tier(rest)
    return leftovers(rest, NAME), tier
