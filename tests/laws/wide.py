"""Canonical values as odd as they come: what clients of the library may build and no recorded wire has.

`strategies` has what conversations are mostly made of; here are the corners: empty and blank texts, texts that look
like our own marks, arguments nobody can read, media in every form, seals of every origin and form on every part.
"""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.model.messages import (
    Audio,
    Citation,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import CustomTool, OutputFormat, ReasoningSetting, Request, ServerTool, Tool, ToolChoice
from tests.laws.strategies import DIALECTS, REASONS, caches, counts, foreign_extras, ids, maybe, usages, words

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["", " ", "\n", "[ERROR] ", "[ERROR] boom", "{}", "null", "data: x\n\n", "🌍 한국어", "</think>"]),
)
seals = maybe(
    st.builds(
        Seal,
        origin=st.sampled_from([*DIALECTS, "parrot"]),
        value=words,
        form=st.sampled_from(["signature", "redacted", "encrypted"]),
        model=maybe(words),
        upstream=maybe(words),
    )
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
PNG, PDF, WAV, MP4 = "iVBORw0KGgo=", "JVBERi0xLjQ=", "UklGRg==", "AAAAIGZ0eXA="


def held(data: str) -> st.SearchStrategy[dict[str, Any]]:
    """Exactly one way to say where a medium is."""
    return st.sampled_from([{"data": data}, {"url": "https://example.org/a"}, {"file_id": "file-1"}])


def media(kind: Any, data: str, types: list[str], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda where, rest: kind(**where, **rest),
        held(data),
        st.fixed_dictionaries({"media_type": maybe(st.sampled_from(types)), "extras": foreign_extras(), **others}),
    )


images = media(Image, PNG, ["image/png", "image/jpeg"], detail=maybe(st.sampled_from(["auto", "low"])), seal=seals)
documents = media(Document, PDF, ["application/pdf", "text/plain"], name=maybe(words), cache=caches) | st.builds(
    Document, text=texts, name=maybe(words), media_type=maybe(st.just("text/plain"))
)
audios = media(Audio, WAV, ["audio/wav", "audio/mpeg"], transcript=maybe(words), cache=caches)
videos = media(Video, MP4, ["video/mp4"])
any_media: st.SearchStrategy[Part] = images | documents | audios | videos
citations = st.lists(
    st.builds(
        Citation,
        url=maybe(st.just("https://example.org/")),
        title=maybe(words),
        quote=maybe(texts),
        start=maybe(counts),
        end=maybe(counts),
        extras=foreign_extras(),
    ),
    max_size=2,
).map(tuple)
tokens = st.builds(TokenLogprob, token=texts, logprob=st.floats(-9, 0), bytes=maybe(st.just((1, 2))))
logprobs = maybe(
    st.lists(
        st.builds(
            TokenLogprob,
            token=texts,
            logprob=st.floats(-9, 0),
            bytes=maybe(st.just((1, 2))),
            top=maybe(st.lists(tokens, max_size=2).map(tuple)),
            extras=foreign_extras(),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple)
)


def settle(part: Any) -> Any:
    """Nothing that was said has no tokens, and nothing in it can be cited."""
    if part.text:
        return part
    return replace(part, logprobs=None, citations=()) if isinstance(part, Text) else replace(part, logprobs=None)


said = st.builds(
    Text, text=texts, citations=citations, logprobs=logprobs, seal=seals, cache=caches, extras=foreign_extras()
).map(settle)
refusals = st.builds(Refusal, text=texts, logprobs=logprobs, extras=foreign_extras()).map(settle)
reasonings = st.builds(Reasoning, text=texts, summary=st.booleans(), seal=seals, extras=foreign_extras())
opaques = st.sampled_from([Opaque(dialect="parrot", body={"type": "squawk"}), Opaque(dialect="parrot", body={})])
calls = st.builds(
    ToolCall,
    id=ids,
    name=words,
    arguments=arguments,
    freeform=st.booleans(),
    seal=seals,
    cache=caches,
    extras=foreign_extras(),
)
results = st.builds(
    ToolResult,
    call_id=ids,
    parts=st.lists(said | any_media | opaques | refusals | reasonings, max_size=3).map(tuple),
    name=maybe(words),
    failed=maybe(st.booleans()),
    freeform=st.booleans(),
    cache=caches,
    extras=foreign_extras(),
)
parts: st.SearchStrategy[Part] = said | any_media | refusals | reasonings | opaques | calls | results
spoken: st.SearchStrategy[Part] = said | refusals | reasonings | opaques | calls | images | audios
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "developer"]),
    parts=st.lists(parts, max_size=4).map(tuple),
    extras=foreign_extras(),
)

