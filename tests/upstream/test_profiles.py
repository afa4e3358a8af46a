"""Rows of profiles.toml: complete, cited, merged in order, and the user's own on top."""

import pytest

from dragoman.errors import ConfigError
from dragoman.passes.defaults import DEFAULTS
from dragoman.upstream.profiles import (
    add_rows,
    choose_dialect,
    find_kind,
    kind_of_model,
    load_rows,
    profile_for,
    read_rows,
)

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
    assert all(dialect in DEFAULTS for dialect in kind.dialects)


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
        ("claude-3-5-haiku-20241022", "budget", True, True),
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
    mine = read_rows(
        {
            "kind": {
                "parrot": {"dialects": ["openai_chat"], "base_url": "http://parrot", "openai_chat": {"stops": 1}},
                "groq": {"dialects": ["openai_chat"], "base_url": "http://groq.proxy", "profile": {"developer": True}},
            },
            "family": [{"models": ["polly-*"], "profile": {"prefill": False}}],
        },
        "dragoman.toml",
    )
    rows = add_rows(load_rows(), mine)
    assert profile_for("parrot", "polly-2", rows=rows).stops == 1
    assert not profile_for("parrot", "polly-2", rows=rows).prefill
    assert find_kind("groq", rows).base_url == "http://groq.proxy"
    assert profile_for("groq", "m", rows=rows).echo == "forbidden"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"kind": {"x": {"dialects": ["klingon"], "base_url": ""}}}, "klingon"),
        ({"kind": {"x": {"dialects": ["gemini"], "base_url": "", "colour": "red"}}}, "colour"),
        ({"kind": {"x": {"dialects": ["gemini"], "base_url": "", "profile": {"prefil": True}}}}, "prefil"),
        ({"family": [{"models": ["x*"], "profile": {"echo": "sometimes"}}]}, "sometimes"),
        ({"family": [{"models": "x*"}]}, "array"),
    ],
)
def test_a_typing_mistake_names_the_row(row: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_rows(row, "dragoman.toml")


def test_an_unknown_kind_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="openai, azure"):
        find_kind("opnai")
