"""ServerSpec: the entry of one MCP server in mcp.json or in the configuration."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.errors import ConfigError, DragomanError
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.mcp.network_policy import classify_host
from dragoman.network import is_usable

TransportKind: TypeAlias = Literal["auto", "http", "sse", "stdio"]
TRANSPORTS: dict[str, TransportKind] = {
    "auto": "auto",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "stdio": "stdio",
}
ToolPolicy: TypeAlias = Literal["report", "withhold"]
POLICIES: dict[str, ToolPolicy] = {"report": "report", "withhold": "withhold"}
OAuthGrant: TypeAlias = Literal["code", "client_credentials"]
GRANTS: dict[str, OAuthGrant] = {
    "code": "code",
    "authorization_code": "code",
    "client_credentials": "client_credentials",
}
NAME = re.compile(r"\w[\w.-]{0,63}")
VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
TOOL_S = 120.0  # (RELIABILITY 2.2)
CONNECT_S = 30.0  # a busy machine starts four servers at once (F60)
MAX_MESSAGES_PER_S = 2000  # of a server: more is a flood, not a conversation
MAX_MESSAGE_VALUES = 30_000  # of a server: to read more in one call would keep the event loop from all others
LOGIN_PORT = 20007  # on this machine; the browser comes back to it after a login
VARIABLE_KEYS = (
    "headers",
    "env",
    "bearer",
    "oauth",
)  # ${NAME} is filled in here only; not in a URL, because clients can add URLs


class BadServerError(DragomanError):
    """The name or the address of a server is not allowed."""


class OAuth(Struct, frozen=True, kw_only=True):
    """How to get a token: from a person who logs in (`dragoman mcp login`), or with the credentials of a program."""

    grant: OAuthGrant = "code"
    client_id: str | None = None  # None: dragoman registers itself
    client_secret: str | None = None
    scope: str | None = None
    issuer: str | None = None  # the only authorization server that gets the secret
    redirect_port: int = LOGIN_PORT
    client_auth: Literal["basic", "post"] = "basic"


class ServerSpec(Struct, frozen=True, kw_only=True):
    name: str
    url: str | None = None
    transport: TransportKind = "auto"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    headers: dict[str, str] = {}
    token_file: str | None = None  # the file of a bearer token that another program renews
    oauth: OAuth | None = None
    timeout_s: float = TOOL_S  # for one call
    connect_s: float = CONNECT_S
    tools: tuple[str, ...] | None = None  # the only tools that models get; None: all
    disabled: bool = False
    changed: ToolPolicy = "withhold"  # for tools whose texts differ from the approved ones
    new: ToolPolicy = "report"  # for tools that were not in the approved list
    resources: bool = True  # adds tools that list and read the resources of the server
    proxy: str | None = None  # "": none; None: as the environment says
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    problem: str = ""  # why the server cannot be used

    def __repr__(self) -> str:
        return f"<ServerSpec {self.name} {self.address}>"  # headers and environment contain secrets

    @property
    def address(self) -> str:
        """The address to show to people, without secrets."""
        return _strip_secrets(self.url) if self.url else f"{self.command} ({len(self.args)} arguments)"

    @property
    def identity(self) -> str:
        """What an approval is valid for: another address is another server, even with the same name."""
        return self.url or " ".join([self.command or "", *self.args])


def _strip_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?…" if parts.query else "")


def check_name(name: object) -> str:
    if type(name) is not str or not NAME.fullmatch(name) or "__" in name:
        raise BadServerError("name: expected letters, digits, '_', '-' and '.', at most 64, without '__'")
    return name


def check_url(url: object) -> str:
    """Checks an address that a client registers: http(s), without credentials, not the metadata of a cloud. (F65)"""
    if type(url) is not str:
        raise BadServerError(f"url: expected text, found {kind_of(url)}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadServerError(f"url: {error}") from error
    malformed = not url.isprintable() or " " in url or "${" in url
    if parts.scheme not in ("http", "https") or not host or malformed or len(url) > 2000:
        raise BadServerError("url: expected http://host[:port]/path or https://...")
    if "@" in parts.netloc:
        raise BadServerError("url: it must not contain a user name or password")
    if classify_host(host) == "forbidden":
        raise BadServerError("url: this address is forbidden (link-local, multicast, reserved or cloud metadata)")
    return url


def fill_variables(row: Any, env: Mapping[str, str]) -> tuple[Any, str]:
    """An entry of mcp.json with its ${NAME} filled in, and a message about the first variable that is not set."""
    missing: list[str] = []

    def fill(found: re.Match[str]) -> str:
        value = env.get(found[1])
        if value is None and found[2] is None:
            missing.append(found[1])
        return value or found[2] or ""

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return VARIABLE.sub(fill, value)
        return {key: walk(item) for key, item in value.items()} if isinstance(value, dict) else value

    if not isinstance(row, dict):
        return row, ""
    filled = {key: walk(value) if key in VARIABLE_KEYS else value for key, value in row.items()}
    return filled, f"${{{missing[0]}}} is not set" if missing else ""


def read_spec(name: str, row: Any, file: str, at: str, problem: str = "") -> ServerSpec:
    """Reads one entry. A plain text is a URL. Unknown keys belong to other programs and are ignored."""
    if isinstance(row, str):
        row = {"url": row}
    if not isinstance(row, dict):
        raise ConfigError(file, at, f"expected a table, found {kind_of(row)}")
    try:
        check_name(name)
    except BadServerError as error:
        raise ConfigError(file, at, str(error)) from error
    transport = _read_transport(row, file, at)
    url, command = row.get("url"), row.get("command")
    return ServerSpec(
        name=name,
        url=url if transport != "stdio" else None,
        transport=transport,
        command=command if transport == "stdio" else None,
        args=_read_texts(row, "args", file, at),
        env=_read_table(row, "env", file, at),
        cwd=str(row["cwd"]) if row.get("cwd") else None,
        headers=_read_headers(row, file, at),
        token_file=_read_text(row, "token_file", file, at),
        oauth=_read_oauth(row.get("oauth"), file, f"{at}.oauth"),
        timeout_s=_read_seconds(row, "timeout_s", TOOL_S, file, at),
        connect_s=_read_seconds(row, "connect_s", CONNECT_S, file, at),
        tools=_read_texts(row, "tools", file, at) if row.get("tools") is not None else None,
        disabled=row.get("disabled") is True,
        changed=_read_choice(row, "changed", POLICIES, "withhold", file, at),
        new=_read_choice(row, "new", POLICIES, "withhold" if row.get("strict") is True else "report", file, at),
        resources=row.get("resources", True) is not False,
        proxy=_read_proxy(row, file, at),
        ca_file=_read_text(row, "ca_file", file, at) or "",
        client_cert=_read_text(row, "client_cert", file, at) or "",
        client_key=_read_text(row, "client_key", file, at) or "",
        problem=problem,
    )


def _read_transport(row: JsonObject, file: str, at: str) -> TransportKind:
    """How to reach the server, once its URL or its command is known to be there."""
    url, command = row.get("url"), row.get("command")
    transport_name = str(row.get("transport") or row.get("type") or ("stdio" if command else "auto")).lower()
    if transport_name not in TRANSPORTS:
        raise ConfigError(
            file, f"{at}.transport", f"expected one of auto, http, sse, stdio, found {transport_name[:40]!r}"
        )
    transport = TRANSPORTS[transport_name]
    if transport == "stdio" and type(command) is not str:
        raise ConfigError(file, f"{at}.command", f"expected text, found {kind_of(command)}")
    if transport != "stdio" and type(url) is not str:
        raise ConfigError(file, f"{at}.url", f"expected text, found {kind_of(url)}")
    if transport != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
        raise ConfigError(file, f"{at}.url", "expected http(s)://host[:port]/path")
    return transport


def _read_proxy(row: JsonObject, file: str, at: str) -> str | None:
    value = row.get("proxy")
    if value is None or value is True:
        return None
    if value is not False and not (isinstance(value, str) and is_usable(value)):
        raise ConfigError(file, f"{at}.proxy", "expected http://[user:password@]host:port, or false")
    return value or ""


def _read_headers(row: JsonObject, file: str, at: str) -> dict[str, str]:
    bearer = _read_text(row, "bearer", file, at)
    return _read_table(row, "headers", file, at) | ({"authorization": f"Bearer {bearer}"} if bearer else {})


def _read_oauth(value: Any, file: str, at: str) -> OAuth | None:
    """Reads `oauth = true` or a table. Other programs write the keys in camelCase."""
    if value is None or value is False:
        return None
    row = {} if value is True else value
    if not isinstance(row, dict):
        raise ConfigError(file, at, f"expected true or a table, found {kind_of(value)}")
    spellings = {
        "clientId": "client_id",
        "clientSecret": "client_secret",
        "scopes": "scope",
        "callbackPort": "redirect_port",
    }
    row = {spellings.get(key, key): item for key, item in row.items()}
    if isinstance(row.get("scope"), list):
        row["scope"] = " ".join(_read_texts(row, "scope", file, at))
    port = row.get("redirect_port", LOGIN_PORT)
    if type(port) is not int or not 1 <= port <= 65535:
        raise ConfigError(file, f"{at}.redirect_port", "expected a port")
    oauth = OAuth(
        grant=_read_choice(row, "grant", GRANTS, "code", file, at),
        client_id=_read_text(row, "client_id", file, at),
        client_secret=_read_text(row, "client_secret", file, at),
        scope=_read_text(row, "scope", file, at),
        issuer=_read_text(row, "issuer", file, at),
        redirect_port=port,
        client_auth=_read_choice(row, "client_auth", {"basic": "basic", "post": "post"}, "basic", file, at),
    )
    if oauth.grant == "client_credentials":
        for key in ("client_id", "client_secret", "issuer"):
            if not getattr(oauth, key):  # without an issuer the server could choose who gets the secret
                raise ConfigError(file, f"{at}.{key}", "expected text: required for the grant client_credentials")
    return oauth


def _read_choice(row: JsonObject, key: str, choices: Mapping[str, Any], default: str, file: str, at: str) -> Any:
    value = row.get(key, default)
    if type(value) is not str or value not in choices:
        raise ConfigError(file, f"{at}.{key}", f"expected one of {', '.join(choices)}")
    return choices[value]


def _read_text(row: JsonObject, key: str, file: str, at: str) -> str | None:
    value = row.get(key)
    if value is not None and type(value) is not str:
        raise ConfigError(file, f"{at}.{key}", f"expected text, found {kind_of(value)}")
    return value


def _read_texts(row: JsonObject, key: str, file: str, at: str) -> tuple[str, ...]:
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(file, f"{at}.{key}", "expected a list of texts")
    return tuple(value)


def _read_table(row: JsonObject, key: str, file: str, at: str) -> dict[str, str]:
    value = row.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ConfigError(file, f"{at}.{key}", "expected a table of texts")
    return dict(value)


def _read_seconds(row: JsonObject, key: str, default: float, file: str, at: str) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise ConfigError(file, f"{at}.{key}", "expected seconds, more than 0 and at most 3600")
    return float(value)
