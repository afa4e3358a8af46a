"""Every object and event that we write has every key that the official packages' types demand."""

import types
import typing
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from ollama import ChatResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

import dragoman
from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import ReplyFailed, ReplyStart
from dragoman.model.fold import unfold
from dragoman.model.messages import Citation, Message, Part, Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from tests.recorded import cases, needs_corpus

TYPES: dict[str, tuple[Any, Any]] = {
    "openai_chat": (ChatCompletion, ChatCompletionChunk),
    "openai_responses": (Response, ResponseStreamEvent),
    "anthropic": (AnthropicMessage, RawMessageStreamEvent),
    "gemini": (GenerateContentResponse, GenerateContentResponse),
    "ollama": (ChatResponse, ChatResponse),
}
# The packages of Google and Ollama demand nothing. What their servers always send: ai.google.dev/api/generate-content,
# and the fields without `omitempty` in Ollama's api/types.go (read 2026-11-16). A path through a list is about each.
ALWAYS: dict[str, tuple[str, ...]] = {
    "gemini": ("candidates/content/role", "candidates/index", "modelVersion", "responseId"),
    "ollama": ("model", "created_at", "message/role", "message/content", "done"),
}
AT_THE_END: dict[str, tuple[str, ...]] = {
    "gemini": ("candidates/finishReason",),
    "ollama": ("done_reason", "prompt_eval_count", "eval_count"),  # the gateway adds the durations
}
ASKED = Request(
    model="m",
    messages=(Message(role="user", parts=(Text(text="q"),)),),
    tools=(Tool(name="f", parameters={"type": "object", "properties": {}}),),
)
PARTS: tuple[tuple[Part, ...], ...] = (
    (),
    (Text(text="hi", citations=(Citation(url="https://ex.org", title="t", start=0, end=2),)),),
    (Reasoning(text="so"), Text(text="hi"), ToolCall(id="c1", name="f", arguments="{}")),
    (Refusal(text="no"),),
    (ToolCall(id="c2", name="g", arguments="x", freeform=True),),
)
FINISHES: tuple[FinishReason, ...] = ("stop", "tool_call", "length", "filter", "refusal", "sequence")
USAGES = (None, Usage(), Usage(input=3, output=4), Usage(input=3, output=4, cache_read=2, cache_write=1, reasoning=1))
# Of the Open Responses schema (https://www.openresponses.org, read 2026-11-16), beyond what the package demands.
OPEN_RESPONSES = {"completed_at", "presence_penalty", "frequency_penalty", "store", "service_tier", "top_logprobs"}


def lacking(value: Any, *paths: str) -> list[str]:
    """The paths that a value does not have."""
    found = []
    for path in paths:
        key, _, rest = path.partition("/")
        if not isinstance(value, dict) or key not in value:
            found.append(path)
        elif rest:
            inside = value[key] if isinstance(value[key], list) else [value[key]]
            found += [f"{key}/{lack}" for one in inside for lack in lacking(one, rest)]
    return found


