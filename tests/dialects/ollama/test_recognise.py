"""Which bodies look like Ollama's."""

from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.dialects._base import What

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("request", {"model": "m", "messages": [USER], "options": {}}),
        ("request", {"model": "m", "messages": [USER], "keep_alive": "5m"}),
        ("request", {"model": "m", "messages": [USER], "format": "json"}),
        ("request", {"model": "m", "messages": [USER], "think": True}),
        ("request", {"model": "m", "messages": [{**USER, "images": ["AAAA"]}]}),
        ("request", {"model": "m", "messages": [USER, {"role": "tool", "content": "", "tool_name": "f"}]}),
        (
            "request",
            {"model": "m", "messages": [{**USER, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]},
        ),
        ("request", {"model": "m", "prompt": "hi"}),
        ("request", {"model": "m", "keep_alive": 0}),
        ("reply", {"model": "m", "created_at": "", "message": USER, "done": True}),
        ("reply", {"model": "m", "response": "", "done": True}),
        ("stream", {"model": "m", "message": USER, "done": False}),
        ("failure", {"error": "model is required"}),
    ],
)
def test_ollama_is_recognised_before_all_others(what: What, body: dict[str, Any]) -> None:
    scores = {name: find_dialect(name).recognise(body, what) for name in NAMES}
    assert max(scores, key=lambda name: scores[name]) == "ollama", scores


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("request", {"model": "m", "input": "hi"}),
        ("request", {"contents": []}),
        ("request", {"model": "m"}),
        ("reply", {"id": "x", "choices": []}),
        ("failure", {"error": {"message": "x"}}),
    ],
)
def test_others_are_left_to_others(what: What, body: dict[str, Any]) -> None:
    assert find_dialect("ollama").recognise(body, what) == 0
