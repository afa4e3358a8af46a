"""Toolbox: what the agent loop needs from tools. ToolCollection: a Toolbox of single tools under unique names.

The loop does not know how tools run: as plain functions, in MCP servers, or in a program of the caller.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import AnyTool
from dragoman.tools.function import PREFIX, FunctionTool
from dragoman.tools.results import make_failed_result

Clash: TypeAlias = Literal["refuse", "keep", "replace", "rename"]
_CALLS_AT_ONCE = 8
_MAX_LISTED_NAMES = 30  # in one error message


@runtime_checkable
class RunnableTool(Protocol):
    """One tool: its description for the model, and how to run it. If the tool fails, `run` returns a failed result."""

    @property
    def name(self) -> str: ...
    def to_tool(self) -> AnyTool: ...
    async def run(self, call: ToolCall) -> ToolResult: ...


@runtime_checkable
class Toolbox(Protocol):
    """Some tools. The loop lists them before every turn, so the list may change while a loop runs.

    `run` returns a result for every call: an unknown name, bad arguments, an exception or a timeout gives a result with
    `failed=True`. Only cancellation is raised as an exception.
    """

    async def list_tools(self) -> Sequence[AnyTool]: ...
    async def run(self, call: ToolCall) -> ToolResult: ...


class ToolCollection:
    """A Toolbox of single tools. `add` and `remove` change the collection; the other methods return a new one.

    `prefix`, for example "func_", is put in front of every name. The model sees and calls the names with the prefix.
    """

    def __init__(self, tools: "Iterable[Any]" = (), *, prefix: str = "", clash: Clash = "refuse") -> None:
        self.prefix = prefix
        self._tools: dict[str, RunnableTool] = {}
        for tool in tools:
            self.add(tool, clash=clash)

    @classmethod
    def prefixed(cls, tools: "Iterable[Any]") -> "ToolCollection":
        """A collection with `func_` in front of every name."""
        return cls(tools, prefix=PREFIX)

    def add(self, tool: Any, *, clash: Clash = "refuse") -> None:
        """Adds a callable, a tool, or a whole collection. `clash` says what to do about a name that is taken."""
        if isinstance(tool, ToolCollection):
            for name, added in tool._tools.items():
                self._store(self.prefix + name, added, clash)
            return
        added = tool if isinstance(tool, RunnableTool) else FunctionTool(tool)
        self._store(self.prefix + added.name, added, clash)

    def remove(self, name: str) -> None:
        del self._tools[self._check_known(name)]

    def _store(self, name: str, tool: RunnableTool, clash: Clash) -> None:
        if name in self._tools and self._tools[name] is not tool:
            match clash:
                case "refuse":
                    raise DragomanError(f"there are two tools called {name}: rename one of them, or set clash=")
                case "keep":
                    return
                case "rename":
                    name = _find_free_name(name, self._tools)
                case "replace":
                    pass
        self._tools[name] = tool

    # -- lookup

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> RunnableTool:
        return self._tools[self._check_known(name)]

    def get(self, name: str) -> RunnableTool | None:
        return self._tools.get(name)

    def items(self) -> Iterable[tuple[str, RunnableTool]]:
        return self._tools.items()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def _check_known(self, name: str) -> str:
        if name not in self._tools:
            raise KeyError(f"there is no tool {name}; {self._list_names()}")
        return name

    def _list_names(self) -> str:
        shown = ", ".join(list(self._tools)[:_MAX_LISTED_NAMES]) or "none"
        return f"the tools are: {shown}{', ...' if len(self._tools) > _MAX_LISTED_NAMES else ''}"

    # -- selection

    def filter(self, is_wanted: Callable[[str, RunnableTool], bool]) -> "ToolCollection":
        return self._copy_with({name: tool for name, tool in self._tools.items() if is_wanted(name, tool)})

    def only(self, *patterns: str) -> "ToolCollection":
        """The tools whose names match a pattern, with `*` and `?` as in a shell."""
        return self.filter(lambda name, _: any(fnmatchcase(name, pattern) for pattern in patterns))

    def without(self, *patterns: str) -> "ToolCollection":
        return self.filter(lambda name, _: not any(fnmatchcase(name, pattern) for pattern in patterns))

    def merge(self, other: "Iterable[Any] | ToolCollection", *, clash: Clash = "refuse") -> "ToolCollection":
        """Both together. A collection keeps its own names; single callables and tools get the prefix."""
        merged = self._copy_with(dict(self._tools))
        if isinstance(other, ToolCollection):
            for name, tool in other._tools.items():
                merged._store(name, tool, clash)
        else:
            for item in other:
                merged.add(item, clash=clash)
        return merged

    def __or__(self, other: "Iterable[Any] | ToolCollection") -> "ToolCollection":
        return self.merge(other)

    def _copy_with(self, tools: dict[str, RunnableTool]) -> "ToolCollection":
        copy = ToolCollection(prefix=self.prefix)
        copy._tools = tools
        return copy

    # -- as a Toolbox

    def to_tools(self) -> tuple[AnyTool, ...]:
        """The tools as the model sees them."""
        return tuple(_with_name(tool.to_tool(), name) for name, tool in self._tools.items())

    async def list_tools(self) -> Sequence[AnyTool]:
        return self.to_tools()

    async def run(self, call: ToolCall) -> ToolResult:
        """Runs one call. An unknown name gives a failed result that lists the known names."""
        tool = self._tools.get(call.name)
        if tool is None:
            return make_failed_result(call, f"there is no tool {call.name}; {self._list_names()}")
        return await tool.run(call)

    async def run_all(self, calls: Iterable[ToolCall], *, at_once: int = _CALLS_AT_ONCE) -> list[ToolResult]:
        """Runs all calls, at most `at_once` at the same time. The results are in the order of the calls."""
        semaphore = asyncio.Semaphore(at_once)

        async def run(call: ToolCall) -> ToolResult:
            async with semaphore:
                return await self.run(call)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
        return [task.result() for task in tasks]

    def __repr__(self) -> str:
        return f"<ToolCollection {', '.join(self._tools)}>"


class CombinedToolbox:
    """Several toolboxes as one."""

    def __init__(self, toolboxes: Sequence[Toolbox]) -> None:
        self._toolboxes = tuple(toolboxes)
        self._owners: dict[str, Toolbox] = {}

    async def list_tools(self) -> Sequence[AnyTool]:
        self._owners = {}
        tools: list[AnyTool] = []
        for toolbox in self._toolboxes:
            for tool in await toolbox.list_tools():
                name = getattr(tool, "name", "")
                if name and name in self._owners:
                    raise DragomanError(f"there are two tools called {name}")
                self._owners[name] = toolbox
                tools.append(tool)
        return tools

    async def run(self, call: ToolCall) -> ToolResult:
        owner = self._owners.get(call.name)
        if owner is None:
            return make_failed_result(
                call, f"there is no tool {call.name}; the tools are: {', '.join(self._owners) or 'none'}"
            )
        return await owner.run(call)


def make_toolbox(tools: Any) -> Toolbox:
    """A Toolbox from any value of `tools=`: a toolbox, one callable, or a list of callables, tools and toolboxes."""
    if tools is None:
        return ToolCollection()
    if isinstance(tools, ToolCollection):
        return tools
    if not isinstance(tools, Iterable):
        tools = [tools]
    toolboxes: list[Toolbox] = []
    collection = ToolCollection()
    for item in tools:
        if not isinstance(item, ToolCollection | RunnableTool) and isinstance(item, Toolbox):
            toolboxes.append(item)
        else:
            collection.add(item)
    return CombinedToolbox([collection, *toolboxes] if len(collection) else toolboxes) if toolboxes else collection


def _with_name(tool: AnyTool, name: str) -> AnyTool:
    return replace(tool, name=name) if getattr(tool, "name", name) != name else tool


def _find_free_name(name: str, taken: dict[str, RunnableTool]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
