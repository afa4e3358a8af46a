"""OpenAI Chat Completions: the reply, both ways.
https://platform.openai.com/docs/api-reference/chat/object (digest read 2026-11-15)"""

from typing import Any

from msgspec.structs import replace

from dragoman.dialects._losses import NO_REASON
from dragoman.dialects.openai_chat.annotations import decode_annotation, decode_logprobs
from dragoman.dialects.openai_chat.assistant import decode_assistant, encode_assistant, finish_assistant
from dragoman.dialects.openai_chat.calls import CallIds, ids_of_reply
from dragoman.dialects.openai_chat.parts import note_absent
from dragoman.dialects.openai_chat.usage import decode_usage, encode_usage, write_tier
from dragoman.dialects.openai_chat.words import FINISH_WORDS, FINISHES, NAME, TIERS
from dragoman.errors import DecodeError
from dragoman.fields import (
    OMIT,
    add_extras,
    drop_constant,
    is_number,
    leftovers,
    note_omitted,
    note_spelling,
    spelled,
    take_list_or_none,
    take_time_or_none,
    take_word,
)
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import BLANK, Extras, Part, Refusal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

WORD = "~finish_reason"  # spelling: another word for the reason we read
SEQUENCE = "~sequence"  # spelling: the key that named the stop sequence
SEQUENCE_KEYS = ("stop_reason", "matched_stop")  # vLLM, SGLang

# ---------------------------------------------------------------- decode


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    note_absent(body, "id", "object", "created", "model", "choices")
    drop_constant(body, "object", "chat.completion")
    reply_id = take_word(body, "id") or ""
    ids = ids_of_reply(reply_id)
    return Reply(
        id=reply_id,
        model=take_word(body, "model") or "",
        choices=_take_choices(body, ids),
        usage=take_usage(body),
        created=take_created(body),
        service_tier=take_tier(body),
        extras=leftovers(body, NAME),
    )


def take_created(body: JsonObject) -> float | None:
    """Seconds since 1970. Servers write 0 when they do not know the time."""
    created = take_time_or_none(body, "created") if is_number(body.get("created")) else None
    if type(created) is float or created == 0:
        note_spelling(body, "created", created)
    return created or None


def take_tier(body: JsonObject) -> str | None:
    tier = take_word(body, "service_tier")
    if tier == "" or tier in TIERS:
        note_spelling(body, "service_tier", tier)
    return tier or None


def take_usage(body: JsonObject) -> Usage | None:
    usage = body.get("usage")
    if type(usage) is not dict:
        return None
    del body["usage"]
    return decode_usage(usage)


def _take_choices(body: JsonObject, ids: CallIds) -> tuple[Choice, ...]:
    choices = take_list_or_none(body, "choices") or []
    done: list[Choice] = []
    try:
        for i, choice in enumerate(choices):
            if type(choice) is not dict:
                raise DecodeError(f"expected object, found {kind_of(choice)}")
            done.append(decode_choice(choice, i, ids))
    except DecodeError as error:
        raise error.under("choices", len(done)) from None
    return tuple(done)


_UNANNOTATED: Extras = {NAME: {"~message": {BLANK: {"annotations": []}}}}
_USUAL = {"stop": Finish(reason="stop"), "length": Finish(reason="length")}


def _decode_usual(choice: JsonObject, position: int) -> Choice | None:  # fast path: chat choice
    """The most frequent choice, one text, in few steps. None for any other."""
    message, word = choice.get("message"), choice.get("finish_reason")
    if len(choice) != 4 or choice.get("logprobs", 0) is not None or type(message) is not dict:
        return None
    if type(choice.get("index")) is not int or choice["index"] != position or type(word) is not str:
        return None
    finish, content = _USUAL.get(word), message.get("content")
    if finish is None or type(content) is not str or not content:
        return None
    if message.get("role") != "assistant" or message.get("refusal", 0) is not None:
        return None
    if len(message) == 3:
        return Choice(parts=(Text(text=content),), finish=finish)
    if len(message) == 4 and message.get("annotations") == []:
        return Choice(parts=(Text(text=content),), finish=finish, extras=_UNANNOTATED)
    return None


