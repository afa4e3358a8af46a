"""The one module that talks to a provider.

Redirects are never followed, cookies never used, headers are built from nothing for every attempt, and a key only goes
to the origin it is bound to; a proxy sees it only where the connection to the server is not encrypted. Every wait has
an end: connect, headers, idle, total.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.network import (
    DIRECT,
    CertificateError,
    Network,
    ProxyError,
    make_tls,
    open_tunnel,
    read_proxy,
    refused_by_proxy,
)
from dragoman.upstream.failures import malformed, too_large, too_late
from dragoman.upstream.http.connection import Http2Only, HttpConnection, HungUp, NotHttp, Pool
from dragoman.upstream.http.dial import Resolver, dial
from dragoman.upstream.http.request import RequestHead, SplitUrl, find_head
from dragoman.upstream.spec import Caps, Timeouts

USUAL = Caps()
STALE_S = 1.0  # a connection that was closed while idle fails within this time
WORKED_S = 5.0  # a server that hangs up after this long has worked on the request


class SentRequest(NamedTuple):
    """A request that was sent already, and waits for its answer."""

    connection: HttpConnection
    at: float  # when it was sent, by the clock of the loop


class Opened:
    """A response whose head has arrived. The caller of `Transport.open` closes it."""

    __slots__ = ("_caps", "_connection", "_first_s", "_idle_s", "_pool", "_size", "_unsaid", "headers", "status")

    def __init__(self, connection: HttpConnection, timeouts: Timeouts, first_s: float, pool: Pool, caps: Caps) -> None:
        self._caps = caps
        self._connection: HttpConnection | None = connection
        self._first_s, self._idle_s = first_s, timeouts.idle_s
        self._pool = pool
        self._size = 0
        self._unsaid = 0  # bytes at the beginning without content
        self.status = connection.status
        self.headers = connection.headers

    async def next(self) -> bytes:
        """The next bytes; b"" at the end."""
        piece = self.take()
        while not piece and not self.ended:
            await self.wait()
            piece = self.take()
        return piece

    def take(self) -> bytes:
        """The bytes that have arrived since the last call."""
        connection = self._connection
        if connection is None:
            return b""
        piece = connection.take()
        self._size += len(piece)
        if self._size > self._caps.stream_bytes:
            raise UpstreamError(too_large("stream", self._caps.stream_bytes))
        return piece

    async def wait(self) -> None:
        """Waits until more bytes have arrived, or the end. An UpstreamError if nothing comes in time."""
        connection = self._connection
        if connection is None:
            return
        if connection.error is not None:
            raise UpstreamError(self._broken(connection.error)) from connection.error
        try:
            await connection.wait(self._idle_s if self._size > self._unsaid else self._first_s)
        except TimeoutError as error:
            raise UpstreamError(self._broken(error)) from error

    def says_nothing_yet(self, at_most: float | None = None) -> None:
        """Call this if the bytes so far only open a stream: the server may still be reading the prompt. `at_most`:
        seconds that a wait which has begun may last now."""
        self._unsaid = self._size
        if self._connection is not None and self._connection.listener is not None:
            self._connection.extend(self._first_s if at_most is None else min(at_most, self._first_s))

    def listen(self, listener: Callable[[], bool]) -> None:
        """Calls `listener` when bytes arrive while `wait` waits. If it returns True, it has taken them and the wait
        goes on."""
        if self._connection is not None:
            self._connection.listener = listener

    def take_some(self, most: int) -> bytes:
        """The same as `take`, if they are not more than this."""
        connection = self._connection
        if connection is None or connection.waiting > most:
            return b""
        piece = connection.take()
        self._size += len(piece)
        if self._size > self._caps.stream_bytes:
            raise UpstreamError(too_large("stream", self._caps.stream_bytes))
        return piece

    async def read(self, limit: int | None = None, until: float = inf) -> bytes:
        """The whole body. An UpstreamError when it is larger than `limit` or not there by `until`."""
        limit = self._caps.reply_bytes if limit is None else limit
        connection = self._connection
        if connection is not None and connection.ended:  # all of it came with the head
            piece = self.take()
            if self._size > limit:
                raise UpstreamError(too_large("response", limit))
            if time.monotonic() > until:
                raise UpstreamError(too_late())
            return piece
        pieces: list[bytes] = []
        while piece := await self.next():
            pieces.append(piece)
            if self._size > limit:
                raise UpstreamError(too_large("response", limit))
            if time.monotonic() > until:
                raise UpstreamError(too_late())
            if self.ended:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._connection is None or (self._connection.ended and not self._connection.waiting)

    def close(self, *, whole: bool = False) -> None:
        """`whole`: everything was read, so the connection can be reused. Only the first call counts."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.listener = None
        if whole and connection.reusable:
            self._pool.give_back(connection)
        else:
            connection.close()

    def _broken(self, error: Exception) -> Failure:
        match error:
            case TimeoutError():
                begun = self._size > self._unsaid
                waited, name = (self._idle_s, "idle_s") if begun else (self._first_s, "first_s")
                words = f"the upstream sent nothing for {waited:g} s (timeouts.{name})"
                return Failure(kind="timed_out", status=504, code="upstream_timeout", message=words)
            case NotHttp():
                return malformed("the upstream's answer is not what its encoding says")
            case _:
                words = "the upstream's answer was cut off"
                return Failure(kind="cut_off", status=502, code="upstream_truncated", message=words)


