"""OpenAI Chat Completions: usage, both ways.

`prompt_tokens` is all input, cached or not. `completion_tokens` is all output, reasoning included. Servers differ: xAI
leaves the reasoning out, DeepSeek and others have their own names for the cache counts. Our counters never overlap, so
we keep a server's other way of counting as spelling.
"""

import re

from dragoman.dialects._settings import encode_tier
from dragoman.dialects.openai_chat.parts import note_absent
from dragoman.dialects.openai_chat.words import NAME, TIERS
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, leftovers, note_silent, note_spelling, spelled
from dragoman.jsontypes import JsonObject, load_json
from dragoman.model.messages import Extras
from dragoman.model.reply import Usage
from dragoman.notes import At, Notes

# Names of counts that some servers write beside the details.
READ_NAMES = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
WRITE_NAMES = ("cache_creation_input_tokens",)
MISSED = "prompt_cache_miss_tokens"  # DeepSeek's name for the input that is not cached
CREATED = "created_cache_tokens"  # vLLM's name, in the details
REASONING_NAMES = ("reasoning_tokens",)

DETAILS = ("prompt_tokens_details", "completion_tokens_details")
TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")
ASIDE = "~aside"  # spelling: counts that stood beside the details
ODD = "~odd"  # spelling: totals that do not add up as OpenAI's do


USAGE_MARK = re.compile(rb'"choices"\s*:\s*\[\s*\]')  # in a frame that tells the usage and nothing else


def is_usage(data: bytes) -> bool:
    """Whether the data of a frame tells the usage and nothing else."""
    try:
        chunk = load_json(data)
    except DecodeError:
        return False
    return type(chunk) is dict and chunk.get("choices") == [] and type(chunk.get("usage")) is dict


def decode_usage(usage: JsonObject) -> Usage:
    if len(usage) == 3 and (plain := _plain_usage(usage)) is not None:
        return plain
    note_absent(usage, *TOTALS)
    prompt, completion, total = (_take_count(usage, key) for key in TOTALS)
    into, out = _take_details(usage, "prompt_tokens_details"), _take_details(usage, "completion_tokens_details")
    aside: list[str] = []
    read = _count(into, usage, "cached_tokens", READ_NAMES, aside)
    write = _count(into, usage, "cache_write_tokens", WRITE_NAMES, aside)
    created = _pop_count(into, CREATED) if write is None else None
    if created is not None:
        write = created
        aside.append("cache_write_tokens")
    reasoning = _count(out, usage, "reasoning_tokens", REASONING_NAMES, aside)
    input_audio, output_audio = _pop_count(into, "audio_tokens"), _pop_count(out, "audio_tokens")
    fresh, spoken = _split_input(prompt, read, write), _split_output(prompt, completion, total, reasoning)
    _keep_details(usage, "prompt_tokens_details", into)
    if created is not None:
        usage["~prompt_tokens_details"][CREATED] = created
    _keep_details(usage, "completion_tokens_details", out)
    if aside:
        usage[ASIDE] = aside
    _hush_repeats(usage, READ_NAMES, read)
    _hush_repeats(usage, WRITE_NAMES, write)
    _hush_repeats(usage, (MISSED,), fresh)
    _keep_odd(
        usage,
        Usage(input=fresh, cache_read=read, cache_write=write, output=spoken, reasoning=reasoning),
        {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total},
    )
    return Usage(
        input=fresh,
        cache_read=read,
        cache_write=write,
        output=spoken,
        reasoning=reasoning,
        input_audio=input_audio,
        output_audio=output_audio,
        extras=leftovers(usage, NAME),
    )


def _plain_usage(usage: JsonObject) -> Usage | None:
    """The usage if it has only the totals and they add up, as with most servers. Else None."""
    prompt, completion, total = usage.get("prompt_tokens"), usage.get("completion_tokens"), usage.get("total_tokens")
    if type(prompt) is not int or type(completion) is not int or type(total) is not int:
        return None
    return Usage(input=prompt, output=completion) if prompt + completion == total else None


def _take_count(usage: JsonObject, key: str) -> int | None:
    value = usage.get(key)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        return None
    del usage[key]
    return value


