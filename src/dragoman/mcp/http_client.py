"""The HTTP client of one server, and the transports of the mcp package over it.

Headers come from the entry of the server only: a client's key never goes to an MCP server. (T22)
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from dragoman.errors import DecodeError, DragomanError
from dragoman.jsontypes import JsonObject, dump_json, has_more_values, load_json
from dragoman.mcp.network_policy import ForbiddenAddressError, NetworkPolicy, UnknownHostError
from dragoman.mcp.spec import MAX_MESSAGE_VALUES, MAX_MESSAGES_PER_S, ServerSpec
from dragoman.network import CertificateError, Network, find_proxy, make_tls

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_EVENT_BYTES = 4 * 1024 * 1024
NO_VARIABLES: Mapping[str, str] = {}
PORTS = {"http": 80, "https": 443}
REFUSALS = (400, 410, 500, 502, 503)  # statuses of which the mcp package reads no meaning
SERVER_ERROR = -32000
# A line ends with CRLF, LF or CR, also within one event; a CRLF is never taken for two ends.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


class _QueryFilter(logging.Filter):
    """Removes the query and the password from URLs in the log of httpx2, because they may contain tokens."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_strip_secrets(word) if isinstance(word, httpx2.URL) else word for word in record.args)
        return True


def _strip_secrets(url: httpx2.URL) -> httpx2.URL:
    return url.copy_with(query=None, userinfo=b"")


logging.getLogger("httpx2").addFilter(_QueryFilter())


class TokenFileError(DragomanError):
    """The file with the token cannot be read."""


def make_network_policy(spec: ServerSpec, *, allow_private: bool) -> NetworkPolicy:
    return NetworkPolicy(urlsplit(spec.url or "").hostname or "", allow_private=allow_private)


def make_client(
    spec: ServerSpec,
    policy: NetworkPolicy,
    auth: httpx2.Auth | None = None,
    on_status: Callable[[int], None] | None = None,
    env: Mapping[str, str] = NO_VARIABLES,
) -> httpx2.AsyncClient:
    """A client without passwords of the environment; `env` names the proxies. It follows no redirects (the mcp package
    follows those within the server's own origin) and accepts no compression, so that size limits hold. It calls
    `on_status` with the status of every response of the server itself."""
    timeout = httpx2.Timeout(min(spec.connect_s, 10.0), read=None)  # a call has its own timeout
    if auth is None and spec.token_file is not None:
        auth = TokenFileAuth(Path(spec.token_file).expanduser())
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **spec.headers},
        auth=auth,
        timeout=timeout,
        transport=_PolicyTransport(policy, spec, on_status, env),
        trust_env=False,
        follow_redirects=False,
    )


