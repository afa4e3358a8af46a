"""The official package is the referee: it parses what we write, and we read what it sends."""

import json
from functools import cache
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from anthropic.types.beta import message_create_params as beta_params
from pydantic import TypeAdapter, ValidationError

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.fold import unfold
from dragoman.model.messages import Opaque
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.anthropic.grammar import check_stream
from tests.laws.test_recorded import decoded_requests, replies_of
from tests.recorded import needs_corpus

# Anthropic's own replies come back as they were (tests/laws); some are older than the package's types.
SOURCES = [name for name in NAMES if name not in ("canonical", "anthropic")]
HERE = find_dialect("anthropic")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def complaint(kinds: tuple[Any, ...], value: Any) -> str | None:
    """None if one of the types takes the value, else what the first says."""
    first = None
    for kind in kinds:
        try:
            adapter(kind).validate_python(value)
        except ValidationError as error:
            first = first or str(error)[:600]
        else:
            return None
    return first


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_reply_we_write_parses(source: str) -> None:
    for case, reply in replies_of(source):
        body = load_json(dump_json(HERE.encode_reply(reply, Notes()).body))
        assert complaint((Message, BetaMessage), body) is None, case.name


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_stream_we_write_parses_and_keeps_the_grammar(source: str) -> None:
    for case, reply in replies_of(source):
        encoder = HERE.stream_encoder(Notes())
        events = check_stream(encoder.feed(unfold(reply)) + encoder.close())
        if any(isinstance(part, Opaque) for choice in reply.choices for part in choice.parts):
            continue  # blocks newer or older than the package
        for event in events:
            if event["type"] != "ping":
                assert complaint((RawMessageStreamEvent, BetaRawMessageStreamEvent), event) is None, case.name


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_request_we_write_is_one_the_package_could_send(source: str) -> None:
    kind = beta_params.MessageCreateParamsNonStreaming | beta_params.MessageCreateParamsStreaming
    legacy = {"temperature", "top_p", "top_k"}  # gone from the package with API version 2026-10-21
    for case, request in decoded_requests(source, HERE.name):
        body = HERE.encode_request(make_legal(request, HERE, Notes()), Notes()).body
        plain = {key: value for key, value in load_json(dump_json(body)).items() if key not in legacy}
        assert complaint((kind,), plain) is None, case.name


def test_a_request_the_package_builds_is_read_without_a_leftover() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json=REPLY)

    client = anthropic.Anthropic(
        api_key="k", http_client=anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    )
    client.messages.create(
        model="claude-sonnet-5-5",
        max_tokens=100,
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
        ],
        tools=[{"name": "w", "description": "d", "input_schema": {"type": "object"}}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        thinking={"type": "adaptive"},
        output_config={"effort": "low"},
        metadata={"user_id": "u"},
        service_tier="auto",
    )
    request = HERE.decode_request(WireRequest(body=json.loads(sent[0].content)), Notes())
    assert request.extras == {}
    assert all(not tool.extras for tool in request.tools or () if not hasattr(tool, "body"))


REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
