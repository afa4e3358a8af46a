"""The HTTP client of one server. Headers come from its entry alone: no key of a client goes to an MCP server (T22)."""

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from dragoman.errors import DragomanError
from dragoman.mcp.network_policy import ForbiddenAddressError, NetworkPolicy, UnknownHostError
from dragoman.mcp.spec import ServerSpec

MAX_BODY = 8 * 1024 * 1024
PORTS = {"http": 80, "https": 443}


class _WithoutQuery(logging.Filter):
    """httpx2 logs every address it asks, and people keep tokens in them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_bare(word) if isinstance(word, httpx2.URL) else word for word in record.args)
        return True


def _bare(url: httpx2.URL) -> httpx2.URL:
    return url.copy_with(query=None, userinfo=b"")


logging.getLogger("httpx2").addFilter(_WithoutQuery())


class TokenFileError(DragomanError):
    """The file with the token cannot be read."""


def make_guard(spec: ServerSpec, *, private: bool) -> NetworkPolicy:
    return NetworkPolicy(urlsplit(spec.url or "").hostname or "", private=private)


def make_client(
    spec: ServerSpec, guard: NetworkPolicy, auth: httpx2.Auth | None = None, see: Callable[[int], None] | None = None
) -> httpx2.AsyncClient:
    """No proxy and no password of the environment, no redirects to elsewhere (the mcp package follows those within the
    server's own origin), and no compression, so that what is counted is what there is. `see` is told every status the
    server itself answers with."""
    timeout = httpx2.Timeout(min(spec.connect_s, 10.0), read=None)  # a call has its own clock
    if auth is None and spec.token_file is not None:
        auth = FileToken(Path(spec.token_file).expanduser())
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **spec.headers},
        auth=auth,
        timeout=timeout,
        transport=_Guarded(guard, urlsplit(spec.url or "").hostname or "", see),
        trust_env=False,
        follow_redirects=False,
    )


class FileToken(httpx2.Auth):
    """A token somebody else renews: read for every request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        try:
            token = self._path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenFileError(f"token_file {self._path} cannot be read") from error
        if not token.isprintable() or not token:
            raise TokenFileError(f"token_file {self._path} holds no token")
        request.headers["authorization"] = f"Bearer {token}"
        yield request


class _Guarded(httpx2.AsyncBaseTransport):
    """Connects to addresses that were judged, and reads no answer larger than a tool result can be (F65).

    Each name has connections of its own: two may have one address, and TLS has made sure of one name only.
    """

    def __init__(self, guard: NetworkPolicy, own: str, see: Callable[[int], None] | None) -> None:
        self._guard, self._own, self._see = guard, own, see
        self._by_name: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port = request.url.host, request.url.port or PORTS[request.url.scheme]
        try:
            addresses = await self._guard.find(host, port)
        except (ForbiddenAddressError, UnknownHostError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        response = await self._send(request, host, port, addresses)
        if self._see is not None and host == self._own:
            self._see(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("the server's answer is compressed, though nobody asked for that")
        if "event-stream" not in response.headers.get("content-type", ""):
            response.stream = _CappedStream(response.stream)
        return response

    async def _send(self, request: httpx2.Request, host: str, port: int, addresses: list[str]) -> httpx2.Response:
        """To the first address that takes the connection. The name stays in the Host header and in TLS."""
        failure: httpx2.TransportError | None = None
        transport = self._by_name.get(host) or httpx2.AsyncHTTPTransport(trust_env=False)
        self._by_name[host] = transport
        for address in addresses:
            there = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await transport.handle_async_request(there)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        self._guard.forget(host, port)
        raise failure or httpx2.ConnectError("there is no address", request=request)

    async def aclose(self) -> None:
        for transport in self._by_name.values():
            await transport.aclose()


class _CappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> Any:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MAX_BODY:
                raise httpx2.ReadError(f"the server's answer is larger than {MAX_BODY} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