def _take_details(usage: JsonObject, key: str) -> JsonObject | None:
    details = usage.get(key)
    if type(details) is not dict:
        return None
    del usage[key]
    return details


def _pop_count(details: JsonObject | None, key: str) -> int | None:
    return None if details is None else _take_count(details, key)


def _count(
    details: JsonObject | None, usage: JsonObject, key: str, others: tuple[str, ...], aside: list[str]
) -> int | None:
    """Take a count from the details. Else read it under another name beside them, and leave it there."""
    found = _pop_count(details, key)
    if found is not None:
        return found
    for other in others:
        value = usage.get(other)
        if type(value) is int:
            aside.append(key)
            return value
    return None


def _hush_repeats(usage: JsonObject, names: tuple[str, ...], count: int | None) -> None:
    """A server's other name for a count that is carried anyway is no loss elsewhere."""
    if count is not None:
        note_silent(usage, *(name for name in names if usage.get(name) == count))


def _split_input(prompt: int | None, read: int | None, write: int | None) -> int | None:
    if prompt is None:
        return None
    fresh = prompt - (read or 0) - (write or 0)
    return fresh if fresh >= 0 else prompt  # this server counts the cache separately


def _split_output(prompt: int | None, completion: int | None, total: int | None, reasoning: int | None) -> int | None:
    if completion is None or not reasoning:
        return completion
    if total is not None and total == (prompt or 0) + completion + reasoning:
        return completion  # xAI: completion_tokens has no reasoning
    return completion - reasoning if completion >= reasoning else completion


def _keep_details(usage: JsonObject, key: str, details: JsonObject | None) -> None:
    """Keep zeros, nulls and empty objects as spelling, because they carry no count."""
    if details is None:
        return
    rest = {name: value for name, value in details.items() if value}
    silent = {name: value for name, value in details.items() if not value}
    note_spelling(usage, key, silent)
    if rest:
        usage[key] = rest


def _keep_odd(usage: JsonObject, counts: Usage, counted: dict[str, int | None]) -> None:
    ours = _totals(counts)
    odd = {key: value for key, value in counted.items() if value is not None and value != ours[key]}
    if odd:
        usage[ODD] = odd


def _totals(usage: Usage) -> dict[str, int]:
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    completion = (usage.output or 0) + (usage.reasoning or 0)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def encode_usage(usage: Usage, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {**_totals(usage)}
    own = usage.extras.get(NAME, {})
    for key in ("input", "output"):
        if getattr(usage, key) is None and NAME not in usage.extras:
            notes.invented((at, key), "openai_chat demands a number")
    aside = own.get(ASIDE, ())
    into = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    _encode_details(body, "prompt_tokens_details", into | {"audio_tokens": usage.input_audio}, own, aside)
    out = {"reasoning_tokens": usage.reasoning, "audio_tokens": usage.output_audio}
    _encode_details(body, "completion_tokens_details", out, own, aside)
    if usage.extras:
        details: JsonObject = {key: body[key] for key in DETAILS if key in body}
        body.update(own.get(ODD, {}))
        add_extras(body, usage.extras, NAME, at, notes)
        body.update({key: value for key, value in details.items() if type(body[key]) is dict})
    return body


def _encode_details(
    body: JsonObject, key: str, counts: dict[str, int | None], own: JsonObject, aside: list[str]
) -> None:
    details: JsonObject = {name: count for name, count in counts.items() if count is not None and name not in aside}
    details |= own.get("~" + key, {})
    kept = own.get(key)
    if type(kept) is dict:
        details |= kept
    if details or "~" + key in own:
        body[key] = details


def write_tier(body: JsonObject, tier: str | None, extras: Extras, notes: Notes) -> None:
    spelling = spelled(extras, NAME, "~service_tier")
    if tier is not None and spelling != tier:
        tier = encode_tier(tier, {tier: tier} | TIERS | {"batch": None}, NAME, notes)
    tier = spelling if tier is None else tier
    if tier is None:
        body.pop("service_tier", None)
    else:
        body["service_tier"] = tier
