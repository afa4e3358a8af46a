"""What the configuration says about MCP: the table `mcp`. Programs to start (stdio) are named here or in mcp.json,
files on disk both, and nowhere else (T03)."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from msgspec import Meta, Struct
from msgspec.structs import asdict

from dragoman.agent.merge_turns import ShowCalls
from dragoman.agent.steps import Limits, Price
from dragoman.errors import ConfigError
from dragoman.mcp.spec import ServerSpec, read_spec
from dragoman.read_struct import about

MOST_BYTES, MOST_TOKENS = 64 * 1024 * 1024, 1_000_000_000
_Few: TypeAlias = Annotated[int, Meta(ge=1, le=3600)]
_Time: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]
_Money: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
_USUAL = Limits()
_LIMITS = ("turns", "calls", "repeats", "tool_s", "total_s", "result_bytes", "tokens", "cost")
SHOWS: dict[str, ShowCalls] = {word: word for word in get_args(ShowCalls)}


class LoopPriceTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost: a table `[mcp.prices.MODEL]`."""

    input: Annotated[_Money, about("of the prompt")]
    output: Annotated[_Money, about("of the answer")]
    cache_read: Annotated[_Money | None, about("read from a cache, if that is not the price of `input`")] = None
    cache_write: Annotated[_Money | None, about("written to a cache, if that is not the price of `input`")] = None


class McpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[mcp]`."""

    file: Annotated[str | None, about("the registry of servers. Left out: `mcp.json` beside the configuration")] = None
    default: Annotated[tuple[str, ...], about("servers that every conversation gets")] = ()
    show: Annotated[ShowCalls, about("how clients see the calls of tools")] = "reasoning"
    private: Annotated[
        bool | None,
        about(
            "whether servers that are added while the gateway runs may be on this machine or in its network. "
            "Left out: if the gateway listens on this machine only"
        ),
    ] = None
    servers: Annotated[dict[str, dict[str, Any]], about("servers by name: tables `[mcp.servers.NAME]`")] = {}
    turns: Annotated[_Few, about("turns of a loop")] = _USUAL.turns
    calls: Annotated[_Few, about("calls of a loop")] = _USUAL.calls
    repeats: Annotated[_Few, about("identical calls in a row")] = _USUAL.repeats
    tool_s: Annotated[_Time, about("seconds for one call")] = _USUAL.tool_s
    total_s: Annotated[_Time, about("seconds for a loop")] = _USUAL.total_s
    result_bytes: Annotated[int, Meta(ge=1, le=MOST_BYTES), about("bytes of text in each result")] = _USUAL.result_bytes
    tokens: Annotated[Annotated[int, Meta(ge=1, le=MOST_TOKENS)] | None, about("tokens of all turns together")] = (
        _USUAL.tokens
    )
    cost: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, about("cost of all turns together, by `prices`")] = (
        None
    )
    prices: Annotated[dict[str, LoopPriceTable], about('tables `[mcp.prices.MODEL]`; `"*"` is every other model')] = {}


class McpSettings(Struct, frozen=True, kw_only=True):
    file: Path | None = None  # the registry; None: mcp.json beside the configuration
    folder: Path | None = None  # where children live and approvals are kept
    default: tuple[str, ...] = ()  # servers every conversation gets
    show: ShowCalls = "reasoning"  # how calls are told to clients
    private: bool | None = None  # servers added from outside may be on this machine or its network; None: as we are
    servers: dict[str, ServerSpec] = {}
    limits: Limits = Limits()
    prices: dict[str, Price] = {}  # model -> what a million tokens cost; "*" is every other


def read_mcp(table: McpTable, file: str) -> McpSettings:
    if table.cost is not None and not table.prices:
        raise ConfigError(file, "mcp.cost", "expected mcp.prices beside it: the prices of models are not known here")
    return McpSettings(
        file=Path(table.file) if table.file is not None else None,
        default=table.default,
        show=table.show,
        private=table.private,
        servers={name: read_spec(name, row, file, f"mcp.servers.{name}") for name, row in table.servers.items()},
        limits=Limits(**{name: getattr(table, name) for name in _LIMITS}),
        prices={model: Price(**asdict(row)) for model, row in table.prices.items()},
    )
