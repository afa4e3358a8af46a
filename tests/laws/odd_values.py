"""Canonical values as odd as they come: what clients of the library may build and no recorded wire has.

`strategies` has what conversations are mostly made of; here are the corners: empty and blank texts, texts that look
like our own marks, arguments nobody can read, media in every form, seals of every origin and form on every part.
"""

from hypothesis import strategies as st

from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import (
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from tests.laws.derive import Form, Kind, Refined
from tests.laws.strategies import DIALECTS, PDF, PNG, URL, WAV, maybe, medium, some, usual, with_choices, words

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["", " ", "\n", "[ERROR] ", "[ERROR] boom", "{}", "null", "data: x\n\n", "🌍 한국어", "</think>"]),
)
arguments = st.sampled_from(
    [
        "",
        "{}",
        "null",
        "[]",
        '"a"',
        "7",
        "{",
        '{"a":',
        '{"a":1}',
        '{"a":{"b":[1,2.5,null,true]}}',
        '{"ключ":"✓"}',
        "free\ntext",
    ]
)
schemas = st.sampled_from(
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ]
)
squawk = st.sampled_from([{"type": "squawk"}, {}])
SAID: tuple[Kind, ...] = (Text, Image, Document, Audio, Video, Refusal, Reasoning, Opaque)
SPOKEN: tuple[Kind, ...] = (Text, Refusal, Reasoning, Opaque, ToolCall, Image, Audio)

FIELDS: dict[tuple[Kind, str], Refined] = {
    (Seal, "origin"): st.sampled_from([*DIALECTS, "parrot"]),
    (Image, "detail"): maybe(st.sampled_from(["auto", "low"])),
    (Document, "name"): maybe(words),
    (Audio, "transcript"): maybe(words),
    (Opaque, "body"): squawk,
    (ToolCall, "arguments"): arguments,
    (ToolResult, "parts"): lambda derived: some(derived.one_of(*SAID), 0, 3),
    (Message, "parts"): lambda derived: some(derived.one_of(*SAID, ToolCall, ToolResult), 0, 4),
    (Tool, "parameters"): maybe(schemas),
    (CustomTool, "syntax"): maybe(st.sampled_from(["lark", "regex"])),
    (ServerTool, "body"): st.sampled_from([{"type": "squawk"}, {}]),
    (ToolChoice, "names"): maybe(some(words)),
    (ReasoningSetting, "effort"): maybe(
        st.sampled_from(["minimal", "low", "medium", "high", "xhigh", "max", "tomorrow's"])
    ),
    (ReasoningSetting, "budget"): maybe(st.integers(0, 30_000)),
    (Request, "messages"): lambda derived: some(derived.struct(Message), 0, 5),
    (Request, "tools"): lambda derived: maybe(some(derived.one_of(Tool, CustomTool, ServerTool), 0, 3)),
    (Request, "max_output"): maybe(st.integers(1, 99)),
    (Request, "stop"): maybe(some(texts.filter(bool), 0, 6)),
    (Request, "reasoning"): lambda derived: maybe(derived.struct(ReasoningSetting)),
    (Request, "modalities"): maybe(
        st.lists(st.sampled_from(["text", "audio", "image"]), max_size=2, unique=True).map(tuple)
    ),
    (Request, "top_logprobs"): maybe(st.integers(0, 20)),
    (Request, "verbosity"): maybe(st.sampled_from(["low", "medium"])),
    (Request, "user"): maybe(texts),
    (Request, "metadata"): maybe(st.sampled_from([{}, {"a": "b"}])),
    (Request, "service_tier"): maybe(
        st.sampled_from(["auto", "default", "flex", "priority", "standard_only", "tomorrow's"])
    ),
    (Request, "cache_key"): maybe(texts),
    (Finish, "sequence"): maybe(texts.filter(bool)),  # an empty one stops nothing
    (Choice, "parts"): lambda derived: some(derived.one_of(*SPOKEN), 0, 4),
    (Reply, "created"): maybe(st.integers(0, 2_000_000_000) | st.floats(1, 2_000_000_000)),
    (Reply, "service_tier"): maybe(st.sampled_from(["default", "priority", "batch", "tomorrow's"])),
}


FORMS: dict[Kind, tuple[Form, ...]] = {
    Image: medium(maybe(st.sampled_from(["image/png", "image/jpeg"])), data=PNG, url=URL, file_id="file-1"),
    Document: medium(
        maybe(st.sampled_from(["application/pdf", "text/plain"])), data=PDF, text="plain", url=URL, file_id="file-1"
    ),
    Audio: medium(
        maybe(st.sampled_from(["audio/wav", "audio/mpeg"])), data=WAV, url=URL, file_id="file-1", id="audio_1"
    ),
    Message: ({},),
    CustomTool: ({},),
    ToolChoice: ({},),
    OutputFormat: (
        {"type": st.sampled_from(["text", "json"]), "schema": st.none()},
        {"type": st.just("json_schema"), "schema": maybe(schemas)},
    ),
}
odd = usual.refine(types={str: texts}, fields=FIELDS, forms=FORMS)
requests: st.SearchStrategy[Request] = odd.struct(Request)


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    return with_choices(odd, max_choices)
