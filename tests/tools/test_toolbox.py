"""Collections: unique names, selecting, merging, running."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.errors import DragomanError
from dragoman.model.messages import Text, ToolCall, ToolResult
from dragoman.model.request import AnyTool, Tool
from dragoman.tools import FunctionTool, RunnableTool, Toolbox, ToolCollection, make_toolbox
from tests.waiting import turns, until


def get_time() -> str:
    return "noon"


def get_weather(city: str) -> str:
    return f"sun in {city}"


def send_mail(to: str) -> str:
    return f"sent to {to}"


def call(name: str, arguments: str = "{}", call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


class Elsewhere:
    """A toolbox that is not a collection, such as an MCP server."""

    async def list_tools(self) -> Sequence[AnyTool]:
        return [Tool(name="search", parameters={"type": "object", "properties": {}})]

    async def run(self, call: ToolCall) -> ToolResult:
        return ToolResult(call_id=call.id, parts=(Text(text="found"),))


def test_a_collection_and_a_function_have_the_protocols_of_the_loop() -> None:
    assert isinstance(FunctionTool(get_time), RunnableTool)
    assert isinstance(ToolCollection(), Toolbox)
    assert isinstance(Elsewhere(), Toolbox)


def test_names_are_unique() -> None:
    with pytest.raises(DragomanError, match="two tools called get_time"):
        ToolCollection([get_time, FunctionTool(get_weather, name="get_time")])
    tools = ToolCollection([get_time])
    for clash, names in (("keep", ("get_time",)), ("replace", ("get_time",)), ("rename", ("get_time", "get_time_2"))):
        merged = tools.merge([FunctionTool(get_weather, name="get_time")], clash=clash)  # type: ignore[arg-type]
        assert merged.names == names
    assert len(tools) == 1


def test_a_prefix_is_in_front_of_every_name_that_the_model_sees() -> None:
    tools = ToolCollection([get_time, get_weather], prefix="func_")
    assert (
        tools.names == ToolCollection.prefixed([get_time, get_weather]).names == ("func_get_time", "func_get_weather")
    )
    assert [tool.name for tool in tools.to_tools() if isinstance(tool, Tool)] == ["func_get_time", "func_get_weather"]
    result = asyncio.run(tools.run(call("func_get_time")))
    assert result.parts == (Text(text="noon"),)
    assert asyncio.run(tools.run(call("get_time"))).failed


def test_tools_can_be_selected_from_a_collection() -> None:
    tools = ToolCollection([get_time, get_weather, send_mail])
    assert tools.only("get_*").names == ("get_time", "get_weather")
    assert tools.without("get_time", "send_*").names == ("get_weather",)
    assert tools.filter(lambda name, _: "e" not in name).names == ()
    assert "send_mail" in tools
    assert tools["send_mail"].name == "send_mail"
    assert tools.get("other") is None
    with pytest.raises(KeyError, match=r"no tool other; the tools are: get_time, get_weather, send_mail"):
        tools["other"]
    tools.remove("send_mail")
    assert list(tools) == ["get_time", "get_weather"]


def test_collections_can_be_merged() -> None:
    merged = ToolCollection([get_time], prefix="a_") | ToolCollection([get_time], prefix="b_") | [send_mail]
    assert merged.names == ("a_get_time", "b_get_time", "a_send_mail")


def test_an_unknown_name_gives_a_failed_result_that_lists_the_names() -> None:
    result = asyncio.run(ToolCollection([get_time, get_weather]).run(call("get_tme")))
    assert result.failed
    assert result.parts == (Text(text="there is no tool get_tme; the tools are: get_time, get_weather"),)


def test_calls_run_at_the_same_time_and_answer_in_order() -> None:
    ended: list[int] = []

    async def wait(number: int) -> str:
        await until(lambda: len(ended) == 4 - number)  # the last one ends first
        ended.append(number)
        return str(number)

    tools = ToolCollection([wait])
    calls = [call("wait", f'{{"number": {i}}}', str(i)) for i in range(5)]
    results = asyncio.run(tools.run_all(calls))
    assert [(r.call_id, r.parts) for r in results] == [(str(i), (Text(text=str(i)),)) for i in range(5)]


def test_the_number_of_calls_at_once_is_limited() -> None:
    running: list[int] = []
    most = 0

    async def work() -> None:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await turns(5)
        running.pop()

    asyncio.run(ToolCollection([work]).run_all([call("work")] * 8, at_once=2))
    assert most == 2


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (None, []),
        ([], []),
        (get_time, ["get_time"]),
        (FunctionTool(get_time), ["get_time"]),
        ([get_time, FunctionTool(send_mail)], ["get_time", "send_mail"]),
        (ToolCollection([get_time]), ["get_time"]),
        ([get_time, ToolCollection([send_mail])], ["get_time", "send_mail"]),
        ([get_time, Elsewhere()], ["get_time", "search"]),
        ([Elsewhere()], ["search"]),
    ],
)
def test_every_form_of_tools_becomes_a_toolbox(tools: Any, names: list[str]) -> None:
    box = make_toolbox(tools)
    assert [getattr(tool, "name", "") for tool in asyncio.run(box.list_tools())] == names
    for name in names:
        assert asyncio.run(box.run(call(name))).call_id == "c"
    assert asyncio.run(box.run(call("other"))).failed
