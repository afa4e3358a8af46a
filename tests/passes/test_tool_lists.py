"""What is remembered of lists of tools keeps them alive, so large lists are not remembered."""

from typing import Any

import pytest

from dragoman.dialects import _tools
from dragoman.dialects.openai_chat.tools import encode_tool
from dragoman.model.request import AnyTool, Tool
from dragoman.notes import Notes
from dragoman.passes import rename, tool_lists

SMALL, LARGE = 10, tool_lists.LARGEST + 1


def make_tools(size: int) -> tuple[AnyTool, ...]:
    return (Tool(name="look", description="x" * size, parameters={"type": "object", "properties": {}}),)


def is_alive_in(table: dict[Any, Any], tools: tuple[AnyTool, ...]) -> bool:
    """Whether a value of the table is about this very list: a tuple with it, or an object whose `tools` it is."""
    lists = [value[0] if isinstance(value, tuple) else value.tools for value in table.values()]
    return any(one is tools for one in lists)


@pytest.mark.parametrize(("size", "kept"), [(SMALL, True), (LARGE, False)])
def test_names_of_a_large_list_are_found_anew_each_time(size: int, kept: bool) -> None:
    tools = make_tools(size)
    for _ in range(5):
        assert list(rename._name_tools(tools).names) == ["look"]
    assert is_alive_in(rename._named, tools) is kept


@pytest.mark.parametrize("field", ["sends", "copies_tools"])
@pytest.mark.parametrize(("size", "kept"), [(SMALL, True), (LARGE, False)])
def test_a_large_list_is_written_anew_each_time(field: str, size: int, kept: bool) -> None:
    tools = make_tools(size)
    for _ in range(5):
        notes = Notes()
        setattr(notes, field, True)
        assert len(_tools.encode_each_tool(tools, encode_tool, notes)) == 1
    table = _tools._written if field == "sends" else _tools._packed
    assert is_alive_in(table, tools) is kept


def test_a_list_that_came_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rename, "_seen", {})  # a list of another test, gone by now, may have had the same identity
    tools = make_tools(SMALL)
    rename._name_tools(tools)
    assert not is_alive_in(rename._named, tools)
