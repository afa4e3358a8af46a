"""The keys of dragoman.toml, with their types, bounds, defaults and one line about each: the one list of them.

load.py reads a file with these types. `dragoman check --schema` prints them as a JSON Schema, so that editors complete
them (taplo, VS Code: `#:schema dragoman.schema.json` in the first line of the file). The reference in docs/ is made of
them too.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.json import schema as make_schema

from dragoman.gateway import PORT
from dragoman.gateway.config.mcp import McpTable
from dragoman.gateway.config.provider_table import ProviderTable, RouteKeys
from dragoman.gateway.config.settings import GatewayKeys
from dragoman.gateway.config.teams import BudgetSettings, FileKeyTable, FileTeamTable, LedgerSettings
from dragoman.jsontypes import Json, JsonObject
from dragoman.known_turns.history import MOST_BYTES
from dragoman.read_struct import OneOrMore, Texts, ZeroOrMore, about

_PORT = Meta(ge=0, le=65535)


class ConfigFile(GatewayKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The top of the file. The keys of the gateway may also stand under `[server]`."""

    providers: Annotated[dict[str, ProviderTable], about("servers by name: tables `[providers.NAME]`")] = field(
        default_factory=dict
    )
    upstreams: Annotated[dict[str, ProviderTable], about("the same as `providers`")] = field(default_factory=dict)
    aliases: Annotated[
        dict[str, Texts],
        about(
            'a name for a model, or for several that are tried in turn. `"claude-*"` stands for every '
            "name that fits and that no other alias fits better"
        ),
    ] = field(default_factory=dict)
    port: Annotated[Annotated[int, _PORT] | None, about(f"the port to listen on ({PORT})")] = None
    http_port: Annotated[Annotated[int, _PORT] | None, about("the same as `port`")] = None
    proxy: Annotated[bool, about("`false`: no proxy of the environment is used, for any provider or MCP server")] = True
    client_keys: Annotated[
        Texts | None,
        about("keys that clients must show, besides those of `dragoman keys`; at least 16 characters each"),
    ] = None
    keys: Annotated[Texts | None, about("the same as `client_keys`")] = None
    hosts: Annotated[Texts, about("names that the gateway answers to, besides `localhost`")] = ()
    origins: Annotated[Texts, about("web pages that may call the gateway")] = ()
    xray: Annotated[ZeroOrMore, about("how many requests to keep for X-ray. 0: only those that ask for it")] = 0
    store: Annotated[
        ZeroOrMore,
        about("how many responses to keep for `previous_response_id`, and of how many turns the reasoning state"),
    ] = 10_000
    shared_ids: Annotated[
        Texts,
        about(
            "things that providers keep (files, prompts, conversations) and that every key may name, by id: "
            '`["pmpt_*", "file-abc"]`. A key may always name what was made for it here. With more than one key, '
            'other ids are refused unless they are listed; `["*"]` allows all'
        ),
    ] = ()
    demo: Annotated[bool | None, about("serve the built-in demo model (only if there are no other providers)")] = None
    ask_models: Annotated[bool, about("`false`: providers are not asked for their lists of models")] = True
    route: Annotated[
        tuple[RouteKeys, ...], about("rules that look at a request and choose a model: tables `[[route]]`")
    ] = ()
    fallback: Annotated[
        Literal["first", "none"] | None,
        about(
            "where a model goes that no provider knows. `none`: it is an error that names the nearest "
            "models. `first`: the first provider is asked. `first` is the default with one provider "
            "and in the older forms of the file"
        ),
    ] = None
    discover: Annotated[
        bool | None,
        about(
            "`true`: add the providers of the environment and of this machine to those of the file. "
            "`false`: look for none. Left out, they are looked for if the file names no provider"
        ),
    ] = None
    known_turns_mb: Annotated[
        ZeroOrMore,
        about("memory for turns that agents send again with every request, in MB. 0: each request is read in full"),
    ] = MOST_BYTES // 2**20
    kind: Annotated[dict[str, dict[str, Any]], about("kinds of servers of your own: tables `[kind.NAME]`")] = field(
        default_factory=dict
    )
    family: Annotated[tuple[dict[str, Any], ...], about("rules for models of your own: tables `[[family]]`")] = ()
    mcp: Annotated[McpTable, about("MCP servers and the limits of the tool loop ([MCP](mcp.md)); see below")] = (
        McpTable()
    )
    state_secret: Annotated[
        str,
        about(
            "protects the reasoning state that clients keep for the gateway. Gateways that serve the "
            "same clients need the same secret"
        ),
    ] = ""
    key: Annotated[
        dict[str, FileKeyTable], about("client keys with limits: tables `[key.NAME]` ([teams](teams.md))")
    ] = field(default_factory=dict)
    team: Annotated[dict[str, FileTeamTable], about("what all keys of a team share: tables `[team.NAME]`")] = field(
        default_factory=dict
    )
    prices: Annotated[
        dict[str, dict[str, Any]],
        about("prices of models, for a million tokens: tables `[prices.MODEL]` ([teams](teams.md#prices))"),
    ] = field(default_factory=dict)
    budgets: Annotated[BudgetSettings, about("what happens when a budget ends; see below")] = BudgetSettings()
    ledger: Annotated[LedgerSettings, about("the book of requests and their cost; see below")] = LedgerSettings()
    api_key: Annotated[
        Texts | None, about("of a single provider, with `models` and `rpm` beside it (an older form)")
    ] = None
    models: Annotated[Texts | None, about("of a single provider (an older form)")] = None
    rpm: Annotated[OneOrMore | None, about("of a single provider (an older form)")] = None
    all_models: Annotated[Any, about("not used (an older form)")] = None
    model_provider_map: Annotated[Any, about("not used (an older form)")] = None
    server: Annotated[dict[str, Any], about("the keys of the gateway may also stand in this table")] = field(
        default_factory=dict
    )


def config_schema() -> JsonObject:
    """The JSON Schema of the file."""
    whole: JsonObject = without_null(make_schema(ConfigFile))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dragoman.toml", **whole}


def without_null(value: Json) -> Json:
    """A key that may be left out has no null in TOML."""
    match value:
        case {"anyOf": list(options), **others}:
            left = [without_null(one) for one in options if one != {"type": "null"}]
            return {**others, **(left[0] if len(left) == 1 else {"anyOf": left})}
        case dict():
            return {name: without_null(item) for name, item in value.items() if (name, item) != ("default", None)}
        case list():
            return [without_null(item) for item in value]
        case _:
            return value
