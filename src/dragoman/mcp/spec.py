"""ServerSpec: one MCP server, as its entry in mcp.json or in the configuration says."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.errors import ConfigError, DragomanError
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.mcp.network_policy import weigh_literal

Transport: TypeAlias = Literal["auto", "http", "sse", "stdio"]
TRANSPORTS: dict[str, Transport] = {
    "auto": "auto",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "stdio": "stdio",
}
Policy: TypeAlias = Literal["report", "withhold"]
POLICIES: dict[str, Policy] = {"report": "report", "withhold": "withhold"}
Grant: TypeAlias = Literal["code", "client_credentials"]
GRANTS: dict[str, Grant] = {"code": "code", "authorization_code": "code", "client_credentials": "client_credentials"}
NAME = re.compile(r"\w[\w.-]{0,63}")
VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
TOOL_S = 120.0  # RELIABILITY 2.2
CONNECT_S = 10.0  # F60
LOGIN_PORT = 20007  # where a browser comes back to
SECRET_KEYS = ("headers", "env", "bearer", "oauth")  # where ${NAME} is filled in; never in a URL, which others may add


class BadServerError(DragomanError):
    """A name or an address nobody should connect to."""


class OAuth(Struct, frozen=True, kw_only=True):
    """How to get a token: as a person who has logged in (`dragoman mcp login`), or as a program of its own."""

    grant: Grant = "code"
    client_id: str | None = None  # None: registered by itself
    client_secret: str | None = None
    scope: str | None = None
    issuer: str | None = None  # the only one that may see the secret
    redirect_port: int = LOGIN_PORT
    client_auth: Literal["basic", "post"] = "basic"


class ServerSpec(Struct, frozen=True, kw_only=True):
    name: str
    url: str | None = None
    transport: Transport = "auto"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    headers: dict[str, str] = {}
    token_file: str | None = None  # a bearer token in a file that others renew
    oauth: OAuth | None = None
    timeout_s: float = TOOL_S  # of one call
    connect_s: float = CONNECT_S
    tools: tuple[str, ...] | None = None  # the only ones to offer; None: all
    disabled: bool = False
    changed: Policy = "withhold"  # tools whose text is not the approved one any more
    new: Policy = "report"  # tools that were not there when it was approved
    resources: bool = True  # a server that has some offers tools to list and read them
    problem: str = ""  # why it cannot be used at all

    def __repr__(self) -> str:
        return f"<ServerSpec {self.name} {self.address}>"  # headers and environment hold secrets

    @property
    def address(self) -> str:
        """For people: no header, no environment, nothing secret."""
        return _without_secrets(self.url) if self.url else f"{self.command} ({len(self.args)} arguments)"

    @property
    def identity(self) -> str:
        """What was approved: another address is another server, whatever its name."""
        return self.url or " ".join([self.command or "", *self.args])


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?…" if parts.query else "")


def check_name(name: object) -> str:
    if type(name) is not str or not NAME.fullmatch(name) or "__" in name:
        raise BadServerError("name: expected letters, digits, '_', '-' and '.', at most 64, without '__'")
    return name


def check_url(url: object) -> str:
    """An address a client may register: http(s), no credentials in it, not the cloud's metadata (F65)."""
    if type(url) is not str:
        raise BadServerError(f"url: expected text, found {kind_of(url)}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadServerError(f"url: {error}") from error
    odd = not url.isprintable() or " " in url or "${" in url
    if parts.scheme not in ("http", "https") or not host or odd or len(url) > 2000:
        raise BadServerError("url: expected http://host[:port]/path or https://...")
    if "@" in parts.netloc:
        raise BadServerError("url: expected no user or password in it")
    if weigh_literal(host) == "never":
        raise BadServerError("url: this address is no server's (link-local, multicast or unspecified)")
    return url


def fill_in(row: Any, env: Mapping[str, str]) -> tuple[Any, str]:
    """An entry of mcp.json with its ${NAME} filled in, and the first that is not set."""
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
    filled = {key: walk(value) if key in SECRET_KEYS else value for key, value in row.items()}
    return filled, f"${{{missing[0]}}} is not set" if missing else ""


def read_spec(name: str, row: Any, file: str, at: str, problem: str = "") -> ServerSpec:
    """One entry; a bare text is a URL. Keys we do not know belong to other programs and stay where they are."""
    if isinstance(row, str):
        row = {"url": row}
    if not isinstance(row, dict):
        raise ConfigError(file, at, f"expected a table, found {kind_of(row)}")
    try:
        check_name(name)
    except BadServerError as error:
        raise ConfigError(file, at, str(error)) from error
    url, command = row.get("url"), row.get("command")
    word = str(row.get("transport") or row.get("type") or ("stdio" if command else "auto")).lower()
    if word not in TRANSPORTS:
        raise ConfigError(file, f"{at}.transport", f"expected one of auto, http, sse, stdio, found {word[:40]!r}")
    transport = TRANSPORTS[word]
    if transport == "stdio" and type(command) is not str:
        raise ConfigError(file, f"{at}.command", f"expected text, found {kind_of(command)}")
    if transport != "stdio" and type(url) is not str:
        raise ConfigError(file, f"{at}.url", f"expected text, found {kind_of(url)}")
    if transport != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
        raise ConfigError(file, f"{at}.url", "expected http(s)://host[:port]/path")
    return ServerSpec(
        name=name,
        url=url if transport != "stdio" else None,
        transport=transport,
        command=command if transport == "stdio" else None,
        args=_texts(row, "args", file, at),
        env=_table(row, "env", file, at),
        cwd=str(row["cwd"]) if row.get("cwd") else None,
        headers=_headers(row, file, at),
        token_file=_text(row, "token_file", file, at),
        oauth=_oauth(row.get("oauth"), file, f"{at}.oauth"),
        timeout_s=_seconds(row, "timeout_s", TOOL_S, file, at),
        connect_s=_seconds(row, "connect_s", CONNECT_S, file, at),
        tools=_texts(row, "tools", file, at) if row.get("tools") is not None else None,
        disabled=row.get("disabled") is True,
        changed=_choice(row, "changed", POLICIES, "withhold", file, at),
        new=_choice(row, "new", POLICIES, "withhold" if row.get("strict") is True else "report", file, at),
        resources=row.get("resources", True) is not False,
        problem=problem,
    )


def _headers(row: JsonObject, file: str, at: str) -> dict[str, str]:
    bearer = _text(row, "bearer", file, at)
    return _table(row, "headers", file, at) | ({"authorization": f"Bearer {bearer}"} if bearer else {})


def _oauth(value: Any, file: str, at: str) -> OAuth | None:
    """`oauth = true`, or a table; camelCase is how other programs spell the keys."""
    if value is None or value is False:
        return None
    row = {} if value is True else value
    if not isinstance(row, dict):
        raise ConfigError(file, at, f"expected true or a table, found {kind_of(value)}")
    spelled = {
        "clientId": "client_id",
        "clientSecret": "client_secret",
        "scopes": "scope",
        "callbackPort": "redirect_port",
    }
    row = {spelled.get(key, key): item for key, item in row.items()}
    if isinstance(row.get("scope"), list):
        row["scope"] = " ".join(_texts(row, "scope", file, at))
    port = row.get("redirect_port", LOGIN_PORT)
    if type(port) is not int or not 1 <= port <= 65535:
        raise ConfigError(file, f"{at}.redirect_port", "expected a port")
    made = OAuth(
        grant=_choice(row, "grant", GRANTS, "code", file, at),
        client_id=_text(row, "client_id", file, at),
        client_secret=_text(row, "client_secret", file, at),
        scope=_text(row, "scope", file, at),
        issuer=_text(row, "issuer", file, at),
        redirect_port=port,
        client_auth=_choice(row, "client_auth", {"basic": "basic", "post": "post"}, "basic", file, at),
    )
    if made.grant == "client_credentials":
        for key in ("client_id", "client_secret", "issuer"):
            if not getattr(made, key):  # without an issuer the server would say who gets the secret
                raise ConfigError(file, f"{at}.{key}", "expected text: the grant client_credentials needs it")
    return made


def _choice(row: JsonObject, key: str, words: Mapping[str, Any], default: str, file: str, at: str) -> Any:
    value = row.get(key, default)
    if type(value) is not str or value not in words:
        raise ConfigError(file, f"{at}.{key}", f"expected one of {', '.join(words)}")
    return words[value]


def _text(row: JsonObject, key: str, file: str, at: str) -> str | None:
    value = row.get(key)
    if value is not None and type(value) is not str:
        raise ConfigError(file, f"{at}.{key}", f"expected text, found {kind_of(value)}")
    return value


def _texts(row: JsonObject, key: str, file: str, at: str) -> tuple[str, ...]:
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(file, f"{at}.{key}", "expected a list of texts")
    return tuple(value)


def _table(row: JsonObject, key: str, file: str, at: str) -> dict[str, str]:
    value = row.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ConfigError(file, f"{at}.{key}", "expected a table of texts")
    return dict(value)


def _seconds(row: JsonObject, key: str, default: float, file: str, at: str) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise ConfigError(file, f"{at}.{key}", "expected seconds, more than 0 and at most 3600")
    return float(value)
