"""Any canonical value a dialect could have decoded, for hypothesis.

The strategies are derived from the Structs: every field is drawn, by its type unless a table here knows better.
"""

import json
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.failure import Failure
from dragoman.model.events import PartDelta, PartEnd, PartStart, ReplyStart
from dragoman.model.messages import (
    Audio,
    Cache,
    Citation,
    Document,
    Extras,
    Image,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Reply, Usage
from dragoman.model.request import (
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from tests.laws.derive import Derivation, Form, Kind, Refined, Strategy

DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
words = st.text("abcdefghijklmnop_", min_size=1, max_size=8)
ids = st.text("abcdefghijk0123456789", min_size=4, max_size=10).map(lambda s: f"call_{s}")
counts = st.integers(0, 10_000)
few = st.sampled_from(["a", "b c", "ü", "🌍"])  # quickly drawn
schemas = st.just({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any], least: int = 0, most: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


# A key only some other dialect has. (A dialect's own extras are what the recorded traffic is for.)
foreign_extras: st.SearchStrategy[Extras] = st.just({}) | st.integers(0, 9).map(
    lambda value: {"parrot": {"squawk": value}}
)

TYPES: dict[Any, Strategy] = {
    str: texts,
    int: counts,
    float: st.floats(0, 1),
    bool: st.booleans(),
    dict[str, Any]: st.just({"a": "b"}),
    Extras: foreign_extras,
}

PNG, PDF, WAV, MP4 = "iVBORw0KGgo=", "JVBERi0xLjQ=", "UklGRg==", "AAAAIGZ0eXA="
URL = "https://example.org/a"
tokens = st.builds(
    TokenLogprob, token=few, logprob=st.sampled_from([-9.5, -0.25, 0.0]), bytes=maybe(st.just((104, 105)))
)
squawk = st.just({"type": "squawk", "n": 1})

FIELDS: dict[tuple[Kind, str], Refined] = {
    (Cache, "ttl"): maybe(st.sampled_from(["5m", "1h", "30m", "12h"])),
    (Seal, "origin"): st.sampled_from(DIALECTS),
    (Seal, "value"): st.sampled_from(["c2VhbA==", "s"]),
    (Seal, "form"): st.sampled_from(["signature", "redacted", "encrypted"]),
    (Seal, "model"): maybe(few),
    (Seal, "upstream"): maybe(few),
    (Citation, "url"): maybe(st.just(URL)),
    (Citation, "title"): maybe(few),
    (Citation, "quote"): maybe(few),
    (TokenLogprob, "token"): few,
    (TokenLogprob, "logprob"): st.sampled_from([-9.5, -0.25, 0.0]),
    (TokenLogprob, "bytes"): maybe(st.just((104, 105))),
    (TokenLogprob, "top"): maybe(some(tokens)),
    (Image, "detail"): maybe(st.sampled_from(["auto", "low", "high"])),
    (Document, "name"): maybe(st.just("a.pdf")),
    (ToolCall, "id"): ids,
    (ToolCall, "name"): words,
    (ToolCall, "arguments"): st.dictionaries(words, st.integers(0, 5) | words, max_size=3).map(json.dumps),
    (ToolResult, "call_id"): ids,
    (ToolResult, "parts"): lambda derived: some(derived.one_of(Text, Image)),
    (ToolResult, "name"): maybe(words),
    (Opaque, "dialect"): st.sampled_from(["parrot", "magpie"]),
    (Opaque, "body"): squawk,
    (Tool, "name"): words,
    (Tool, "parameters"): maybe(schemas),
    (CustomTool, "name"): words,
    (ServerTool, "dialect"): st.sampled_from(["parrot", "magpie"]),
    (ServerTool, "body"): st.sampled_from([{"type": "squawk"}, {"type": "whistle"}]),  # Gemini's have one key
    (ReasoningSetting, "effort"): maybe(st.sampled_from(["minimal", "low", "medium", "high", "xhigh", "max"])),
    (ReasoningSetting, "budget"): maybe(st.integers(1024, 30_000)),
    (Request, "model"): words,
    (Request, "messages"): lambda derived: some(derived.struct(Message), 1, 4),
    (Request, "tools"): lambda derived: maybe(some(derived.one_of(Tool, CustomTool, ServerTool), 1)),
    (Request, "max_output"): maybe(st.integers(1, 9999)),
    (Request, "stop"): maybe(some(texts, 1)),
    (Request, "choices"): maybe(st.integers(1, 3)),
    (Request, "modalities"): maybe(st.sampled_from([("text",), ("text", "audio")])),
    (Request, "temperature"): maybe(st.floats(0, 2)),
    (Request, "frequency_penalty"): maybe(st.floats(-2, 2)),
    (Request, "presence_penalty"): maybe(st.floats(-2, 2)),
    (Request, "top_logprobs"): maybe(st.integers(0, 5)),
    (Request, "verbosity"): maybe(st.sampled_from(["low", "high"])),
    (Request, "user"): maybe(words),
    (Request, "service_tier"): maybe(st.sampled_from(["auto", "default", "flex"])),
    (Request, "cache_key"): maybe(words),
    (Request, "reasoning"): lambda derived: maybe(
        derived.struct(ReasoningSetting).filter(lambda setting: setting != ReasoningSetting())
    ),
    (Choice, "parts"): lambda derived: some(derived.one_of(*SPOKEN), 0, 4),
    (ReplyStart, "usage"): maybe(st.just(Usage(input=10))),  # no more than ReplyEnd says
    (PartStart, "index"): st.just(1),
    (PartStart, "choice"): st.just(1),
    (PartDelta, "index"): st.just(1),
    (PartEnd, "index"): st.just(1),
    (Failure, "status"): st.sampled_from([None, 400, 404, 500]),
    (Failure, "code"): maybe(words),
    (Failure, "param"): maybe(words),
    (Failure, "request_id"): maybe(words),
    (Failure, "retry_after_s"): maybe(st.integers(1, 60).map(float)),
    (Reply, "choices"): lambda derived: some(derived.struct(Choice), 1),
    (Reply, "id"): words.map(lambda word: f"reply_{word}"),
    (Reply, "model"): words,
    (Reply, "created"): maybe(st.integers(0, 2_000_000_000)),
    (Reply, "service_tier"): maybe(st.sampled_from(["default", "priority"])),
}


def medium(media_type: Strategy, **places: str) -> tuple[Form, ...]:
    """Exactly one of the ways to say where a medium is."""
    none = {place: st.none() for place in places}
    return tuple({**none, "media_type": media_type, place: st.just(value)} for place, value in places.items())


HEARD: tuple[Kind, ...] = (Text, Image, Document, Audio, ToolResult, Opaque)
SPOKEN: tuple[Kind, ...] = (Text, ToolCall, Reasoning, Opaque, Refusal)


def turn(role: str, *kinds: Kind) -> Form:
    return {"role": st.just(role), "parts": lambda derived: some(derived.one_of(*kinds), 1, 3)}


FORMS: dict[Kind, tuple[Form, ...]] = {
    Image: medium(maybe(st.just("image/png")), data=PNG, url=URL, file_id="file-1"),
    Document: medium(maybe(st.just("application/pdf")), data=PDF, text="plain", url=URL, file_id="file-1"),
    Audio: medium(maybe(st.just("audio/wav")), data=WAV, url=URL, file_id="file-1", id="audio_1"),
    Video: medium(maybe(st.just("video/mp4")), data=MP4, url=URL, file_id="file-1"),
    Message: (turn("user", *HEARD), turn("assistant", *SPOKEN), turn("system", Text), turn("developer", Text)),
    CustomTool: (
        {"syntax": st.none(), "grammar": st.none()},
        {"syntax": st.just("lark"), "grammar": st.just("start: /.+/")},
    ),
    ToolChoice: (
        {"names": st.none()},
        {"mode": st.just("required"), "names": st.tuples(words)},
        {"mode": st.just("auto"), "names": st.tuples(words, words)},
    ),
    OutputFormat: (
        {"type": st.sampled_from(["text", "json"]), "schema": st.none()},
        {"type": st.just("json_schema"), "schema": schemas, "name": maybe(words)},
    ),
}


def settle(part: Any) -> Any:
    """Nothing that was said has no tokens, and nothing in it can be cited."""
    if part.text:
        return part
    return replace(part, logprobs=None, citations=()) if isinstance(part, Text) else replace(part, logprobs=None)


usual = Derivation(TYPES, FIELDS, FORMS, {Text: settle, Refusal: settle})
requests: st.SearchStrategy[Request] = usual.struct(Request)


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    return with_choices(usual, max_choices)


def with_choices(derived: Derivation, most: int) -> st.SearchStrategy[Reply]:
    return derived.refine(fields={(Reply, "choices"): lambda d: some(d.struct(Choice), 1, most)}).struct(Reply)
