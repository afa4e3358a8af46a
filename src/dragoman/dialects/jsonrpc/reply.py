"""JSON-RPC `generate_content`: the result, both ways.

    {"generated_text": "…", "finish_reason": "STOP", "model": "…", "usage": {…}}

and, if there are any, `tool_calls`, `reasoning` (its text) and `images`.
"""

from typing import assert_never

from dragoman.dialects.jsonrpc.parts import decode_call, decode_image, encode_call, encode_image
from dragoman.dialects.jsonrpc.words import FINISH_WORDS, FINISHES, NAME
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, leftovers, take_each, take_integer_or_none, take_one, take_text_or_none
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import (
    Audio,
    Document,
    Extras,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# ---------------------------------------------------------------- decode


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    """`wire.body` is the result of a response."""
    result = wire.body
    if type(result) is not dict:
        raise DecodeError(f"expected object, found {kind_of(result)}")
    parts: list[Part] = []
    reasoning, text = take_text_or_none(result, "reasoning"), take_text_or_none(result, "generated_text")
    if reasoning:
        parts.append(Reasoning(text=reasoning))
    if text:
        parts.append(Text(text=text))
    parts.extend(take_each(result, "images", decode_image))
    parts.extend(take_each(result, "tool_calls", decode_call))
    word = take_text_or_none(result, "finish_reason")
    finish = None if word is None else _decode_finish(word)
    return Reply(
        id="",
        model=take_text_or_none(result, "model") or "",
        choices=(Choice(parts=tuple(parts), finish=finish),),
        usage=take_one(result, "usage", _decode_usage),
        extras=leftovers(result, NAME),
    )


def _decode_finish(word: str) -> Finish:
    reason = FINISHES.get(word)
    return Finish(reason="other", extras={NAME: {"finish_reason": word}}) if reason is None else Finish(reason=reason)


def _decode_usage(usage: JsonObject) -> Usage:
    read = take_integer_or_none(usage, "cache_read_tokens")
    written = take_integer_or_none(usage, "cache_write_tokens")
    thought = take_integer_or_none(usage, "reasoning_tokens")
    total_in = take_integer_or_none(usage, "input_tokens")
    total_out = take_integer_or_none(usage, "output_tokens")
    return Usage(
        input=None if total_in is None else total_in - (read or 0) - (written or 0),
        cache_read=read,
        cache_write=written,
        output=None if total_out is None else total_out - (thought or 0),
        reasoning=thought,
        extras=leftovers(usage, NAME),
    )


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    choice = reply.choices[0] if reply.choices else Choice(parts=())
    at: At = ((ROOT, "choices"), 0)
    parts = _EncodedParts((at, "parts"), notes)
    for i, part in enumerate(choice.parts):
        parts.add(part, i)
    result: JsonObject = {"generated_text": "".join(parts.texts)}
    result["finish_reason"] = _encode_finish(choice.finish, (at, "finish"), notes)
    result["model"] = reply.model
    if reply.usage is not None:
        result["usage"] = _encode_usage(reply.usage, (ROOT, "usage"), notes)
    if parts.calls:
        result["tool_calls"] = parts.calls
    if parts.thoughts:
        result["reasoning"] = "".join(parts.thoughts)
    if parts.images:
        result["images"] = parts.images
    _note_lost(reply, notes)
    add_extras(result, choice.extras, NAME, at, notes)
    add_extras(result, reply.extras, NAME, ROOT, notes)
    return WireReply(body=result)


class _EncodedParts:
    """Sort the parts of an answer into the fields of a result."""

    def __init__(self, at: At, notes: Notes) -> None:
        self._at, self._notes = at, notes
        self._rank = 0
        self.thoughts: list[str] = []
        self.texts: list[str] = []
        self.images: list[JsonObject] = []
        self.calls: list[JsonObject] = []

    def add(self, part: Part, i: int) -> None:
        at: At = (self._at, i)
        match part:
            case Text():
                self._say(1, self.texts, part.text)
                self._note(at, part.extras, ("citations", part.citations or None), ("logprobs", part.logprobs))
                self._note(at, {}, ("seal", part.seal), ("cache", part.cache))
            case Reasoning():
                self._say(0, self.thoughts, part.text)
                self._note(at, part.extras, ("seal", part.seal), ("summary", part.summary or None))
            case Refusal():
                self._say(1, self.texts, part.text)
                self._notes.altered(at, "a refusal is said as text")
                self._note(at, part.extras, ("logprobs", part.logprobs))
            case ToolCall():
                self._place(3)
                self.calls.append(encode_call(part, at, self._notes))
            case Image():
                image = encode_image(part, at, self._notes)
                if image is not None:
                    self._place(2)
                    self.images.append(image)
            case Audio() | Document() | Video() | ToolResult():
                self._notes.dropped(at, f"a result has no place for {type(part).__name__.lower()}")
            case Opaque():
                self._notes.dropped(at, f"only {part.dialect} has this part")
            case _:
                assert_never(part)

    def _place(self, rank: int, again: bool = False) -> None:
        if rank < self._rank or again:
            self._notes.altered(self._at, "a result is one thought, one text, images and calls")
        self._rank = max(rank, self._rank)

    def _say(self, rank: int, field: list[str], text: str) -> None:
        self._place(rank, again=bool(field) or not text)
        field.append(text)

    def _note(self, at: At, extras: Extras, *lost: tuple[str, object]) -> None:
        for key, value in lost:
            if value is not None:
                self._notes.dropped((at, key), f"a result has no {key}")
        add_extras({}, extras, NAME, at, self._notes)


def _note_lost(reply: Reply, notes: Notes) -> None:
    if reply.id:
        notes.altered((ROOT, "id"), "a result has no id but that of its call")
    if reply.created is not None:
        notes.dropped((ROOT, "created"), "a result has no time")
    if reply.service_tier is not None:
        notes.dropped((ROOT, "service_tier"), "a result has no service tier")
    for i in range(1, len(reply.choices)):
        notes.dropped(((ROOT, "choices"), i), "a result is one answer")
    if not reply.choices:
        notes.altered((ROOT, "choices"), "no answer at all: said as an empty one")


def _encode_finish(finish: Finish | None, at: At, notes: Notes) -> str | None:
    if finish is None:
        return None
    word = FINISH_WORDS[finish.reason]
    own = finish.extras.get(NAME, {}).get("finish_reason")
    if own is None and FINISHES[word] != finish.reason:
        notes.altered((at, "reason"), f"said as {word}")
    for key, value in (("sequence", finish.sequence), ("message", finish.message)):
        if value is not None:
            notes.dropped((at, key), "a result says only why it ended")
    add_extras({}, finish.extras, NAME, at, notes)
    return own if type(own) is str else word


def _encode_usage(usage: Usage, at: At, notes: Notes) -> JsonObject:
    """The totals, and the cached and reasoning tokens inside them."""
    body: JsonObject = {}
    if usage.input is not None:
        body["input_tokens"] = usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)
    if usage.output is not None:
        body["output_tokens"] = usage.output + (usage.reasoning or 0)
    shares = (("cache_read", usage.cache_read), ("cache_write", usage.cache_write), ("reasoning", usage.reasoning))
    for key, count in shares:
        if count is not None:
            body[f"{key}_tokens"] = count
    for key, count in (("input_audio", usage.input_audio), ("output_audio", usage.output_audio)):
        if count is not None:
            notes.dropped((at, key), "a result does not count audio")
    add_extras(body, usage.extras, NAME, at, notes)
    return body