def decode_choice(choice: JsonObject, position: int, ids: CallIds) -> Choice:
    usual = _decode_usual(choice, position)  # fast path: chat choice
    if usual is not None:
        return usual
    note_omitted(choice, dict(choice), "logprobs", "finish_reason")
    _note_index(choice, position)
    if "delta" in choice:  # Perplexity adds the empty delta of its streams here
        note_spelling(choice, "delta", choice.pop("delta"))
    message = choice.pop("message", None)
    if message is None and choice.get("finish_reason") == "content_filter":  # Azure sends no message then
        message = {}
        note_spelling(choice, "no_message", True)
    if type(message) is not dict:
        raise DecodeError(f"expected object, found {kind_of(message)}", "message")
    note_absent(message, "role")
    drop_constant(message, "role", "assistant")
    if "refusal" not in message:
        note_spelling(message, "refusal", "absent")
    elif message["refusal"] is None:
        del message["refusal"]
    parts = list(decode_assistant(message, ids))
    _take_annotations(message, parts)
    _take_logprobs(choice, parts)
    finish = take_finish(choice, has_call=any_call(parts), refused=any_refusal(parts), whole=True)
    file_message(choice, message)
    return Choice(parts=tuple(parts), finish=finish, extras=leftovers(choice, NAME))


def _note_index(choice: JsonObject, position: int) -> None:
    if type(choice.get("index")) is int and choice["index"] == position:
        del choice["index"]
    elif choice.get("index") is None:
        note_spelling(choice, "index", "null" if "index" in choice else "absent")
        choice.pop("index", None)


def any_call(parts: list[Part] | tuple[Part, ...]) -> bool:
    return any(isinstance(part, ToolCall) for part in parts)


def any_refusal(parts: list[Part] | tuple[Part, ...]) -> bool:
    return any(isinstance(part, Refusal) and part.text for part in parts)  # an empty refusal is not written


def file_message(choice: JsonObject, message: JsonObject) -> None:
    """Put the rest of a message into the choice's extras. Spelling and nulls go under a key of their own."""
    rest = {key: value for key, value in message.items() if value is not None and key[:1] != "~"}
    if len(rest) < len(message):
        choice["~message"] = {key: value for key, value in message.items() if key not in rest}
    if rest:
        choice["message"] = rest


def _take_annotations(message: JsonObject, parts: list[Part]) -> None:
    given = message.get("annotations")
    place = max((i for i, part in enumerate(parts) if isinstance(part, Text)), default=None)
    if type(given) is not list or place is None or not all(type(annotation) is dict for annotation in given):
        return
    del message["annotations"]
    text = parts[place]
    if isinstance(text, Text):
        parts[place] = replace(text, citations=tuple(decode_annotation(annotation) for annotation in given))


def _take_logprobs(choice: JsonObject, parts: list[Part]) -> None:
    """Take the logprobs of the text and of the refusal. Others, such as DeepSeek's of the thoughts, stay extras."""
    given = choice.get("logprobs")
    if type(given) is not dict:
        if "logprobs" in choice and given is None:
            del choice["logprobs"]
        return
    del choice["logprobs"]
    for key, kind in (("content", Text), ("refusal", Refusal)):
        places = [i for i, part in enumerate(parts) if isinstance(part, kind)]
        tokens = decode_logprobs(given.get(key)) if len(places) == 1 else None
        if tokens is not None:
            part: Any = parts[places[0]]
            parts[places[0]] = replace(part, logprobs=tokens)
            given[key] = True  # remembers that the key was there
    rest = {key: value for key, value in given.items() if value is not True and value}
    note_spelling(choice, "logprobs", {key: value for key, value in given.items() if key not in rest})
    if rest:
        choice["logprobs"] = rest


