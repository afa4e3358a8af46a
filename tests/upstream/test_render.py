"""Which dialect a request goes over, and what is sent."""

from typing import Any

import pytest

from dragoman.upstream import render
from dragoman.upstream.profiles import find_kind
from dragoman.upstream.render import choose_dialect, find_destination
from dragoman.upstream.spec import Upstream
from dragoman.upstream.upstream_state import UpstreamState


@pytest.mark.parametrize(
    ("kind", "client", "model", "dialect"),
    [
        ("openai", "openai_chat", "gpt-4o", "openai_chat"),
        ("openai", "openai_responses", "gpt-4o", "openai_responses"),
        ("openai", "openai_chat", "o3-mini", "openai_responses"),
        ("openai", "anthropic", "gpt-4o", "openai_chat"),
        ("openai", "gemini", "gpt-5", "openai_responses"),
        ("xai", "openai_responses", "grok-4", "openai_chat"),
        ("llamacpp", "openai_responses", "any", "openai_chat"),
        ("llamacpp", "anthropic", "any", "openai_chat"),
        ("ollama", "openai_chat", "qwen3", "ollama"),
        ("anthropic", "openai_chat", "claude-opus-5", "anthropic"),
    ],
)
def test_the_api_path_follows_the_model(kind: str, client: str, model: str, dialect: str) -> None:
    row = find_kind(kind)
    upstream = Upstream(name="x", kind=kind, dialect=row.dialects[0], dialects=row.dialects)
    assert choose_dialect(upstream, client, model) == dialect


def test_a_configured_dialect_is_kept_to() -> None:
    upstream = Upstream(name="x", kind="llamacpp", dialect="anthropic", dialects=("anthropic",))
    assert choose_dialect(upstream, "openai_chat", "any") == "anthropic"


def state_of(kind: str, **fields: Any) -> UpstreamState:
    spoken = find_kind(kind).dialects
    return UpstreamState(Upstream(name="x", kind=kind, dialect=spoken[0], dialects=spoken, **fields), lambda: 0.0)


def test_a_destination_is_made_once_for_each_client_dialect_and_model() -> None:
    state = state_of("openai")
    chat, responses = find_destination(state, "openai_chat", "gpt-4o"), find_destination(state, "openai_responses", "m")
    assert find_destination(state, "openai_chat", "gpt-4o") is chat
    assert (chat.dialect.name, chat.profile.native) == ("openai_chat", True)
    assert (responses.dialect.name, responses.profile.native) == ("openai_responses", True)
    assert find_destination(state, "anthropic", "gpt-4o").profile.native is False
    assert find_destination(state, "openai_chat", "o3-mini").dialect.name == "openai_responses"


def test_a_lesson_changes_the_destinations_of_its_model_for_every_client() -> None:
    state = state_of("groq")
    before = {(c, m): find_destination(state, c, m) for c in ("anthropic", "openai_chat") for m in ("m", "other")}
    state.remember("openai_chat", "m", {"rejects": ("seed",)})
    after = {(client, model): find_destination(state, client, model) for client, model in before}
    for client, model in before:
        learned = "seed" in after[client, model].profile.rejects
        assert learned is (model == "m")
        assert "seed" not in before[client, model].profile.rejects


def test_a_lesson_is_added_to_what_the_configuration_says() -> None:
    state = state_of("groq", overrides={"rejects": ("top_p",)})
    state.remember("openai_chat", "m", {"prefill": False})
    profile = find_destination(state, "openai_chat", "m").profile
    assert (profile.rejects, profile.prefill) == (("top_p",), False)


def test_models_that_clients_make_up_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MOST_DESTINATIONS", 3)
    state = state_of("groq")
    for number in range(10):
        find_destination(state, "openai_chat", f"m{number}")
    assert len(state.destinations) <= 3


@pytest.mark.parametrize(("kind", "asked"), [("groq", True), ("mistral", False), ("anthropic", False)])
def test_only_a_server_that_takes_the_option_is_asked_for_the_usage_of_a_stream(kind: str, asked: bool) -> None:
    assert find_destination(state_of(kind), "gemini", "m").asks_usage is asked
    assert find_destination(state_of(kind, stream_usage=False), "gemini", "m").asks_usage is False
