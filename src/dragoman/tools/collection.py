"""ToolCollection: tools under unique names, to look up, choose from, merge, and run one call or many at once."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import AnyTool
from dragoman.tools.function import PREFIX, FunctionTool
from dragoman.tools.results import fail
from dragoman.tools.toolbox import RunnableTool, Toolbox

Clash: TypeAlias = Literal["refuse", "keep", "replace", "rename"]
_AT_ONCE = 8
_MOST_NAMED = 30  # names an error lists


class ToolCollection:
    """A Toolbox of single tools. Changing methods give a new collection, except `add` and `remove`.

    `prefix`, for example "func_", is put in front of every name: the names the model sees and calls.
    """

    def __init__(self, tools: "Iterable[Any]" = (), *, prefix: str = "", clash: Clash = "refuse") -> None:
        self.prefix = prefix
        self._tools: dict[str, RunnableTool] = {}
        for one in tools:
            self.add(one, clash=clash)

    @classmethod
    def prefixed(cls, tools: "Iterable[Any]") -> "ToolCollection":
        """With `func_` in front of every name."""
        return cls(tools, prefix=PREFIX)

    def add(self, tool: Any, *, clash: Clash = "refuse") -> None:
        """A callable, a tool, or a whole collection. A name that is taken is refused unless `clash` says otherwise."""
        if isinstance(tool, ToolCollection):
            for name, one in tool._tools.items():
                self._put(self.prefix + name, one, clash)
            return
        one = tool if isinstance(tool, RunnableTool) else FunctionTool(tool)
        self._put(self.prefix + one.name, one, clash)

    def remove(self, name: str) -> None:
        del self._tools[self._known(name)]

    def _put(self, name: str, tool: RunnableTool, clash: Clash) -> None:
        if name in self._tools and self._tools[name] is not tool:
            match clash:
                case "refuse":
                    raise DragomanError(f"there are two tools called {name}: give one another name, or say clash=")
                case "keep":
                    return
                case "rename":
                    name = _free_name(name, self._tools)
                case "replace":
                    pass
        self._tools[name] = tool

    # -- looking

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> RunnableTool:
        return self._tools[self._known(name)]

    def get(self, name: str) -> RunnableTool | None:
        return self._tools.get(name)

    def items(self) -> Iterable[tuple[str, RunnableTool]]:
        return self._tools.items()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def _known(self, name: str) -> str:
        if name not in self._tools:
            raise KeyError(f"there is no tool {name}; {self._say_names()}")
        return name

    def _say_names(self) -> str:
        shown = ", ".join(list(self._tools)[:_MOST_NAMED]) or "none"
        return f"there are: {shown}{', ...' if len(self._tools) > _MOST_NAMED else ''}"

    # -- choosing

    def filter(self, wanted: Callable[[str, RunnableTool], bool]) -> "ToolCollection":
        return self._with({name: tool for name, tool in self._tools.items() if wanted(name, tool)})

    def only(self, *patterns: str) -> "ToolCollection":
        """Those whose names match, `*` and `?` as in a shell."""
        return self.filter(lambda name, _: any(fnmatchcase(name, pattern) for pattern in patterns))

    def without(self, *patterns: str) -> "ToolCollection":
        return self.filter(lambda name, _: not any(fnmatchcase(name, pattern) for pattern in patterns))

    def merge(self, other: "Iterable[Any] | ToolCollection", *, clash: Clash = "refuse") -> "ToolCollection":
        """Both. What is not in a collection yet gets this one's prefix; a collection keeps its own names."""
        merged = self._with(dict(self._tools))
        if isinstance(other, ToolCollection):
            for name, tool in other._tools.items():
                merged._put(name, tool, clash)
        else:
            for one in other:
                merged.add(one, clash=clash)
        return merged

    def __or__(self, other: "Iterable[Any] | ToolCollection") -> "ToolCollection":
        return self.merge(other)

    def _with(self, tools: dict[str, RunnableTool]) -> "ToolCollection":
        made = ToolCollection(prefix=self.prefix)
        made._tools = tools
        return made

    # -- as a Toolbox

    def to_tools(self) -> tuple[AnyTool, ...]:
        """What the model is told."""
        return tuple(_named(tool.to_tool(), name) for name, tool in self._tools.items())

    async def list_tools(self) -> Sequence[AnyTool]:
        return self.to_tools()

    async def run(self, call: ToolCall) -> ToolResult:
        """One call. A name nobody knows is an error result that lists the names there are."""
        tool = self._tools.get(call.name)
        if tool is None:
            return fail(call, f"there is no tool {call.name}; {self._say_names()}")
        return await tool.run(call)

    async def run_all(self, calls: Iterable[ToolCall], *, at_once: int = _AT_ONCE) -> list[ToolResult]:
        """All calls at once, at most `at_once` at a time; results in the order of the calls."""
        gate = asyncio.Semaphore(at_once)

        async def run(call: ToolCall) -> ToolResult:
            async with gate:
                return await self.run(call)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
        return [task.result() for task in tasks]

    def __repr__(self) -> str:
        return f"<ToolCollection {', '.join(self._tools)}>"


class Boxes:
    """Several toolboxes as one; the first that lists a name runs it."""

    def __init__(self, boxes: Sequence[Toolbox]) -> None:
        self._boxes = tuple(boxes)
        self._home: dict[str, Toolbox] = {}

    async def list_tools(self) -> Sequence[AnyTool]:
        self._home = {}
        tools: list[AnyTool] = []
        for box in self._boxes:
            for tool in await box.list_tools():
                name = getattr(tool, "name", "")
                if name and name in self._home:
                    raise DragomanError(f"there are two tools called {name}")
                self._home[name] = box
                tools.append(tool)
        return tools

    async def run(self, call: ToolCall) -> ToolResult:
        home = self._home.get(call.name)
        if home is None:
            return fail(call, f"there is no tool {call.name}; there are: {', '.join(self._home) or 'none'}")
        return await home.run(call)


def collect(tools: Any) -> Toolbox:
    """Whatever people pass as `tools`: a toolbox, one callable, or a list of callables, tools and toolboxes."""
    if tools is None:
        return ToolCollection()
    if isinstance(tools, ToolCollection):
        return tools
    if not isinstance(tools, Iterable):
        tools = [tools]
    boxes: list[Toolbox] = []
    single = ToolCollection()
    for one in tools:
        if not isinstance(one, ToolCollection | RunnableTool) and isinstance(one, Toolbox):
            boxes.append(one)
        else:
            single.add(one)
    return Boxes([single, *boxes] if len(single) else boxes) if boxes else single


def _named(tool: AnyTool, name: str) -> AnyTool:
    return replace(tool, name=name) if getattr(tool, "name", name) != name else tool


def _free_name(name: str, taken: dict[str, RunnableTool]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
