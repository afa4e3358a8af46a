"""The keys of dragoman.toml, with their types and one line about each: the one list of them.

config.py accepts these keys and no others. `dragoman check --schema` prints them as a JSON Schema, so that editors
complete them (taplo, VS Code: `#:schema dragoman.schema.json` in the first line of the file).
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import schema as make_schema

from dragoman.gateway.config.settings import OidcSettings, RequestLimits, TrafficSettings
from dragoman.jsontypes import JsonObject
from dragoman.upstream.spec import Caps, Timeouts

Texts = str | list[str]


def _about(text: str) -> Meta:
    return Meta(description=text)


class ProviderTable(Struct, forbid_unknown_fields=True):
    """One server: a table `[providers.NAME]`."""

    kind: Annotated[
        str | UnsetType,
        _about(
            "a kind of server (`dragoman providers` lists them), or `demo`. Left out, the provider's "
            "name is its kind; a name that is no kind means a server that is compatible with OpenAI"
        ),
    ] = UNSET
    api_key: Annotated[
        str | UnsetType,
        _about("its key. Left out, the environment variable of its kind is read, such as `OPENAI_API_KEY`"),
    ] = UNSET
    api_keys: Annotated[Texts | UnsetType, _about("several keys, used in turn")] = UNSET
    keys: Annotated[Texts | UnsetType, _about("the same as `api_keys`")] = UNSET
    models: Annotated[
        Texts | UnsetType,
        _about(
            "the models to list. Left out, the server is asked for its list. A model that is not "
            "listed is reached as `name/model`"
        ),
    ] = UNSET
    base_url: Annotated[
        str | UnsetType, _about("`http(s)://host[:port][/path]`. Needed for kinds that have no address of their own")
    ] = UNSET
    dialect: Annotated[Texts | UnsetType, _about("the protocol it speaks, if it is not the one of its kind")] = UNSET
    dialects: Annotated[Texts | UnsetType, _about("all protocols it speaks, the preferred one first")] = UNSET
    auth: Annotated[
        Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"] | UnsetType,
        _about("the header that carries the key"),
    ] = UNSET
    headers: Annotated[dict[str, str] | UnsetType, _about("more headers for every request")] = UNSET
    rpm: Annotated[int | UnsetType, _about("requests in any 60 seconds")] = UNSET
    tpm: Annotated[int | UnsetType, _about("tokens in any 60 seconds")] = UNSET
    at_once: Annotated[int | UnsetType, _about("requests at the same time")] = UNSET
    concurrency: Annotated[int | UnsetType, _about("the same as `at_once`")] = UNSET
    queue: Annotated[int | UnsetType, _about("requests that may wait (100)")] = UNSET
    weight: Annotated[float | UnsetType, _about("how often it is asked first, if several providers list a model")] = (
        UNSET
    )
    timeouts: Annotated[Timeouts | UnsetType, _about("seconds; see below")] = UNSET
    caps: Annotated[Caps | UnsetType, _about("the largest answers that are read; see below")] = UNSET
    profile: Annotated[
        dict[str, Any] | UnsetType,
        _about(
            "what the server takes or rejects; `dragoman providers NAME` shows all fields. Often "
            'used: `rejects = ["seed"]`; `think_tags = ["think"]` if thoughts come inside the text; '
            "`context = 32768` for the window of your Ollama"
        ),
    ] = UNSET
    stream_usage: Annotated[bool | UnsetType, _about("`false`: a stream is not asked for its token counts")] = UNSET
    proxy: Annotated[
        bool | str | UnsetType,
        _about(
            "`false`: a direct connection. Or `http://user:password@host:port`. Left out, "
            "`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` decide. Servers on this machine "
            "are always reached directly. SOCKS proxies are not used"
        ),
    ] = UNSET
    ca_file: Annotated[
        str | UnsetType,
        _about(
            "a file of certificates to trust instead of the system's. `SSL_CERT_FILE` does the same for all providers"
        ),
    ] = UNSET
    client_cert: Annotated[str | UnsetType, _about("a certificate that the gateway shows to the server")] = UNSET
    client_key: Annotated[str | UnsetType, _about("the key of `client_cert`, if it is not in the same file")] = UNSET


class RouteWhen(Struct, forbid_unknown_fields=True):
    """What a request must show."""

    model: Annotated[Texts | UnsetType, _about("names, with `*`")] = UNSET
    thinking: Annotated[bool | UnsetType, _about("the request asks the model to think")] = UNSET
    images: Annotated[bool | UnsetType, _about("the request shows pictures")] = UNSET
    web_search: Annotated[bool | UnsetType, _about("the request lets the provider search the web")] = UNSET
    tools: Annotated[bool | UnsetType, _about("the request has tools")] = UNSET
    tokens_over: Annotated[int | UnsetType, _about("the prompt has about more tokens than this")] = UNSET


class RouteKeys(Struct, forbid_unknown_fields=True):
    """One rule: a table `[[route]]`."""

    to: Annotated[Texts, _about("a model, or several that are tried in turn")]
    when: Annotated[
        RouteWhen | UnsetType, _about("what the request must show. Without it, the rule fits every request")
    ] = UNSET


class ConfigFile(Struct, forbid_unknown_fields=True):
    """The top of the file. The keys of the gateway may also stand under `[server]`."""

    providers: Annotated[dict[str, ProviderTable] | UnsetType, _about("servers by name: tables `[providers.NAME]`")] = (
        UNSET
    )
    upstreams: Annotated[dict[str, ProviderTable] | UnsetType, _about("the same as `providers`")] = UNSET
    aliases: Annotated[
        dict[str, Texts] | UnsetType,
        _about(
            'a name for a model, or for several that are tried in turn. `"claude-*"` stands for every '
            "name that fits and that no other alias fits better"
        ),
    ] = UNSET
    host: Annotated[
        str | UnsetType, _about("the address to listen on (`127.0.0.1`). Any other address needs a client key")
    ] = UNSET
    port: Annotated[int | UnsetType, _about("the port to listen on (20006)")] = UNSET
    http_port: Annotated[int | UnsetType, _about("the same as `port`")] = UNSET
    admin_port: Annotated[
        int | UnsetType, _about("a port of 127.0.0.1 for `/admin`, `/metrics` and `/xray`. They are then only there")
    ] = UNSET
    tls_cert: Annotated[
        str | UnsetType,
        _about("a file with the gateway's certificate. The gateway then speaks HTTPS only. It is read again on SIGHUP"),
    ] = UNSET
    tls_key: Annotated[str | UnsetType, _about("the key of `tls_cert`, if it is not in the same file")] = UNSET
    proxy: Annotated[
        bool | UnsetType, _about("`false`: no proxy of the environment is used, for any provider or MCP server")
    ] = UNSET
    client_keys: Annotated[
        Texts | UnsetType,
        _about("keys that clients must show, besides those of `dragoman keys`; at least 16 characters each"),
    ] = UNSET
    keys: Annotated[Texts | UnsetType, _about("the same as `client_keys`")] = UNSET
    hosts: Annotated[Texts | UnsetType, _about("names that the gateway answers to, besides `localhost`")] = UNSET
    origins: Annotated[Texts | UnsetType, _about("web pages that may call the gateway")] = UNSET
    deadline_s: Annotated[float | UnsetType, _about("seconds from a request to the first byte of its answer (600)")] = (
        UNSET
    )
    grace_s: Annotated[float | UnsetType, _about("seconds that running streams may go on after SIGTERM (30)")] = UNSET
    log: Annotated[Literal["human", "json"] | UnsetType, _about("the form of the log: `human` or `json`")] = UNSET
    xray: Annotated[int | UnsetType, _about("how many requests to keep for X-ray (0: only those that ask for it)")] = (
        UNSET
    )
    traffic: Annotated[
        TrafficSettings | UnsetType, _about("what the [console](console.md) keeps of past requests; see below")
    ] = UNSET
    store: Annotated[
        int | UnsetType,
        _about(
            "how many responses to keep for `previous_response_id`, and of how many turns the reasoning state (10000)"
        ),
    ] = UNSET
    max_body_bytes: Annotated[int | UnsetType, _about("the largest request, in bytes (32 MiB)")] = UNSET
    demo: Annotated[
        bool | UnsetType, _about("serve the built-in demo model (only if there are no other providers)")
    ] = UNSET
    ask_models: Annotated[bool | UnsetType, _about("`false`: providers are not asked for their lists of models")] = (
        UNSET
    )
    route: Annotated[
        list[RouteKeys] | UnsetType, _about("rules that look at a request and choose a model: tables `[[route]]`")
    ] = UNSET
    fallback: Annotated[
        Literal["first", "none"] | UnsetType,
        _about(
            "where a model goes that no provider knows. `none`: it is an error that names the nearest "
            "models. `first`: the first provider is asked. `first` is the default with one provider "
            "and in the older forms of the file"
        ),
    ] = UNSET
    default_model: Annotated[str | UnsetType, _about("the model of `launch`, `chat` and `ask` without `--model`")] = (
        UNSET
    )
    discover: Annotated[
        bool | UnsetType,
        _about(
            "`true`: add the providers of the environment and of this machine to those of the file. "
            "`false`: look for none. Left out, they are looked for if the file names no provider"
        ),
    ] = UNSET
    known_turns_mb: Annotated[
        float | UnsetType,
        _about(
            "memory for turns that agents send again with every request, in MB (64). 0: each request is read in full"
        ),
    ] = UNSET
    limits: Annotated[RequestLimits | UnsetType, _about("how much a client may send; see below")] = UNSET
    kind: Annotated[dict[str, Any] | UnsetType, _about("kinds of servers of your own: tables `[kind.NAME]`")] = UNSET
    family: Annotated[list[dict[str, Any]] | UnsetType, _about("rules for models of your own: tables `[[family]]`")] = (
        UNSET
    )
    mcp: Annotated[
        dict[str, Any] | UnsetType, _about("MCP servers and the limits of the tool loop ([MCP](mcp.md))")
    ] = UNSET
    state_secret: Annotated[
        str | UnsetType,
        _about(
            "protects the reasoning state that clients keep for the gateway. Gateways that serve the "
            "same clients need the same secret"
        ),
    ] = UNSET
    state: Annotated[
        str | UnsetType,
        _about(
            "`valkey://host:port/0` (or `redis://`; with TLS `valkeys://`): all gateways that name "
            "the same server share their limits. Needs `dragoman[valkey]`"
        ),
    ] = UNSET
    state_prefix: Annotated[
        str | UnsetType, _about("gateways with the same prefix share their limits (`dragoman`)")
    ] = UNSET
    on_state_loss: Annotated[
        str | UnsetType,
        _about(
            "while Valkey is away: `local_share` (each gateway goes on with its share of each limit) or `refuse` (503)"
        ),
    ] = UNSET
    database: Annotated[
        str | UnsetType,
        _about(
            "`postgresql://user:password@host/name`: keys, teams, budgets, the ledger, stored "
            "responses and reasoning state are kept there, for all gateways that name it. Needs "
            "`dragoman[postgres]` and `dragoman db migrate`. Left out, they are in SQLite files of "
            "`DRAGOMAN_HOME`"
        ),
    ] = UNSET
    oidc: Annotated[
        OidcSettings | UnsetType,
        _about("an identity provider whose tokens open the gateway, as keys do. Needs `dragoman[oidc]`; see below"),
    ] = UNSET
    otel: Annotated[
        str | UnsetType,
        _about("`http://collector:4318`: traces and metrics are sent there (OpenTelemetry). Needs `dragoman[otel]`"),
    ] = UNSET
    otel_content: Annotated[
        bool | UnsetType, _about("`true`: traces carry the text of requests and of whole answers")
    ] = UNSET
    api_key: Annotated[
        str | UnsetType, _about("of a single provider, with `models` and `rpm` beside it (an older form)")
    ] = UNSET
    models: Annotated[Texts | UnsetType, _about("of a single provider (an older form)")] = UNSET
    rpm: Annotated[int | UnsetType, _about("of a single provider (an older form)")] = UNSET
    all_models: Annotated[Any, _about("not used (an older form)")] = UNSET
    model_provider_map: Annotated[Any, _about("not used (an older form)")] = UNSET
    server: Annotated[dict[str, Any] | UnsetType, _about("the keys of the gateway may also stand in this table")] = (
        UNSET
    )


def config_schema(tables: tuple[str, ...] = ()) -> JsonObject:
    """The JSON Schema of the file. `tables`: more keys that hold tables."""
    whole: JsonObject = make_schema(ConfigFile)
    top = whole["$defs"]["ConfigFile"]
    for name in tables:
        top["properties"].setdefault(name, {})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dragoman.toml", **whole}
