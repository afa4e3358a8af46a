"""Bent requests at every door: an answer, or a refusal that names the place; no error of our own, no cut stream."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from dragoman.demo.model import demo_events
from dragoman.model.events import Event
from dragoman.model.request import Request
from tests.gateway.house import open_house
from tests.gateway.web import Got, post
from tests.laws.damage import bend
from tests.recorded import cases, needs_corpus

EXAMPLES = 60
LARGEST = 20_000
DOORS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/demo:{}",
    "ollama": "/api/chat",
}
ENDS = {
    "openai_chat": (b"[DONE]",),
    "openai_responses": (b"response.completed", b"response.incomplete", b"response.failed"),
    "anthropic": (b"message_stop",),
    "gemini": (b"finishReason", b"blockReason"),
    "ollama": (b'"done":true',),
}


def path_of(door: str, dice: Random) -> str:
    return DOORS[door].format(dice.choice(("generateContent", "streamGenerateContent?alt=sse")))


def for_demo(body: Any) -> Any:
    return body | {"model": "demo"} if isinstance(body, dict) and isinstance(body.get("model"), str) else body


def is_whole(door: str, got: Got) -> bool:
    if "stream" not in got.headers["content-type"] and "ndjson" not in got.headers["content-type"]:
        return True
    return any(word in got.body for word in ENDS[door])


@needs_corpus
@pytest.mark.parametrize("door", DOORS)
def test_a_bent_request_is_answered_or_refused_in_words(door: str) -> None:
    dice = Random(f"gateway {door}")  # noqa: S311  # the same examples in every run
    found = [w.body for c in cases(door) if len(c.read("request.json") or b"") < LARGEST and (w := c.request())]
    with open_house() as house:
        for _ in range(EXAMPLES):
            body = for_demo(bend(dice.choice(found), dice))
            got = post(house.url, path_of(door, dice), body)
            assert got.status < 500, (body, got.text)
            assert got.status != 200 or is_whole(door, got), (body, got.text)


@pytest.mark.parametrize("door", DOORS)
def test_an_unforeseen_error_ends_a_stream_in_words(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: never a silent cut while the process lives; nor an end that makes half an answer look whole."""

    def break_off(request: Request) -> Iterator[Event]:
        for i, event in enumerate(demo_events(request)):
            if i == 3:
                raise ZeroDivisionError
            yield event

    monkeypatch.setattr("dragoman.demo.model.demo_events", break_off)
    ask = {"model": "demo", "stream": True, "max_tokens": 99, "messages": [{"role": "user", "content": "say one two"}]}
    bodies = {
        "openai_responses": {"model": "demo", "stream": True, "input": "say one two"},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "say one two"}]}]},
    }
    with open_house() as house:
        path = DOORS[door].format("streamGenerateContent?alt=sse")
        got = post(house.url, path, bodies.get(door, ask))
    assert got.status == 200
    assert b"error" in got.body
    assert door == "openai_responses" or not is_whole(door, got)
