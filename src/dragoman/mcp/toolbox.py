"""McpToolbox: the tools of some servers, as the agent loop wants them (tools/toolbox.py)."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, kind_of, load_json
from dragoman.mcp.tool_names import Place, find_place, name_tools
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import Tool
from dragoman.tools.results import make_failed_result

if TYPE_CHECKING:
    from dragoman.mcp.connection import ServerConnection
    from dragoman.mcp.tool_listing import ListedTool


class McpToolbox:
    def __init__(self, connections: "Sequence[ServerConnection]") -> None:
        self._connections = {connection.spec.name: connection for connection in connections}
        self._named: dict[str, Place] = {}
        self._labels: dict[str, Place] = {}  # also of tools that have gone since

    def __len__(self) -> int:
        return len(self._connections)

    async def list_tools(self) -> list[Tool]:
        """All servers are asked at the same time; one that does not answer in time is left out, not waited for."""
        offers = await self._offers()
        self._named = name_tools(offers)
        self._labels.update(self._named)
        return [offers[place].to_tool(name) for name, place in self._named.items()]

    async def _offers(self) -> "dict[Place, ListedTool]":
        lists = await asyncio.gather(*(c.list_tools() for c in self._connections.values()), return_exceptions=True)
        return {
            (server, offer.name): offer
            for server, found in zip(self._connections, lists, strict=True)
            if not isinstance(found, BaseException)
            for offer in found
        }

    def label(self, name: str) -> str:
        """`server.tool` for a name given to a model."""
        place = find_place(name, self._labels)
        return ".".join(place) if place is not None else name

    async def run(self, call: ToolCall) -> ToolResult:
        if not self._named:
            await self.list_tools()
        place = find_place(call.name, self._named)
        if place is None:
            return self._unknown(call)
        try:
            arguments = _read_arguments(call.arguments)
        except DecodeError as error:
            return make_failed_result(call, f"{call.name} was not called: its arguments are {error}")
        server, tool = place
        return await self._connections[server].call(call, tool, arguments)

    def _unknown(self, call: ToolCall) -> ToolResult:
        """A tool that is withheld says so itself; any other is named together with what there is."""
        server, _, tool = call.name.replace("__", ".", 1).partition(".")
        connection = self._connections.get(server)
        if connection is not None and tool in connection.withheld:
            return make_failed_result(call, f"{tool} is not approved: it is not what it was when its server was")
        if connection is not None and connection.health != "up":
            return make_failed_result(call, f"{server} does not run: {connection.last_error or connection.health}")
        have = ", ".join(".".join(place) for place in list(self._named.values())[:40])
        return make_failed_result(call, f"there is no tool {call.name[:100]!r}; there is {have or 'none'}")


def _read_arguments(text: str) -> JsonObject:
    if not text.strip():
        return {}
    value = load_json(text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"no object but {kind_of(value)}")
    return value
