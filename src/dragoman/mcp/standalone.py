"""McpServers: MCP servers as tools for a Client, without a gateway and without a registry."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import Servers
from dragoman.mcp.spec import read_spec
from dragoman.mcp.toolbox import McpToolbox
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import Tool

CLOSE_S = 10.0


class McpServers:
    """A Toolbox: `client.run(model, prompt, tools=McpServers({"name": "https://...", "other": {"command": ...}}))`.

    Close it, or use it in a `with` (or `async with`) inside the one of its client: programs it started end with it.
    """

    def __init__(self, servers: Mapping[str, str | Mapping[str, Any]], *, folder: str | Path | None = None) -> None:
        """`folder` is where approvals and tokens are kept: dragoman's own (`DRAGOMAN_HOME`) has those of `dragoman mcp
        login`. Without one they last as long as this does."""
        rows = {name: row if isinstance(row, str) else dict(row) for name, row in servers.items()}
        specs = {name: read_spec(name, row, "McpServers", name) for name, row in rows.items()}
        self._own = Path(tempfile.mkdtemp(prefix="dragoman-mcp-"))
        kept = Path(folder) if folder is not None else self._own
        self._servers = Servers(Registry(self._own / "mcp.json"), specs, folder=kept)
        self._toolbox: McpToolbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the one the connections live in

    async def _open(self) -> McpToolbox:
        if self._toolbox is None:
            self._loop = asyncio.get_running_loop()
            await self._servers.prepare()
            self._toolbox = self._servers.toolbox()
        return self._toolbox

    async def list_tools(self) -> list[Tool]:
        return await (await self._open()).list_tools()

    async def run(self, call: ToolCall) -> ToolResult:
        return await (await self._open()).run(call)

    def describe(self) -> list[dict[str, Any]]:
        """Each server with its health, the number of its tools and its last error."""
        return self._servers.describe()

    async def aclose(self) -> None:
        self._toolbox = None
        await self._servers.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def close(self) -> None:
        """The same for code without `await`."""
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.aclose(), self._loop).result(CLOSE_S)
        else:
            shutil.rmtree(self._own, ignore_errors=True)

    def __enter__(self) -> "McpServers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "McpServers":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
