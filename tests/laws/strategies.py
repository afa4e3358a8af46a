"""Any canonical value a dialect could have decoded, for hypothesis."""

import json
from typing import Any

from hypothesis import strategies as st

from dragoman.model.messages import (
    Audio,
    Cache,
    Citation,
    Document,
    Extras,
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
)
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import (
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)

DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
words = st.text("abcdefghijklmnop_", min_size=1, max_size=8)
ids = st.text("abcdefghijk0123456789", min_size=4, max_size=10).map(lambda s: f"call_{s}")
counts = st.integers(0, 10_000)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def foreign_extras() -> st.SearchStrategy[Extras]:
    """A key only some other dialect has. (A dialect's own extras are what the recorded traffic is for.)"""
    return st.just({}) | st.integers(0, 9).map(lambda value: {"parrot": {"squawk": value}})


caches = maybe(st.builds(Cache, ttl=maybe(st.sampled_from(["5m", "1h", "30m", "12h"]))))
seals = maybe(st.builds(Seal, origin=st.sampled_from(DIALECTS), value=words))
arguments = st.dictionaries(words, st.integers(0, 5) | words, max_size=3).map(json.dumps)

said = st.builds(Text, text=texts, cache=caches, extras=foreign_extras())
images = st.builds(Image, data=st.just("iVBORw0KGgo="), media_type=st.just("image/png"), cache=caches) | st.builds(
    Image, url=st.just("https://example.org/a.png"), detail=maybe(st.sampled_from(["low", "high"]))
)
documents = st.builds(
    Document, data=st.just("JVBERi0xLjQ="), media_type=st.just("application/pdf"), name=maybe(st.just("a.pdf"))
)
audios = st.builds(Audio, data=st.just("UklGRg=="), media_type=st.just("audio/wav"))
opaques = st.just(Opaque(dialect="parrot", body={"type": "squawk", "n": 1}))
calls = st.builds(
    ToolCall, id=ids, name=words, arguments=arguments, freeform=st.booleans(), seal=seals, extras=foreign_extras()
)
results = st.builds(
    ToolResult,
    call_id=ids,
    parts=st.lists(said | images, max_size=2).map(tuple),
    name=maybe(words),
    failed=maybe(st.booleans()),
    extras=foreign_extras(),
)
reasonings = st.builds(Reasoning, text=texts, summary=st.booleans(), seal=seals, extras=foreign_extras())

user_parts: st.SearchStrategy[Part] = said | images | documents | audios | results | opaques
model_parts: st.SearchStrategy[Part] = said | calls | reasonings | opaques | st.builds(Refusal, text=texts)


def message(role: str, parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Message]:
    said_parts = st.lists(parts, min_size=1, max_size=4).map(tuple)
    return st.builds(Message, role=st.just(role), parts=said_parts, extras=foreign_extras())


messages = (
    message("user", user_parts)
    | message("assistant", model_parts)
    | message("system", said)
    | message("developer", said)
)