class Transport:
    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl = ssl_context
        self._resolver = Resolver()
        self._pools: dict[object, Pool] = {}  # by origin, and by the way there if it is not direct

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
        caps: Caps = USUAL,
        fresh: bool = False,
        may_resend: Callable[[], bool] = lambda: True,
        first_s: float | None = None,
        network: Network = DIRECT,
    ) -> Opened:
        """Sends a request and waits at most `head_s` for the head of its answer. An UpstreamError says what failed.

        `fresh`: on a new connection. `may_resend`: asked before a request is sent again, because the server had closed
        the connection that was kept for it. `first_s`: how long it may be silent after its head, if less than its
        timeouts allow."""
        head = make_head(url, headers, network, method)
        first_s = min(first_s or inf, timeouts.first_s)
        return await self.send(head, body, timeouts, head_s, on_sent, caps, fresh, may_resend, first_s, network)

    async def send(
        self,
        head: RequestHead,
        body: bytes,
        timeouts: Timeouts,
        head_s: float,
        on_sent: Callable[[], None],
        caps: Caps,
        fresh: bool,
        may_resend: Callable[[], bool],
        first_s: float,
        network: Network,
        sent_before: SentRequest | None = None,
    ) -> Opened:
        """The same, with a head that was made before. `sent_before`: the request was sent already."""
        place, start = head.place, head.write(len(body))
        pool = self.find_pool(place, network)
        connection = sent_before.connection if sent_before is not None else None if fresh else pool.take()
        clock = asyncio.get_running_loop().time
        while True:
            if connection is None:
                connection = await self._dial(place, min(timeouts.connect_s, head_s), network)
            if sent_before is None:
                on_sent()
            sent = clock() if sent_before is None else sent_before.at
            try:
                if sent_before is None:
                    connection.ask(start, body, bodiless=head.method == "HEAD")
                sent_before = None
                while not connection.arrived:
                    if connection.error is not None:  # a new one: a traceback refers to the connection
                        raise type(connection.error)(*connection.error.args)
                    await connection.wait(sent + head_s - clock())
                opened = Opened(connection, timeouts, first_s, pool, caps)
                if network is not DIRECT and network.proxy and opened.status == 407:  # the proxy's, not the server's
                    raise UpstreamError(unreached(refused_by_proxy("407")))
                return opened
            except HungUp as error:
                idle = connection.answers > 0 and connection.heard == 0 and clock() - sent < STALE_S
                connection.close()
                if not idle or not may_resend():
                    silent_tls = place.origin[0] and connection.answers == 0 and connection.heard == 0
                    failure = hung_up(clock() - sent, wants_certificate=silent_tls and not network.client_cert)
                    raise UpstreamError(failure) from error
                connection = None  # the server had closed this idle connection: send again on a new one (F32)
            except (NotHttp, TimeoutError) as error:
                connection.close()
                raise UpstreamError(failure_of(error)) from error
            except BaseException:
                connection.close()
                raise

    async def _dial(self, place: SplitUrl, connect_s: float, network: Network) -> HttpConnection:
        tls, host, port = place.origin
        loop = asyncio.get_running_loop()
        proxy = read_proxy(network.proxy) if network.proxy else None
        try:
            context = (self._ssl or await asyncio.to_thread(make_tls, network)) if tls else None
            found = await self._resolver.resolve(*((host, port) if proxy is None else (proxy.host, proxy.port)))
            tunnel = None if proxy is None or not tls else lambda to: open_tunnel(to, proxy, host, port)
            make = partial(HttpConnection, loop)
            return await dial(host, found, make, tls=context, connect_s=connect_s, prepare=tunnel)
        except OSError as error:
            raise UpstreamError(unreached(error, "the upstream" if proxy is None else "the proxy")) from error

    def find_pool(self, place: SplitUrl, network: Network) -> Pool:
        """The idle connections of a server."""
        origin = place.origin if network is DIRECT else (place.origin, network)
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(asyncio.get_running_loop())
        return pool

    async def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools = {}


