"""What the configuration says about MCP: the table `mcp`. Programs to start (stdio) are named here or in mcp.json,
files on disk both, and nowhere else (T03)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.agent.onestream import Show
from dragoman.agent.steps import Limits
from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of
from dragoman.mcp.spec import ServerSpec, read_spec

SHOWS: dict[str, Show] = {"reasoning": "reasoning", "text": "text", "nothing": "nothing"}
KEYS = {"file", "default", "show", "servers", "turns", "calls", "repeats", "tool_s", "total_s"}


class McpSettings(Struct, frozen=True, kw_only=True):
    file: Path | None = None  # the registry; None: mcp.json beside the configuration
    folder: Path | None = None  # where children live and approvals are kept
    default: tuple[str, ...] = ()  # servers every conversation gets
    show: Show = "reasoning"  # how calls are told to clients
    servers: dict[str, ServerSpec] = {}
    limits: Limits = Limits()


def read_mcp(table: Any, file: str, expand: Callable[[str, str], str]) -> McpSettings:
    """`expand` fills in ${NAME}."""
    if table is None:
        return McpSettings()
    if not isinstance(table, dict):
        raise ConfigError(file, "mcp", f"expected a table, found {kind_of(table)}")
    if unknown := sorted(set(table) - KEYS):
        raise ConfigError(file, f"mcp.{unknown[0]}", f"no such key; expected some of {', '.join(sorted(KEYS))}")
    table = _expand(table, "mcp", expand)
    rows = table.get("servers", {})
    if not isinstance(rows, dict):
        raise ConfigError(file, "mcp.servers", f"expected a table, found {kind_of(rows)}")
    servers = {name: read_spec(name, row, file, f"mcp.servers.{name}") for name, row in rows.items()}
    default = table.get("default", [])
    if not isinstance(default, list) or not all(isinstance(name, str) for name in default):
        raise ConfigError(file, "mcp.default", "expected a list of server names")
    show = table.get("show", "reasoning")
    if show not in SHOWS:
        raise ConfigError(file, "mcp.show", f"expected one of {', '.join(SHOWS)}")
    path = table.get("file")
    return McpSettings(
        file=Path(path) if isinstance(path, str) else None,
        default=tuple(default),
        show=SHOWS[show],
        servers=servers,
        limits=_limits(table, file),
    )


def _limits(table: Mapping[str, Any], file: str) -> Limits:
    said: dict[str, Any] = {}
    for key in ("turns", "calls", "repeats", "tool_s", "total_s"):
        value = table.get(key)
        if value is None:
            continue
        whole = key in ("turns", "calls", "repeats")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value <= 3600:
            raise ConfigError(file, f"mcp.{key}", "expected a number, more than 0 and at most 3600")
        said[key] = value if whole else float(value)
    return Limits(**said)


def _expand(value: Any, at: str, expand: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return expand(value, at)
    if isinstance(value, list):
        return [_expand(item, at, expand) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, f"{at}.{key}", expand) for key, item in value.items()}
    return value
