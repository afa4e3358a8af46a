"""Anthropic Messages: the reply, both ways. https://docs.anthropic.com/en/api/messages (digest read 2026-11-15)"""

from dragoman.dialects._settings import note_audio, note_missing_tier
from dragoman.dialects.anthropic.parts import decode_content, encode_parts
from dragoman.dialects.anthropic.words import FINISH_WORDS, FINISHES, NAME, SERVED_TIERS
from dragoman.errors import DecodeError
from dragoman.fields import (
    OMIT,
    add_extras,
    drop_constant,
    leftovers,
    note_omitted,
    note_silent,
    note_spelling,
    spelled,
    take_integer_or_none,
    take_one,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Part
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# Clients add these to the input. An unknown count is null: JavaScript adds null as 0, but a missing key makes it NaN.
CACHE_COUNTS = ("cache_creation_input_tokens", "cache_read_input_tokens")

# ---------------------------------------------------------------- decode


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    note_omitted(body, dict(body), "stop_sequence", "type", "role", "usage")
    drop_constant(body, "type", "message")
    drop_constant(body, "role", "assistant")
    _name_calls(body.get("content"))
    parts = decode_content(body)
    body.pop("~content", None)  # a reply's content is always a list
    finish = take_finish(body)
    return Reply(
        id=take_text_or_none(body, "id") or "",
        model=take_text_or_none(body, "model") or "",
        choices=(Choice(parts=parts, finish=finish),),
        service_tier=take_tier(body),
        usage=take_one(body, "usage", decode_usage),
        extras=leftovers(body, NAME),
    )


def _name_calls(content: object) -> None:
    """Servers that read calls out of a model's text may give them no id; a stream of them is read too."""
    for number, block in enumerate(content if type(content) is list else (), 1):
        if type(block) is dict and block.get("type") == "tool_use" and not block.get("id"):
            block["id"], block["~id"] = f"toolu_{number}", ""


def take_tier(holder: JsonObject) -> str | None:
    """Take the tier that served the answer. It is a key of the usage."""
    usage = holder.get("usage")
    tier = usage.get("service_tier") if type(usage) is dict else None
    if type(usage) is not dict or type(tier) is not str:
        return None
    del usage["service_tier"]
    if tier not in SERVED_TIERS:
        note_spelling(usage, "service_tier", tier)
    return tier


def take_finish(holder: JsonObject) -> Finish | None:
    """Take `stop_reason`, `stop_sequence` and `stop_details` from the object that has them."""
    word = take_text_or_none(holder, "stop_reason")
    if word is None:
        return None
    sequence = take_text_or_none(holder, "stop_sequence")
    if sequence is None:
        drop_constant(holder, "stop_sequence", None)
    own: JsonObject = {}
    reason = FINISHES.get(word)
    if reason is None:
        own["stop_reason"] = word
    message = None
    details = holder.get("stop_details")
    if type(details) is dict:
        del holder["stop_details"]
        if details.get("type") == "refusal" and type(details.get("explanation")) is str:
            message = details.pop("explanation")
            del details["type"]
        if message is None or any(value is not None for value in details.values()):
            own["stop_details"] = details
    return Finish(reason=reason or "other", sequence=sequence, message=message, extras=leftovers(own, NAME))


def decode_usage(usage: JsonObject) -> Usage:
    """Anthropic counts cached input separately, and reasoning inside the output."""
    note_omitted(usage, dict(usage), "input_tokens", "output_tokens", *CACHE_COUNTS)
    for key in CACHE_COUNTS:
        drop_constant(usage, key, None)
    output = take_integer_or_none(usage, "output_tokens")
    reasoning = _take_reasoning_count(usage)
    if output is not None and reasoning is not None:
        output -= reasoning
    written = usage.get("cache_creation")
    if type(written) is dict and not any(written.values()):
        note_silent(usage, "cache_creation")  # the counts of all lifetimes are 0
    return Usage(
        input=take_integer_or_none(usage, "input_tokens"),
        cache_read=take_integer_or_none(usage, "cache_read_input_tokens"),
        cache_write=take_integer_or_none(usage, "cache_creation_input_tokens"),
        output=output,
        reasoning=reasoning,
        extras=leftovers(usage, NAME),
    )


def _take_reasoning_count(usage: JsonObject) -> int | None:
    details = usage.get("output_tokens_details")
    if type(details) is not dict:
        return None
    count = take_integer_or_none(details, "thinking_tokens")
    if count is not None and not details:
        del usage["output_tokens_details"]
    return count


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    body: JsonObject = {"id": reply.id, "type": "message", "role": "assistant", "model": reply.model}
    note_lost(reply, notes)
    parts: tuple[Part, ...] = ()
    finish: Finish | None = None
    if reply.choices:
        parts, finish = reply.choices[0].parts, reply.choices[0].finish
        choice: JsonObject = {}
        add_extras(choice, reply.choices[0].extras, NAME, ((ROOT, "choices"), 0), notes)
    at: At = ((ROOT, "choices"), 0)
    body["content"] = encode_parts(parts, (at, "parts"), notes, to_client=True)
    body.update(encode_finish(finish, (at, "finish"), notes))
    body["usage"] = encode_usage(reply.usage or Usage(), (ROOT, "usage"), notes)
    demand_counts(body["usage"], reply.usage, notes)
    write_tier(body["usage"], reply.service_tier, reply.usage, notes)
    if reply.extras:
        add_extras(body, reply.extras, NAME, ROOT, notes)
    return WireReply(body=body)


def note_lost(reply: Reply, notes: Notes) -> None:
    for i in range(1, len(reply.choices)):
        notes.dropped(((ROOT, "choices"), i), "anthropic gives one answer")
    if not reply.choices:
        notes.altered((ROOT, "choices"), "no answer at all: said as an empty one")
    if reply.created is not None:
        notes.dropped((ROOT, "created"), "anthropic's replies have no time")


def encode_finish(finish: Finish | None, at: At, notes: Notes) -> JsonObject:
    if finish is None:
        return {"stop_reason": None, "stop_sequence": None}
    word = FINISH_WORDS[finish.reason]
    body: JsonObject = {"stop_reason": word, "stop_sequence": finish.sequence}
    if FINISHES[word] != finish.reason and "stop_reason" not in finish.extras.get(NAME, {}):
        notes.altered((at, "reason"), f"anthropic has no {finish.reason}: {word}")
    details: JsonObject = {"type": "refusal", "category": None, "explanation": finish.message}
    if finish.message is not None:
        if word == "refusal":
            body["stop_details"] = details
        else:
            notes.dropped((at, "message"), "anthropic explains refusals only")
    if finish.extras:
        add_extras(body, finish.extras, NAME, at, notes)
        if body.get("stop_details") is not None and finish.message is not None:
            body["stop_details"] = details | body["stop_details"]
    return body


def write_tier(encoded: JsonObject, tier: str | None, usage: Usage | None, notes: Notes) -> None:
    """Write the tier into the usage, as a word of Anthropic's or as the word its server used."""
    if tier is None:
        return
    word = SERVED_TIERS.get(tier) or (None if usage is None else spelled(usage.extras, NAME, "~service_tier"))
    if word is None:
        note_missing_tier(tier, NAME, notes)
    else:
        encoded["service_tier"] = word


def demand_counts(encoded: JsonObject, usage: Usage | None, notes: Notes) -> None:
    """Anthropic's usage always has both counts. We write an unknown count as 0, with a note."""
    for key, field in (("input_tokens", "input"), ("output_tokens", "output")):
        if key not in encoded and (usage is None or key not in usage.extras.get(NAME, {}).get(OMIT, ())):
            encoded[key] = 0
            notes.invented(((ROOT, "usage"), field), "unknown, and anthropic demands a number")


def encode_usage(usage: Usage, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {}
    if usage.input is not None:
        body["input_tokens"] = usage.input
    body["cache_creation_input_tokens"] = usage.cache_write
    body["cache_read_input_tokens"] = usage.cache_read
    if usage.output is not None or usage.reasoning is not None:
        body["output_tokens"] = (usage.output or 0) + (usage.reasoning or 0)
    if usage.reasoning is not None:
        if usage.output is None:
            notes.invented((at, "output"), "unknown, and anthropic counts reasoning inside the output")
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    note_audio(usage, NAME, at, notes)
    if usage.extras:
        details = body.get("output_tokens_details")
        add_extras(body, usage.extras, NAME, at, notes)
        if details is not None and body["output_tokens_details"] is not details:
            body["output_tokens_details"] = details | body["output_tokens_details"]
    return body
