"""The official package is the referee: it parses what we write, and we read what it sends."""

from functools import cache
from typing import Any

import httpx2
import openai
import pytest
from openai.lib.streaming._deltas import accumulate_delta  # how the package folds a stream into a message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json
from dragoman.model.events import Event, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import unfold
from dragoman.model.messages import Audio, Opaque, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.openai_chat.grammar import check_stream
from tests.laws.test_recorded import decoded_requests, replies_of
from tests.recorded import needs_corpus

# Chat's own replies come back as they were (tests/laws), with all that compatible servers add to the package's types.
SOURCES = [name for name in NAMES if name not in ("canonical", "openai_chat")]
HERE = find_dialect("openai_chat")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def complaint(kind: Any, value: Any) -> str | None:
    """None if the type takes the value, else what it says."""
    try:
        adapter(kind).validate_python(value)
    except ValidationError as error:
        return str(error)[:800]
    return None


def plain(value: Any) -> Any:
    return load_json(dump_json(value))


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_reply_we_write_parses(source: str) -> None:
    for case, reply in replies_of(source):
        body = plain(HERE.encode_reply(reply, Notes()).body)
        for choice in body["choices"]:
            if choice["finish_reason"] is None:
                choice["finish_reason"] = "stop"  # unknown is null, which the package reads but does not declare
        if body.get("service_tier") not in (None, "auto", "default", "flex", "scale", "priority", "fast"):
            del body["service_tier"]  # another vendor's word
        assert complaint(ChatCompletion, body) is None, case.name


@needs_corpus
@pytest.mark.parametrize("source", [*SOURCES, "openai_chat"])
def test_every_stream_we_write_keeps_the_grammar_and_parses(source: str) -> None:
    for case, reply in replies_of(source):
        encoder = HERE.stream_encoder(Notes())
        chunks = check_stream(encoder.feed(unfold(reply)) + encoder.close())
        if source == "openai_chat":
            continue
        for chunk in chunks:
            if chunk.get("service_tier") not in (None, "auto", "default", "flex", "scale", "priority", "fast"):
                del chunk["service_tier"]
            for choice in chunk["choices"]:
                choice["delta"]["tool_calls"] = [
                    call for call in choice["delta"].get("tool_calls", ()) if call.get("type") != "custom"
                ]  # the published chunk type has no custom calls; OpenAI streams them all the same
            assert complaint(ChatCompletionChunk, chunk) is None, case.name


@needs_corpus
@pytest.mark.parametrize("source", SOURCES)
def test_every_request_we_write_is_one_the_package_could_send(source: str) -> None:
    kind = CompletionCreateParamsNonStreaming | CompletionCreateParamsStreaming
    for case, request in decoded_requests(source, HERE.name):
        body = plain(HERE.encode_request(make_legal(request, HERE, Notes()), Notes()).body)
        if body.get("service_tier") not in (None, "auto", "default", "flex", "scale", "priority", "fast"):
            continue  # a word of another vendor: a profile's work
        if not body["messages"]:
            continue
        assert complaint(kind, body) is None, case.name


# ---------------------------------------------------------------- the client itself, without a network


def client(handle: Any) -> openai.OpenAI:
    transport = httpx2.MockTransport(handle)
    return openai.OpenAI(api_key="sk-none", max_retries=0, http_client=httpx2.Client(transport=transport))


