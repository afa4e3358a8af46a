"""Settings: a configuration that has been read and found good. config.py makes it."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from dragoman.accounts.grants import FileKey
from dragoman.gateway.config.mcp import McpSettings
from dragoman.gateway.config.teams import TeamSettings
from dragoman.known_turns import MOST_BYTES
from dragoman.upstream.profiles import Rows
from dragoman.upstream.routing import RouteRule, Routes
from dragoman.upstream.spec import Upstream

PORT = 20006
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


def _about(text: str) -> Meta:
    return Meta(description=text)


class RequestLimits(Struct, frozen=True, kw_only=True):
    """How much of everything a client may have. What it passes is refused before it costs anything."""

    head_bytes: Annotated[int, _about("request line and headers (otherwise 431)")] = 32 * 1024
    headers: Annotated[int, _about("number of headers (431)")] = 100
    line_bytes: Annotated[int, _about("one line of the head (431)")] = 8 * 1024
    head_s: Annotated[float, _about("seconds until the head has arrived (408)")] = 10.0
    body_s: Annotated[float, _about("seconds until the body has arrived (the connection ends)")] = 30.0
    body_s_per_mib: Annotated[float, _about("seconds more for each MiB of the body")] = 1.0
    keep_alive_s: Annotated[float, _about("seconds between two requests (the connection ends)")] = 60.0
    write_s: Annotated[float, _about("seconds in which a client does not read (its request ends)")] = 60.0
    inflate_ratio: Annotated[int, _about("how much larger a compressed body may become, past its first MiB (413)")] = (
        100
    )
    entries: Annotated[int, _about("messages of a conversation (400)")] = 10_000
    choices: Annotated[int, _about("answers to one request (400)")] = 8
    wrong_keys: Annotated[int, _about("wrong keys in a minute from one address (429)")] = 20
    connections: Annotated[
        int, _about("connections at the same time (503). 0: two fifths of the files that the process may open")
    ] = 0


class TrafficSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of the console's Traffic that are kept over a restart."""

    keep_days: Annotated[int, _about("days to keep rows. 0: no limit")] = 7
    rows: Annotated[int, _about("rows to keep, the newest")] = 100_000


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity provider whose tokens open the gateway, and which of their claims say what."""

    issuer: Annotated[str, _about("the address of the identity provider")]
    audience: Annotated[str, _about("the audience that tokens must name")]
    jwks_url: Annotated[str, _about("where its public keys are, if the issuer does not say it")] = ""
    name_claim: Annotated[str, _about("the claim with a name for the log; `sub` if there is none")] = "email"
    team_claim: Annotated[str, _about("the claim with the team")] = "team"
    models_claim: Annotated[str, _about("the claim with the models")] = "models"
    budget_claim: Annotated[str, _about("the claim with the budget")] = "budget"
    team: Annotated[str, _about("the team of tokens without that claim")] = ""


class Settings(Struct, frozen=True, kw_only=True):
    upstreams: tuple[Upstream, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    ask_models: bool = False  # upstreams are asked for their lists of models
    rules: tuple[RouteRule, ...] = ()  # [[route]]
    fallback: bool = True  # a model that nothing knows is asked of the first upstream
    default_model: str = ""  # of commands that are told none
    rows: Rows | None = None  # kinds of servers and model families, if the file has some of its own
    host: str = "127.0.0.1"
    port: int = PORT
    client_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names this gateway answers to, besides this machine's own
    origins: tuple[str, ...] = ()  # web pages that may call it
    max_body_bytes: int = 32 * 1024 * 1024
    limits: RequestLimits = RequestLimits()
    deadline_s: float = 600.0
    grace_s: float = 30.0
    log: str = "human"  # or json
    known_turns_bytes: int = MOST_BYTES  # for turns that agents send again and again; 0: each is read anew
    xray_keep: int = 0  # requests kept for X-ray; 0: only those that ask for it
    traffic: TrafficSettings = TrafficSettings()
    store_path: Path | None = None  # of stored responses; None: in memory
    store_rows: int = 10_000
    state_secret: bytes = b""  # authenticates reasoning state that clients keep; b"": one that ends with the process
    database: str = ""  # PostgreSQL, which keeps keys, budgets, the ledger and responses for many gateways
    oidc: OidcSettings | None = None
    otel: str = ""  # where traces and numbers are sent, as http://collector:4318
    otel_content: bool = False  # with the text of requests and answers
    state: str = ""  # Valkey or Redis, which keeps limits for gateways of many machines
    state_prefix: str = "dragoman"  # gateways with the same one share their limits
    on_state_loss: str = "local_share"  # or refuse
    proxies: bool = True  # those of the environment are used
    tls_cert: str = ""  # this gateway's own certificate: then it speaks HTTPS
    tls_key: str = ""  # its key, if it is not in the same file
    mcp: McpSettings = McpSettings()
    teams: TeamSettings = TeamSettings()  # keys with limits, teams, prices, budgets, the ledger
    admin_port: int | None = None  # a loopback port for /admin, /metrics and /xray, which are then only there
    source: str = ""  # the file it comes from
    stamp: tuple[int, int, int] | None = None  # of that file, before it was read: its time, size and number
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
