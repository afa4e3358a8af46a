"""Gemini generateContent: the reply, both ways. https://ai.google.dev/api/generate-content (digest read 2026-11-15)"""

import re
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from dragoman.dialects._settings import encode_tier
from dragoman.dialects.gemini.calls import Calls, Fresh
from dragoman.dialects.gemini.grounding import (
    Cited,
    cite_texts,
    has_metadata,
    take_citations,
    take_logprobs,
    write_citations,
    write_logprobs,
)
from dragoman.dialects.gemini.parts import decode_parts, encode_part
from dragoman.dialects.gemini.spelling import write_extras
from dragoman.dialects.gemini.words import FINISH_NUMBERS, FINISH_WORDS, FINISHES, NAME, TIERS, UNFINISHED
from dragoman.errors import DecodeError
from dragoman.fields import OMIT, add_extras, leftovers, need_object, note_omitted, note_silent, note_spelling, spelled
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Extras, Part, Refusal, Text, TokenLogprob, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

CITES = frozenset({"groundingMetadata", "citationMetadata", "logprobsResult"})
BLOCKED: Extras = {NAME: {"~candidate": "absent"}}  # a choice that we made from a blocked prompt

# ---------------------------------------------------------------- decode


def decode_reply(wire: WireReply, notes: Notes) -> Reply:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    reply_id, model = take_word(body, "responseId"), take_word(body, "modelVersion")
    usage, tier = take_usage(body)
    return Reply(
        id=reply_id,
        model=model,
        choices=_take_choices(body, Fresh(reply_id)),
        usage=usage,
        created=take_created(body),
        service_tier=tier,
        extras=leftovers(body, NAME),
    )


def take_word(body: JsonObject, key: str) -> str:
    """Take a string that may be missing. An empty one stays an extra, so that it is written back."""
    value = body.get(key)
    if type(value) is not str or not value:
        return ""
    del body[key]
    return value


def take_created(body: JsonObject) -> float | None:
    given = body.get("createTime")
    if type(given) is not str:
        return None
    created = read_time(given)
    if created is not None:
        del body["createTime"]
        if write_time(created) != given:
            note_spelling(body, "createTime", given)
    return created


_TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def read_time(text: str) -> float | None:
    """Read an RFC 3339 time with every digit of its fraction."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        whole = int(datetime.fromisoformat(match[1] + match[3].upper()).timestamp())
    except ValueError:
        return None
    return float(f"{whole}{match[2] or ''}")


def write_time(seconds: float) -> str:
    """Write an RFC 3339 time. The fraction has 0, 6 or 9 digits, as protobuf writes it."""
    whole, _, fraction = repr(float(seconds)).partition(".")
    if not fraction.isdecimal():
        whole, fraction = str(int(seconds)), "0"
    digits = "" if fraction == "0" else f".{fraction:0<6}" if len(fraction) <= 6 else f".{fraction:0<9}"
    return datetime.fromtimestamp(int(whole), UTC).strftime("%Y-%m-%dT%H:%M:%S") + digits + "Z"


def _take_choices(body: JsonObject, calls: Calls) -> tuple[Choice, ...]:
    given = body.get("candidates")
    if given is None:
        note_omitted(body, body, "candidates")
        blocked = read_block(body.get("promptFeedback"))
        return () if blocked is None else (Choice(parts=(), finish=blocked, extras=BLOCKED),)
    del body["candidates"]
    if type(given) is not list:
        raise DecodeError(f"expected array, found {kind_of(given)}", "candidates")
    choices: list[Choice] = []
    try:
        for i, candidate in enumerate(given):
            choices.append(decode_candidate(need_object(candidate), i, calls))
    except DecodeError as error:
        raise error.under("candidates", len(choices)) from None
    return tuple(choices)


def read_block(feedback: object) -> Finish | None:
    """A blocked prompt gives no candidates. Every other dialect has a filtered answer for it (FIELD-CASES 79)."""
    reason = feedback.get("blockReason") if type(feedback) is dict else None
    if type(feedback) is not dict or reason is None:
        return None
    message = feedback.get("blockReasonMessage")
    return Finish(reason="filter", message=message if type(message) is str else f"the prompt was blocked: {reason}")


def decode_candidate(candidate: JsonObject, number: int, calls: Calls) -> Choice:
    if candidate.get("index") == number:
        del candidate["index"]
    elif candidate.get("index") is None:
        null = {key: candidate.pop(key) for key in ("index",) if key in candidate}
        note_omitted(candidate, candidate, "index")
        candidate.update(null)  # behind OMIT, so that it is written again
    parts = _take_content(candidate, calls)
    finish = take_finish(candidate, ToolCall in map(type, parts))
    if not CITES.isdisjoint(candidate):
        texts = [part.text for part in parts if type(part) is Text]
        parts = cite_texts(parts, take_citations(candidate, texts))
        if len(texts) == 1:
            logprobs = take_logprobs(candidate)
            if logprobs is not None:
                parts = tuple(replace(part, logprobs=logprobs) if isinstance(part, Text) else part for part in parts)
    return Choice(parts=parts, finish=finish, extras=leftovers(candidate, NAME))


def _take_content(candidate: JsonObject, calls: Calls) -> tuple[Part, ...]:
    content = candidate.get("content")
    if type(content) is not dict:
        note_spelling(candidate, "content", "null" if "content" in candidate else "absent")
        candidate.pop("content", None)
        return ()
    role, given = content.pop("role", None), content.pop("parts", None)
    if role != "model":
        note_spelling(candidate, "role", "absent" if role is None else role)
    if not content:
        del candidate["content"]
    if given is None:
        note_spelling(candidate, "parts", "absent")
        return ()
    if type(given) is not list:
        raise DecodeError(f"expected array, found {kind_of(given)}", "content", "parts")
    try:
        return decode_parts(given, calls)
    except DecodeError as error:
        raise error.under("content") from None


def take_finish(candidate: JsonObject, called: bool) -> Finish | None:
    """Take `finishReason` and `finishMessage`. STOP beside a call means `tool_call` (FIELD-CASES 16)."""
    given = candidate.get("finishReason")
    if not isinstance(given, str | int) or given == "":
        return None
    del candidate["finishReason"]
    word = FINISH_NUMBERS.get(given) if isinstance(given, int) else given
    if word == UNFINISHED:
        note_spelling(candidate, "finishReason", given)
        return None
    reason: FinishReason | None = FINISHES.get(word) if word is not None else None
    own: JsonObject = {}
    if reason is None or FINISH_WORDS[reason] != word:
        own["finishReason"] = given
    elif word != given:
        note_spelling(own, "finishReason", given)
    if reason == "stop" and called:
        reason = "tool_call"
    message = candidate.pop("finishMessage") if type(candidate.get("finishMessage")) is str else None
    return Finish(reason=reason or "other", message=message, extras=leftovers(own, NAME))


def take_usage(body: JsonObject) -> tuple[Usage | None, str | None]:
    """Take the counts, and the service tier, which is a key of the usage."""
    usage = body.get("usageMetadata")
    if type(usage) is not dict:
        return None, None
    del body["usageMetadata"]
    tier = usage.pop("serviceTier") if type(usage.get("serviceTier")) is str else None
    if tier is not None and TIERS.get(tier) != tier:
        note_spelling(usage, "serviceTier", tier)
    return (None if tier is not None and not usage else decode_usage(usage)), tier


def decode_usage(usage: JsonObject) -> Usage:
    """Gemini counts cached input inside the prompt. It counts thoughts and the input from tools separately."""
    prompt, cached = _take_count(usage, "promptTokenCount"), _take_count(usage, "cachedContentTokenCount")
    output, thoughts = _take_count(usage, "candidatesTokenCount"), _take_count(usage, "thoughtsTokenCount")
    tools = usage.get("toolUsePromptTokenCount")
    tools = tools if type(tools) is int else 0
    total = _take_count(usage, "totalTokenCount")
    known = [count for count in (prompt, output, thoughts) if count is not None]
    omitted = ["totalTokenCount"] if total is None and (known or cached is not None) else []
    if total is not None and (not known or total != sum(known) + tools):
        usage["totalTokenCount"] = total
    if prompt is None and cached is not None:
        omitted.append("promptTokenCount")
    if omitted:
        usage[OMIT] = omitted
        for key in omitted:
            if key in usage:  # a null: moved behind OMIT, so that it is written again
                usage[key] = usage.pop(key)
    fresh = prompt
    if prompt is not None:
        fresh = prompt - (cached or 0) + tools
        if fresh < 0:
            usage["promptTokenCount"], fresh = prompt, 0
    counts = Usage(input=fresh, cache_read=cached, output=output, reasoning=thoughts)
    return _add_details(counts, usage) if usage else counts


def _add_details(counts: Usage, usage: JsonObject) -> Usage:
    """The counts with those by modality, and with what only Gemini counts."""
    for key in DETAILS:
        if _says_text_alone(usage.get(key)):
            note_silent(usage, key)
    return replace(
        counts,
        input_audio=_take_audio(usage, "promptTokensDetails"),
        output_audio=_take_audio(usage, "candidatesTokensDetails"),
        extras=leftovers(usage, NAME),
    )


def _take_count(usage: JsonObject, key: str) -> int | None:
    value = usage.get(key)
    if type(value) is not int:
        return None
    del usage[key]
    return value


def _take_audio(usage: JsonObject, key: str) -> int | None:
    """Read the audio count from the details by modality. The details stay, unless they have only audio."""
    details = usage.get(key)
    for item in details if type(details) is list else ():
        if type(item) is dict and item.get("modality") == "AUDIO" and type(item.get("tokenCount")) is int:
            count: int = item["tokenCount"]
            if details == _audio_details(count):
                del usage[key]
            return count
    return None


DETAILS = ("promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails", "thoughtsTokensDetails")


def _says_text_alone(details: object) -> bool:
    """Whether a count by modality has only text, so that it adds nothing to the count itself."""
    if type(details) is not list or len(details) != 1 or type(details[0]) is not dict:
        return False
    return details[0].get("modality") == "TEXT"


def _audio_details(count: int) -> list[JsonObject]:
    return [{"modality": "AUDIO", "tokenCount": count}]


# ---------------------------------------------------------------- encode


def encode_reply(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
    body: JsonObject = {}
    at: At = (ROOT, "choices")
    candidates = [
        _encode_candidate(choice, i, (at, i), notes)
        for i, choice in enumerate(reply.choices)
        if not is_blocked(choice.extras)
    ]
    if candidates or (not reply.choices and "candidates" not in reply.extras.get(NAME, {})):
        body["candidates"] = candidates
    usage = encode_usage(reply.usage, reply.service_tier, notes)
    if usage is not None:
        body["usageMetadata"] = usage
    body.update(encode_identity(reply.id, reply.model, reply.created, reply.extras))
    if reply.extras:
        add_extras(body, reply.extras, NAME, ROOT, notes)
    return WireReply(body=body)


def is_blocked(extras: Extras) -> bool:
    return bool(extras) and spelled(extras, NAME, "~candidate") == "absent"


def encode_identity(reply_id: str, model: str, created: float | None, extras: Extras) -> JsonObject:
    body: JsonObject = {}
    if model:
        body["modelVersion"] = model
    if reply_id:
        body["responseId"] = reply_id
    if created is not None:
        given = spelled(extras, NAME, "~createTime")
        body["createTime"] = given if given is not None and read_time(given) == created else write_time(created)
    return body


def _encode_candidate(choice: Choice, number: int, at: At, notes: Notes) -> JsonObject:
    own = choice.extras.get(NAME, {})
    candidate: JsonObject = {"index": number}
    parts = _encode_content(candidate, choice, own, at, notes)
    texts = [part for part in parts if type(part[1]) in (Text, Refusal)]
    called = any(type(part) is ToolCall for _, part, _ in parts)
    candidate.update(encode_finish(choice.finish, called, (at, "finish"), notes))
    if choice.finish is None and "~finishReason" in own:
        candidate["finishReason"] = own["~finishReason"]
    if texts:
        _encode_beside(candidate, texts, choice, at, notes)
    if choice.extras:
        write_extras(candidate, choice.extras, at, notes, "content", "logprobsResult")
    return candidate


def _encode_content(
    candidate: JsonObject, choice: Choice, own: JsonObject, at: At, notes: Notes
) -> list[tuple[At, Part, JsonObject]]:
    """Write the content. Returns each written part with its place and its block."""
    encoded: list[tuple[At, Part, JsonObject]] = []
    for i, part in enumerate(choice.parts):
        here: At = ((at, "parts"), i)
        block = encode_part(part, here, notes, to_client=True)
        if block is not None:
            encoded.append((here, part, block))
    if not encoded and "~content" in own:
        if own["~content"] == "null":
            candidate["content"] = None
        return encoded
    content: JsonObject = {"parts": [block for _, _, block in encoded], "role": own.get("~role", "model")}
    if content["role"] == "absent":
        del content["role"]
    if not encoded and own.get("~parts") == "absent":
        del content["parts"]
    candidate["content"] = content
    return encoded


def _encode_beside(
    candidate: JsonObject, texts: list[tuple[At, Part, JsonObject]], choice: Choice, at: At, notes: Notes
) -> None:
    """Write the citations and logprobs of the texts. Gemini has them once for the whole candidate."""
    cited: list[Cited] = []
    tokens: list[TokenLogprob] = []
    scored: list[At] = []
    for number, (here, part, _) in enumerate(texts):
        if not isinstance(part, Text | Refusal):
            continue
        if part.logprobs is not None:
            scored.append(here)
            tokens.extend(part.logprobs)
        if isinstance(part, Text):
            cited.extend(Cited(c, number, ((here, "citations"), i)) for i, c in enumerate(part.citations))
    if scored:
        candidate["logprobsResult"] = write_logprobs(
            tokens, (scored[0], "logprobs"), notes if len(texts) == 1 else Notes()
        )
        if len(texts) > 1:
            notes.altered((at, "extras"), "gemini gives logprobs for the whole answer")
            for here in scored:
                notes.altered((here, "logprobs"), "gemini gives logprobs for the whole answer")
    if cited and not has_metadata(choice.extras):
        metadata = write_citations(cited, [block["text"] for _, _, block in texts], notes)
        if metadata is not None:
            candidate["groundingMetadata"] = metadata


def encode_finish(finish: Finish | None, called: bool, at: At, notes: Notes) -> JsonObject:
    if finish is None:
        return {}
    own = finish.extras.get(NAME, {})
    word = FINISH_WORDS[finish.reason]
    body: JsonObject = {"finishReason": own.get("~finishReason", word)}
    read = FINISHES[word] if word != "STOP" or not called else "tool_call"
    if read != finish.reason and "finishReason" not in own:
        notes.altered((at, "reason"), f"gemini has no {finish.reason}: {word} is read as {read}")
    if finish.message is not None:
        body["finishMessage"] = finish.message
    if finish.sequence is not None:
        notes.dropped((at, "sequence"), "gemini does not say which sequence")
    if finish.extras:
        add_extras(body, finish.extras, NAME, at, notes)
    return body


def encode_usage(usage: Usage | None, tier: str | None, notes: Notes) -> JsonObject | None:
    at: At = (ROOT, "usage")
    body: JsonObject = {}
    if usage is not None:
        _encode_counts(body, usage, at, notes)
        if usage.extras:
            add_extras(body, usage.extras, NAME, at, notes)
        if not body and tier is not None:
            notes.altered(at, "gemini writes no count where nothing was counted")
    word = None if tier is None else encode_tier(tier, _tier_words(usage), NAME, notes)
    if word is not None:
        body["serviceTier"] = word
    return body if body or usage is not None else None


def _tier_words(usage: Usage | None) -> dict[str, str]:
    """A word of Gemini's own is written back unchanged."""
    word = None if usage is None else spelled(usage.extras, NAME, "~serviceTier")
    return TIERS if word is None else TIERS | {word: word}


