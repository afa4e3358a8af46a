"""The second reader: facts of a wire, found by plain paths (`facts.toml`). It shares no code with the dialects.

A fact is a piece of meaning that every dialect can say in its own way: a text and who said it, a call and its
arguments, a number of tokens. What no path of the table covers is a fact too, by its own key: it must be there in the
target, or a note must name it, or the table says why it may go (`silent`).
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tests.laws.second.paths import Place, find, leaves

What: TypeAlias = Literal["request", "reply"]
TABLES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "facts.toml").read_text("utf-8"))
SPECIAL = ("skip", "silent", "usage")
IDS = ("id", "call_id", "tool_call_id", "tool_use_id")
WHO = {"developer": "system", "model": "assistant"}

# What the words for an end mean. "normal" is an end of its own or a call: the answer's contents tell which.
FINISHES = {
    "openai_chat": {
        "stop": "normal",
        "eos": "normal",
        "tool_calls": "normal",
        "function_call": "normal",
        "length": "limit",
    }
    | {"tool_call": "normal", "content_filter": "filter"},
    "openai_responses": {"completed": "normal", "max_output_tokens": "limit", "content_filter": "filter"},
    "anthropic": {"end_turn": "normal", "tool_use": "normal", "stop_sequence": "normal", "max_tokens": "limit"}
    | {"model_context_window_exceeded": "limit", "refusal": "filter", "pause_turn": "pause"},
    "gemini": {"STOP": "normal", "OTHER": "other", "MAX_TOKENS": "limit", "SAFETY": "filter", "RECITATION": "filter"}
    | {"CONTINUATION": "pause"}
    | {"PROHIBITED_CONTENT": "filter", "BLOCKLIST": "filter", "SPII": "filter", "IMAGE_SAFETY": "filter"},
    "ollama": {"stop": "normal", "length": "limit"},
}
MEANINGS = {meaning for words in FINISHES.values() for meaning in words.values()}
# Words that say a call is wanted, where a dialect has them.
CALLS = {"openai_chat": ("tool_calls", "function_call"), "anthropic": ("tool_use",)}
OUTPUTS = {"json_object": "json", "application/json": "json", "json_schema": "json", "json": "json"}
CHOICES = {"any": "required", "ANY": "required", "NONE": "none"}


DETAILS = {
    "input": ("prompt_tokens", "prompt_tokens_details", "cached_tokens"),
    "output": ("completion_tokens", "completion_tokens_details", "reasoning_tokens"),
}
SAME = {"free_arguments": "arguments", "json_text": "text", "error": "failed"}
MEDIA_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav"}
WHOLE_LISTS = ("arguments", "free_arguments")
WHOLE = (*WHOLE_LISTS, "json_text", "schema", "output_schema", "result")  # kinds whose values may be JSON of any form
TYPES = ("", "string", "number", "integer", "boolean", "array", "object")  # Google's numbers of types


class Fact(NamedTuple):
    kind: str
    about: str  # who said it, or which tool it is about
    value: Any
    place: Place


class Facts(NamedTuple):
    """What a body says."""

    known: list[Fact]
    others: list[Fact]  # what no path covers, by its key


def read_facts(dialect: str, what: What, body: Any, *, source: bool = False) -> Facts:
    table = TABLES[dialect][what]
    known: list[Fact] = []
    covered: set[Place] = set()
    names: dict[Any, str] = {}  # call id -> name
    for kind, paths in table.items():
        if kind in SPECIAL or (kind.endswith("~") and not source) or (kind.endswith("^") and source):
            continue
        kind = kind.rstrip("~^")
        for path in paths:
            for found in find(body, path):
                if kind == "call":
                    names |= {found.known[key]: str(found.value) for key in IDS if key in found.known}
                covered.update((found.place, *found.read) if _is_read(kind, found.value) else found.read)
                known += _make(dialect, kind, found.value, found.known, names, found.place)
    if any(fact.kind == "tool_choice" and fact.value not in ("required", "none") for fact in known):
        known = [fact for fact in known if (fact.kind, fact.value) != ("tool_choice", "required")]  # the name says it
    if any(fact.kind == "refused" for fact in known):  # dialects with a word for it say so at the end
        known = [fact for fact in known if fact.kind not in ("finish", "refused")]
    known += _usage(table.get("usage", {}), body, covered, source=source)
    skipped = {found.place for path in (*table["skip"], *table["silent"]) for found in find(body, path)}
    others = [
        Fact("other", str(_key(place)), value, place)
        for place, value in leaves(body)
        if not _says_nothing(value)
        and not (value == 0 and what == "reply")
        and not (place[-1] == "namespace" and _says_name(body, place, value))
        and not any(place[:n] in covered or place[:n] in skipped for n in range(len(place) + 1))
    ]
    return Facts(known, others)


def can_read(dialect: str, what: What, kind: str) -> bool:
    """Whether a dialect has a place for a kind of fact."""
    return kind in {SAME.get(name.rstrip("~^"), name.rstrip("~^")) for name in TABLES[dialect][what]}


def _is_read(kind: str, value: Any) -> bool:
    """A list or an object is read as a whole only where it is a value of its own. Else other paths read its parts."""
    if isinstance(value, list):
        return kind in WHOLE_LISTS
    if kind == "stopped_by":
        return isinstance(value, str)  # vLLM tells the number of a token, which no other dialect has
    return not isinstance(value, dict) or kind in WHOLE


def _says_name(body: Any, place: Place, value: Any) -> bool:
    """A function of OpenAI's that was loaded late is its own namespace."""
    for step in place[:-1]:
        body = body[step]
    return bool(body.get("name") == value)