def take_finish(choice: JsonObject, *, has_call: bool, refused: bool, whole: bool) -> Finish | None:
    """Take the finish. `whole` means that the answer is complete. Some servers then name no reason: Snowflake says "",
    OpenRouter null for some models. It ended as it should: with a call in it, or with its last word."""
    word = choice.get("finish_reason")
    own: JsonObject = {}
    if type(word) is not str or not word:
        named = word is not None and word != ""  # something else than a word
        if not named:
            choice.pop("finish_reason", None)
            if word == "" or whole:
                own[WORD] = word
        if not whole or (named and not has_call):
            choice.update(own)
            return None
        return Finish(reason=_stopped(has_call=has_call, refused=refused), extras={NAME: {WORD: word}})
    del choice["finish_reason"]
    reason = FINISHES.get(word)
    sequence: str | None = None
    if reason is None:
        own["finish_reason"] = word
        reason = "other"
    elif reason in ("stop", "sequence"):
        reason, sequence = _why_stopped(choice, reason, own, has_call=has_call, refused=refused)
    if reason != "other" and _word_of(reason, has_call=has_call, refused=refused) != word:
        own[WORD] = word
    return Finish(reason=reason, sequence=sequence, extras=leftovers(own, NAME))


def _why_stopped(
    choice: JsonObject, reason: FinishReason, own: JsonObject, *, has_call: bool, refused: bool
) -> tuple[FinishReason, str | None]:
    for key in SEQUENCE_KEYS:
        sequence = take_word(choice, key)
        if sequence is not None:
            if key != SEQUENCE_KEYS[0]:
                own[SEQUENCE] = key
            return "sequence", sequence
    return (_stopped(has_call=has_call, refused=refused) if reason == "stop" else reason), None


def _stopped(*, has_call: bool, refused: bool) -> FinishReason:
    """The meaning of a plain `stop`. If the answer has a call, it is `tool_call` (FIELD-CASES 16)."""
    if has_call:
        return "tool_call"
    return "refusal" if refused else "stop"


def _word_of(reason: FinishReason, *, has_call: bool, refused: bool) -> str:
    return "stop" if reason == "refusal" and refused and not has_call else FINISH_WORDS[reason]


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    body: JsonObject = {
        "id": reply.id,
        "object": "chat.completion",
        "created": encode_created(reply.created, reply.extras, notes),
        "model": reply.model,
    }
    legacy = asks_legacy(request)
    at: At = (ROOT, "choices")
    body["choices"] = [encode_choice(choice, i, (at, i), notes, legacy) for i, choice in enumerate(reply.choices)]
    if reply.usage is not None:
        body["usage"] = encode_usage(reply.usage, (ROOT, "usage"), notes)
    write_tier(body, reply.service_tier, reply.extras, notes)
    if reply.extras:
        add_extras(body, reply.extras, NAME, ROOT, notes)
    return WireReply(body=body)


def encode_created(created: float | None, extras: Extras, notes: Notes) -> float:
    own: float | None = spelled(extras, NAME, "~created")
    if own is not None:
        return own
    if created is None and ("created" in extras.get(NAME, ()) or "created" in (spelled(extras, NAME, OMIT) or ())):
        return 0  # it is written as it came, or left out again
    if created is None:
        notes.invented((ROOT, "created"), "openai_chat demands a time: 0")
        return 0
    whole = int(created)
    if whole != created or not whole:
        notes.altered((ROOT, "created"), "openai_chat's time is in whole seconds, and 0 is no time")
    return whole


def asks_legacy(request: Request | None) -> bool:
    """Whether the client sent `functions`. Such a client reads only `function_call`."""
    return request is not None and spelled(request.extras, NAME, "~tools") == "functions"


