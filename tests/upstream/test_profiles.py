"""Rows of profiles.toml: complete, cited, merged in order, and the user's own on top."""

import re

import pytest
from msgspec.structs import replace

from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import ConfigError
from dragoman.exchange import write_wire
from dragoman.gateway.config.providers import read_upstream
from dragoman.model.messages import Message, Text
from dragoman.model.request import ReasoningSetting, Request
from dragoman.notes import Notes
from dragoman.upstream.http.request import join_url
from dragoman.upstream.profiles import (
    add_rows,
    choose_dialect,
    find_kind,
    kind_of_model,
    load_rows,
    profile_for,
)
from tests.passes.wires import read, write

WANTED = (
    *("openai", "azure", "anthropic", "gemini", "vertex", "xai", "ollama", "lmstudio", "gpustack", "vllm", "llamacpp"),
    *("sglang", "groq", "cerebras", "fireworks", "deepseek", "mistral", "together", "openrouter", "moonshot", "zai"),
    *("minimax", "compatible"),
)


def test_b1_every_provider_of_the_mission_has_a_row() -> None:
    assert set(WANTED) <= set(load_rows().kinds)


@pytest.mark.parametrize("name", WANTED)
def test_every_row_says_where_and_when_it_was_seen(name: str) -> None:
    kind = find_kind(name)
    assert kind.seen
    assert kind.base_url.startswith("http")
    assert all(dialect in NAMES for dialect in kind.dialects)


@pytest.mark.parametrize("name", sorted(load_rows().kinds))
def test_every_source_of_a_row_says_when_or_where(name: str) -> None:
    """The digests and FIELD-CASES were read on one day, which the head of the file says."""
    known = re.compile(r"digest|cases? \d|20\d\d|mission|seed \d|BACKENDS|nothing was seen")
    assert [line for line in find_kind(name).seen if not known.search(line)] == []


# Every model the protocol digests of November 2026 name, by the server that makes it.
NAMED = {
    "openai": (
        *(
            "gpt-6.1-sol",
            "gpt-6.1-terra",
            "gpt-6-astra",
            "gpt-6-sol",
            "gpt-6-luna",
            "gpt-5.6-sol",
            "gpt-5.5",
            "gpt-5.4",
        ),
        *("gpt-5.3-codex", "gpt-5", "gpt-4o", "gpt-4.1", "gpt-4", "gpt-3.5-turbo", "o1", "o3", "o3-mini", "o4-mini"),
    ),
    "anthropic": (
        *("claude-fable-5", "claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5", "claude-mythos-5-1"),
        *("claude-mythos-5-2", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5"),
        *("claude-sonnet-5", "claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6"),
        *("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"),
    ),
    "gemini": (
        "gemini-4-argon",
        "gemini-3-pro",
        "gemini-3.5-flash",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemma-3-27b-it",
    ),
    "xai": ("grok-4.3", "grok-4.6", "grok-4"),
}


@pytest.mark.parametrize(("kind", "model"), [(kind, model) for kind, models in NAMED.items() for model in models])
def test_a_model_the_digests_name_has_a_family(kind: str, model: str) -> None:
    assert any(family.fits(kind, model) for family in load_rows().families)
    assert profile_for(kind, model).thinking is not None


@pytest.mark.parametrize(
    ("model", "off", "sent"),
    [
        ("claude-sonnet-5-5", True, {"type": "between_tools"}),  # instead of disabled, which it refuses
        ("claude-haiku-5-5", True, {"type": "disabled"}),
        ("claude-opus-5", True, {"type": "disabled"}),
        ("claude-opus-5-5", False, {"type": "adaptive"}),  # never off: as little as there is
        ("claude-fable-5-2", False, {"type": "adaptive"}),
    ],
)
def test_a_wish_not_to_think_is_said_as_the_model_takes_it(model: str, off: bool, sent: dict[str, str]) -> None:
    profile = profile_for("anthropic", model)
    assert profile.thinking is not None
    assert profile.thinking.off is off
    request = read(
        "openai_chat", {"model": model, "messages": [{"role": "user", "content": "q"}], "reasoning_effort": "none"}
    )
    assert write(request, profile)["thinking"] == sent


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("minimax", "https://api.minimax.io/anthropic/v1/messages"),
        ("moonshot", "https://api.moonshot.ai/anthropic/v1/messages"),
        ("zai", "https://api.z.ai/api/anthropic/v1/messages"),
        ("deepseek", "https://api.deepseek.com/anthropic/v1/messages"),
        ("fireworks", "https://api.fireworks.ai/inference/v1/messages"),
        ("openrouter", "https://openrouter.ai/api/v1/messages"),
    ],
)
def test_another_dialect_may_have_another_address(kind: str, url: str) -> None:
    row = {"dialect": "anthropic", "api_key": "k"}
    upstream = read_upstream(kind, row, "dragoman.toml", {})
    assert join_url(upstream.base_url, "/v1/messages") == url
    assert join_url(read_upstream(kind, {"api_key": "k"}, "f", {}).base_url, "/v1/chat/completions").endswith(
        "/chat/completions"
    )


