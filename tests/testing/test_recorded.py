"""Strict is not stricter than the vendors: what they took in recorded traffic, scripted providers take."""

import pytest

from dragoman.testing.rules import check
from dragoman.upstream.profiles import load_rows
from tests.recorded import Case, cases, needs_corpus

pytestmark = needs_corpus

TALK = ("messages", "chat", "responses", "generate")
VENDORS = {"anthropic": ("anthropic",), "gemini": ("google",), "ollama": ("ollama",), "openai_responses": ("openai",)}
MOST_REFUSED = 0.02  # rules that have changed since, and what only the vendor's own state makes legal


def kind_of(case: Case, dialect: str) -> str | None:
    provider = str(case.meta["provider"])
    if dialect in VENDORS:
        return {"google": "gemini"}.get(provider, provider) if provider in VENDORS[dialect] else None
    return provider if provider in load_rows().kinds else "compatible"


@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "ollama", "openai_chat", "openai_responses"])
def test_what_the_vendor_took_is_taken(dialect: str) -> None:
    refused: dict[str, str] = {}
    count = 0
    for case in cases(dialect):
        wire, kind = case.request(), kind_of(case, dialect)
        if case.meta["endpoint"] not in TALK or case.failed or wire is None or kind is None:
            continue
        if wire.body.get("previous_response_id"):
            continue
        count += 1
        model = str(wire.body.get("model") or wire.path.rpartition(":")[0].rpartition("/")[2])
        complaints = check(kind, dialect, wire.body, model)
        if complaints:
            refused[case.name] = complaints[0].message
    assert count > 40
    assert len(refused) <= count * MOST_REFUSED, refused