def _key(place: Place) -> str | int:
    return next((step for step in reversed(place) if isinstance(step, str)), "")


def _says_nothing(value: Any) -> bool:
    return value is None or value == "" or value is False


def _make(
    dialect: str, kind: str, value: Any, known: dict[str, Any], names: dict[Any, str], place: Place
) -> Iterator[Fact]:
    about = ""
    match kind:
        case "text" | "json_text":
            about = _speaker(known, place)
        case "call":
            about = str(value)
        case "arguments" | "free_arguments" | "description" | "schema":
            about = str(known.get("name", ""))
        case "result":
            about = str(known.get("name") or known.get("tool_name") or _name(known, names))
        case _:
            pass
    if kind == "arguments" and not about:
        return  # a key that has to be there, without a call (Snowflake)
    for plain in _values(dialect, kind, value):
        yield Fact(SAME.get(kind, kind), about, plain, place)


def _speaker(known: dict[str, Any], place: Place) -> str:
    if place[0] in ("system", "instructions", "systemInstruction", "system_instruction"):
        return "system"
    if place[0] in ("choices", "candidates", "output", "content", "message", "response"):
        return "assistant"
    return WHO.get(known.get("role", "user"), known.get("role", "user"))


def _name(known: dict[str, Any], names: dict[Any, str]) -> str:
    return next((names.get(known[key], "?") for key in IDS if key in known), "?")


