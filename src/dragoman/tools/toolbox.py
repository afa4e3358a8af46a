"""What the agent loop asks of tools, whoever runs them: plain functions, MCP servers, somebody else's program."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import AnyTool


@runtime_checkable
class RunnableTool(Protocol):
    """One tool: what the model is told about it, and how to run it. `run` never raises for what a tool does wrong."""

    @property
    def name(self) -> str: ...
    def to_tool(self) -> AnyTool: ...
    async def run(self, call: ToolCall) -> ToolResult: ...


@runtime_checkable
class Toolbox(Protocol):
    """Some tools. They are listed before every turn, so that a list may change while a loop runs.

    `run` answers every call with a result: an unknown name, bad arguments, an exception or a timeout is a result with
    `failed=True`. Only cancellation comes out of it as an exception.
    """

    async def list_tools(self) -> Sequence[AnyTool]: ...
    async def run(self, call: ToolCall) -> ToolResult: ...
