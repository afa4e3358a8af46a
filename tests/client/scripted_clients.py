"""Clients in front of scripted providers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman.client import AsyncClient
from dragoman.testing import Provider
from dragoman.upstream.spec import Timeouts

KEY = "sk-canary-0123456789"
PATIENT = Timeouts(connect_s=100, headers_s=100, idle_s=100)  # the machine may be busy: no answer is late
# a kind of server, and a model that makes it speak the dialect
ROOMS = {
    "openai_chat": ("openai", "gpt-4o"),
    "openai_responses": ("openai", "o4-mini"),
    "anthropic": ("anthropic", "claude-sonnet-4-6"),
    "gemini": ("gemini", "gemini-2.5-flash"),
    "ollama": ("ollama", "qwen3"),
    "groq": ("groq", "groq-model"),
    "mistral": ("mistral", "mistral-model"),
    "xai": ("xai", "grok-4"),
    "vllm": ("vllm", "vllm-model"),
    "deepseek": ("deepseek", "deepseek-chat"),
}
DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")


@asynccontextmanager
async def room(name: str, **more: Any) -> AsyncIterator[tuple[AsyncClient, Provider, str]]:
    """A provider that takes only what is right, a client for it, and a model's name."""
    kind, model = ROOMS[name]
    options = {"timeouts": PATIENT, "timeout_s": 60.0, "env": {}, **more}
    async with Provider(kind, key=KEY) as provider:
        async with AsyncClient(kind, api_key=KEY, base_url=provider.base_url, **options) as client:
            yield client, provider, model
        assert provider.refusals == []


def talks(provider: Provider) -> list[str | None]:
    """The dialects of the conversation's requests."""
    return [seen.dialect for seen in provider.requests if seen.dialect is not None]
