"""Ollama: the reply, both ways: `message` from /api/chat, `response` from /api/generate.
https://github.com/ollama/ollama api/types.go at fb30760 (read 2026-11-15)
"""

from datetime import UTC, datetime
from hashlib import blake2b

from msgspec.structs import replace

from dragoman.dialects._losses import NO_REASON
from dragoman.dialects._settings import note_audio, note_missing_tier
from dragoman.dialects.ollama.parts import MessageWriter, MintId, add_spelled, take_logprobs, take_parts
from dragoman.dialects.ollama.words import FINISH_WORDS, FINISHES, FORM, GENERATE, NAME, says_generate
from dragoman.errors import DecodeError
from dragoman.fields import (
    LAST_SECOND,
    OMIT,
    add_extras,
    drop_constant,
    leftovers,
    note_spelling,
    spelled,
    take_object_or_none,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Extras, Part, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

ALWAYS = ("done", "done_reason", "prompt_eval_count", "eval_count")  # keys that we write at the end of every answer

# ---------------------------------------------------------------- decode


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    note_missing(body, "model", "created_at", *ALWAYS)
    model = take_text_or_none(body, "model") or ""
    created = take_created(body)
    message = take_message(body)
    mint_id = id_minter(spelled({NAME: body}, NAME, "~created_at") or "", model)
    try:
        parts: list[Part] = take_parts(message, mint_id, asked=False)
    except DecodeError as error:
        raise error if FORM in body else error.under("message") from None
    _attach_logprobs(body, parts)
    finish = take_finish(body, any(isinstance(part, ToolCall) for part in parts))
    usage = take_usage(body)
    said_by: Extras = leftovers(message, NAME)
    if FORM in body:  # a generate reply is flat: the other keys belong to the reply
        body.update(message)
        said_by = {}
    return Reply(
        id="",  # Ollama's replies have no id
        model=model,
        created=created,
        choices=(Choice(parts=tuple(parts), finish=finish, extras=said_by),),
        usage=usage,
        extras=leftovers(body, NAME),
    )


def note_missing(body: JsonObject, *keys: str) -> None:
    """Remember which keys are missing or null here, because we always write them."""
    missing = [key for key in keys if body.get(key) is None]
    if missing:
        body[OMIT] = missing
        for key in missing:
            if key in body:
                body[key] = body.pop(key)  # after OMIT, so that the null is written again


def take_created(body: JsonObject) -> float | None:
    """Take `created_at` in seconds. The text is kept as spelling, because it is more exact than a float."""
    text = take_text_or_none(body, "created_at")
    if text is None:
        return None
    note_spelling(body, "created_at", text)
    return read_time(text)


def take_message(body: JsonObject) -> JsonObject:
    """Take `message`, or the flat fields of a generate reply under the names of a message."""
    message = take_object_or_none(body, "message")
    if message is None:
        body[FORM] = GENERATE
        message = {key: body.pop(key) for key in ("thinking", "tool_calls", "dragoman") if key in body}
        if "response" in body:
            message["content"] = body.pop("response")
        return message
    note_missing(message, "role")
    drop_constant(message, "role", "assistant")
    return message


def encode_loaded(request: Request, created: float) -> JsonObject:
    """The answer to a request without messages, which only loads a model or removes it from memory."""
    own = request.extras.get(NAME, {})
    body: JsonObject = {
        "model": request.model,
        "created_at": write_time(created) or UNKNOWN,
        "done": True,
        "done_reason": "unload" if own.get("keep_alive") in (0, "0") else "load",
    }
    if says_generate(request.extras):
        return body | {"response": ""}
    return body | {"message": {"role": "assistant", "content": ""}}


def id_minter(created_at: str, model: str) -> MintId:
    """Makes ids for calls without one. The same answer gives the same ids. Other answers have other times, and so other
    ids."""

    def mint_id(position: int, name: str) -> str:
        return "call_" + blake2b(f"{created_at}|{model}|{position}|{name}".encode(), digest_size=9).hexdigest()

    return mint_id


def _attach_logprobs(body: JsonObject, parts: list[Part]) -> None:
    """Move the logprobs to their text. Without a text they stay."""
    for i, part in enumerate(parts):
        if isinstance(part, Text):
            logprobs = take_logprobs(body)
            if logprobs is not None:
                parts[i] = replace(part, logprobs=logprobs)
            return


def take_finish(body: JsonObject, called: bool) -> Finish | None:
    """Take `done` and `done_reason`. Calls end with `stop` (FIELD-CASES 16). Older servers give no reason."""
    word = take_text_or_none(body, "done_reason")
    if word is None and body.get("done") is not True:
        return None
    drop_constant(body, "done", True)
    reason = "stop" if word is None else FINISHES.get(word)
    if reason is None:
        return Finish(reason="tool_call" if word == "tool_calls" else "other", extras={NAME: {"done_reason": word}})
    return Finish(reason="tool_call" if called and reason == "stop" else reason)


def take_usage(body: JsonObject) -> Usage | None:
    """Take the counters. Ollama leaves out a counter of 0, and counts a cached prompt as 0."""
    read, written = _take_count(body, "prompt_eval_count"), _take_count(body, "eval_count")
    if read is None and written is None:
        return None
    return Usage(input=read, output=written)


def _take_count(body: JsonObject, key: str) -> int | None:
    return body.pop(key) if type(body.get(key)) is int else None


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    generate = says_generate(reply.extras if request is None else request.extras)
    _note_lost(reply, notes)
    choice = reply.choices[0] if reply.choices else Choice(parts=())
    at: At = ((ROOT, "choices"), 0)
    turn = MessageWriter((at, "parts"), notes, to_client=True)
    for i, part in enumerate(choice.parts):
        turn.add(part, i)
    message = turn.body() or {"content": ""}
    body: JsonObject = {"model": reply.model, "created_at": encode_created(reply.created, reply.extras, notes)}
    add_spelled(message, reply.extras if generate else choice.extras)
    put_message(body, message, choice.extras, notes, generate=generate)
    if turn.logprobs is not None:
        body["logprobs"] = turn.logprobs
    called = any(isinstance(part, ToolCall) for part in choice.parts)
    body.update(encode_end(choice.finish, reply.usage, reply.extras, called, notes))
    if reply.extras:
        add_extras(body, reply.extras, NAME, ROOT, notes)
    return WireReply(body=body)


def put_message(body: JsonObject, message: JsonObject, extras: Extras, notes: Notes, *, generate: bool) -> None:
    at: At = ((ROOT, "choices"), 0)
    if not generate:
        body["message"] = {"role": "assistant", **message}
        if extras:
            add_extras(body["message"], extras, NAME, at, notes)
        return
    if message.pop("images", None):
        notes.altered((at, "parts"), "ollama's generate replies have no images")
    if "content" in message:
        body["response"] = message.pop("content")
    body.update(message)
    if extras:
        add_extras({}, extras, NAME, at, notes)


def encode_created(created: float | None, extras: Extras, notes: Notes) -> str:
    text = spelled(extras, NAME, "~created_at")
    if type(text) is str and read_time(text) == created:
        return text  # the original text, with all its decimals
    text = None if created is None else write_time(created)
    if text is None:
        if "created_at" not in (spelled(extras, NAME, OMIT) or ()):
            notes.invented((ROOT, "created"), "ollama's answers have a time: 1970-01-01")
        return UNKNOWN
    return text


def _note_lost(reply: Reply, notes: Notes) -> None:
    if reply.id:
        notes.altered((ROOT, "id"), "ollama's answers have no id")
    for i in range(1, len(reply.choices)):
        notes.dropped(((ROOT, "choices"), i), "ollama gives one answer")
    if not reply.choices:
        notes.altered((ROOT, "choices"), "no answer at all: said as an empty one")
    note_missing_tier(reply.service_tier, NAME, notes)


def encode_end(finish: Finish | None, usage: Usage | None, extras: Extras, called: bool, notes: Notes) -> JsonObject:
    """The end of an answer: the reason and the counters. The reply's `extras` say which keys the original lacked."""
    body: JsonObject = {"done": True}
    body.update(_encode_finish(finish, extras, called, notes))
    body.update(_encode_usage(usage, spelled(extras, NAME, OMIT) or (), notes))
    return body


def _encode_finish(finish: Finish | None, extras: Extras, called: bool, notes: Notes) -> JsonObject:
    at: At = (((ROOT, "choices"), 0), "finish")
    if finish is None:
        if "done" in extras.get(NAME, {}) or "done" in (spelled(extras, NAME, OMIT) or ()):
            return {}
        if called:
            notes.invented(at, "ollama ends turns with calls by this word")
            return {"done_reason": FINISH_WORDS["tool_call"]}
        notes.altered(at, f"{NO_REASON}: {FINISH_WORDS['other']}")
        return {"done_reason": FINISH_WORDS["other"]}
    word = FINISH_WORDS[finish.reason]
    meant = "tool_call" if called and word == "stop" else FINISHES[word]
    body: JsonObject = {"done_reason": word}
    if meant != finish.reason and "done_reason" not in finish.extras.get(NAME, {}):
        notes.altered((at, "reason"), f"ollama has no {finish.reason}: {word}")
    if finish.sequence is not None:
        notes.dropped((at, "sequence"), "ollama does not say which sequence it stopped at")
    if finish.message is not None:
        notes.dropped((at, "message"), "ollama does not explain why an answer ended")
    if finish.extras:
        add_extras(body, finish.extras, NAME, at, notes)
    return body


def _encode_usage(usage: Usage | None, omitted: tuple[str, ...] | list[str], notes: Notes) -> JsonObject:
    """Two counters, which include cache and thinking. Clients read both from the last line, so an unknown one is 0."""
    at: At = (ROOT, "usage")
    if usage is None:
        if "eval_count" not in omitted:
            notes.invented(at, "ollama's counters are always there: 0")
        return {"prompt_eval_count": 0, "eval_count": 0}
    read, written = usage.input, usage.output
    for key in ("cache_read", "cache_write"):
        count = getattr(usage, key)
        if count:
            notes.dropped((at, key), "ollama has one count for the whole input")
            notes.altered((at, "input"), "ollama has one count for the whole input")
            read = (read or 0) + count
    if usage.reasoning:
        notes.dropped((at, "reasoning"), "ollama counts thinking with the rest")
        notes.altered((at, "output"), "ollama counts thinking with the rest")
        written = (written or 0) + usage.reasoning
    note_audio(usage, NAME, at, notes)
    for key, wire, count in (("input", "prompt_eval_count", read), ("output", "eval_count", written)):
        if count is None and wire not in omitted:
            notes.invented((at, key), "ollama's counters are always there: 0")
    if usage.extras:
        add_extras({}, usage.extras, NAME, at, notes)
    return {"prompt_eval_count": read or 0, "eval_count": written or 0}


# ---------------------------------------------------------------- times
#
# `created_at` is RFC 3339 with up to nine decimals. Our times are seconds since 1970.

UNKNOWN = "1970-01-01T00:00:00Z"  # written if the time is unknown


def read_time(text: str) -> float | None:
    """Seconds since 1970, or None if the text is no time. The fraction is as exact as a float can be."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    whole = int(moment.replace(microsecond=0).timestamp())
    _, dot, rest = text.partition(".")
    if not dot or whole < 0:
        return float(whole)
    digits = rest[: next((i for i, char in enumerate(rest) if not char.isdigit()), len(rest))]
    return float(f"{whole}.{digits}")


def write_time(seconds: float) -> str | None:
    """The reverse of `read_time`. None for a number outside the calendar."""
    if not 0 <= seconds <= LAST_SECOND:
        return None
    spelled = repr(float(seconds))
    if "e" in spelled:  # less than a tenth of a millisecond after 1970
        spelled = "0.0"
    whole, _, fraction = spelled.partition(".")
    moment = datetime.fromtimestamp(int(whole), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}Z" if fraction in ("", "0") else f"{moment}.{fraction}Z"
