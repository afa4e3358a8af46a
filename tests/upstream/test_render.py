"""Which dialect a request goes over, and what is sent."""

import pytest

from dragoman.upstream.profiles import find_kind
from dragoman.upstream.render import choose_dialect
from dragoman.upstream.spec import Upstream


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
