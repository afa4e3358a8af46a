"""JSON-RPC `generate_content`: parameters as a request."""

from contextlib import suppress
from typing import Any

import pytest

from dragoman.dialects.jsonrpc import decode_request
from dragoman.errors import DecodeError
from dragoman.model.messages import Image, Message, Part, Seal, Text, ToolCall, ToolResult
from dragoman.model.request import OutputFormat, Request, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.laws.damage import bend_at, every_bend


def decode(**params: Any) -> Request:
    given = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | params
    return decode_request(WireRequest(body=given), Notes())


def test_the_call_of_the_old_gateway() -> None:
    request = decode(temperature=0.5, max_output_tokens=100)
    assert request == Request(
        model="m", messages=(Message(role="user", parts=(Text(text="hi"),)),), temperature=0.5, max_output=100
    )


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"content": "hi"}, (Text(text="hi"),)),
        ({"content": ""}, (Text(text=""),)),
        ({"parts": "hi"}, (Text(text="hi"),)),
        ({"parts": ["a", {"text": "b"}]}, (Text(text="a"), Text(text="b"))),
        ({"content": ["a", {"type": "text", "text": "b"}]}, (Text(text="a"), Text(text="b"))),
        ({"content": None, "parts": ["a"]}, (Text(text="a"),)),
        ({"parts": []}, ()),
        ({"parts": [{"image": {"url": "https://example.org"}}]}, (Image(url="https://example.org"),)),
        (
            {"parts": [{"inline_data": {"data": "AAAA", "mime_type": "image/png"}}]},
            (Image(data="AAAA", media_type="image/png"),),
        ),
        (
            {"parts": [{"image": {"data": "AAAA", "media_type": "image/png"}}]},
            (Image(data="AAAA", media_type="image/png"),),
        ),
    ],
)
def test_content_or_parts(message: dict[str, Any], parts: tuple[Part, ...]) -> None:
    (said,) = decode(messages=[{"role": "user", **message}]).messages
    assert said.parts == parts


def test_a_conversation_with_tools() -> None:
    made = {"id": "c1", "name": "f", "arguments": {"a": 1}}
    sealed = {"id": "c2", "name": "g", "arguments": "{", "dragoman": {"seal": {"origin": "gemini", "value": "s"}}}
    turns = [
        {"role": "model", "content": None, "tool_calls": [made, sealed]},
        {"role": "tool", "tool_call_id": "c1", "content": "[ERROR] no", "name": "f"},
        {"role": "tool", "tool_call_id": "c2", "parts": ["yes"], "failed": False},
    ]
    asked = decode(system="be brief", messages=turns)
    listed = {"jsonrpc": {"~list": "parts"}}
    assert asked.messages == (
        Message(role="system", parts=(Text(text="be brief"),)),
        Message(
            role="assistant",
            parts=(
                ToolCall(id="c1", name="f", arguments='{"a":1}'),
                ToolCall(id="c2", name="g", arguments="{", seal=Seal(origin="gemini", value="s")),
            ),
        ),
        Message(role="user", parts=(ToolResult(call_id="c1", parts=(Text(text="no"),), name="f", failed=True),)),
        Message(role="user", parts=(ToolResult(call_id="c2", parts=(Text(text="yes"),), failed=False, extras=listed),)),
    )


def test_tools_flat_or_as_openai_has_them() -> None:
    flat = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    tool = Tool(name="f", description="d", parameters={"type": "object"})
    assert decode(tools=[dict(flat), {"type": "function", "function": dict(flat)}]).tools == (tool, tool)
    assert decode(tools=[]).tools == ()
    assert decode().tools is None


@pytest.mark.parametrize(
    ("params", "field", "value"),
    [
        ({"stop": "END"}, "stop", ("END",)),
        ({"stop": ["a", "b"]}, "stop", ("a", "b")),
        ({"stream": True}, "stream", True),
        ({"top_p": 0.5}, "top_p", 0.5),
        ({"seed": 3}, "seed", 3),
        ({"tool_choice": "none"}, "tool_choice", ToolChoice(mode="none")),
        ({"tool_choice": "f"}, "tool_choice", ToolChoice(mode="required", names=("f",))),
        ({"response_schema": {"a": 1}}, "output", OutputFormat(type="json_schema", schema={"a": 1})),
        ({"mcp_servers": ["x"]}, "extras", {"jsonrpc": {"mcp_servers": ["x"]}}),
        ({"temperature": None}, "temperature", None),
    ],
)
def test_other_parameters(params: dict[str, Any], field: str, value: object) -> None:
    assert getattr(decode(**params), field) == value


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"model": None}, "/model"),
        ({"messages": None}, "/messages"),
        ({"messages": "hi"}, "/messages"),
        ({"messages": []}, "/messages"),
        ({"messages": ["hi"]}, "/messages/0"),
        ({"messages": [{"content": "hi"}]}, "/messages/0/role"),
        ({"messages": [{"role": "bird", "content": "hi"}]}, "/messages/0/role"),
        ({"messages": [{"role": "user"}]}, "/messages/0/content"),
        ({"messages": [{"role": "user", "parts": [1]}]}, "/messages/0/parts/0"),
        ({"messages": [{"role": "user", "parts": ["a", {}]}]}, "/messages/0/parts/1/text"),
        ({"messages": [{"role": "user", "parts": [{"image": {}}]}]}, "/messages/0/parts/0/image"),
        ({"messages": [{"role": "user", "parts": [{"inlineData": {}}]}]}, "/messages/0/parts/0/inlineData"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "/messages/0/tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "name": "f", "arguments": 1}]}]},
            "/messages/0/tool_calls/0/arguments",
        ),
        ({"temperature": "hot"}, "/temperature"),
        ({"max_output_tokens": 1.5}, "/max_output_tokens"),
        ({"stop": 1}, "/stop"),
        ({"stream": "yes"}, "/stream"),
        ({"tools": [{}]}, "/tools/0/name"),
    ],
)
def test_an_error_says_where(params: dict[str, Any], where: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(**params)
    assert caught.value.where == where


WHOLE: dict[str, Any] = {
    "model": "m",
    "system": "be brief",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "user", "parts": ["a", {"text": "b"}, {"image": {"data": "AAAA", "media_type": "image/png"}}]},
        {"role": "user", "parts": [{"inline_data": {"data": "AAAA", "mime_type": "image/png"}}]},
        {
            "role": "model",
            "tool_calls": [{"id": "c", "name": "f", "arguments": {}, "dragoman": {"seal": {"value": "s"}}}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "f", "failed": True, "content": "no"},
    ],
    "tools": [{"name": "f", "parameters": {}}, {"type": "function", "function": {"name": "g", "strict": True}}],
    "tool_choice": "auto",
    "stop": ["x"],
    "response_schema": {"type": "object"},
    "stream": False,
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 1,
    "top_k": 1,
    "seed": 1,
    "user": "u",
}


def test_anything_in_any_place_is_read_or_refused_in_words() -> None:
    for body, path, odd in every_bend([WHOLE]):
        with suppress(DecodeError):
            decode_request(WireRequest(body=bend_at(body, path, odd)), Notes())
