"""Which upstream a model's name means, and what is said when there is none."""

from typing import Any

import pytest

from dragoman.client import AsyncClient
from dragoman.dialects.canonical import NOT_OURS
from dragoman.errors import ConfigError, UpstreamError
from dragoman.failure import Failure

ENV = {
    "OPENAI_API_KEY": "k1",
    "ANTHROPIC_API_KEY": "k2",
    "GEMINI_API_KEY": "",
    "GOOGLE_API_KEY": "k3",
    "GROQ_API_KEY": "k4",
}


def leads(client: AsyncClient, model: str) -> tuple[str, str, str]:
    state, target = client.upstreams.targets(model)[0]
    return state.spec.name, target.model, state.spec.base_url


@pytest.mark.parametrize(
    ("model", "upstream", "name"),
    [
        ("gpt-4o", "openai", "gpt-4o"),
        ("o3-mini", "openai", "o3-mini"),
        ("claude-sonnet-4-6", "anthropic", "claude-sonnet-4-6"),
        ("gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
        ("groq/llama-3", "groq", "llama-3"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("ollama/qwen3:8b", "ollama", "qwen3:8b"),
        ("demo", "demo", "demo"),
    ],
)
def test_a_name_leads_to_its_upstream(model: str, upstream: str, name: str) -> None:
    assert leads(AsyncClient(env=ENV), model)[:2] == (upstream, name)


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        ("grok-4", "unauthenticated", "set XAI_API_KEY"),
        ("deepseek-chat", "unauthenticated", "set DEEPSEEK_API_KEY"),
        ("qwen3", "not_found", "ollama/qwen3"),
        ("../etc", "not_found", "not a valid model name"),
        ("", "not_found", "not a valid model name"),
    ],
)
def test_a_name_that_leads_nowhere_is_never_answered_by_another_model(model: str, kind: str, words: str) -> None:
    with pytest.raises(UpstreamError, match=words) as caught:
        AsyncClient(env=ENV).upstreams.targets(model)
    assert caught.value.failure.kind == kind


def test_keys_come_from_arguments_before_the_environment() -> None:
    client = AsyncClient(keys={"openai": "mine", "google": "also mine"}, env=ENV)
    for model, key in (("gpt-4o", "mine"), ("gemini-x", "also mine"), ("claude-x", "k2")):
        state = client.upstreams.targets(model)[0][0]
        secret = state.keys.keys[0].secret
        assert secret is not None
        assert secret.reveal(state.origin) == key
        assert key not in repr(state.spec)


def test_addresses_come_from_the_environment_too() -> None:
    env = {**ENV, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OLLAMA_HOST": "127.0.0.1:8"}
    assert leads(AsyncClient(env=env), "gpt-4o")[2] == "http://127.0.0.1:9/v1"
    assert leads(AsyncClient(env=env), "ollama/x")[2] == "http://127.0.0.1:8"
    assert leads(AsyncClient(env={"OLLAMA_HOST": "0.0.0.0"}), "ollama/x")[2] == "http://localhost:11434"  # noqa: S104


def test_one_provider_takes_every_name() -> None:
    client = AsyncClient("vllm", base_url="http://127.0.0.1:9/v1", env={})
    assert leads(client, "gpt-4o")[:2] == ("vllm", "gpt-4o")
    assert leads(client, "org/model")[:2] == ("vllm", "org/model")
    assert leads(client, "demo")[:2] == ("demo", "demo")


@pytest.mark.parametrize(
    ("model", "dialect", "name"),
    [
        ("claude-x", "anthropic", "claude-x"),
        ("gemini-x", "gemini", "gemini-x"),
        ("o4-mini", "openai_responses", "o4-mini"),
        ("gpt-4o", "openai_chat", "gpt-4o"),
        ("anything", "openai_chat", "anything"),
        ("ollama/qwen3", "openai_chat", "ollama/qwen3"),
    ],
)
def test_a_server_that_is_no_gateway_of_ours_is_asked_in_the_dialect_the_model_speaks_at_home(
    model: str, dialect: str, name: str
) -> None:
    client = AsyncClient(base_url="http://127.0.0.1:20006/v1", env={})
    assert client.upstreams.targets(model)[0][0].spec.dialect == "canonical"
    assert client.upstreams.leave_own_form(Failure(kind="not_found", status=404, code=NOT_OURS, message=""))
    state, target = client.upstreams.targets(model)[0]
    assert (state.spec.dialect, target.model, state.spec.base_url) == (dialect, name, "http://127.0.0.1:20006")
    assert client.upstreams.targets(model)[0][0] is state  # it keeps what it learnt


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"provider": "nobody"}, "no such kind of server"),
        ({"keys": {"nobody": "k"}}, "no such kind of server"),
        ({"provider": "azure"}, "base_url"),
        ({"base_url": "not a url"}, "base_url"),
        ({"headers": {"x-a": "b"}}, "headers"),
        ({"provider": "openai", "base_url": "ftp://x"}, "base_url"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_at_once(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AsyncClient(env={}, **more)


def test_headers_of_the_caller_are_sent() -> None:
    for client in (
        AsyncClient("openai", headers={"X-Title": "a"}, env={}),
        AsyncClient(base_url="http://127.0.0.1:9", headers={"X-Title": "a"}, env={}),
    ):
        for model in ("gpt-4o", "claude-x"):
            assert client.upstreams.targets(model)[0][0].spec.headers == {"x-title": "a"}


def test_an_alias_may_stand_for_several() -> None:
    client = AsyncClient(env=ENV, aliases={"fast": "gpt-4o", "best": ["claude-x", "gpt-4o"]})
    assert leads(client, "fast")[1] == "gpt-4o"
    assert [target.model for _, target in client.upstreams.targets("best")] == ["claude-x", "gpt-4o"]