def test_every_family_says_where_it_was_seen() -> None:
    for family in load_rows().families:
        assert family.seen, family.models


@pytest.mark.parametrize(
    ("kind", "model", "dialect"),
    [
        ("openai", "o1-preview", "openai_responses"),
        ("openai", "o3-mini", "openai_responses"),
        ("openai", "o4-mini", "openai_responses"),
        ("openai", "gpt-5", "openai_responses"),
        ("openai", "gpt-6.1-sol", "openai_responses"),
        ("openai", "gpt-4o", "openai_chat"),
        ("openai", "gpt-4.1-mini", "openai_chat"),
        ("azure", "o3", "openai_responses"),
        ("xai", "grok-4", "openai_chat"),
        ("xai", "grok-3-mini", "openai_chat"),
        ("openrouter", "openai/gpt-5", "openai_chat"),
        ("anthropic", "claude-opus-5-5", "anthropic"),
        ("gemini", "gemma-3-27b-it", "gemini"),
        ("ollama", "gpt-oss:20b", "ollama"),
    ],
)
def test_b6_the_api_path_follows_the_model(kind: str, model: str, dialect: str) -> None:
    assert choose_dialect(kind, model) == dialect
    assert profile_for(kind, model).dialect == dialect


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("gpt-4o", "openai"),
        ("o1-mini", "openai"),
        ("o3-mini", "openai"),
        ("o4-mini", "openai"),
        ("gemini-2.5-flash", "gemini"),
        ("models/gemini-3-pro", "gemini"),
        ("gemma-3-27b-it", "gemini"),
        ("claude-sonnet-5", "anthropic"),
        ("grok-4", "xai"),
        ("deepseek-v4", "deepseek"),
        ("mistral-large-latest", "mistral"),
        ("kimi-k2", "moonshot"),
        ("llama3.3", None),
    ],
)
def test_d5_a_prefix_tells_the_provider(model: str, kind: str | None) -> None:
    assert kind_of_model(model) == kind


@pytest.mark.parametrize(
    ("model", "says", "off", "prefill"),
    [
        ("claude-3-5-haiku-20241022", "nothing", True, True),
        ("claude-sonnet-4-20250514", "budget", True, True),
        ("claude-sonnet-4-5-20250929", "budget", True, True),
        ("claude-opus-4-6", "both", True, False),
        ("claude-opus-4-7", "adaptive", True, False),
        ("claude-sonnet-5", "adaptive", True, False),
        ("claude-opus-5-5", "adaptive", False, False),
        ("claude-fable-5-2", "adaptive", False, False),
        ("anthropic/claude-opus-4-7", "adaptive", True, False),
    ],
)
def test_a_models_rules_are_its_familys(model: str, says: str, off: bool, prefill: bool) -> None:
    profile = profile_for("anthropic", model)
    assert profile.thinking is not None
    assert (profile.thinking.says, profile.thinking.off, profile.prefill) == (says, off, prefill)


def test_families_are_merged_in_order_and_tables_key_by_key() -> None:
    chat = profile_for("openai", "o3", "openai_chat")
    assert chat.spelling == {"~limit": "max_completion_tokens"}
    assert chat.thinking is not None
    assert chat.thinking.efforts == ("low", "medium", "high")


