"""Settings: a configuration that has been read and found good. load.py makes it."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.accounts.grants import FileKey
from dragoman.gateway import PORT
from dragoman.gateway.config.mcp import McpSettings
from dragoman.gateway.config.teams import TeamSettings
from dragoman.known_turns.history import MOST_BYTES
from dragoman.read_struct import MOST, OneOrMore, Seconds, ZeroOrMore, about
from dragoman.upstream.profiles import Rows
from dragoman.upstream.routing import RouteRule, Routes
from dragoman.upstream.spec import Upstream

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
_SAFE_URL = Meta(
    pattern=r"^(https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/]|$)", examples=["https://login.example.com"]
)


class RequestLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for one client. A request over a limit is refused before it costs anything."""

    head_bytes: Annotated[OneOrMore, about("request line and headers (otherwise 431)")] = 32 * 1024
    headers: Annotated[OneOrMore, about("number of headers (431)")] = 100
    line_bytes: Annotated[OneOrMore, about("one line of the head (431)")] = 8 * 1024
    head_s: Annotated[Seconds, about("seconds until the head has arrived (408)")] = 10.0
    body_s: Annotated[Seconds, about("seconds until the body has arrived (the connection ends)")] = 30.0
    body_s_per_mib: Annotated[Seconds, about("seconds more for each MiB of the body")] = 1.0
    keep_alive_s: Annotated[Seconds, about("seconds between two requests (the connection ends)")] = 60.0
    write_s: Annotated[Seconds, about("seconds in which a client does not read (its request ends)")] = 60.0
    inflate_ratio: Annotated[
        OneOrMore, about("how much larger a compressed body may become, past its first MiB (413)")
    ] = 100
    entries: Annotated[OneOrMore, about("messages of a conversation (400)")] = 10_000
    choices: Annotated[OneOrMore, about("answers to one request (400)")] = 8
    wrong_keys: Annotated[OneOrMore, about("wrong keys in a minute from one address (429)")] = 20
    connections: Annotated[
        ZeroOrMore, about("connections at the same time (503). 0: two fifths of the files that the process may open")
    ] = 0


class TrafficSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of the console's Traffic that are kept over a restart."""

    keep_days: Annotated[ZeroOrMore, about("days to keep rows. 0: no limit")] = 7
    rows: Annotated[int, Meta(ge=100, le=MOST), about("rows to keep, the newest")] = 100_000


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity provider whose tokens open the gateway, and which of their claims say what."""

    issuer: Annotated[str, _SAFE_URL, Meta(min_length=1), about("the address of the identity provider")]
    audience: Annotated[str, Meta(min_length=1), about("the audience that tokens must name")]
    jwks_url: Annotated[str, _SAFE_URL, about("where its public keys are, if the issuer does not say it")] = ""
    name_claim: Annotated[str, about("the claim with a name for the log; `sub` if there is none")] = "email"
    team_claim: Annotated[str, about("the claim with the team")] = "team"
    models_claim: Annotated[str, about("the claim with the models")] = "models"
    budget_claim: Annotated[str, about("the claim with the budget")] = "budget"
    team: Annotated[str, about("the team of tokens without that claim")] = ""


class GatewayKeys(Struct, frozen=True, kw_only=True):
    """Keys of the file that become settings without a change."""

    host: Annotated[str, about("the address to listen on. Any other than this machine's own needs a client key")] = (
        "127.0.0.1"
    )
    admin_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        about("a port of 127.0.0.1 for `/admin`, `/metrics` and `/xray`. They are then only there"),
    ] = None
    tls_cert: Annotated[
        str,
        about("a file with the gateway's certificate. The gateway then speaks HTTPS only. It is read again on SIGHUP"),
    ] = ""
    tls_key: Annotated[str, about("the key of `tls_cert`, if it is not in the same file")] = ""
    default_model: Annotated[str, about("the model of `launch`, `chat` and `ask` without `--model`")] = ""
    deadline_s: Annotated[
        float, Meta(ge=1, le=MOST), about("seconds from a request to the first byte of its answer")
    ] = 600.0
    grace_s: Annotated[float, Meta(ge=0, le=MOST), about("seconds that running streams may go on after SIGTERM")] = 30.0
    max_body_bytes: Annotated[int, Meta(ge=1024, le=MOST), about("the largest request, in bytes (32 MiB)")] = (
        32 * 1024 * 1024
    )
    limits: Annotated[RequestLimits, about("how much a client may send; see below")] = RequestLimits()
    log: Annotated[Literal["human", "json"], about("the form of the log")] = "human"
    traffic: Annotated[TrafficSettings, about("what the [console](console.md) keeps of past requests; see below")] = (
        TrafficSettings()
    )
    state: Annotated[
        str,
        about(
            "`valkey://host:port/0` (or `redis://`; with TLS `valkeys://`): all gateways that name "
            "the same server share their limits. Needs `dragoman[valkey]`"
        ),
    ] = ""
    state_prefix: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9_.-]{1,50}$", title="letters, digits, _ . and -"),
        about("gateways with the same prefix share their limits"),
    ] = "dragoman"
    on_state_loss: Annotated[
        Literal["local_share", "refuse"],
        about("while Valkey is away: each gateway goes on with its share of each limit, or it refuses requests (503)"),
    ] = "local_share"
    database: Annotated[
        str,
        about(
            "`postgresql://user:password@host/name`: keys, teams, budgets, the ledger, stored "
            "responses and reasoning state are kept there, for all gateways that name it. Needs "
            "`dragoman[postgres]` and `dragoman db migrate`. Left out, they are in SQLite files of "
            "`DRAGOMAN_HOME`"
        ),
    ] = ""
    oidc: Annotated[
        OidcSettings | None,
        about("an identity provider whose tokens open the gateway, as keys do. Needs `dragoman[oidc]`; see below"),
    ] = None
    otel: Annotated[
        str,
        about("`http://collector:4318`: traces and metrics are sent there (OpenTelemetry). Needs `dragoman[otel]`"),
    ] = ""
    otel_content: Annotated[bool, about("`true`: traces carry the text of requests and of whole answers")] = False


class Settings(GatewayKeys, frozen=True, kw_only=True):
    upstreams: tuple[Upstream, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    ask_models: bool = False  # upstreams are asked for their lists of models
    rules: tuple[RouteRule, ...] = ()  # [[route]]
    fallback: bool = True  # a model that nothing knows is asked of the first upstream
    rows: Rows | None = None  # kinds of servers and model families, if the file has some of its own
    port: int = PORT
    client_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names this gateway answers to, besides this machine's own
    origins: tuple[str, ...] = ()  # web pages that may call it
    known_turns_bytes: int = MOST_BYTES  # for turns that agents send again and again; 0: each is read anew
    xray_keep: int = 0  # requests kept for X-ray; 0: only those that ask for it
    store_path: Path | None = None  # of stored responses; None: in memory
    store_rows: int = 10_000
    shared_ids: tuple[str, ...] = ()  # patterns of things at providers that every key may name
    state_secret: bytes = b""  # authenticates reasoning state that clients keep; b"": one that ends with the process
    proxies: bool = True  # those of the environment are used
    mcp: McpSettings = McpSettings()
    teams: TeamSettings = TeamSettings()  # keys with limits, teams, prices, budgets, the ledger
    source: str = ""  # the file it comes from
    stamp: tuple[int, int, int, int] | None = None  # of that file, before it was read: its times, size and number
    says_providers: bool = False  # the file names providers, or asks for the demo model
    says_keys: bool = False  # the file has `client_keys`, even if it is empty
    found: tuple[str, ...] = ()  # what was found without a file

    def routes(self) -> Routes:
        return Routes(
            upstreams=self.upstreams, aliases=self.aliases, rules=self.rules, fallback=self.fallback, rows=self.rows
        )

    @property
    def all_keys(self) -> tuple[str | FileKey, ...]:
        """Every key of the configuration."""
        return (*self.client_keys, *self.teams.keys)
