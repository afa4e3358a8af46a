"""Every object and event that we write has every key that the official packages' types demand."""

import json
import types
import typing
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from dragoman.dialects import find_dialect
from dragoman.model.fold import unfold
from dragoman.model.messages import Citation, Message, Part, Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes

TYPES: dict[str, tuple[Any, Any]] = {
    "openai_chat": (ChatCompletion, ChatCompletionChunk),
    "openai_responses": (Response, ResponseStreamEvent),
    "anthropic": (AnthropicMessage, RawMessageStreamEvent),
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
        if name == "openai_responses":
            assert body.keys() >= OPEN_RESPONSES
            assert all(tool.keys() >= {"strict", "parameters"} for tool in body["tools"])
            assert (body["completed_at"] is None) == (body["status"] != "completed")


@pytest.mark.parametrize("name", TYPES)
def test_every_event_of_a_stream_has_every_key(name: str) -> None:
    dialect, (_, event) = find_dialect(name), TYPES[name]
    for reply in replies():
        encoder = dialect.stream_encoder(Notes(), ASKED)
        data = encoder.feed(unfold(reply)) + encoder.close()
        rows = [row[5:].strip() for row in data.splitlines() if row.startswith(b"data:")]
        for row in [json.loads(row) for row in rows if row != b"[DONE]"]:
            assert missing(event, row) == [], row
            if "response" in row:
                assert row["response"].keys() >= OPEN_RESPONSES
                assert (row["response"]["completed_at"] is None) == (row["response"]["status"] != "completed")


def test_a_key_that_is_missing_is_found() -> None:
    body = find_dialect("openai_responses").encode_reply(next(replies()), Notes(), ASKED).body
    del body["tools"][0]["name"], body["parallel_tool_calls"]
    assert sorted(missing(Response, body)) == ["/parallel_tool_calls", "/tools/0/name"]