def test_a_user_overrides_fields_of_one_upstream() -> None:
    profile = profile_for("groq", "m", overrides={"pairing": "mend", "policy": {"media": "refuse"}})
    assert profile.pairing == "mend"
    assert profile.policy_of("media") == "refuse"
    assert profile.echo == "forbidden"
    assert profile_for("groq", "m").pairing == "remove"


def test_a_user_adds_and_changes_rows() -> None:
    mine = {
        "kind": {
            "parrot": {"dialects": ["openai_chat"], "base_url": "http://parrot", "openai_chat": {"stops": 1}},
            "groq": {"base_url": "http://groq.proxy", "profile": {"developer": True}},
        },
        "family": [{"models": ["polly-*"], "profile": {"prefill": False}}],
    }
    rows = add_rows(load_rows(), mine, "dragoman.toml")
    assert profile_for("parrot", "polly-2", rows=rows).stops == 1
    assert not profile_for("parrot", "polly-2", rows=rows).prefill
    assert find_kind("groq", rows).base_url == "http://groq.proxy"
    groq = profile_for("groq", "m", rows=rows)
    assert (groq.echo, groq.developer) == ("forbidden", True)
    assert not profile_for("groq", "m").developer, "the rows of dragoman stay as they are"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"kind": {"x": {"dialects": ["klingon"]}}}, "kind.x.dialects: no such dialect: klingon"),
        ({"kind": {"x": {"dialects": []}}}, "kind.x.dialects: names no dialect"),
        ({"kind": {"x": {}}}, "kind.x: dialects is needed"),
        ({"kind": {"x": 1}}, "kind.x: expected a table, found number"),
        ({"kind": []}, r"kind: expected tables \[kind.NAME\], found array"),
        ({"kind": {"x": {"dialects": ["gemini"], "colour": "red"}}}, "kind.x.colour: no such key"),
        ({"kind": {"x": {"dialects": ["gemini"], "by_dialect": {}}}}, "kind.x.by_dialect: no such key"),
        ({"kind": {"x": {"dialects": ["gemini"], "profile": {"prefil": True}}}}, "kind.x.profile.prefil: no such key"),
        (
            {"kind": {"groq": {"openai_chat": {"rejects": "seed"}}}},
            "kind.groq.openai_chat.rejects: expected a list of texts",
        ),
        ({"kind": {"groq": {"auth": "password"}}}, "kind.groq.auth: expected .*bearer.*, found 'password'"),
        ({"family": [{"models": ["x*"], "profile": {"echo": "sometimes"}}]}, "family.0.profile.echo: .*sometimes"),
        ({"family": [{"models": "x*"}]}, "family.0.models: expected a list of texts"),
        ({"family": [{"models": ["x*"]}, {"kinds": ["groq"]}]}, "family.1: models is needed"),
        ({"family": {}}, r"family: expected tables \[\[family\]\], found object"),
    ],
)
def test_a_typing_mistake_names_the_row(row: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        add_rows(load_rows(), row, "dragoman.toml")


def test_an_unknown_kind_names_the_nearest_or_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="did you mean openai"):
        find_kind("opnai")
    with pytest.raises(ConfigError, match="expected one of anthropic, azure, "):
        find_kind("zzz")


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "sglang"])
def test_a_wish_to_think_and_no_more_reaches_servers_by_their_template(kind: str) -> None:
    """Ollama's `think: true`. An effort is said with OpenAI's own word, which these servers know."""
    profile = profile_for(kind, "qwen3", "openai_chat")
    asked = Request(model="m", messages=(Message(role="user", parts=(Text(text="hi"),)),))
    encode = find_dialect("openai_chat").encode_request
    said = write_wire(replace(asked, reasoning=ReasoningSetting(mode="on")), profile, encode, Notes()).body
    assert said["chat_template_kwargs"] == {"enable_thinking": True}
    low = write_wire(replace(asked, reasoning=ReasoningSetting(mode="auto", effort="low")), profile, encode, Notes())
    assert low.body["reasoning_effort"] == "low"
    assert "chat_template_kwargs" not in low.body
