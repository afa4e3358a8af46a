"""ServerPool: all MCP servers, of the configuration and of mcp.json, with their connections.

McpServers: MCP servers for Python programs, without a gateway and without mcp.json.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.mcp.approvals import Approvals
from dragoman.mcp.network_policy import ForbiddenAddressError, NetworkPolicy, UnknownHostError
from dragoman.mcp.registry import Registry
from dragoman.mcp.spec import BadServerError, OAuth, ServerSpec, check_name, check_url, read_spec
from dragoman.mcp.toolbox import McpToolbox
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.request import Tool

if TYPE_CHECKING:
    from dragoman.mcp.connection import Report, ServerConnection
    from dragoman.mcp.oauth import AwaitCode, ShowPage

CLOSE_TIMEOUT_S = 10.0
FIRST_LIST_S = 2.0  # how long a list waits for servers that were not used yet


class UnknownServerError(DragomanError):
    """There is no server with this name."""


class MissingPackageError(DragomanError):
    """The mcp package is not installed."""


class ServerNotRunningError(DragomanError):
    """A server that a program needs did not start, or cannot be reached."""


class ServerPool:
    def __init__(
        self,
        registry: Registry,
        configured: Mapping[str, ServerSpec] | None = None,
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
        report: "Report | None" = None,
        allow_private: bool = True,
    ) -> None:
        """`configured` are the servers of the configuration: clients cannot change them, and they may be anywhere. The
        other servers may be on this machine or its network only if `allow_private`."""
        self.registry = registry
        self.configured = dict(configured or {})
        self.allow_private = allow_private
        self._folder = folder
        self._env = os.environ if env is None else env
        self._approvals = Approvals(folder / "mcp-tools.json")
        self._report = report
        self._package_loaded = self._orphans_ended = False
        self._connections: dict[str, ServerConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def list_specs(self) -> dict[str, ServerSpec]:
        return {**self.registry.load(), **self.configured}

    async def check_address(self, url: object) -> None:
        """BadServerError if an address of this host is forbidden. An unknown host is allowed: it may appear later."""
        host, port = urlsplit(check_url(url)).hostname or "", urlsplit(str(url)).port
        try:
            with suppress(UnknownHostError):
                await NetworkPolicy(host, allow_private=self.allow_private).find_addresses(host, port or 80)
        except ForbiddenAddressError as error:
            raise BadServerError(f"url: {error}") from error

    def add(self, name: object, url: object, more: JsonObject | None = None) -> bool:
        """Registers a server by its address, or approves it again; True if the name existed."""
        name, url = check_name(name), check_url(url)
        self._check_not_configured(name)
        replaced = self.registry.add(name, url, more)
        self._approve(name)
        return replaced

    def add_program(self, name: object, entry: JsonObject) -> bool:
        """Registers a program; True if the name existed. Clients must not call it: it can start any program. (T03)"""
        name = check_name(name)
        self._check_not_configured(name)
        replaced = self.registry.put(name, entry)
        self._approve(name)
        return replaced

    def _check_not_configured(self, name: str) -> None:
        if name in self.configured:
            raise BadServerError(f"{name} is a server of the configuration: change it there")

    def _approve(self, name: str) -> None:
        """Approves the current or the next tool list: adding a server by name means trust."""
        known = self._connections.get(name)
        if known is not None and known.spec == self.list_specs()[name]:
            known.approve()
        else:
            self._approvals.forget(self.list_specs()[name])

    def remove(self, name: object) -> None:
        name = check_name(name)
        if name in self.configured:
            raise BadServerError(f"{name} is a server of the configuration: remove it there")
        if not self.registry.remove(name):
            raise UnknownServerError(f"there is no MCP server {name!r}")
        connection = self._connections.pop(name, None)
        if connection is not None:
            self._close_later(connection)

    def get_connection(self, name: str) -> "ServerConnection":
        specs = self.list_specs()
        if name not in specs:
            names = ", ".join(specs) or "none"
            raise UnknownServerError(f"there is no MCP server {name[:100]!r}; the servers are: {names}")
        return self._connection(specs[name])

    def find_connection(self, name: str) -> "ServerConnection | None":
        """The connection to a server, if there is one already."""
        return self._connections.get(name)

    async def login(self, name: str, show_page: "ShowPage", await_code: "AwaitCode", timeout_s: float) -> str:
        """Logs a person in. Returns what went wrong, or an empty text."""
        await self.load_package()
        from dragoman.mcp.oauth import TokenFile

        spec = self.get_connection(name).spec
        if spec.url is None:
            raise BadServerError(f"{name} is a program on this machine: it needs no login")
        spec = replace(spec, connect_s=timeout_s, oauth=spec.oauth or OAuth())
        if spec.oauth is not None and spec.oauth.grant != "code":
            raise BadServerError(f"{name} uses client credentials: it needs no login")
        TokenFile(self._folder, spec).update(tokens=None, expires_at=None)
        connection = self._make_connection(spec, (show_page, await_code))
        try:
            await connection.list_tools()
            return connection.last_error
        finally:
            await connection.close()

    def logout(self, name: str) -> bool:
        """Deletes the tokens of a server; False if there were none."""
        _load_package()
        from dragoman.mcp.oauth import TokenFile

        return TokenFile(self._folder, self.get_connection(name).spec).forget()

    async def load_package(self) -> None:
        """Loads the mcp package in a thread: that takes a second and must not block the event loop."""
        if not self._package_loaded:
            await asyncio.to_thread(_load_package)
            self._package_loaded = True

    def make_toolbox(
        self, names: Sequence[str] | None = None, allows: Callable[[str, str], bool] = lambda server, tool: True
    ) -> McpToolbox:
        """The tools of these servers, or of all servers, that may be used."""
        specs = self.list_specs()
        chosen = list(specs) if names is None else list(dict.fromkeys(names))
        if missing := [name for name in chosen if name not in specs]:
            known_names = ", ".join(specs) or "none"
            raise UnknownServerError(f"there is no MCP server {missing[0][:100]!r}; the servers are: {known_names}")
        return McpToolbox([self._connection(specs[name]) for name in chosen if not specs[name].disabled], allows)

    async def list_new_servers(self, timeout_s: float = FIRST_LIST_S) -> None:
        """Connects to all servers that were not used yet, at the same time, and waits at most `timeout_s`."""
        if not self.list_specs():
            return
        await self.load_package()
        connections = [self._connection(spec) for spec in self.list_specs().values() if not spec.disabled]
        await asyncio.gather(*(c.list_tools(timeout_s) for c in connections if c.health in ("unasked", "connecting")))

    def describe(self) -> list[JsonObject]:
        return [self._describe(spec) for spec in self.list_specs().values()]

    def _describe(self, spec: ServerSpec) -> JsonObject:
        connection = self._connections.get(spec.name)
        known = connection if connection is not None and connection.spec == spec else None
        row: JsonObject = {
            "name": spec.name,
            "url": spec.address,
            "transport": known.transport if known is not None else spec.transport,
            "source": "configuration" if spec.name in self.configured else "registry",
            "health": known.health if known is not None else ("disabled" if spec.disabled else "unasked"),
            "tools": len(known.tools) if known is not None else 0,
            "last_error": (known.last_error if known is not None else spec.problem) or None,
        }
        if known is not None and known.protocol:
            row["protocol"] = known.protocol
        if known is not None and known.changes:
            row["changes"] = [{"tool": c.tool, "what": c.kind} for c in known.changes]
            row["withheld"] = sorted(known.withheld)
        return row

    def describe_changes(self, connection: "ServerConnection") -> list[JsonObject]:
        """The tools whose texts differ from the approved ones, with both texts."""
        rows: list[JsonObject] = []
        for change in connection.changes:
            approval, tool = (
                self._approvals.find(connection.spec, change.tool),
                connection.listed_tools.get(change.tool),
            )
            before = (
                None
                if approval is None or approval.new
                else {"description": approval.description, "schema": approval.schema}
            )
            now = None if tool is None else {"description": tool.description, "schema": tool.schema}
            rows.append(
                {
                    "server": connection.spec.name,
                    "tool": change.tool,
                    "what": change.kind,
                    "withheld": change.tool in connection.withheld,
                    "approved": before if change.kind != "hidden characters" else None,
                    "now": now,
                }
            )
        return rows

    def _connection(self, spec: ServerSpec) -> "ServerConnection":
        found = self._connections.get(spec.name)
        if found is not None and found.spec == spec and found.allow_private == self._allows_private(spec):
            return found
        if found is not None:
            self._close_later(found)
        connection = self._connections[spec.name] = self._make_connection(spec)
        return connection

    def _make_connection(
        self, spec: ServerSpec, login_handlers: "tuple[ShowPage, AwaitCode] | None" = None
    ) -> "ServerConnection":
        _load_package()
        from dragoman.mcp.connection import CHILDREN_FOLDER, ServerConnection
        from dragoman.mcp.stdio import end_orphans

        if not self._orphans_ended:
            self._orphans_ended = True
            end_orphans(self._folder / "mcp" / CHILDREN_FOLDER)
        home, allow_private = self._folder / "mcp" / spec.name, self._allows_private(spec)
        return ServerConnection(
            spec,
            self._approvals,
            home,
            self._env,
            self._report,
            allow_private=allow_private,
            login_handlers=login_handlers,
        )

    def _allows_private(self, spec: ServerSpec) -> bool:
        return self.allow_private or spec.name in self.configured

    def _close_later(self, connection: "ServerConnection") -> None:
        try:
            task = asyncio.get_running_loop().create_task(connection.close())
        except RuntimeError:  # without an event loop the connection is not running
            return
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends all connections and their programs."""
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(c.close() for c in connections), *self._closing, return_exceptions=True)