def missing(kind: Any, value: Any, path: str = "") -> list[str]:
    """The places where a value lacks a key that its type demands."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return missing(typing.get_args(kind)[0], value, path)
    if origin is list and isinstance(value, list):
        return [lack for i, one in enumerate(value) for lack in missing(typing.get_args(kind)[0], one, f"{path}/{i}")]
    if origin in (typing.Union, types.UnionType):
        found = [missing(one, value, path) for one in _fitting(kind, value)]
        return min(found, key=len, default=[])
    if not (isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, dict)):
        return []
    lacks: list[str] = []
    for name, field in kind.model_fields.items():
        key = field.alias or name
        if key in value:
            lacks += missing(field.annotation, value[key], f"{path}/{key}")
        elif field.is_required():
            lacks.append(f"{path}/{key}")
    return lacks


def _fitting(kind: Any, value: Any) -> Iterator[Any]:
    """The members of a union that a value can be, by its `type`."""
    for one in typing.get_args(kind):
        if typing.get_origin(one) in (typing.Union, types.UnionType, typing.Annotated):
            yield one
        elif isinstance(one, type) and issubclass(one, BaseModel):
            named = one.model_fields.get("type")
            words = typing.get_args(named.annotation) if named is not None else ()
            if isinstance(value, dict) and (not words or value.get("type") in words):
                yield one
        elif not isinstance(value, dict):
            yield one


def replies() -> Iterator[Reply]:
    for parts, reason, usage in product(PARTS, FINISHES, USAGES):
        yield Reply(
            id="a", model="m", created=5, usage=usage, choices=(Choice(parts=parts, finish=Finish(reason=reason)),)
        )


@pytest.mark.parametrize("name", TYPES)
def test_a_whole_answer_has_every_key(name: str) -> None:
    dialect, (whole, _) = find_dialect(name), TYPES[name]
    for reply in replies():
        body = dialect.encode_reply(reply, Notes(), ASKED).body
        assert missing(whole, body) == []
        assert lacking(body, *ALWAYS.get(name, ()), *AT_THE_END.get(name, ())) == [], body
        whole.model_validate(load_json(dump_json(body)))
        if name == "openai_responses":
            assert body.keys() >= OPEN_RESPONSES
            assert all(tool.keys() >= {"strict", "parameters"} for tool in body["tools"])
            assert (body["completed_at"] is None) == (body["status"] != "completed")


def events_of(name: str, reply: Reply) -> list[dict[str, Any]]:
    encoder = find_dialect(name).stream_encoder(Notes(), ASKED)
    rows = (encoder.feed(unfold(reply)) + encoder.close()).splitlines()
    texts = [row.removeprefix(b"data:").strip() for row in rows if not row.startswith(b"event:")]
    return [load_json(text) for text in texts if text not in (b"", b"[DONE]")]


@pytest.mark.parametrize("name", TYPES)
def test_every_event_of_a_stream_has_every_key(name: str) -> None:
    event = TypeAdapter(TYPES[name][1])
    for reply in replies():
        rows = events_of(name, reply)
        for row in rows:
            assert missing(TYPES[name][1], row) == [], row
            assert lacking(row, *ALWAYS.get(name, ())) == [], row
            if (
                '"custom"' not in str(dump_json(row)) or name != "openai_chat"
            ):  # which OpenAI streams and its type lacks
                event.validate_python(row)
            if "response" in row and name == "openai_responses":
                assert row["response"].keys() >= OPEN_RESPONSES
                assert (row["response"]["completed_at"] is None) == (row["response"]["status"] != "completed")
        assert lacking(rows[-1], *AT_THE_END.get(name, ())) == [], rows[-1]


def test_a_response_that_was_cut_off_fails_with_a_word_of_openais_list() -> None:
    encoder = find_dialect("openai_responses").stream_encoder(Notes(), ASKED)
    failure = Failure(kind="cut_off", status=502, code="upstream_truncated", message="cut off")
    rows = encoder.feed([ReplyStart(id="resp_1", model="m"), ReplyFailed(failure=failure)]).splitlines()
    events = [load_json(row.removeprefix(b"data: ")) for row in rows if row.startswith(b"data: ")]
    assert [event["type"] for event in events][-2:] == ["error", "response.failed"]
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)


GATEWAY = ("created_at", "responseId", "modelVersion")  # it stamps an answer that has none
EVERY = 9  # of the recorded answers: the snapshot has them all


@needs_corpus
@pytest.mark.parametrize(("source", "name"), [(a, b) for a in TYPES for b in TYPES if a != b])
def test_a_recorded_answer_has_every_key_at_every_other_door(source: str, name: str) -> None:
    whole = TYPES[name][0]
    for case in list(cases(source))[::EVERY]:
        wire = case.reply()
        if wire is None or wire.status >= 400:
            continue
        body = load_json(dump_json(dragoman.convert_reply(wire.body, source=source, to=name).body))
        assert missing(whole, body) == [], case.name
        assert [lack for lack in lacking(body, *ALWAYS.get(name, ())) if lack not in GATEWAY] == [], case.name
        if name == "gemini":
            body.get("usageMetadata", {}).pop("serviceTier", None)  # Google sends it, its package does not know it
        whole.model_validate(body)


def test_a_key_that_is_missing_is_found() -> None:
    body = find_dialect("openai_responses").encode_reply(next(replies()), Notes(), ASKED).body
    del body["tools"][0]["name"], body["parallel_tool_calls"]
    assert sorted(missing(Response, body)) == ["/parallel_tool_calls", "/tools/0/name"]


ECHOES = {"tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}], "store": False, "top_p": 1.0}


@pytest.mark.parametrize("name", [name for name in TYPES if name != "openai_responses"])
def test_settings_that_a_responses_answer_repeats_are_no_loss(name: str) -> None:
    whole = next(reply for reply in replies() if reply.choices[0].parts)
    body = find_dialect("openai_responses").encode_reply(whole, Notes(), ASKED).body | ECHOES
    named = {
        note.where.split("/")[1] for note in dragoman.convert_reply(body, source="openai_responses", to=name).notes
    }
    assert named <= {"id", "created_at", "output", "usage", "status"}