schemas = st.just({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
tools = (
    st.builds(
        Tool,
        name=words,
        description=maybe(texts),
        parameters=maybe(schemas),
        strict=maybe(st.booleans()),
        cache=caches,
        extras=foreign_extras(),
    )
    | st.builds(CustomTool, name=words, description=maybe(texts))
    | st.builds(CustomTool, name=words, syntax=st.just("lark"), grammar=st.just("start: /.+/"))
    | st.just(ServerTool(dialect="parrot", body={"type": "squawk"}))
)

requests = st.builds(
    Request,
    model=words,
    messages=st.lists(messages, min_size=1, max_size=5).map(tuple),
    tools=maybe(st.lists(tools, min_size=1, max_size=3).map(tuple)),
    tool_choice=maybe(
        st.builds(ToolChoice, mode=st.sampled_from(["auto", "none", "required"]))
        | st.builds(ToolChoice, mode=st.just("required"), names=st.tuples(words))
        | st.builds(ToolChoice, mode=st.just("auto"), names=st.tuples(words, words))
    ),
    parallel_calls=maybe(st.booleans()),
    stream=maybe(st.booleans()),
    max_output=maybe(st.integers(1, 9999)),
    stop=maybe(st.lists(texts, min_size=1, max_size=2).map(tuple)),
    choices=maybe(st.integers(1, 3)),
    output=maybe(
        st.builds(OutputFormat, type=st.sampled_from(["text", "json"]))
        | st.builds(
            OutputFormat, type=st.just("json_schema"), schema=schemas, name=maybe(words), strict=maybe(st.booleans())
        )
    ),
    reasoning=maybe(
        st.builds(
            ReasoningSetting,
            mode=maybe(st.sampled_from(["on", "off", "auto"])),
            effort=maybe(st.sampled_from(["minimal", "low", "medium", "high", "xhigh", "max"])),
            budget=maybe(st.integers(1024, 30_000)),
            show=maybe(st.booleans()),
        ).filter(lambda setting: setting != ReasoningSetting())
    ),
    modalities=maybe(st.just(("text",)) | st.just(("text", "audio"))),
    temperature=maybe(st.floats(0, 2)),
    top_p=maybe(st.floats(0, 1)),
    top_k=maybe(counts),
    min_p=maybe(st.floats(0, 1)),
    frequency_penalty=maybe(st.floats(-2, 2)),
    presence_penalty=maybe(st.floats(-2, 2)),
    seed=maybe(counts),
    logprobs=maybe(st.booleans()),
    top_logprobs=maybe(st.integers(0, 5)),
    verbosity=maybe(st.sampled_from(["low", "high"])),
    user=maybe(words),
    metadata=maybe(st.just({"a": "b"})),
    service_tier=maybe(st.sampled_from(["auto", "default", "flex"])),
    store=maybe(st.booleans()),
    cache=caches,
    cache_key=maybe(words),
    extras=foreign_extras(),
)

REASONS: tuple[FinishReason, ...] = (
    "stop",
    "sequence",
    "length",
    "context",
    "tool_call",
    "filter",
    "refusal",
    "pause",
    "malformed",
    "other",
)

logprobs = maybe(
    st.lists(
        st.builds(TokenLogprob, token=texts, logprob=st.floats(-9, 0), bytes=maybe(st.just((104, 105)))), max_size=2
    ).map(tuple)
)
citations = st.lists(
    st.builds(
        Citation, url=st.just("https://example.org/"), title=maybe(texts), start=maybe(counts), end=maybe(counts)
    ),
    max_size=2,
).map(tuple)
answers = st.builds(Text, text=texts, citations=citations, logprobs=logprobs, extras=foreign_extras())
reply_parts: st.SearchStrategy[Part] = answers | calls | reasonings | opaques | st.builds(Refusal, text=texts)

finishes = st.builds(
    Finish,
    reason=st.sampled_from(REASONS),
    sequence=maybe(texts),
    message=maybe(texts),
    extras=foreign_extras(),
)
usages = st.builds(
    Usage,
    input=maybe(counts),
    cache_read=maybe(counts),
    cache_write=maybe(counts),
    output=maybe(counts),
    reasoning=maybe(counts),
    input_audio=maybe(counts),
    output_audio=maybe(counts),
    extras=foreign_extras(),
)


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    choice = st.builds(
        Choice,
        parts=st.lists(reply_parts, max_size=4).map(tuple),
        finish=maybe(finishes),
        extras=foreign_extras(),
    )
    return st.builds(
        Reply,
        id=words.map(lambda word: f"reply_{word}"),
        model=words,
        choices=st.lists(choice, min_size=1, max_size=max_choices).map(tuple),
        usage=maybe(usages),
        created=maybe(st.integers(0, 2_000_000_000)),
        service_tier=maybe(st.sampled_from(["default", "priority"])),
        extras=foreign_extras(),
    )
