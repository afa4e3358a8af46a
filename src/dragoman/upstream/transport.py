"""The one module that talks to a provider.

Redirects are never followed, cookies and environment proxies never used, headers are built from nothing for every
attempt, and a key only goes to the origin it is bound to. Every wait has an end: connect, headers, idle, total.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.upstream.broken import MAX_REPLY_BYTES, MAX_STREAM_BYTES, malformed, too_large
from dragoman.upstream.spec import Timeouts

POOL_IDLE_S = 20.0  # below what servers commonly keep (FIELD-CASES 107)
DNS_CACHE_S = 300


class Sending:
    """What the connector tells about the request that is being sent."""

    __slots__ = ("on_sent", "reused", "sent")

    def __init__(self, on_sent: Callable[[], None]) -> None:
        self.on_sent = on_sent
        self.sent = False
        self.reused = False


_SENDING: ContextVar[Sending | None] = ContextVar("sending", default=None)


class _Connector(aiohttp.TCPConnector):
    """Says when a request really leaves, and whether on a connection that had been used before."""

    async def connect(self, req: ClientRequest, traces: Any, timeout: Any) -> Connection:
        connection = await super().connect(req, traces, timeout)
        sending = _SENDING.get()
        if sending is not None:
            protocol: Any = connection.protocol
            # a parser is only there once a response has been read on this connection
            sending.reused = getattr(protocol, "_parser", None) is not None
            sending.sent = True
            sending.on_sent()
        return connection


@lru_cache(64)
def _limits(connect_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_s)


class Opened:
    """A response whose head has arrived. Whoever opened it closes it."""

    __slots__ = ("_idle_s", "_loop", "_response", "_seen", "_size", "_stalled", "_timer", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self._response = response
        self._idle_s = idle_s
        self._loop = loop
        self._seen = loop.time()
        self._size = 0
        self._stalled = False
        self._timer: asyncio.TimerHandle | None = None
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def next(self) -> bytes:
        """The next bytes as they come, b"" at the end."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._look)
        self._seen = self._loop.time()
        try:
            piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamError(self._broken(error)) from error
        self._size += len(piece)
        if self._size > MAX_STREAM_BYTES:
            raise UpstreamError(too_large("stream", MAX_STREAM_BYTES))
        return piece

    async def read(self, limit: int = MAX_REPLY_BYTES) -> bytes:
        """The whole body, or an error when it is larger than `limit`."""
        pieces: list[bytes] = []
        while piece := await self.next():
            pieces.append(piece)
            if self._size > limit:
                raise UpstreamError(too_large("response", limit))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self, *, whole: bool = False) -> None:
        """`whole`: everything was read, so the connection can serve again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if whole:
            self._response.release()
        else:
            self._response.close()

    def _look(self) -> None:
        """One timer a stream, moved on as long as bytes come: reading them costs no timer each."""
        quiet = self._loop.time() - self._seen
        if quiet >= self._idle_s - 0.001:
            self._stalled = True
            self._response.close()  # wakes the reader
        else:
            self._timer = self._loop.call_later(self._idle_s - quiet, self._look)

    def _broken(self, error: Exception) -> Failure:
        if self._stalled:
            words = f"the upstream sent nothing for {self._idle_s:g} s"
            return Failure(kind="timed_out", status=504, code="upstream_timeout", message=words)
        if isinstance(error, aiohttp.ClientPayloadError) and "decod" in str(error).lower():
            return malformed("the upstream's answer is not what its encoding says")
        return Failure(
            kind="cut_off", status=502, code="upstream_truncated", message="the upstream's answer ended before its end"
        )


class Transport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._ssl = ssl_context

    async def open(
        self,
        url: str,
        headers: dict[str, str],
        body: bytes,
        *,
        timeouts: Timeouts,
        head_s: float,
        on_sent: Callable[[], None],
        method: str = "POST",
    ) -> Opened:
        """Sends and waits for the head of the answer, at most `head_s`; an UpstreamError says what went wrong."""
        sending = Sending(on_sent)
        token = _SENDING.set(sending)
        try:
            try:
                return await self._open(url, headers, body, timeouts, head_s, method)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
                if not sending.reused:
                    raise
                # an idle connection the server had already closed: once more, on a fresh one (F32)
                return await self._open(url, headers, body, timeouts, head_s, method)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UpstreamError(failure_of(error)) from error
        finally:
            _SENDING.reset(token)

    async def _open(
        self, url: str, headers: dict[str, str], body: bytes, timeouts: Timeouts, head_s: float, method: str
    ) -> Opened:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(head_s):
            response = await self.session().request(
                method,
                url,
                data=body or None,
                headers=headers,
                allow_redirects=False,
                timeout=_limits(timeouts.connect_s),
            )
        return Opened(response, timeouts.idle_s, loop)

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = _Connector(
                limit=0,  # each upstream has its own gate
                keepalive_timeout=POOL_IDLE_S,
                ttl_dns_cache=DNS_CACHE_S,
                happy_eyeballs_delay=0.25,
                ssl=self._ssl if self._ssl is not None else True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                max_line_size=16 * 1024,
                max_field_size=32 * 1024,
                read_bufsize=64 * 1024,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def failure_of(error: Exception) -> Failure:
    """What went wrong before there was an answer. Names no URL: one could hold a secret."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return Failure(
                kind="server_error", status=502, code="upstream_tls", message="the upstream's TLS is not to be trusted"
            )
        case aiohttp.ConnectionTimeoutError():
            return Failure(
                kind="timed_out", status=504, code="upstream_connect", message="the upstream took no connection in time"
            )
        case aiohttp.ClientConnectorError():
            words = "the upstream takes no connection"
            if isinstance(error, aiohttp.ClientConnectorDNSError):
                words = "the upstream's name cannot be resolved"
            return Failure(kind="overloaded", status=503, code="upstream_unreachable", message=words, retry_after_s=1.0)
        case TimeoutError():
            return Failure(
                kind="timed_out", status=504, code="upstream_timeout", message="the upstream did not answer in time"
            )
        case aiohttp.InvalidURL() | ValueError():
            return Failure(kind="server_error", status=502, code="upstream_url", message="the upstream's URL is no URL")
        case aiohttp.ServerDisconnectedError() | OSError():
            return Failure(
                kind="server_error", status=502, code="upstream_disconnected", message="the upstream hung up"
            )
        case _:
            return malformed("the upstream's answer is not HTTP we read")