REPLY = Reply(
    id="r1",
    model="m",
    choices=(
        Choice(
            parts=(
                Reasoning(text="Paris?", seal=Seal(origin="anthropic", value="c2ln")),
                Text(text="Let me look."),
                ToolCall(id="call_1", name="weather", arguments='{"city": "Paris"}'),
                Reasoning(text="And Rome?", seal=Seal(origin="anthropic", value="c2ln2")),
                ToolCall(id="call_2", name="weather", arguments='{"city": "Rome"}'),
            ),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=5, cache_read=3, output=7, reasoning=2),
)


def stream_of(events: list[Event]) -> bytes:
    encoder = HERE.stream_encoder(Notes())
    return encoder.feed(events) + encoder.close()


def test_the_client_reads_a_stream_and_its_history_brings_signed_thoughts_home() -> None:
    data = stream_of(list(unfold(REPLY)))
    seen = client(lambda request: httpx2.Response(200, content=data, headers={"content-type": "text/event-stream"}))
    message: dict[Any, Any] = {}
    usage = None
    for chunk in seen.chat.completions.create(model="m", messages=[], stream=True):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta: dict[Any, Any] = choice.delta.model_dump(exclude_unset=True)
            accumulate_delta(message, delta)
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (8, 9, 17)
    for call in message["tool_calls"]:
        call.pop("index")
    sent = {"model": "m", "messages": [{"role": "user", "content": "?"}, plain(message)]}
    request = HERE.decode_request(WireRequest(body=sent), Notes())
    assert request.messages[1].parts == REPLY.choices[0].parts


def test_the_client_reads_a_reply_and_its_history_brings_signed_thoughts_home() -> None:
    body = plain(HERE.encode_reply(REPLY, Notes()).body)
    answer = client(lambda request: httpx2.Response(200, json=body)).chat.completions.create(model="m", messages=[])
    message = answer.choices[0].message.model_dump(exclude_unset=True)
    request = HERE.decode_request(WireRequest(body={"model": "m", "messages": [plain(message)]}), Notes())
    assert request.messages[0].parts == REPLY.choices[0].parts


def test_the_client_raises_on_an_error_in_the_middle_of_a_stream() -> None:
    start: list[Event] = [ReplyStart(id="r", model="m"), PartStart(index=0, part=Text(text="Hel")), PartEnd(index=0)]
    data = stream_of([*start, ReplyFailed(failure=Failure(kind="overloaded", message="too busy"))])
    check_stream(data)
    seen = client(lambda request: httpx2.Response(200, content=data, headers={"content-type": "text/event-stream"}))
    pieces: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError, match="too busy") as raised:
        pieces.extend(seen.chat.completions.create(model="m", messages=[], stream=True))
    assert raised.value.code == "server_is_overloaded"
    assert pieces[-1].choices[0].delta.content == "Hel"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(kind="invalid_request", message="no"), openai.BadRequestError),
        (Failure(kind="unauthenticated", message="no"), openai.AuthenticationError),
        (Failure(kind="forbidden", message="no"), openai.PermissionDeniedError),
        (Failure(kind="not_found", message="no"), openai.NotFoundError),
        (Failure(kind="conflict", message="no"), openai.ConflictError),
        (Failure(kind="rate_limited", message="no", retry_after_s=2.5), openai.RateLimitError),
        (Failure(kind="no_credit", message="no"), openai.RateLimitError),
        (Failure(kind="overloaded", message="no"), openai.InternalServerError),
        (Failure(kind="cut_off", message="no"), openai.InternalServerError),
    ],
)
def test_the_client_raises_the_right_error(failure: Failure, kind: type[openai.APIStatusError]) -> None:
    wire = HERE.encode_failure(failure)
    answer = httpx2.Response(wire.status, json=wire.body, headers=wire.headers)
    with pytest.raises(kind, match="no"):
        client(lambda request: answer).chat.completions.create(model="m", messages=[])


def test_a_request_the_client_builds_is_read_without_leftovers() -> None:
    sent: list[JsonObject] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(load_json(request.content))
        return httpx2.Response(200, json=plain(HERE.encode_reply(REPLY, Notes()).body))

    client(handle).chat.completions.create(
        model="m",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
                ],
            },
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        ],
        tools=[{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}],
        tool_choice={"type": "function", "function": {"name": "look"}},
        parallel_tool_calls=False,
        max_completion_tokens=100,
        reasoning_effort="low",
        response_format={"type": "json_object"},
        stop=["END"],
        n=2,
        seed=7,
        safety_identifier="u1",
        prompt_cache_key="k",
    )
    before = copy_json(sent[0])
    request = HERE.decode_request(WireRequest(body=sent[0]), Notes())
    assert {key for key in request.extras.get("openai_chat", {}) if not key.startswith("~")} == set()
    assert plain(HERE.encode_request(request, Notes()).body) == before


def test_spoken_answers_parse_whole_and_in_pieces() -> None:
    sound = Audio(id="audio_1", data="UklGRg==", transcript="Hi.")
    reply = Reply(id="r", model="m", created=7, choices=(Choice(parts=(sound,), finish=Finish(reason="stop")),))
    assert complaint(ChatCompletion, plain(HERE.encode_reply(reply, Notes()).body)) is None
    for chunk in check_stream(stream_of(list(unfold(reply)))):
        assert complaint(ChatCompletionChunk, chunk) is None


def test_own_asides_pass_and_foreign_parts_are_left_out() -> None:
    events: list[Event] = [
        ReplyStart(id="r", model="m", created=7),
        PartStart(index=0, part=Opaque(dialect="anthropic", body={"type": "server_tool_use"})),
        PartEnd(index=0),
        ReplyEnd(finishes=(Finish(reason="stop"),)),
    ]
    notes = Notes()
    encoder = HERE.stream_encoder(notes)
    assert len(check_stream(encoder.feed(events) + encoder.close())) == 2
    assert [note.where for note in notes] == ["/choices/0/parts/0"]
