"""Asking to see the thinking, and nothing else (Gemini CLI does)."""

import pytest

from dragoman import convert

ASKED = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
PATH = "/v1beta/models/claude-sonnet-4-6:generateContent"


@pytest.mark.parametrize(("shown", "thinking"), [(True, {"type": "adaptive", "display": "summarized"}), (False, None)])
def test_to_see_thinking_it_must_think_and_then_sampling_goes(shown: bool, thinking: object) -> None:
    settings = {"topK": 64, "temperature": 0.5, "thinkingConfig": {"includeThoughts": shown}}
    body = convert({**ASKED, "generationConfig": settings}, source="gemini", to="anthropic", path=PATH).body
    assert body.get("thinking") == thinking
    assert ("top_k" in body) is (thinking is None)