COUNTS = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")  # the total is the sum of these


def _encode_counts(body: JsonObject, usage: Usage, at: At, notes: Notes) -> None:
    own = usage.extras.get(NAME, {})
    tools: Any = own.get("toolUsePromptTokenCount")
    tools = tools if type(tools) is int else 0
    inputs = [count for count in (usage.input, usage.cache_read, usage.cache_write) if count is not None]
    if inputs:
        body["promptTokenCount"] = own.get("promptTokenCount", sum(inputs) - tools)
        if usage.cache_write:
            notes.dropped((at, "cache_write"), "gemini counts it as input")
            notes.altered((at, "input"), "it includes the tokens written to the cache")
        elif usage.input is None and "promptTokenCount" not in own.get(OMIT, ()):
            notes.invented((at, "input"), "unknown, and gemini counts cached tokens inside the prompt")
    if usage.cache_read is not None:
        body["cachedContentTokenCount"] = usage.cache_read
    if usage.output is not None:
        body["candidatesTokenCount"] = usage.output
    if usage.reasoning is not None:
        body["thoughtsTokenCount"] = usage.reasoning
    known = [body[key] for key in COUNTS if type(body.get(key)) is int]
    if known:
        body["totalTokenCount"] = sum(known) + tools
    for count, key in ((usage.input_audio, "promptTokensDetails"), (usage.output_audio, "candidatesTokensDetails")):
        if count is not None and key not in own:
            body[key] = _audio_details(count)