def _values(dialect: str, kind: str, value: Any) -> Iterator[Any]:
    """The value of a fact in words that are no dialect's own. None of it if there is nothing to say."""
    match kind:
        case "json_text":
            yield from (str(leaf) for _, leaf in leaves(value)) if isinstance(value, dict) else ()
        case "text" | "thought" | "tool" | "call" | "description" | "id" | "model" | "citation" | "stopped_by":
            if isinstance(value, str) and value.strip():
                yield value
        case "told":
            yield from (line for line in str("" if value is None else value).split("\n") if line.strip())
        case "error":
            if value:
                yield True
        case "detail":
            if value != "auto":
                yield str(value).removeprefix("MEDIA_RESOLUTION_").lower()
        case "failed":
            if value is True or (isinstance(value, str) and value.startswith("[ERROR]")):
                yield True
        case "media_type":
            plain = str(value).partition("base64,")[0].removeprefix("data:").partition(";")[0]
            if plain in MEDIA_TYPES or re.fullmatch(r"\w+/[\w.+-]+", plain):
                yield MEDIA_TYPES.get(plain, plain)
        case "arguments":
            yield _json(value) or {}
        case "free_arguments":
            yield _json(value) if isinstance(_json(value), dict) else {"input": value}
        case "refused":
            if value:
                yield True
        case "result":
            if value not in (None, "", [], {}) and not isinstance(value, list):
                yield value
        case "schema" | "output_schema":
            if isinstance(value, dict) and value:
                yield _lower_types(value)
        case "media":
            if isinstance(value, str) and value:
                yield value.partition("base64,")[2] or value
        case "finish":
            if isinstance(value, str) and value not in ("", "incomplete"):
                yield FINISHES[dialect].get(value, value)
                if value in CALLS.get(dialect, ()):
                    yield "call"
        case "output":
            if isinstance(value, dict) or value in OUTPUTS:
                yield "json"
        case "logprobs":
            if value:
                yield True
        case "frequency_penalty" | "presence_penalty" | "top_logprobs":
            if value:
                yield value
        case "tier":
            if value not in (None, "", "auto", "default", "standard", "standard_only"):
                yield value
        case "modality":
            if value not in ("text", "TEXT"):
                yield str(value).lower()
        case "cache":
            yield "mark"
        case "tool_choice":
            if isinstance(value, str) and value not in ("auto", "AUTO", "VALIDATED", "tool"):
                yield CHOICES.get(value, value)
        case "no_parallel":
            if isinstance(value, bool) and value is (dialect == "anthropic"):
                yield True
        case "stop":
            if isinstance(value, str) and value:
                yield value
        case "choices":
            if value not in (None, 1):
                yield value
        case "show":
            if value in (True, "auto", "concise", "detailed", "summarized", "enabled", "adaptive"):
                yield "some"
        case "effort":
            if value not in (None, "", "enabled", "adaptive", "auto"):
                yield "some"
        case _:
            if isinstance(value, int | float | str) and not _says_nothing(value):
                yield value


def _lower_types(schema: Any) -> Any:
    """Gemini shouts the names of types, or counts them; and JSON objects have no order."""
    if isinstance(schema, dict):
        kept = {key: inner for key, inner in schema.items() if key not in ("propertyOrdering", "property_ordering")}
        return {key: _type(inner) if key == "type" else _lower_types(inner) for key, inner in kept.items()}
    return [_lower_types(inner) for inner in schema] if isinstance(schema, list) else schema


def _type(said: Any) -> Any:
    if type(said) is int and 0 < said < len(TYPES):
        return TYPES[said]
    return said.lower() if isinstance(said, str) else _lower_types(said)


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _usage(table: dict[str, list[str]], body: Any, covered: set[Place], *, source: bool) -> Iterator[Fact]:
    for kind, paths in table.items():
        found = [one for path in paths for one in find(body, path) if isinstance(one.value, int)]
        covered.update(one.place for one in found)
        count = sum(one.value for one in found)
        count += _beside(kind, body.get("usage")) if source else 0
        if count:
            yield Fact(f"usage {kind}", "", count, found[0].place)


def _beside(kind: str, usage: Any) -> int:
    """What a Chat server counts beside a number, and not in it: its total shows it (xAI), or it is the larger one."""
    if kind not in DETAILS or not isinstance(usage, dict):
        return 0
    whole, detail, count = DETAILS[kind]
    part = (usage.get(detail) or {}).get(count) or usage.get(f"num_{count}") or 0
    said = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
    return part if part > (usage.get(whole) or 0) or (part and usage.get("total_tokens") == said + part) else 0
