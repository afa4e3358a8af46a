"""What the configuration says about MCP: the table `mcp`. Programs to start (stdio) are named here or in mcp.json,
files on disk both, and nowhere else (T03)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.agent.merge_turns import ShowCalls
from dragoman.agent.steps import Limits, Price
from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of
from dragoman.mcp.spec import ServerSpec, read_spec

SHOWS: dict[str, ShowCalls] = {"reasoning": "reasoning", "text": "text", "nothing": "nothing"}
WHOLE = ("turns", "calls", "repeats")
SECONDS = ("tool_s", "total_s")
KEYS = {"file", "default", "show", "private", "servers", *WHOLE, *SECONDS, "result_bytes", "tokens", "cost", "prices"}
MOST_BYTES, MOST_TOKENS = 64 * 1024 * 1024, 1_000_000_000


class McpSettings(Struct, frozen=True, kw_only=True):
    file: Path | None = None  # the registry; None: mcp.json beside the configuration
    folder: Path | None = None  # where children live and approvals are kept
    default: tuple[str, ...] = ()  # servers every conversation gets
    show: ShowCalls = "reasoning"  # how calls are told to clients
    private: bool | None = None  # servers added from outside may be on this machine or its network; None: as we are
    servers: dict[str, ServerSpec] = {}
    limits: Limits = Limits()
    prices: dict[str, Price] = {}  # model -> what a million tokens cost; "*" is every other


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
    private = table.get("private")
    if private is not None and type(private) is not bool:
        raise ConfigError(file, "mcp.private", f"expected true or false, found {kind_of(private)}")
    path, prices = table.get("file"), _prices(table.get("prices"), file)
    limits = _limits(table, file)
    if limits.cost is not None and not prices:
        raise ConfigError(file, "mcp.cost", "expected mcp.prices beside it: the prices of models are not known here")
    return McpSettings(
        file=Path(path) if isinstance(path, str) else None,
        default=tuple(default),
        show=SHOWS[show],
        private=private,
        servers=servers,
        limits=limits,
        prices=prices,
    )


def _limits(table: Mapping[str, Any], file: str) -> Limits:
    most: dict[str, float] = dict.fromkeys((*WHOLE, *SECONDS), 3600)
    most |= {"result_bytes": MOST_BYTES, "tokens": MOST_TOKENS, "cost": 1e9}
    said: dict[str, Any] = {}
    for key, limit in most.items():
        if key in table:
            exact = key not in (*SECONDS, "cost")
            said[key] = _number(table[key], limit, f"mcp.{key}", file, exact=exact)
    return Limits(**said)


def _number(value: Any, most: float, at: str, file: str, *, exact: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int if exact else int | float) or not 0 < value <= most:
        kind = "a whole number" if exact else "a number"
        raise ConfigError(file, at, f"expected {kind}, more than 0 and at most {most:g}")
    return value if exact else float(value)


def _prices(table: Any, file: str) -> dict[str, Price]:
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ConfigError(file, "mcp.prices", f"expected a table, found {kind_of(table)}")
    return {model: _price(row, f"mcp.prices.{model}", file) for model, row in table.items()}


def _price(row: Any, at: str, file: str) -> Price:
    if not isinstance(row, dict) or not {"input", "output"} <= set(row) <= set(Price.__struct_fields__):
        raise ConfigError(file, at, "expected input and output, and cache_read and cache_write if they differ")
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise ConfigError(file, f"{at}.{key}", "expected a price of a million tokens")
    return Price(**row)


def _expand(value: Any, at: str, expand: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return expand(value, at)
    if isinstance(value, list):
        return [_expand(item, at, expand) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, f"{at}.{key}", expand) for key, item in value.items()}
    return value
