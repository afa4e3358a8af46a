"""Pages of tables that the code itself fills: the keys of the configuration, and the kinds of providers."""

from pathlib import Path
from typing import Any

from dragoman.gateway.config.schema import config_schema
from dragoman.read_struct import name_type
from dragoman.upstream.profiles import Kind, load_rows

DOCS = Path(__file__).parent.parent / "docs"
CONFIGURATION = DOCS / "configuration-reference.md"
PROVIDERS = DOCS / "providers.md"

PARTS = (
    ("ConfigFile", "The top of the file", "Keys of the gateway may also stand under `[server]`."),
    ("ProviderTable", "A provider", "The keys of a table `[providers.NAME]`."),
    ("Timeouts", "Timeouts of a provider", "The keys of `timeouts`, in seconds."),
    ("Caps", "The largest answers of a provider", "The keys of `caps`, in bytes."),
    ("RouteKeys", "A rule", "The keys of a table `[[route]]`. The first rule that fits wins."),
    ("RouteWhen", "What a rule looks at", "The keys of `when`. All of them must fit."),
    ("RequestLimits", "Limits of a request", "The keys of `[limits]`. In brackets: what happens past the limit."),
    ("TrafficSettings", "Past requests of the console", "The keys of `[traffic]`. Bodies are not kept."),
    ("FileKeyTable", "A client key with limits", "The keys of a table `[key.NAME]`."),
    ("FileTeamTable", "A team", "The keys of a table `[team.NAME]`."),
    ("BudgetSettings", "Budgets", "The keys of `[budgets]`."),
    ("LedgerSettings", "The ledger", "The keys of `[ledger]`."),
    ("McpTable", "MCP", "The keys of `[mcp]`. [MCP](mcp.md) explains the tables of its servers."),
    ("LoopPriceTable", "Prices of the tool loop", "The keys of a table `[mcp.prices.MODEL]`, for a million tokens."),
    ("OidcSettings", "An identity provider", "The keys of `[oidc]`."),
)  # fmt: skip
INTRO = """# Every key of the configuration

<!-- Written by `make docs`, from src/dragoman/gateway/config/schema.py. -->

`dragoman serve` accepts these keys in `dragoman.toml` and no others. [Configuration](configuration.md) explains them
with examples. `dragoman check --schema` prints the same as a JSON Schema, for editors. Tables that are explained
elsewhere: prices ([teams](teams.md)), MCP servers ([MCP](mcp.md)), kinds of servers
([configuration](configuration.md#a-kind-of-server)).
"""


def configuration_page() -> str:
    definitions = config_schema()["$defs"]
    parts = [INTRO]
    for name, title, about in PARTS:
        rows = [
            f"| `{key}` | {_escape(name_type(row))} | {_default(row)} | {_escape(row.get('description', ''))} |"
            for key, row in definitions[name]["properties"].items()
        ]
        parts.append(
            f"## {title}\n\n{about}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    return "\n".join(parts)


def _default(row: dict[str, Any]) -> str:
    match row.get("default"):
        case bool(value):
            return f"`{str(value).lower()}`"
        case int() | float() as value:
            return f"`{value:.15g}`"
        case str(value) if value:
            return f"`{value}`"
        case _:
            return ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


# ---------------------------------------------------------------- providers

ABOUT_PROVIDERS = """# Providers

<!-- Written by `make docs`, from src/dragoman/upstream/profiles.toml. -->

dragoman knows these kinds of servers: their address, their protocol, and what they refuse. `dragoman providers NAME`
shows all of it. Any other server that is compatible with OpenAI works too: see [the last part](#any-other-server).

For a provider with a key, three steps are enough:

1. Set the variable of the table, for example `export GROQ_API_KEY=...`.
2. `dragoman models --only groq` shows its models. `dragoman doctor` says whether the key works.
3. Use a model: `dragoman ask hello --model groq/MODEL`. Through the gateway the name is the same.
"""
ELSEWHERE = """## Any other server

Give it a name, an address and, if it needs one, a key:

```toml
[providers.mine]
base_url = "http://10.0.0.5:8000/v1"
api_key = "${MY_KEY}"
```

Its models are then `mine/MODEL`. `dragoman verify --url http://10.0.0.5:8000/v1 --dialect openai-chat` shows what works
there. [A kind of server](configuration.md#a-kind-of-server) says how to describe what it refuses.
"""


def providers_page() -> str:
    kinds = [kind for kind in load_rows().kinds.values() if kind.name != "compatible"]
    local = [kind for kind in kinds if "localhost" in kind.base_url]
    remote = [kind for kind in kinds if kind not in local and kind.base_url and "{" not in kind.base_url]
    own = [kind for kind in kinds if kind not in local and kind not in remote]
    parts = [
        ABOUT_PROVIDERS,
        _table("Providers on the internet", remote),
        _table("Servers on your machine", local),
        "`dragoman serve` looks for Ollama, LM Studio, vLLM and llama.cpp at their usual ports.\n",
        _table("Providers that need an address", own),
        "Write their address in the configuration: `base_url` in `[providers.NAME]`, with `kind`.\n",
        ELSEWHERE,
    ]
    return "\n".join(parts)


def _table(title: str, kinds: list[Kind]) -> str:
    rows = [
        f"| {kind.title} | `{kind.name}` | {f'`{kind.keys[0]}`' if kind.keys else 'none'} | {', '.join(kind.dialects)} "
        f"| {f'`{kind.base_url}`' if kind.base_url else 'your own'} | {', '.join(f'`{p}`' for p in kind.prefixes)} |"
        for kind in kinds
    ]
    columns = ("provider", "name", "variable with the key", "protocols", "address", "names of models begin with")
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
    return f"## {title}\n\n{head}\n" + "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    return {CONFIGURATION: configuration_page(), PROVIDERS: providers_page()}
