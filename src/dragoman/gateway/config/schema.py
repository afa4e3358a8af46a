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

    kind: Annotated[str | UnsetType, _about("a kind of server (`dragoman providers`), or demo")] = UNSET
    api_key: Annotated[str | UnsetType, _about("its key; left out, the kind's variable is read")] = UNSET
    api_keys: Annotated[Texts | UnsetType, _about("several keys, used in turn")] = UNSET
    keys: Annotated[Texts | UnsetType, _about("the same as api_keys")] = UNSET
    models: Annotated[Texts | UnsetType, _about("the models to list; left out, the server is asked")] = UNSET
    base_url: Annotated[str | UnsetType, _about("http(s)://host[:port][/path]")] = UNSET
    dialect: Annotated[Texts | UnsetType, _about("the protocol it speaks, if not its kind's")] = UNSET
    dialects: Annotated[Texts | UnsetType, _about("all protocols it speaks, the preferred one first")] = UNSET
    auth: Annotated[
        Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"] | UnsetType, _about("where the key goes")
    ] = UNSET
    headers: Annotated[dict[str, str] | UnsetType, _about("more headers for every request")] = UNSET
    rpm: Annotated[int | UnsetType, _about("requests a minute")] = UNSET
    tpm: Annotated[int | UnsetType, _about("tokens a minute")] = UNSET
    at_once: Annotated[int | UnsetType, _about("requests at the same time")] = UNSET
    concurrency: Annotated[int | UnsetType, _about("the same as at_once")] = UNSET
    queue: Annotated[int | UnsetType, _about("requests that may wait (100)")] = UNSET
    weight: Annotated[float | UnsetType, _about("how often it is asked first among providers of a model")] = UNSET
    timeouts: Annotated[Timeouts | UnsetType, _about("seconds")] = UNSET
    caps: Annotated[Caps | UnsetType, _about("the largest answers that are read")] = UNSET
    profile: Annotated[dict[str, Any] | UnsetType, _about("fields of its profile, such as rejects")] = UNSET
    stream_usage: Annotated[bool | UnsetType, _about("false: do not ask a stream for its token counts")] = UNSET
    proxy: Annotated[bool | str | UnsetType, _about("false, or http://user:password@host:port")] = UNSET
    ca_file: Annotated[str | UnsetType, _about("certificates to trust instead of the system's")] = UNSET
    client_cert: Annotated[str | UnsetType, _about("a certificate that shows who we are")] = UNSET
    client_key: Annotated[str | UnsetType, _about("its key, if it is not in the same file")] = UNSET


class RouteWhen(Struct, forbid_unknown_fields=True):
    """What a request must show."""

    model: Annotated[Texts | UnsetType, _about("names with *")] = UNSET
    thinking: Annotated[bool | UnsetType, _about("it asks the model to think")] = UNSET
    images: Annotated[bool | UnsetType, _about("it shows pictures")] = UNSET
    web_search: Annotated[bool | UnsetType, _about("it lets the provider search the web")] = UNSET
    tools: Annotated[bool | UnsetType, _about("it has tools")] = UNSET
    tokens_over: Annotated[int | UnsetType, _about("its prompt has more tokens, about")] = UNSET


class RouteTable(Struct, forbid_unknown_fields=True):
    """One rule: a table `[[route]]`."""

    to: Annotated[Texts, _about("a model, or several that are tried in turn")]
    when: Annotated[RouteWhen | UnsetType, _about("without conditions it fits every request")] = UNSET


