"""All MCP servers: those of the configuration and those of mcp.json, each with its connection."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.mcp.approvals import Approvals
from dragoman.mcp.network_policy import ForbiddenAddressError, NetworkPolicy, UnknownHostError
from dragoman.mcp.orphans import sweep
from dragoman.mcp.registry import Registry
from dragoman.mcp.spec import BadServerError, OAuth, ServerSpec, check_name, check_url
from dragoman.mcp.toolbox import McpToolbox

if TYPE_CHECKING:
    from dragoman.mcp.connection import Report, ServerConnection
    from dragoman.mcp.oauth import Hear, Show

LOOK_S = 2.0  # how long a list waits for servers nobody has asked yet


class UnknownServerError(DragomanError):
    """Nobody registered it."""


class MissingPackageError(DragomanError):
    """The extra is not installed."""


class Servers:
    def __init__(
        self,
        registry: Registry,
        fixed: Mapping[str, ServerSpec] | None = None,
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
        report: "Report | None" = None,
        private: bool = True,
    ) -> None:
        """`fixed` are those of the configuration: they cannot be changed from outside, and may be anywhere. The others
        may be on this machine or its network only if `private`."""
        self.registry = registry
        self.fixed = dict(fixed or {})
        self.private = private
        self._folder = folder
        self._env = os.environ if env is None else env
        self._pins = Approvals(folder / "mcp-tools.json")
        self._report = report
        self._loaded = self._swept = False
        self._connections: dict[str, ServerConnection] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def specs(self) -> dict[str, ServerSpec]:
        return {**self.registry.load(), **self.fixed}

    async def check(self, url: object) -> None:
        """Whether an address may be added: every address its name has. One that is not there yet may come."""
        host, port = urlsplit(check_url(url)).hostname or "", urlsplit(str(url)).port
        try:
            with suppress(UnknownHostError):
                await NetworkPolicy(host, private=self.private).find(host, port or 80)
        except ForbiddenAddressError as error:
            raise BadServerError(f"url: {error}") from error

    def add(self, name: object, url: object, more: JsonObject | None = None) -> bool:
        """Registers a server by its address, or approves one anew; True when it was there before."""
        name, url = check_name(name), check_url(url)
        self._check_free(name)
        replaced = self.registry.add(name, url, more)
        self._approve(name)
        return replaced

    def put(self, name: object, row: JsonObject) -> bool:
        """The same for a program: for people at this machine, never for a client (T03)."""
        name = check_name(name)
        self._check_free(name)
        replaced = self.registry.put(name, row)
        self._approve(name)
        return replaced

    def _check_free(self, name: str) -> None:
        if name in self.fixed:
            raise BadServerError(f"{name} is a server of the configuration: change it there")

    def _approve(self, name: str) -> None:
        """Whoever names a server trusts it: what it offers next is what is approved."""
        known = self._connections.get(name)
        if known is not None and known.spec == self.specs()[name]:
            known.approve()
        else:
            self._pins.forget(self.specs()[name])

    def remove(self, name: object) -> None:
        name = check_name(name)
        if name in self.fixed:
            raise BadServerError(f"{name} is a server of the configuration: remove it there")
        if not self.registry.remove(name):
            raise UnknownServerError(f"there is no MCP server {name!r}")
        connection = self._connections.pop(name, None)
        if connection is not None:
            self._end(connection)

    def connection(self, name: str) -> "ServerConnection":
        specs = self.specs()
        if name not in specs:
            have = ", ".join(specs) or "none at all"
            raise UnknownServerError(f"there is no MCP server {name[:100]!r}; there is {have}")
        return self._connection(specs[name])

    async def login(self, name: str, show: "Show", hear: "Hear", seconds: float) -> str:
        """With a person there to log in; what went wrong, or nothing."""
        await self.prepare()
        from dragoman.mcp.oauth import TokenFile

        spec = self.connection(name).spec
        if spec.url is None:
            raise BadServerError(f"{name} is a program of this machine: there is nobody to log in to")
        spec = replace(spec, connect_s=seconds, oauth=spec.oauth or OAuth())
        if spec.oauth is not None and spec.oauth.grant != "code":
            raise BadServerError(f"{name} has credentials of its own: nobody has to log in")
        TokenFile(self._folder, spec).update(tokens=None, ends=None)
        connection = self._make(spec, (show, hear))
        try:
            await connection.list_tools()
            return connection.last_error
        finally:
            await connection.close()

    def logout(self, name: str) -> bool:
        """Forgets its tokens; False when there were none."""
        _load()
        from dragoman.mcp.oauth import TokenFile

        return TokenFile(self._folder, self.connection(name).spec).forget()

    async def prepare(self) -> None:
        """The mcp package takes a second to load: in a thread, so that nobody else has to wait."""
        if not self._loaded:
            await asyncio.to_thread(_load)
            self._loaded = True

    def toolbox(self, names: Sequence[str] | None = None) -> McpToolbox:
        """The tools of these servers, or of all."""
        specs = self.specs()
        wanted = list(specs) if names is None else list(dict.fromkeys(names))
        if missing := [name for name in wanted if name not in specs]:
            have = ", ".join(specs) or "none at all"
            raise UnknownServerError(f"there is no MCP server {missing[0][:100]!r}; there is {have}")
        return McpToolbox([self._connection(specs[name]) for name in wanted if not specs[name].disabled])

    async def look(self, wait_s: float = LOOK_S) -> None:
        """Asks those nobody has asked yet, all at once, and waits no longer than said."""
        if not self.specs():
            return
        await self.prepare()
        fresh = [self._connection(spec) for spec in self.specs().values() if not spec.disabled]
        await asyncio.gather(*(c.list_tools(wait_s) for c in fresh if c.health in ("unasked", "connecting")))

    def describe(self) -> list[JsonObject]:
        return [self._describe(spec) for spec in self.specs().values()]

    def _describe(self, spec: ServerSpec) -> JsonObject:
        connection = self._connections.get(spec.name)
        known = connection if connection is not None and connection.spec == spec else None
        row: JsonObject = {
            "name": spec.name,
            "url": spec.address,
            "transport": known.transport if known is not None else spec.transport,
            "source": "configuration" if spec.name in self.fixed else "registry",
            "health": known.health if known is not None else ("disabled" if spec.disabled else "unasked"),
            "tools": len(known.tools) if known is not None else 0,
            "last_error": (known.last_error if known is not None else spec.problem) or None,
        }
        if known is not None and known.protocol:
            row["protocol"] = known.protocol
        if known is not None and known.changes:
            row["changes"] = [{"tool": c.tool, "what": c.what} for c in known.changes]
            row["withheld"] = sorted(known.withheld)
        return row

    def changes(self, connection: "ServerConnection") -> list[JsonObject]:
        """Its tools that are not as they were approved, with their whole texts."""
        rows: list[JsonObject] = []
        for change in connection.changes:
            pin, offer = self._pins.find(connection.spec, change.tool), connection.offers.get(change.tool)
            before = None if pin is None or pin.new else {"description": pin.description, "schema": pin.schema}
            now = None if offer is None else {"description": offer.description, "schema": offer.schema}
            rows.append(
                {
                    "server": connection.spec.name,
                    "tool": change.tool,
                    "what": change.what,
                    "withheld": change.tool in connection.withheld,
                    "approved": before if change.what != "hidden characters" else None,
                    "now": now,
                }
            )
        return rows

    def _connection(self, spec: ServerSpec) -> "ServerConnection":
        found = self._connections.get(spec.name)
        if found is not None and found.spec == spec and found.private == self._may_be_private(spec):
            return found
        if found is not None:
            self._end(found)
        made = self._connections[spec.name] = self._make(spec)
        return made

    def _make(self, spec: ServerSpec, person: "tuple[Show, Hear] | None" = None) -> "ServerConnection":
        _load()
        from dragoman.mcp.connection import CHILDREN, ServerConnection

        if not self._swept:
            self._swept = True
            sweep(self._folder / "mcp" / CHILDREN)
        home, private = self._folder / "mcp" / spec.name, self._may_be_private(spec)
        return ServerConnection(spec, self._pins, home, self._env, self._report, private=private, person=person)

    def _may_be_private(self, spec: ServerSpec) -> bool:
        return self.private or spec.name in self.fixed

    def _end(self, connection: "ServerConnection") -> None:
        try:
            task = asyncio.get_running_loop().create_task(connection.close())
        except RuntimeError:  # no loop, so nothing of it runs
            return
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Every connection ended, every child gone."""
        open_ones, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(c.close() for c in open_ones), *self._ending, return_exceptions=True)


def _load() -> None:
    try:
        import dragoman.mcp.connection  # noqa: F401  # loaded for its own sake
    except ImportError as error:
        raise MissingPackageError("MCP needs the mcp package: pip install 'dragoman[mcp]'") from error


def registry_path(config: str, folder: Path) -> Path:
    """Beside the configuration if there is one, else where keys and stored responses live."""
    return (Path(config).parent if config else folder) / "mcp.json"