def encode_choice(choice: Choice, index: int, at: At, notes: Notes, legacy: bool) -> JsonObject:
    own = choice.extras.get(NAME, {})
    own_keys = {**own.get("~message", {}), **own.get("message", {})}
    extras = {NAME: own_keys} if own_keys else {}
    message, logprobs = encode_assistant(choice.parts, extras, at, notes, to_client=True, legacy=legacy)
    if "~refusal" not in own_keys:
        message.setdefault("refusal", None)
    if own_keys:
        add_extras(message, extras, NAME, at, notes)
        finish_assistant(message, extras)
    body: JsonObject = {"index": index, "message": message, "logprobs": None}
    if logprobs or "logprobs" in own or "~logprobs" in own:
        odd = own.get("logprobs")
        body["logprobs"] = _encode_logprobs(logprobs, own) if odd is None or type(odd) is dict else odd
    encode_finish(body, choice, at, notes, legacy)
    if own.get("~index") == "absent":
        del body["index"]
    elif own.get("~index") == "null":
        body["index"] = None
    if "~delta" in own:
        body["delta"] = own["~delta"]
    if "~no_message" in own:
        del body["message"]
    if choice.extras:
        others = {key: value for key, value in own.items() if key not in ("message", "logprobs")}
        add_extras(body, {**choice.extras, NAME: others}, NAME, at, notes)
    return body


def _encode_logprobs(logprobs: JsonObject, own: JsonObject) -> JsonObject:
    if "~logprobs" not in own:
        both: JsonObject = {"content": logprobs.get("content"), "refusal": logprobs.get("refusal")}
        return {**both, **_object(own.get("logprobs"))}
    silent = {key: value for key, value in own["~logprobs"].items() if value is not True}
    return {**silent, **logprobs, **_object(own.get("logprobs"))}


def _object(value: Any) -> JsonObject:
    return value if type(value) is dict else {}


def encode_finish(body: JsonObject, choice: Choice, at: At, notes: Notes, legacy: bool) -> None:
    """Write `finish_reason`, and beside it the stop sequence in vLLM's form (mission C2)."""
    finish = choice.finish
    at = (at, "finish")
    if finish is None and any_call(choice.parts):
        notes.invented(at, "openai_chat ends turns with calls by this word")
        finish = Finish(reason="tool_call")
    elif finish is None and NAME not in choice.extras:
        notes.altered(at, f"{NO_REASON}: {FINISH_WORDS['other']}")
        body["finish_reason"] = FINISH_WORDS["other"]
        return
    if finish is None:
        body["finish_reason"] = spelled(choice.extras, NAME, WORD)
        return
    own = finish.extras.get(NAME, {})
    body["finish_reason"] = finish_word(
        finish, at, notes, has_call=any_call(choice.parts), refused=any_refusal(choice.parts)
    )
    if legacy and body["finish_reason"] == "tool_calls":
        body["finish_reason"] = "function_call"
    if finish.sequence is not None:
        if finish.reason == "sequence":
            body[own.get(SEQUENCE, SEQUENCE_KEYS[0])] = finish.sequence
        else:
            notes.dropped((at, "sequence"), "openai_chat names a sequence where it was the reason")
    if finish.message is not None:
        notes.dropped((at, "message"), "openai_chat does not explain why it ended")
    if finish.extras:
        add_extras(body, finish.extras, NAME, at, notes)


def finish_word(finish: Finish, at: At, notes: Notes, *, has_call: bool, refused: bool) -> str | None:
    own, reason = finish.extras.get(NAME, {}), finish.reason
    if WORD in own:
        word: str | None = own[WORD]
        return word
    if reason == "stop" and has_call:
        word = FINISH_WORDS["tool_call"]
    else:
        word = _word_of(reason, has_call=has_call, refused=refused)
    if "finish_reason" in own or (reason == "sequence" and finish.sequence is not None):
        return word
    read_back = FINISHES[word]
    if read_back == "stop":
        read_back = _stopped(has_call=has_call, refused=refused)
    if read_back != reason:
        notes.altered((at, "reason"), f"openai_chat has no {reason} here: {word}")
    return word
