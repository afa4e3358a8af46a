"""The referee: any conversation, through the passes of any target, is one its strict checker takes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import NAMES
from dragoman.model.messages import (
    Audio,
    Cache,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Seal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.model.request import (
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import profile_for
from tests.examples import examples
from tests.passes.test_schemas import schemas
from tests.passes.wires import complain, write

TARGETS: tuple[tuple[str, str], ...] = (
    ("openai", "gpt-4o"),
    ("openai", "gpt-5-mini"),
    ("openai", "o3"),
    ("azure", "gpt-4o"),
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-4-6"),
    ("anthropic", "claude-opus-4-7"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-of-tomorrow"),
    ("gemini", "gemini-2.5-pro"),
    ("gemini", "gemini-3-pro"),
    ("gemini", "gemma-3-27b-it"),
    ("ollama", "llama3.3"),
    ("xai", "grok-4"),
    ("groq", "llama-3.3-70b"),
    ("cerebras", "qwen-3"),
    ("fireworks", "accounts/fireworks/models/kimi"),
    ("mistral", "mistral-large-latest"),
    ("deepseek", "deepseek-v4"),
    ("moonshot", "kimi-k2.6"),
    ("moonshot", "kimi-k3"),
    ("lmstudio", "gemma"),
    ("llamacpp", "qwen"),
    ("vllm", "qwen"),
    ("sglang", "qwen"),
    ("gpustack", "qwen"),
    ("together", "llama"),
    ("openrouter", "google/gemini-3-pro"),
    ("zai", "glm-5"),
    ("minimax", "minimax-m3"),
    ("litellm", "bedrock-claude"),
    ("compatible", "anything"),
)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
ids = st.sampled_from(["a", "b", "call.1:x", "c" * 70, "toolu_1"])
names = st.sampled_from(["look", "a.b", "2fa", "搜索", "n" * 70])
texts = st.sampled_from(["hi", "", " \n", "Sure: ", "grüße"])
seals = st.none() | st.builds(
    Seal, origin=st.sampled_from(sorted(NAMES)), value=st.just("foreign"), model=st.none() | st.just("other")
).filter(lambda seal: seal.origin not in ("anthropic",))
arguments = st.sampled_from(["{}", '{"a": 1}', "", '{"a": ', "[1]", "null"])
caches = st.none() | st.just(Cache())

plain = st.one_of(
    st.builds(Text, text=texts, cache=caches),
    st.builds(Image, data=st.just(PNG), media_type=st.sampled_from(["image/png", "image/jpeg", None])),
    st.builds(Image, url=st.just("https://example.org/a.png")),
    st.builds(Document, data=st.just("JVBERi0xLjcK"), media_type=st.just("application/pdf"), name=st.just("a.pdf")),
    st.builds(Document, text=st.just("words"), media_type=st.just("text/plain")),
    st.builds(Audio, data=st.just("UklGRiQAAABXQVZFZm10IBAAAAABAAEA"), media_type=st.just("audio/wav")),
    st.just(Opaque(dialect="elsewhere", body={"type": "thing"})),
)
parts: st.SearchStrategy[Part] = st.one_of(
    plain,
    st.builds(Reasoning, text=texts, seal=seals),
    st.builds(ToolCall, id=ids, name=names, arguments=arguments, freeform=st.just(False)),
    st.builds(ToolResult, call_id=ids, parts=st.lists(plain, max_size=2).map(tuple), failed=st.none() | st.booleans()),
    st.builds(ToolResult, call_id=ids, parts=st.just((Text(text="42"),)), name=st.none() | names),
)


def _sensible(message: Message) -> Message:
    """Sound and pictures come from users: what an assistant made is another story."""
    if message.role == "user":
        return message
    kept = tuple(p for p in message.parts if not isinstance(p, Image | Document | Audio))
    return replace(message, parts=kept)


messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "user", "assistant", "system", "developer"]),
    parts=st.lists(parts, max_size=4).map(tuple),
).map(_sensible)
tools = st.lists(
    st.one_of(
        st.builds(Tool, name=names, parameters=st.none() | schemas, strict=st.none() | st.booleans()),
        st.builds(CustomTool, name=names, grammar=st.none() | st.just("start: /x/"), syntax=st.just("lark")),
        st.just(ServerTool(dialect="elsewhere", body={"type": "web_search"})),
    ),
    max_size=3,
).map(tuple)
settings_of = st.builds(
    ReasoningSetting,
    mode=st.sampled_from([None, "on", "off", "auto"]),
    effort=st.sampled_from([None, "minimal", "medium", "xhigh"]),
    budget=st.sampled_from([None, 1, 2048, 100_000]),
)


outputs = st.builds(OutputFormat, type=st.sampled_from(["text", "json"])) | st.builds(
    OutputFormat, type=st.just("json_schema"), name=st.just("r"), schema=schemas, strict=st.none() | st.booleans()
)


def maybe(value: Any) -> st.SearchStrategy[Any]:
    return st.none() | (value if isinstance(value, st.SearchStrategy) else st.just(value))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    given = draw(maybe(tools))
    chosen = None
    if given:
        declared = [t.name for t in given if not isinstance(t, ServerTool)]
        modes: st.SearchStrategy[Any] = st.sampled_from(["auto", "none", "required"])
        named = st.just(tuple(declared[:1])) if declared else st.none()
        if declared:
            chosen = draw(maybe(st.builds(ToolChoice, mode=modes, names=st.none() | named)))
    return Request(
        model="m",
        messages=draw(st.lists(messages, max_size=6).map(tuple)),
        tools=given,
        tool_choice=chosen,
        parallel_calls=draw(maybe(st.booleans())) if given else None,
        max_output=draw(maybe(st.sampled_from([1, 8000]))),
        stop=draw(maybe(st.lists(st.sampled_from(["x", " ", "END"]), max_size=6).map(tuple))),
        choices=draw(maybe(st.sampled_from([1, 2]))),
        output=draw(maybe(outputs)),
        reasoning=draw(maybe(settings_of)),
        temperature=draw(maybe(st.sampled_from([0, 1, 1.7]))),
        top_p=draw(maybe(st.sampled_from([0.1, 1.0]))),
        frequency_penalty=draw(maybe(st.sampled_from([0, 0.5]))),
        logprobs=draw(maybe(st.booleans())),
        store=draw(maybe(st.booleans())),
    )


def _anyone(kind: str, model: str) -> Profile:
    return profile_for(kind, model)


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=[f"{k}-{m.rpartition('/')[2]}" for k, m in TARGETS])
@settings(max_examples=examples(36), deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests())
def test_any_conversation_is_taken_by_the_targets_checker(kind: str, model: str, request: Request) -> None:
    profile = _anyone(kind, model)
    body = write(replace(request, model=model), profile)
    # who says nothing gets the provider's own answer to that: seed 004 leaves a lone orphan's conversation empty
    assert [c for c in complain(body, profile, model) if c != "[] is too short - 'messages'"] == []


@pytest.mark.parametrize("mend", [False, True])
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests(), target=st.sampled_from(TARGETS))
def test_what_is_legal_stays_the_same_object(mend: bool, request: Request, target: tuple[str, str]) -> None:
    profile = replace(_anyone(*target), pairing="mend" if mend else "remove")
    once = legalise(replace(request, model=target[1]), profile, Notes())
    notes = Notes()
    assert legalise(once, profile, notes) is once
    assert not notes.items


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests(), target=st.sampled_from(TARGETS))
def test_the_same_history_gives_the_same_request(request: Request, target: tuple[str, str]) -> None:
    profile = _anyone(*target)
    assert legalise(request, profile, Notes()) == legalise(request, profile, Notes())


@pytest.mark.parametrize("mend", [False, True])
def test_case_142_a_repair_reads_the_same_when_the_conversation_has_grown(mend: bool) -> None:
    from tests.passes.short_forms import assistant, call, result, talk, user

    history = talk(
        user("q"),
        assistant(call("a"), call("b")),
        user(result("a")),
        user("go on"),
        assistant("ok", call("a")),
        user(result("a")),
        user("and"),
    )
    for kind, model in TARGETS:
        profile = replace(_anyone(kind, model), pairing="mend" if mend else "remove", prefill=True)
        whole = legalise(history, profile, Notes()).messages
        part = legalise(replace(history, messages=history.messages[:4]), profile, Notes()).messages
        assert whole[: len(part) - 1] == part[:-1], kind
