"""Tools in namespaces: called by one name elsewhere, and by two here."""

from typing import Any

import pytest

from dragoman import convert
from dragoman.dialects import find_dialect
from dragoman.dialects.openai_responses import DIALECT
from dragoman.jsontypes import copy_json, load_json
from dragoman.model.events import Event
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import CustomTool, Request, ServerTool, Tool
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

SLEEP = {"type": "function", "name": "sleep", "strict": False, "parameters": {"type": "object", "properties": {}}}
EXEC = {"type": "custom", "name": "exec", "description": "runs code", "format": {"type": "text"}}
CLOCK = {"type": "namespace", "name": "clock", "description": "time", "tools": [SLEEP]}
FUNCTIONS = {"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}
BROUGHT = {"type": "additional_tools", "role": "developer", "tools": [FUNCTIONS, CLOCK]}
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "wait"}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "sleep", "namespace": "clock", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "done"}


def decode(body: dict[str, Any]) -> Request:
    return DIALECT.decode_request(WireRequest(body=copy_json(body)), Notes())


def names(request: Request) -> list[str]:
    return [tool.name for tool in request.tools or () if not isinstance(tool, ServerTool)]


IN_TOOLS = {"model": "m", "input": [ASKED, CALL, RESULT], "tools": [CLOCK, SLEEP]}
IN_INPUT = {"model": "m", "input": [BROUGHT, ASKED, CALL, RESULT], "tool_choice": "auto"}


def test_a_namespace_comes_back_word_for_word() -> None:
    for body in (IN_TOOLS, IN_INPUT):
        assert DIALECT.encode_request(decode(body), Notes()).body == body


def test_a_tool_of_a_namespace_has_one_name_elsewhere() -> None:
    assert names(decode(IN_TOOLS)) == ["sleep", "clock__sleep"]
    request = decode(IN_INPUT)
    assert names(request) == ["functions__exec", "clock__sleep"]
    assert [type(tool) for tool in request.tools or ()] == [CustomTool, Tool]
    chat = find_dialect("openai_chat").encode_request(request, Notes()).body
    assert [tool[tool["type"]]["name"] for tool in chat["tools"]] == ["functions__exec", "clock__sleep"]
    called = next(message for message in chat["messages"] if message.get("tool_calls"))
    assert called["tool_calls"][0]["function"]["name"] == "clock__sleep"


def reply(name: str, **more: Any) -> Reply:
    call = ToolCall(id="c2", name=name, arguments="{}", **more)
    return Reply(id="r", model="m", choices=(Choice(parts=(call,), finish=Finish(reason="tool_call")),))


def test_a_call_goes_back_to_the_client_in_its_namespace() -> None:
    body = DIALECT.encode_reply(reply("clock__sleep"), Notes(), decode(IN_INPUT)).body
    assert (body["output"][0]["name"], body["output"][0]["namespace"]) == ("sleep", "clock")
    freeform = DIALECT.encode_reply(reply("functions__exec", freeform=True), Notes(), decode(IN_INPUT)).body
    assert freeform["output"][0]["type"] == "custom_tool_call"
    assert (freeform["output"][0]["name"], freeform["output"][0]["namespace"]) == ("exec", "functions")
    plain = DIALECT.encode_reply(reply("sleep"), Notes(), decode(IN_TOOLS)).body
    assert plain["output"][0]["name"] == "sleep"
    assert "namespace" not in plain["output"][0]


def test_a_streamed_call_says_its_namespace_from_the_start() -> None:
    encoder = DIALECT.stream_encoder(Notes(), decode(IN_INPUT))
    data = encoder.feed(unfold(reply("clock__sleep"))) + encoder.close()
    frames = [load_json(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    items = [frame["item"] for frame in frames if "item" in frame]
    assert [(item["name"], item["namespace"]) for item in items] == [("sleep", "clock")] * 2
    events: list[Event] = []
    decoder = DIALECT.stream_decoder(Notes())
    for i in range(0, len(data), 7):
        events += decoder.feed(data[i : i + 7])
    again = fold([*events, *decoder.close()])
    assert isinstance(again, Reply)
    whole = DIALECT.decode_reply(DIALECT.encode_reply(reply("clock__sleep"), Notes(), decode(IN_INPUT)), Notes())
    assert again.choices[0].parts == whole.choices[0].parts
    assert isinstance(again.choices[0].parts[0], ToolCall)
    assert again.choices[0].parts[0].name == "clock__sleep"


def test_a_function_that_is_its_own_namespace_keeps_its_name() -> None:
    item = {**CALL, "name": "sleep", "namespace": "sleep", "id": "fc_1", "status": "completed"}
    body = {"id": "r", "object": "response", "model": "m", "output": [item], "status": "completed"}
    decoded = DIALECT.decode_reply(WireReply(body=copy_json(body)), Notes())
    assert isinstance(decoded.choices[0].parts[0], ToolCall)
    assert decoded.choices[0].parts[0].name == "sleep"
    assert DIALECT.encode_reply(decoded, Notes()).body["output"] == [item]


@pytest.mark.parametrize("target", ["openai_chat", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("in_input", [False, True])
def test_a_group_whose_tools_are_told_apart_is_not_dropped(target: str, in_input: bool) -> None:
    sleep = {
        "type": "function",
        "name": "sleep",
        "parameters": {"type": "object", "properties": {"s": {"type": "number"}}},
    }
    group = {"type": "namespace", "name": "clock", "description": "time", "tools": [sleep]}
    turn = {"role": "user", "content": "hi"}
    body: dict[str, object] = {"model": "m", "input": [turn], "tools": [group]}
    if in_input:
        body = {"model": "m", "input": [{"type": "additional_tools", "role": "developer", "tools": [group]}, turn]}
    converted = convert(body, to=target, source="openai_responses", refuse=["dropped"])
    assert "clock__sleep" in str(converted.body)


def test_a_tool_of_a_group_that_no_other_dialect_has_is_dropped() -> None:
    group = {"type": "namespace", "name": "web", "tools": [{"type": "web_search"}]}
    body = {"model": "m", "input": "hi", "tools": [group]}
    notes = convert(body, to="openai_chat", source="openai_responses").notes
    assert [(note.kind, note.where) for note in notes] == [("dropped", "/tools/0")]
