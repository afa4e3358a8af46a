"""The head of a request to an upstream: where it goes, which headers it has, and its bytes."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from dragoman.upstream.keys import Auth, Key

_VERSION = re.compile(r"v\d+(?:alpha\d*|beta\d*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ENDS_AND_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})


@lru_cache(4096)
def join_url(base: str, path: str) -> str:
    """`path` under `base`. `base` may end in nothing, a version, or the whole endpoint; its query is kept
    (FIELD-CASES 85)."""
    parts = urlsplit(base)
    bare, _, query = path.partition("?")
    ours = [step for step in bare.split("/") if step]
    theirs = [step for step in parts.path.split("/") if step]
    if not _ends_with(theirs, ours):
        if any(_VERSION.fullmatch(step) for step in theirs) and ours and _VERSION.fullmatch(ours[0]):
            ours = ours[1:]
        theirs = theirs + ours
    queries = "&".join(part for part in (parts.query, query) if part)
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(theirs)}" + (f"?{queries}" if queries else "")


def _ends_with(theirs: list[str], ours: list[str]) -> bool:
    """Whether the base is the endpoint already, with or without our version in front."""
    short = ours[1:] if ours and _VERSION.fullmatch(ours[0]) else ours
    return bool(short) and theirs[-len(short) :] == short


def quote_segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="-._~@:")


class SplitUrl(NamedTuple):
    """A URL taken apart: which server to connect to, and what to request there."""

    origin: tuple[bool, str, int]  # whether TLS, host, port
    target: str
    host: str  # for the Host header


@lru_cache(4096)
def split_url(url: str) -> SplitUrl:
    """A ValueError when the URL is not valid."""
    parts = urlsplit(url)
    tls = {"http": False, "https": True}.get(parts.scheme)
    if tls is None or not parts.hostname or parts.username is not None:
        raise ValueError("expected http(s)://host")
    name = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    shown = f"[{name}]" if ":" in name else name
    port = parts.port or (443 if tls else 80)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = f"?{quote(parts.query, safe='/?%:@!$&()*+,;=~-._')}" if parts.query else ""
    return SplitUrl((tls, name, port), path + query, shown if parts.port is None else f"{shown}:{port}")


def build_headers(
    wire: dict[str, str], configured: dict[str, str], auth: Auth, key: Key, origin: str
) -> dict[str, str]:
    """All headers of a request: the dialect's, the configured ones and the key. None of the client's is passed on."""
    headers = {
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "dragoman",
        **wire,
        **configured,
    }
    if key.secret is not None and auth != "none":
        value = key.secret.reveal(origin)
        if auth == "bearer":
            headers["authorization"] = f"Bearer {value}"
        else:
            headers[auth] = value
    return headers


class RequestHead(NamedTuple):
    """The head of a request without the size of its body: it is the same for many."""

    place: SplitUrl
    method: str
    fields: bytes  # up to its last line end

    def write(self, size: int) -> bytes:
        if not size and self.method == "GET":
            return self.fields + b"\r\n"
        return b"%bcontent-length: %d\r\n\r\n" % (self.fields, size)


def find_head(method: str, url: str, headers: dict[str, str], proxy: str | None = None) -> RequestHead:
    """`proxy`: the credentials for the proxy, if the request goes through one. A ValueError when the URL or a
    header is not valid."""
    place = split_url(url)
    fields, target = {"host": place.host, **headers}, place.target
    if proxy is not None and not place.origin[0]:  # a plain request: the proxy gets the whole URL
        target = f"http://{place.host}{target}"
        if proxy:
            fields["proxy-authorization"] = proxy
    return RequestHead(place, method, write_head(f"{method} {target} HTTP/1.1", fields)[:-2])


def write_head(start: str, fields: dict[str, str]) -> bytes:
    """A ValueError when a field contains a line end: no value can add a header of its own (T30)."""
    text, ends = "\r\n".join([start, *map(": ".join, fields.items()), "", ""]), len(fields) + 2
    data = text.encode()
    if text.isascii() and len(data.translate(None, _ENDS_AND_CONTROLS)) + 2 * ends == len(
        data
    ):  # fast path: plain head
        return data
    if text.count("\n") != ends or text.count("\r") != ends or _CONTROL.search(text) is not None:
        raise ValueError("a header holds a control character")
    return data
