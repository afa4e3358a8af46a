"""McpToolbox: the tools of some servers as a Toolbox for the agent loop (tools/toolbox.py).

Providers see a tool as `server__tool`. People and the text protocol see `server.tool`.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, kind_of, load_json
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import Tool
from dragoman.tools.results import make_failed_result

if TYPE_CHECKING:
    from dragoman.mcp.connection import ServerConnection
    from dragoman.mcp.tool_listing import ListedTool

ToolId: TypeAlias = tuple[str, str]  # the name of the server and the name of the tool, as they are written there
MAX_NAME_CHARS = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class McpToolbox:
    def __init__(
        self, connections: "Sequence[ServerConnection]", allows: Callable[[str, str], bool] = lambda server, tool: True
    ) -> None:
        """`allows`: whether a tool of a server may be listed and called."""
        self._allows = allows
        self._connections = {connection.spec.name: connection for connection in connections}
        self._tool_ids: dict[str, ToolId] = {}
        self._known_ids: dict[str, ToolId] = {}  # including tools that are not listed any more

    def __len__(self) -> int:
        return len(self._connections)

    async def list_tools(self) -> list[Tool]:
        """Lists the tools of all servers at the same time. A server that does not answer in time is left out."""
        listed = await self._list_all()
        self._tool_ids = name_tools(listed)
        self._known_ids.update(self._tool_ids)
        return [listed[tool_id].to_tool(name) for name, tool_id in self._tool_ids.items()]

    async def _list_all(self) -> "dict[ToolId, ListedTool]":
        lists = await asyncio.gather(*(c.list_tools() for c in self._connections.values()), return_exceptions=True)
        return {
            (server, tool.name): tool
            for server, found in zip(self._connections, lists, strict=True)
            if not isinstance(found, BaseException)
            for tool in found
            if self._allows(server, tool.name)
        }

    def make_label(self, name: str) -> str:
        """`server.tool` for a name that the model uses."""
        tool_id = find_tool(name, self._known_ids)
        return ".".join(tool_id) if tool_id is not None else name

    async def run(self, call: ToolCall) -> ToolResult:
        if not self._tool_ids:
            await self.list_tools()
        tool_id = find_tool(call.name, self._tool_ids)
        if tool_id is None:
            return self._explain_unknown(call)
        try:
            arguments = _read_arguments(call.arguments)
        except DecodeError as error:
            return make_failed_result(call, f"{call.name} was not called: its arguments are {error}")
        server, tool = tool_id
        if not self._allows(server, tool):
            return self._explain_unknown(call)
        return await self._connections[server].call(call, tool, arguments)

    def _explain_unknown(self, call: ToolCall) -> ToolResult:
        """Why the tool cannot be called: it is withheld, its server is not running, or there is no such tool."""
        server, _, tool = call.name.replace("__", ".", 1).partition(".")
        connection = self._connections.get(server)
        if connection is not None and tool in connection.withheld:
            return make_failed_result(call, f"{tool} is not approved: it has changed since its server was approved")
        if connection is not None and connection.health != "up":
            return make_failed_result(call, f"{server} is not running: {connection.last_error or connection.health}")
        names = ", ".join(".".join(tool_id) for tool_id in list(self._tool_ids.values())[:40])
        return make_failed_result(call, f"there is no tool {call.name[:100]!r}; the tools are: {names or 'none'}")


def _read_arguments(text: str) -> JsonObject:
    if not text.strip():
        return {}
    value = load_json(text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{kind_of(value)} instead of an object")
    return value


# ---------------------------------------------------------------- names


def name_tools(tool_ids: Iterable[ToolId]) -> dict[str, ToolId]:
    """A legal and unique name for each tool. It depends on the tool only, unless two names clash. Then both get a
    digest, so that a name never moves from one server to another."""
    wanted: dict[str, list[ToolId]] = {}
    for tool_id in tool_ids:
        wanted.setdefault(_make_plain_name(tool_id), []).append(tool_id)
    names: dict[str, ToolId] = {}
    for name, sharing in wanted.items():
        for sharer in sharing:
            names[name if len(sharing) == 1 else _add_digest(name, sharer)] = sharer
    return names


def _make_plain_name(tool_id: ToolId) -> str:
    joined = "__".join(tool_id)
    name = _ILLEGAL.sub("_", joined)
    unreadable = name != joined and not re.search(r"[A-Za-z0-9]", name.replace("__", ""))
    return _add_digest(name, tool_id) if unreadable or len(name) > MAX_NAME_CHARS else name


def _add_digest(name: str, tool_id: ToolId) -> str:
    digest = hashlib.sha256("\0".join(tool_id).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest}"


def find_tool(name: str, tool_ids: Mapping[str, ToolId]) -> ToolId | None:
    """The tool that a model means: by its given name, by `server.tool`, or by a tool name that only one server has."""
    if name in tool_ids:
        return tool_ids[name]
    dotted = {f"{server}.{tool}": (server, tool) for server, tool in tool_ids.values()}
    if name in dotted:
        return dotted[name]
    matches = [
        tool_id
        for tool_id in tool_ids.values()
        if name in (tool_id[1], _ILLEGAL.sub("_", f"{tool_id[0]}_{tool_id[1]}"))
    ]
    return matches[0] if len(matches) == 1 else None
