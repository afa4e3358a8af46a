"""ServerSpec: one MCP server, as its entry in mcp.json or in the configuration says."""

import ipaddress
import re
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.errors import ConfigError, DragomanError
from dragoman.jsontypes import JsonObject, kind_of

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
NAME = re.compile(r"\w[\w.-]{0,63}")
TOOL_S = 120.0  # RELIABILITY 2.2
CONNECT_S = 10.0  # F60
KEYS = {
    "url", "transport", "type", "command", "args", "env", "cwd", "headers", "timeout_s", "connect_s", "tools",
    "disabled", "strict",
}  # fmt: skip


class BadServerError(DragomanError):
    """A name or an address nobody should connect to."""


class ServerSpec(Struct, frozen=True, kw_only=True):
    name: str
    url: str | None = None
    transport: Transport = "auto"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    headers: dict[str, str] = {}
    timeout_s: float = TOOL_S  # of one call
    connect_s: float = CONNECT_S
    tools: tuple[str, ...] | None = None  # the only ones to offer; None: all
    disabled: bool = False
    strict: bool = False  # tools that are new since the first approval are withheld too

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
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or len(url) > 2000 or " " in url:
        raise BadServerError("url: expected http://host[:port]/path or https://...")
    if "@" in parts.netloc:
        raise BadServerError("url: expected no user or password in it")
    if is_forbidden(host):
        raise BadServerError("url: this address is no server's (link-local, multicast or unspecified)")
    return url


def is_forbidden(host: str) -> bool:
    """Addresses where only metadata services live. Private ones are allowed: that is where MCP servers are."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower().rstrip(".") in ("metadata.google.internal", "metadata")
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return address.is_link_local or address.is_multicast or address.is_unspecified


def read_spec(name: str, row: Any, file: str, at: str) -> ServerSpec:
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
        headers=_table(row, "headers", file, at),
        timeout_s=_seconds(row, "timeout_s", TOOL_S, file, at),
        connect_s=_seconds(row, "connect_s", CONNECT_S, file, at),
        tools=_texts(row, "tools", file, at) if row.get("tools") is not None else None,
        disabled=row.get("disabled") is True,
        strict=row.get("strict") is True,
    )


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
