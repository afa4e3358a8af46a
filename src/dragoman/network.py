"""How to reach a server beyond this machine: through which proxy, and with which certificates.

Gateway, client and MCP read the same variables as other programs do: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY,
in small or capital letters, and SSL_CERT_FILE. A server on this machine is never reached through a proxy of the
environment. https://everything.curl.dev/usingcurl/proxies/env.html (read 2026-11-16)
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec import Struct

MOST_HEAD = 16 * 1024  # bytes of a proxy's answer


class Network(Struct, frozen=True, kw_only=True):
    """The way to one server."""

    proxy: str = ""  # http://[user:password@]host:port; "": a direct connection
    ca_file: str = ""  # trusted certificates, instead of the system's
    client_cert: str = ""  # a certificate that shows who we are
    client_key: str = ""  # its key, if it is not in the same file

    def __repr__(self) -> str:
        return f"<Network {self.shown_proxy or 'direct'}>"  # the proxy's password is a secret

    @property
    def shown_proxy(self) -> str:
        """The proxy without its password, for people."""
        parts = urlsplit(self.proxy)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.proxy else ""


DIRECT = Network()


class Proxy(NamedTuple):
    host: str
    port: int
    authorization: str  # the value of Proxy-Authorization; "": none


class ProxyError(OSError):
    """The proxy does not let us through."""


class CertificateError(OSError):
    """A file of certificates cannot be used."""


# ---------------------------------------------------------------- which proxy


def without_proxies(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}


def find_network(url: str, env: Mapping[str, str]) -> Network:
    """The way to a URL as the environment says it."""
    return Network(proxy=proxy) if (proxy := find_proxy(url, env)) else DIRECT


def find_proxy(url: str, env: Mapping[str, str]) -> str:
    """The proxy of the environment for a URL; "" for none. A proxy that is not HTTP (socks5://) is not used."""
    if not _is_beyond(url, env):
        return ""
    proxy = _variable(f"{urlsplit(url).scheme}_proxy", env) or _variable("all_proxy", env)
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy if is_usable(proxy) else ""


def find_unused_variable(url: str, env: Mapping[str, str]) -> str:
    """The variable whose proxy is meant for this URL but is of a kind that we do not speak; "" for none."""
    if not _is_beyond(url, env) or find_proxy(url, env):
        return ""
    names = (f"{urlsplit(url).scheme}_proxy", "all_proxy")
    return next((name.upper() for name in names if _variable(name, env)), "")


def _is_beyond(url: str, env: Mapping[str, str]) -> bool:
    """Whether a proxy of the environment would be asked for this URL."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    return bool(host) and not is_this_machine(host) and not _is_exempt(host, parts.port, _variable("no_proxy", env))


def is_usable(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        return parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:  # the port is no number
        return False


def is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _variable(name: str, env: Mapping[str, str]) -> str:
    if name == "http_proxy" and "REQUEST_METHOD" in env:  # CGI: HTTP_PROXY is a header of the client
        return env.get(name, "")
    return env.get(name) or env.get(name.upper()) or ""


def _is_exempt(host: str, port: int | None, listed: str) -> bool:
    return any(_matches(host, port, word.strip().lower()) for word in listed.split(",") if word.strip())


def _matches(host: str, port: int | None, word: str) -> bool:
    """`word`: `*`, a host, a domain with or without a dot in front, an address or a network; a port may follow."""
    if word == "*":
        return True
    name, _, port_text = word.rpartition(":")
    if name and port_text.isdecimal() and ":" not in name:
        if port != int(port_text):
            return False
        word = name
    word = word.removeprefix("*").strip(".").strip("[]")
    if host == word or host.endswith(f".{word}"):
        return True
    try:
        return ip_address(host) in ip_network(word, strict=False)
    except ValueError:
        return False


# ---------------------------------------------------------------- through the proxy


@lru_cache(64)
def read_proxy(url: str) -> Proxy:
    parts = urlsplit(url)
    secret = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username is not None else ""
    authorization = f"Basic {base64.b64encode(secret.encode()).decode()}" if secret else ""
    return Proxy(parts.hostname or "", parts.port or 80, authorization)


async def open_tunnel(connected: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Asks the proxy to pass on bytes to a host. TLS then begins on the same socket. (RFC 9110, 9.3.6)"""
    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if proxy.authorization:
        head += f"Proxy-Authorization: {proxy.authorization}\r\n"
    await loop.sock_sendall(connected, f"{head}\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = await loop.sock_recv(connected, 4096)
        answer += piece
        if not piece or len(answer) > MOST_HEAD:
            raise ProxyError("the proxy hung up")
    status = answer[:64].split(b"\r\n")[0].split(b" ")[1:2]
    if status != [b"200"]:
        raise refused_by_proxy(status[0].decode("ascii", "replace")[:3] if status else "no status")


def refused_by_proxy(status: str) -> ProxyError:
    hint = ": it wants a user name and a password (http://user:password@host:port)" if status == "407" else ""
    return ProxyError(f"the proxy answers {status}{hint}")


# ---------------------------------------------------------------- certificates


def make_tls(network: Network) -> ssl.SSLContext:
    """Reads files, so it belongs in a thread. A file that has changed is read again."""
    files = tuple(name for name in (network.ca_file, network.client_cert, network.client_key) if name)
    try:
        stamps = tuple(Path(name).stat().st_mtime_ns for name in files)
        return _make_tls(network.ca_file, network.client_cert, network.client_key, stamps)
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        why = getattr(error, "strerror", None) or "not a certificate"
        raise CertificateError(f"{', '.join(files)}: {why}") from error


@lru_cache(32)
def _make_tls(ca_file: str, client_cert: str, client_key: str, stamps: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file or None)  # without a file: the system's, or SSL_CERT_FILE's
    context.set_alpn_protocols(["http/1.1"])
    if client_cert:
        context.load_cert_chain(client_cert, client_key or None)
    return context
