"""A quick look at a Chat reply that goes to a Chat client: may its bytes stay as they are?

Most replies are one text with a finish and a usage. The look reads only keys that could be wrong, and ignores unknown
keys. It returns None for a call, a thought or anything unusual: then the reply is decoded as a whole.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from dragoman.dialects._base import PlainReply
from dragoman.dialects.openai_chat.usage import decode_usage

Nothing = Literal[""] | None
Some = Annotated[str, Meta(min_length=1)]


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
