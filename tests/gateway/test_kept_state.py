"""Requests that name what a server keeps: carried to that server, held by us, or refused. Never answered without it."""

import json
from typing import Any

import anthropic
import pytest

from dragoman.gateway.routes.table import all_dialects
from tests.gateway.house import CANARY, faultline, open_house, upstream
from tests.gateway.test_faults import GOOD
from tests.gateway.web import post

TURN = [{"role": "user", "content": "go on"}]
CONTENTS = [{"role": "user", "parts": [{"text": "go on"}]}]
CASES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("anthropic", "thread"): (
        "/v1/messages",
        {"max_tokens": 9, "messages": TURN, "thread": {"type": "continue", "previous_message_id": "msg_1"}},
    ),
    ("anthropic", "container"): ("/v1/messages", {"max_tokens": 9, "messages": TURN, "container": "container_1"}),
    ("openai_responses", "conversation"): ("/v1/responses", {"input": "go on", "conversation": "conv_1"}),
    ("openai_responses", "prompt"): ("/v1/responses", {"prompt": {"id": "pmpt_1"}}),
    ("gemini", "cachedContent"): (
        "/v1beta/models/m:generateContent",
        {"contents": CONTENTS, "cachedContent": "cachedContents/theirs"},
    ),
    ("gemini", "previousInteractionId"): (
        "/v1beta/models/m:generateContent",
        {"contents": CONTENTS, "previousInteractionId": "int_1"},
    ),
    ("gemini", "previous_interaction_id"): (
        "/v1beta/models/m:generateContent",
        {"contents": CONTENTS, "previous_interaction_id": "int_1"},
    ),
    ("ollama", "context"): ("/api/generate", {"prompt": "go on", "context": [1, 2, 3], "stream": False}),
}


def test_every_key_that_names_kept_state_has_a_case() -> None:
    assert {(d.name, kept.key) for d in all_dialects() for kept in d.kept_state} == set(CASES)


@pytest.mark.parametrize(("dialect", "key"), CASES)
def test_a_server_of_another_dialect_is_not_asked(dialect: str, key: str) -> None:
    path, body = CASES[dialect, key]
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = post(house.url, path, body if dialect == "gemini" else {"model": "m", **body})
        assert got.status == 400
        assert f"{key}: the upstream of m does not keep it" in got.text
        assert not line.seen


@pytest.mark.parametrize(("dialect", "key"), CASES)
def test_a_server_of_the_same_dialect_gets_it(dialect: str, key: str) -> None:
    path, body = CASES[dialect, key]
    with faultline(GOOD) as line, open_house(upstream("one", dialect, line.url, models=("m",))) as house:
        post(house.url, path, body if dialect == "gemini" else {"model": "m", **body})
        assert json.loads(line.seen[0].body)[key] == body[key]


def test_anthropics_sdk_knows_the_refusal_of_a_thread() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        ask = anthropic.Anthropic(base_url=house.url, api_key=CANARY, max_retries=0)
        with ask as client, pytest.raises(anthropic.BadRequestError) as caught:
            client.beta.messages.create(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": "go on"}],
                thread={"type": "continue", "previous_message_id": "msg_1"},
            )
        assert type(caught.value).__name__ == "ThreadUnsupportedRequestError"
