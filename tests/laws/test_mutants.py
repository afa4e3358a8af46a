"""The laws would notice: take any one key out of what we encode, and the comparison fails.

A mapping that is removed by hand loses a key of the wire; so does each mutant here. A mutant that nobody notices is
either a constant the decoder takes for granted (`declared.GRANTED`) or a hole in the laws.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DecodeError
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.messages import Document, Image, Message, Reasoning, Seal, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import OutputFormat, ReasoningSetting, Request, Tool, ToolChoice
from dragoman.notes import Note, Notes
from dragoman.wire import WireReply, WireRequest
from tests.laws.compare import differences
from tests.laws.declared import is_granted

DIALECTS = tuple(name for name in NAMES if name != "canonical")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def request_for(dialect: str) -> Request:
    """A conversation with a bit of everything, its seals those of the dialect."""
    return Request(
        model="m",
        messages=(
            Message(role="system", parts=(Text(text="be brief"),)),
            Message(
                role="user",
                parts=(
                    Text(text="look"),
                    Image(data="iVBORw0KGgo=", media_type="image/png"),
                    Document(data="JVBERi0xLjQ=", media_type="application/pdf", name="a.pdf"),
                ),
            ),
            Message(
                role="assistant",
                parts=(
                    Reasoning(text="hm", seal=Seal(origin=dialect, value="c2VhbA==")),
                    Text(text="I will ask"),
                    ToolCall(id="call_1", name="weather", arguments='{"city":"Oslo"}'),
                ),
            ),
            Message(role="user", parts=(ToolResult(call_id="call_1", parts=(Text(text="snow"),), failed=True),)),
            Message(role="user", parts=(Text(text="and?"),)),
        ),
        tools=(Tool(name="weather", description="the weather", parameters=SCHEMA, strict=True),),
        tool_choice=ToolChoice(mode="required", names=("weather",)),
        parallel_calls=False,
        stream=True,
        max_output=77,
        stop=("END",),
        output=OutputFormat(type="json_schema", schema=SCHEMA, name="answer"),
        reasoning=ReasoningSetting(mode="auto", effort="high"),
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        seed=5,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        logprobs=True,
        top_logprobs=2,
        user="u",
        service_tier="standard_only" if dialect == "anthropic" else "flex",
        store=True,
    )


def reply_for(dialect: str) -> Reply:
    parts = (
        Reasoning(text="hm", seal=Seal(origin=dialect, value="c2VhbA==")),
        Text(text="snow"),
        ToolCall(id="call_1", name="weather", arguments='{"city":"Oslo"}'),
    )
    return Reply(
        id="reply_1",
        model="m",
        created=1_700_000_000,
        choices=(Choice(parts=parts, finish=Finish(reason="tool_call")),),
        usage=Usage(input=10, cache_read=4, cache_write=2, output=6, reasoning=3),
    )


SCHEMAS = ("parameters", "input_schema", "parametersJsonSchema", "schema", "responseJsonSchema", "format")


def mutants(body: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every copy of the body that lacks one key."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield f"{path}/{key}", {k: copy_json(v) for k, v in body.items() if k != key}
            if key not in SCHEMAS:
                for where, changed in mutants(value, f"{path}/{key}"):
                    yield where, {k: (changed if k == key else copy_json(v)) for k, v in body.items()}
    elif isinstance(body, list):
        for i, value in enumerate(body):
            for where, changed in mutants(value, f"{path}/{i}"):
                yield where, [changed if j == i else copy_json(v) for j, v in enumerate(body)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_that_loses_a_key_is_noticed(dialect: str) -> None:
    there = find_dialect(dialect)
    said = there.encode_request(make_legal(request_for(dialect), there, Notes()), Notes())
    request = there.decode_request(WireRequest(body=load_json(dump_json(said.body)), path=said.path), Notes())
    notes = Notes()
    wire = there.encode_request(request, notes)
    body = load_json(dump_json(wire.body))
    survivors = []
    for path, mutant in mutants(body):
        if not is_noticed_request(dialect, request, WireRequest(body=mutant, path=wire.path), list(notes)):
            survivors.append(path)
    assert [path for path in survivors if not is_granted(dialect, f"request:{path}")] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_loses_a_key_is_noticed(dialect: str) -> None:
    there = find_dialect(dialect)
    reply = reply_for(dialect)
    notes = Notes()
    body = load_json(dump_json(there.encode_reply(reply, notes).body))
    survivors = []
    for path, mutant in mutants(body):
        try:
            returned = there.decode_reply(WireReply(body=mutant), Notes())
        except DecodeError:
            continue
        if not differences(reply, returned, notes):
            survivors.append(path)
    assert [path for path in survivors if not is_granted(dialect, f"reply:{path}")] == []


def is_noticed_request(dialect: str, request: Request, wire: WireRequest, notes: list[Note]) -> bool:
    try:
        returned = find_dialect(dialect).decode_request(wire, Notes())
    except DecodeError:
        return True
    return bool(differences(request, returned, notes))