SCHEMAS = st.sampled_from(
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ]
)
tools = (
    st.builds(
        Tool,
        name=words,
        description=maybe(texts),
        parameters=maybe(SCHEMAS),
        strict=maybe(st.booleans()),
        cache=caches,
        extras=foreign_extras(),
    )
    | st.builds(
        CustomTool,
        name=words,
        description=maybe(texts),
        syntax=maybe(st.sampled_from(["lark", "regex"])),
        grammar=maybe(texts),
        extras=foreign_extras(),
    )
    | st.just(ServerTool(dialect="parrot", body={"type": "squawk"}))
)
requests = st.builds(
    Request,
    model=words,
    messages=st.lists(messages, max_size=5).map(tuple),
    tools=maybe(st.lists(tools, max_size=3).map(tuple)),
    tool_choice=maybe(
        st.builds(
            ToolChoice,
            mode=st.sampled_from(["auto", "none", "required"]),
            names=maybe(st.lists(words, max_size=2).map(tuple)),
            extras=foreign_extras(),
        )
    ),
    parallel_calls=maybe(st.booleans()),
    stream=maybe(st.booleans()),
    max_output=maybe(st.integers(1, 99)),
    stop=maybe(st.lists(texts.filter(bool), max_size=6).map(tuple)),
    choices=maybe(st.integers(1, 3)),
    output=maybe(
        st.builds(
            OutputFormat,
            type=st.sampled_from(["text", "json"]),
            name=maybe(words),
            strict=maybe(st.booleans()),
            extras=foreign_extras(),
        )
        | st.builds(
            OutputFormat,
            type=st.just("json_schema"),
            schema=maybe(SCHEMAS),
            name=maybe(words),
            description=maybe(texts),
            strict=maybe(st.booleans()),
            extras=foreign_extras(),
        )
    ),
    reasoning=maybe(
        st.builds(
            ReasoningSetting,
            mode=maybe(st.sampled_from(["on", "off", "auto"])),
            effort=maybe(st.sampled_from(["minimal", "low", "medium", "high", "xhigh", "max", "tomorrow's"])),
            budget=maybe(st.integers(0, 30_000)),
            show=maybe(st.booleans()),
            extras=foreign_extras(),
        )
    ),
    modalities=maybe(st.lists(st.sampled_from(["text", "audio", "image"]), max_size=2, unique=True).map(tuple)),
    temperature=maybe(st.floats(0, 2)),
    top_logprobs=maybe(st.integers(0, 20)),
    logprobs=maybe(st.booleans()),
    verbosity=maybe(st.sampled_from(["low", "medium"])),
    user=maybe(texts),
    metadata=maybe(st.sampled_from([{}, {"a": "b"}])),
    service_tier=maybe(st.sampled_from(["auto", "default", "flex", "priority", "standard_only", "tomorrow's"])),
    store=maybe(st.booleans()),
    cache=caches,
    cache_key=maybe(texts),
    extras=foreign_extras(),
)

finishes = st.builds(
    Finish, reason=st.sampled_from(REASONS), sequence=maybe(words), message=maybe(words), extras=foreign_extras()
)


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    choice = st.builds(
        Choice, parts=st.lists(spoken, max_size=4).map(tuple), finish=maybe(finishes), extras=foreign_extras()
    )
    return st.builds(
        Reply,
        id=words.map(lambda word: f"reply_{word}"),
        model=words,
        choices=st.lists(choice, min_size=1, max_size=max_choices).map(tuple),
        usage=maybe(usages),
        created=maybe(st.integers(0, 2_000_000_000) | st.floats(1, 2_000_000_000)),
        service_tier=maybe(st.sampled_from(["default", "priority", "batch", "tomorrow's"])),
        extras=foreign_extras(),
    )
