"""All MCP servers: those of the configuration and those of mcp.json, each with its connection."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.mcp.leash import sweep
from dragoman.mcp.pins import Pins
from dragoman.mcp.registry import Registry
from dragoman.mcp.spec import BadServerError, ServerSpec, check_name, check_url
from dragoman.mcp.toolbox import McpToolbox

if TYPE_CHECKING:
    from dragoman.mcp.connection import Connection, Report

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
    ) -> None:
        """`fixed` are those of the configuration: they cannot be changed from outside."""
        self.registry = registry
        self.fixed = dict(fixed or {})
        self._folder = folder
        self._env = os.environ if env is None else env
        self._pins = Pins(folder / "mcp-tools.json")
        self._report = report
        self._loaded = self._swept = False
        self._connections: dict[str, Connection] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def specs(self) -> dict[str, ServerSpec]:
        return {**self.registry.load(), **self.fixed}

    def add(self, name: object, url: object) -> bool:
        """Registers a server by its address, or approves one anew; True when it was there before."""
        name, url = check_name(name), check_url(url)
        if name in self.fixed:
            raise BadServerError(f"{name} is a server of the configuration: change it there")
        replaced = self.registry.add(name, url)
        spec = self.specs()[name]
        self._connection(spec).approve()
        return replaced

    def remove(self, name: object) -> None:
        name = check_name(name)
        if name in self.fixed:
            raise BadServerError(f"{name} is a server of the configuration: remove it there")
        if not self.registry.remove(name):
            raise UnknownServerError(f"there is no MCP server {name!r}")
        connection = self._connections.pop(name, None)
        if connection is not None:
            self._end(connection)

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
            "last_error": (known.last_error or None) if known is not None else None,
        }
        if known is not None and known.protocol:
            row["protocol"] = known.protocol
        if known is not None and known.changes:
            row["changes"] = [{"tool": c.tool, "what": c.what} for c in known.changes]
            row["withheld"] = sorted(known.withheld)
        return row

    def _connection(self, spec: ServerSpec) -> "Connection":
        found = self._connections.get(spec.name)
        if found is not None and found.spec == spec:
            return found
        if found is not None:
            self._end(found)
        _load()
        from dragoman.mcp.connection import CHILDREN, Connection

        if not self._swept:
            self._swept = True
            sweep(self._folder / "mcp" / CHILDREN)
        home = self._folder / "mcp" / spec.name
        made = self._connections[spec.name] = Connection(spec, self._pins, home, self._env, self._report)
        return made

    def _end(self, connection: "Connection") -> None:
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