def _load_package() -> None:
    try:
        import dragoman.mcp.connection  # noqa: F401  # only to load it
    except ImportError as error:
        raise MissingPackageError("MCP needs the mcp package: pip install 'dragoman[mcp]'") from error


def find_registry_path(config: str, folder: Path) -> Path:
    """mcp.json beside the configuration file, or else in the folder with keys and stored responses."""
    return (Path(config).parent if config else folder) / "mcp.json"


class McpServers:
    """A Toolbox: `client.run(model, prompt, tools=McpServers({"name": "https://...", "other": {"command": ...}}))`.

    Close it after use, or put it into the `with` (or `async with`) statement of the client. The programs that it
    started end then.
    """

    def __init__(
        self,
        servers: Mapping[str, str | Mapping[str, Any]],
        *,
        folder: str | Path | None = None,
        needed: bool = True,
    ) -> None:
        """`folder` keeps approvals and tokens. The folder of dragoman's state (`DRAGOMAN_HOME`) has the tokens of
        `dragoman mcp login`. Without a folder they are deleted at the end.

        A server that does not start is an error at its first use. With `needed=False` the tools of the other servers
        are used without it."""
        rows = {name: row if isinstance(row, str) else dict(row) for name, row in servers.items()}
        specs = {name: read_spec(name, row, "McpServers", name) for name, row in rows.items()}
        self._temporary_folder = Path(tempfile.mkdtemp(prefix="dragoman-mcp-"))
        state_folder = Path(folder) if folder is not None else self._temporary_folder
        self._pool = ServerPool(Registry(self._temporary_folder / "mcp.json"), specs, folder=state_folder)
        self._needed = needed
        self._toolbox: McpToolbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the connections

    async def _open(self) -> McpToolbox:
        if self._toolbox is None:
            self._loop = asyncio.get_running_loop()
            await self._pool.load_package()
            self._toolbox = self._pool.make_toolbox()
        return self._toolbox

    async def list_tools(self) -> list[Tool]:
        tools = await (await self._open()).list_tools()
        if self._needed:
            self._check_running()
            self._needed = False  # a server that ran once may be away for a while: its calls say so
        return tools

    def _check_running(self) -> None:
        away = [row for row in self.describe() if row["health"] not in ("up", "disabled")]
        if away:
            reasons = "; ".join(f"{row['name']}: {row['last_error'] or 'it does not answer'}" for row in away)
            raise ServerNotRunningError(
                f"MCP server not running: {reasons} (McpServers(..., needed=False) goes on without it)"
            )

    async def run(self, call: ToolCall) -> ToolResult:
        return await (await self._open()).run(call)

    def describe(self) -> list[dict[str, Any]]:
        """Each server with its health, the number of its tools and its last error."""
        return self._pool.describe()

    async def aclose(self) -> None:
        self._toolbox = None
        await self._pool.close()
        shutil.rmtree(self._temporary_folder, ignore_errors=True)

    def close(self) -> None:
        """Closes it, for code without `await`."""
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.aclose(), self._loop).result(CLOSE_TIMEOUT_S)
        else:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)

    def __enter__(self) -> "McpServers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "McpServers":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