class ConfigFile(Struct, forbid_unknown_fields=True):
    """The top of the file. The keys of the gateway may also stand under `[server]`."""

    providers: Annotated[dict[str, ProviderTable] | UnsetType, _about("servers by name")] = UNSET
    upstreams: Annotated[dict[str, ProviderTable] | UnsetType, _about("the same as providers")] = UNSET
    aliases: Annotated[dict[str, Texts] | UnsetType, _about("a name for a model, or for several tried in turn")] = UNSET
    host: Annotated[str | UnsetType, _about("address to listen on (127.0.0.1)")] = UNSET
    port: Annotated[int | UnsetType, _about("port to listen on (20006)")] = UNSET
    http_port: Annotated[int | UnsetType, _about("the same as port")] = UNSET
    admin_port: Annotated[int | UnsetType, _about("a port of its own for administration")] = UNSET
    tls_cert: Annotated[str | UnsetType, _about("file of the gateway's certificate: it then speaks HTTPS")] = UNSET
    tls_key: Annotated[str | UnsetType, _about("its key, if it is not in the same file")] = UNSET
    proxy: Annotated[bool | UnsetType, _about("false: no proxy of the environment is used")] = UNSET
    client_keys: Annotated[Texts | UnsetType, _about("keys that clients must show")] = UNSET
    keys: Annotated[Texts | UnsetType, _about("the same as client_keys")] = UNSET
    hosts: Annotated[Texts | UnsetType, _about("names this gateway answers to")] = UNSET
    origins: Annotated[Texts | UnsetType, _about("web pages that may call it")] = UNSET
    deadline_s: Annotated[float | UnsetType, _about("the longest time for an answer (600)")] = UNSET
    grace_s: Annotated[float | UnsetType, _about("how long running requests may go on at the end (30)")] = UNSET
    log: Annotated[Literal["human", "json"] | UnsetType, _about("form of the log")] = UNSET
    xray: Annotated[int | UnsetType, _about("requests kept for X-ray (0)")] = UNSET
    traffic: Annotated[TrafficSettings | UnsetType, _about("what the console keeps of past requests")] = UNSET
    store: Annotated[int | UnsetType, _about("stored responses kept (10000)")] = UNSET
    max_body_bytes: Annotated[int | UnsetType, _about("the largest request (32 MiB)")] = UNSET
    demo: Annotated[bool | UnsetType, _about("serve the built-in demo model")] = UNSET
    ask_models: Annotated[bool | UnsetType, _about("ask upstreams for their models (true)")] = UNSET
    route: Annotated[list[RouteTable] | UnsetType, _about("rules over what a request shows")] = UNSET
    fallback: Annotated[
        Literal["first", "none"] | UnsetType, _about("where a model goes that nothing knows: nowhere, or the first")
    ] = UNSET
    default_model: Annotated[str | UnsetType, _about("of launch, chat and ask without --model")] = UNSET
    discover: Annotated[bool | UnsetType, _about("look for providers in the environment and on this machine")] = UNSET
    known_turns_mb: Annotated[float | UnsetType, _about("memory for turns that agents send again")] = UNSET
    limits: Annotated[RequestLimits | UnsetType, _about("how much a client may send")] = UNSET
    kind: Annotated[dict[str, Any] | UnsetType, _about("kinds of servers of your own")] = UNSET
    family: Annotated[list[dict[str, Any]] | UnsetType, _about("rules of models of your own")] = UNSET
    mcp: Annotated[dict[str, Any] | UnsetType, _about("MCP servers and the tool loop")] = UNSET
    state_secret: Annotated[str | UnsetType, _about("authenticates reasoning state that clients keep")] = UNSET
    state: Annotated[str | UnsetType, _about("URL of Valkey or Redis, for gateways on many machines")] = UNSET
    state_prefix: Annotated[str | UnsetType, _about("gateways with the same one share their limits")] = UNSET
    on_state_loss: Annotated[str | UnsetType, _about("local_share or refuse")] = UNSET
    database: Annotated[str | UnsetType, _about("URL of PostgreSQL, for keys, budgets and usage")] = UNSET
    oidc: Annotated[OidcSettings | UnsetType, _about("an identity provider whose tokens open the gateway")] = UNSET
    otel: Annotated[str | UnsetType, _about("where OpenTelemetry is sent, as http://collector:4318")] = UNSET
    otel_content: Annotated[bool | UnsetType, _about("traces with the text of requests and answers")] = UNSET
    api_key: Annotated[str | UnsetType, _about("of a single provider, with models and rpm beside it")] = UNSET
    models: Annotated[Texts | UnsetType, _about("of a single provider")] = UNSET
    rpm: Annotated[int | UnsetType, _about("of a single provider")] = UNSET
    all_models: Annotated[Any, _about("of an older form; not used")] = UNSET
    model_provider_map: Annotated[Any, _about("of an older form; not used")] = UNSET
    server: Annotated[dict[str, Any] | UnsetType, _about("keys of the gateway may stand here")] = UNSET


def config_schema(tables: tuple[str, ...] = ()) -> JsonObject:
    """The JSON Schema of the file. `tables`: more keys that hold tables."""
    whole: JsonObject = make_schema(ConfigFile)
    top = whole["$defs"]["ConfigFile"]
    for name in tables:
        top["properties"].setdefault(name, {})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dragoman.toml", **whole}