def make_head(url: str, headers: dict[str, str], network: Network = DIRECT, method: str = "POST") -> RequestHead:
    """The head of a request; an UpstreamError when its URL or a header cannot be sent."""
    try:
        proxy = read_proxy(network.proxy) if network.proxy else None
        return find_head(method, url, headers, None if proxy is None else proxy.authorization or "")
    except ValueError as error:
        raise UpstreamError(failure_of(error)) from error


def unreached(error: OSError, what: str = "the upstream") -> Failure:
    """Why there is no connection, to the upstream or to the proxy. It names no URL, which may contain a secret."""
    match error:
        case ProxyError():
            return Failure(kind="server_error", status=502, code="upstream_proxy", message=str(error))
        case CertificateError():
            words = "the certificates of this upstream cannot be read: see ca_file, client_cert and client_key"
            return Failure(kind="server_error", status=502, code="upstream_tls", message=words)
        case ssl.SSLError() if _refuses_protocol(error):
            return http2_only()
        case ssl.SSLError():
            return Failure(kind="server_error", status=502, code="upstream_tls", message=_explain_tls(error))
        case TimeoutError():
            words = f"{what} did not accept the connection in time"
            return Failure(kind="timed_out", status=504, code="upstream_connect", message=words)
        case socket.gaierror():
            words = f"{what}'s name cannot be resolved"
        case _:
            words = f"{what} accepts no connection"
    return Failure(kind="overloaded", status=503, code="upstream_unreachable", message=words)


def failure_of(error: Exception) -> Failure:
    """Why there is no answer."""
    match error:
        case TimeoutError():
            return too_late()
        case ValueError():
            return Failure(kind="server_error", status=502, code="upstream_url", message="the upstream's URL is wrong")
        case Http2Only():
            return http2_only()
        case _:
            return malformed("the upstream's answer is not valid HTTP")


def hung_up(after_s: float, *, wants_certificate: bool = False) -> Failure:
    """A request that the upstream has worked on is not sent there again: it costs money each time.

    `wants_certificate`: TLS 1.3 refuses a client without a certificate only after its first words.
    """
    if after_s < WORKED_S:
        hint = "; some want a certificate of yours (client_cert)" if wants_certificate else ""
        code, words = "upstream_disconnected", f"the upstream hung up{hint}"
    else:
        code, words = "upstream_gave_up", f"the upstream hung up after {after_s:.0f} s of work"
    return Failure(kind="server_error", status=502, code=code, message=words)


# Numbers of OpenSSL (X509_V_ERR_...). https://docs.openssl.org/3.3/man3/X509_STORE_CTX_get_error/ (read 2026-11-18)
_UNKNOWN_AUTHORITY, _EXPIRED, _OTHER_HOST = (2, 18, 19, 20, 21, 27), (9, 10), (62, 64)


def _explain_tls(error: ssl.SSLError) -> str:
    """Why there is no TLS, and what helps. OpenSSL's own words may name the host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        words = "the upstream's TLS certificate is not trusted"
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"{words}: its authority is not known here; name it in ca_file or SSL_CERT_FILE"
        if error.verify_code in _EXPIRED:
            return f"{words}: it has expired or is not valid yet; check the clock of this machine, too"
        return f"{words}: {'it is for another host' if error.verify_code in _OTHER_HOST else error.verify_message}"
    if getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return "the upstream does not speak TLS: should its address begin with http://?"
    return "the upstream broke off the TLS handshake; some want a certificate of yours (client_cert, client_key)"


def _refuses_protocol(error: ssl.SSLError) -> bool:
    """Whether the server takes no protocol that was offered. Python 3.11 knows no name for it, only OpenSSL's words."""
    words = str(error).lower().replace("_", " ")
    return "alpn" in words or "no application protocol" in words


def http2_only() -> Failure:
    words = "the upstream speaks HTTP/2 only, and dragoman speaks HTTP/1.1: put a proxy that speaks both between them"
    return Failure(kind="server_error", status=502, code="upstream_http2_only", message=words)
