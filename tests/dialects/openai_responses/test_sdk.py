"""The official package is the referee: it parses what we write, and we read what it sends."""

import json
from functools import cache
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import (
    Response,
    ResponseStreamEvent,
    response_create_params,
)
from pydantic import TypeAdapter, ValidationError

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import unfold
from dragoman.model.messages import Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.openai_responses.grammar import check_stream
from tests.laws.test_recorded import decode_stream, decoded_requests, replies_of, talks
from tests.recorded import needs_corpus

# Responses' own replies come back as they were (tests/laws); some are older than the package's types.
SOURCES = [name for name in NAMES if name not in ("canonical", "openai_responses")]
HERE = find_dialect("openai_responses")
PARAMS = response_create_params.ResponseCreateParamsNonStreaming | response_create_params.ResponseCreateParamsStreaming


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def complaint(kind: Any, value: Any) -> str | None:
    """What the package's type says against a value."""
    try:
        adapter(kind).validate_python(value)
    except ValidationError as error:
        return str(error)[:1500]
    return None


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_reply_we_write_parses(source: str) -> None:
    for case, reply in replies_of(source):
        body = load_json(dump_json(HERE.encode_reply(reply, Notes()).body))
        assert complaint(Response, body) is None, case.name


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_stream_we_write_parses_and_keeps_the_grammar(source: str) -> None:
    for case, reply in replies_of(source):
        encoder = HERE.stream_encoder(Notes())
        events = check_stream(encoder.feed(unfold(reply)) + encoder.close())
        for event in events:
            assert complaint(ResponseStreamEvent, event) is None, case.name
        unstreamed = load_json(dump_json(HERE.encode_reply(reply, Notes()).body))
        assert events[-1]["response"] == unstreamed, case.name


@needs_corpus
def test_our_own_streams_keep_the_grammar_when_written_again() -> None:
    for case in talks("openai_responses"):
        data = case.stream()
        if data is not None and not case.failed:
            encoder = HERE.stream_encoder(Notes())
            check_stream(encoder.feed(decode_stream("openai_responses", data)) + encoder.close())


def sayable(body: dict[str, Any]) -> dict[str, Any]:
    """The package demands an id and a status of every output message and thought; the service does not, and none may
    be made up for it (protocols, 6). For the type check they are filled in."""
    items = body.get("input")
    for i, item in enumerate(items if isinstance(items, list) else ()):
        if item.get("type") == "reasoning":
            item.setdefault("id", f"rs_{i}")
        elif item.get("role") == "assistant" and isinstance(item["content"], list):
            item.setdefault("id", f"msg_{i}")
            item.setdefault("status", "completed")
    return body


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_request_we_write_is_one_the_package_could_send(source: str) -> None:
    for case, request in decoded_requests(source, HERE.name):
        body = HERE.encode_request(make_legal(request, HERE, Notes()), Notes()).body
        assert complaint(PARAMS, sayable(load_json(dump_json(body)))) is None, case.name


REPLY = Reply(
    id="resp_1",
    model="m",
    created=1_700_000_000,
    choices=(
        Choice(
            parts=(
                Reasoning(text="hm", seal=Seal(origin="anthropic", value="c2ln")),
                Text(text="let me see"),
                ToolCall(id="call_1", name="look", arguments='{"a":1}'),
            ),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=3, cache_read=1, output=2, reasoning=4),
)


def client(content: bytes, sent: list[httpx2.Request] | None = None, kind: str = "text/event-stream") -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if sent is not None:
            sent.append(request)
        return httpx2.Response(200, content=content, headers={"content-type": kind})

    return openai.OpenAI(
        api_key="k", http_client=openai.DefaultHttpxClient(transport=httpx2.MockTransport(answer)), max_retries=0
    )


def test_the_package_puts_our_stream_together_again() -> None:
    encoder = HERE.stream_encoder(Notes())
    data = encoder.feed(unfold(REPLY)) + encoder.close()
    with client(data).responses.stream(model="m", input="hi") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "let me see"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].arguments == '{"a":1}'  # type: ignore[union-attr]
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens, final.usage.total_tokens) == (4, 6, 10)


def test_the_package_raises_what_we_say_went_wrong_in_the_middle() -> None:
    encoder = HERE.stream_encoder(Notes())
    events: list[Event] = [
        ReplyStart(id="resp_1", model="m", created=1),
        PartStart(index=0, part=ToolCall(id="call_1", name="look", arguments="")),
        PartDelta(index=0, text='{"a":'),
        ReplyFailed(failure=Failure(kind="too_long", message="no room")),
    ]
    data = encoder.feed(events) + encoder.close()
    check_stream(data)
    seen = list(client(data).responses.create(model="m", input="hi", stream=True))
    assert seen[-2].type == "error"
    assert seen[-2].code == "context_length_exceeded"
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.output == []


def test_a_request_the_package_builds_is_read_without_a_leftover() -> None:
    sent: list[httpx2.Request] = []
    body = dump_json(HERE.encode_reply(REPLY, Notes()).body)
    client(body, sent, "application/json").responses.create(
        model="gpt-6-astra",
        instructions="be brief",
        input=[
            {"role": "user", "content": "weather?"},
            {"type": "function_call", "call_id": "call_1", "name": "w", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        ],
        tools=[{"type": "function", "name": "w", "parameters": {"type": "object", "properties": {}}, "strict": True}],
        tool_choice={"type": "function", "name": "w"},
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        max_output_tokens=100,
        temperature=1,
        top_p=1,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        metadata={"a": "b"},
        safety_identifier="u",
        prompt_cache_key="k",
        service_tier="auto",
        store=False,
    )
    request = HERE.decode_request(WireRequest(body=json.loads(sent[0].content)), Notes())
    assert all(key.startswith("~") for key in request.extras.get("openai_responses", {}))
    assert all(not tool.extras for tool in request.tools or () if not hasattr(tool, "body"))
    assert request.logprobs is True


@pytest.mark.parametrize("reason", ["stop", "length", "filter", "other", "malformed", "refusal", "context"])
def test_every_way_to_end_is_an_end_the_package_knows(reason: Any) -> None:
    encoder = HERE.stream_encoder(Notes())
    events: list[Event] = [
        ReplyStart(id="r", model="m"),
        PartStart(index=0, part=Text(text="so far")),
        PartEnd(index=0),
        ReplyEnd(finishes=(Finish(reason=reason),)),
    ]
    for event in check_stream(encoder.feed(events) + encoder.close()):
        assert complaint(ResponseStreamEvent, event) is None