@asynccontextmanager
async def open_http(url: str, make: Callable[[], httpx2.AsyncClient]) -> AsyncGenerator[Any, None]:
    """A transport of the mcp package: streamable HTTP. `make` makes its HTTP client."""
    async with (
        make() as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_EVENT_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def open_sse(url: str, make: Callable[[], httpx2.AsyncClient]) -> AsyncGenerator[Any, None]:
    """A transport of the mcp package: the older HTTP+SSE."""

    def make_client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        return make()

    async with sse_client(url, sse_read_timeout=3600.0, httpx_client_factory=make_client) as streams:
        yield streams


class TokenFileAuth(httpx2.Auth):
    """A bearer token in a file that another program renews. It is read for every request."""

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


class _PolicyTransport(httpx2.AsyncBaseTransport):
    """Connects to allowed addresses only, and refuses too large responses. (F65)

    Each host name has its own connections: two names may have the same address, but TLS has checked one name only.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        spec: ServerSpec,
        on_status: Callable[[int], None] | None,
        env: Mapping[str, str],
    ) -> None:
        self._policy, self._spec, self._on_status, self._env = policy, spec, on_status, env
        self._own_host = urlsplit(spec.url or "").hostname or ""
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port = request.url.host, request.url.port or PORTS[request.url.scheme]
        network = self._find_network(str(request.url))
        addresses: list[str] = []
        try:
            addresses = await self._policy.find_addresses(host, port)
        except ForbiddenAddressError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except UnknownHostError as error:
            if not network.proxy:  # a proxy may know hosts that we cannot look up
                raise httpx2.ConnectError(str(error), request=request) from error
        transport = self._transports.get(host)
        if transport is None:
            transport = self._transports[host] = await asyncio.to_thread(_make_transport, network)
        if network.proxy:
            response = await transport.handle_async_request(request)
        else:
            response = await self._send(transport, request, host, port, addresses)
        if self._on_status is not None and host == self._own_host:
            self._on_status(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("the response is compressed, although the request did not allow it")
        content_type = response.headers.get("content-type", "")
        if "event-stream" in content_type:
            response.stream = _LimitedEvents(response.stream)
            response.headers["content-type"] = content_type.partition(";")[0]  # it is UTF-8, whatever it says
        else:
            response.stream = _LimitedStream(response.stream)
            if response.status_code in REFUSALS and str(request.url) == self._spec.url:
                return await _spell_error(response)
        return response

    def _find_network(self, url: str) -> Network:
        spec = self._spec
        proxy = find_proxy(url, self._env) if spec.proxy is None else spec.proxy
        return Network(proxy=proxy, ca_file=spec.ca_file, client_cert=spec.client_cert, client_key=spec.client_key)

    async def _send(
        self,
        transport: httpx2.AsyncHTTPTransport,
        request: httpx2.Request,
        host: str,
        port: int,
        addresses: list[str],
    ) -> httpx2.Response:
        """Sends to the first address that accepts the connection. The host name stays in the Host header and in TLS."""
        failure: httpx2.TransportError | None = None
        for address in addresses:
            addressed = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await transport.handle_async_request(addressed)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        self._policy.forget(host, port)
        raise failure or httpx2.ConnectError("the host has no address", request=request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _make_transport(network: Network) -> httpx2.AsyncHTTPTransport:
    try:
        context = make_tls(network)
    except CertificateError as error:
        raise httpx2.ConnectError(str(error)) from error
    proxy = httpx2.Proxy(network.proxy) if network.proxy else None
    return httpx2.AsyncHTTPTransport(trust_env=False, verify=context, proxy=proxy)


async def _spell_error(response: httpx2.Response) -> httpx2.Response:
    """The response with its error as JSON-RPC spells it: of any other body the mcp package says only that there was an
    error. The reference server leaves the `id` out, others answer in plain words."""
    error = _read_error(await response.aread(), response.headers.get("content-type", ""))
    if error is None:
        return response
    headers = {"content-type": "application/json"}
    content = dump_json({"jsonrpc": "2.0", "id": None, "error": error})
    return httpx2.Response(response.status_code, headers=headers, content=content, extensions=response.extensions)


def _read_error(body: bytes, content_type: str) -> JsonObject | None:
    """The error of a body that the mcp package cannot read."""
    words = body.decode("utf-8", "replace").strip()
    if not words or "html" in content_type:
        return None
    try:
        value = load_json(body)
    except DecodeError:
        return {"code": SERVER_ERROR, "message": words}
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and type(error.get("code")) is int and type(error.get("message")) is str:
        return error if "id" not in value else None
    return {"code": SERVER_ERROR, "message": words}


class _LimitedStream(httpx2.AsyncByteStream):
    """A body that is read whole, because it is looked at before the mcp package decodes it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> Any:
        pieces, size = [], 0
        async for piece in self._inner:
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise httpx2.ReadError(f"the response is larger than {MAX_BODY_BYTES} bytes")
            pieces.append(piece)
        body = b"".join(pieces)
        _check_values(body)
        yield body

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedEvents(httpx2.AsyncByteStream):
    """A stream of events. The end of an event is passed on when the whole event has been looked at."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> Any:
        event, second, count = bytearray(), 0.0, 0
        async for piece in self._inner:
            event += piece
            ends = [found.end() for found in _EVENT_END.finditer(event, max(len(event) - len(piece) - 3, 0))]
            begin = 0
            for end in ends:
                _check_values(bytes(event[begin:end]))
                begin = end
            del event[:begin]
            now = time.monotonic()
            second, count = (now, len(ends)) if now - second >= 1.0 else (second, count + len(ends))
            if count > MAX_MESSAGES_PER_S:
                raise httpx2.ReadError(f"the server sent more than {MAX_MESSAGES_PER_S} events a second")
            if len(event) > MAX_EVENT_BYTES:
                raise httpx2.ReadError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
            yield piece
        _check_values(bytes(event))  # the end of the stream may end it, too

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check_values(message: bytes) -> None:
    if len(message) > MAX_MESSAGE_VALUES and has_more_values(message, MAX_MESSAGE_VALUES):
        raise httpx2.ReadError(f"the message has more than {MAX_MESSAGE_VALUES} values")
