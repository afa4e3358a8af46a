"""ClientConnection: one client's HTTP/1.1 connection, on httptools' parser. It hands requests straight to the app.

It limits headers, keeps deadlines, waits for clients that read slowly, and ends the work for a client that has left
(T26-T29, F34). `process/server.py` makes these connections and ends them.
"""

import asyncio
import logging
import re
import sys
from collections import deque
from collections.abc import Coroutine
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import httptools

from dragoman.gateway.app import App
from dragoman.gateway.client_exchange import ClientExchange, nothing_more
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.direct_way import Way
from dragoman.gateway.http import NONE_REPEATED, HeadFacts, HttpRequest, HttpResponse
from dragoman.gateway.plain_way import begin
from dragoman.log_line import own_error
from dragoman.upstream.http.request import write_head

log = logging.getLogger(__name__)

MOST_AHEAD = 16  # pipelined requests that wait for the one before them
LINGER_S = 1.0  # when the server shuts down, an open connection may send one more request
UNWANTED_BYTES = 64 * 1024 * 1024  # read of a client that is still sending when its refusal is written
UNWANTED_S = 10.0
LEAST_PROGRESS_BYTES = 1024  # a client that takes less than this in `write_s` does not read

MOST_HEADS = 8  # of one connection that are remembered, one after the other: a proxy's are all different
MOST_DIGITS = 9  # of the size of a body whose head is remembered

_BUSY = inf  # the deadline while the app works on an answer: none
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_USUAL = ("host", "content-type", "content-length", "authorization", "user-agent", "accept", "connection", "x-api-key")
_NAMES = {spelt: name for name in _USUAL for spelt in (name.encode(), name.title().encode())}
_OFFER = frozenset({"connection", "upgrade", "http2-settings"})
_SIZE = re.compile(rb"\r\ncontent-length: ?(\d{1,9})\r\n", re.IGNORECASE)
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade"})
_WORDS = {
    400: "the request is not valid HTTP",
    408: "the request took too long to arrive",
    431: "the request head is too large",
    500: "an internal error of the gateway",
    501: "the body comes in a transfer coding other than chunked",
    503: "there are too many connections",
    505: "this version of HTTP is not served here",
}


class KnownHead(NamedTuple):
    """The head of a request that came with its whole body in one piece, and was parsed. Only the size may differ in the
    next one."""

    before: bytes  # the part of the head before the size of the body
    after: bytes  # the part after it
    method: str
    path: str
    query: str
    headers: dict[str, str]  # without the size
    facts: HeadFacts

    def find_body(self, data: bytes) -> bytes | None:
        """The body, if `data` is this head (with another size, perhaps) and exactly one body."""
        start = len(self.before)
        end = data.find(b"\r", start, start + MOST_DIGITS + 1)
        if end < 0 or not data.startswith(self.after, end):
            return None
        size, body = data[start:end], data[end + len(self.after) :]
        return body if body and size.isdigit() and int(size) == len(body) else None


def remember_head(data: bytes, exchange: ClientExchange, most_bytes: int) -> KnownHead | None:
    """`data`: everything that has arrived since the exchange before this one."""
    http, cut = exchange.http, data.find(b"\r\n\r\n") + 4
    if cut < 4 or cut + MOST_DIGITS > most_bytes or len(data) - cut != exchange.length or not exchange.done:
        return None
    if not exchange.keep or http.repeated or not _UNUSUAL.isdisjoint(http.headers):
        return None
    match = _SIZE.search(data, 0, cut)
    if match is None or int(match[1]) != exchange.length:
        return None
    headers = {name: value for name, value in http.headers.items() if name != "content-length"}
    before, after = data[: match.start(1)], data[match.end(1) : cut]
    return KnownHead(before, after, http.method, http.path, http.query, headers, http.facts)


Opening: TypeAlias = "asyncio.Task[tuple[asyncio.Transport, ClientConnection]]"


class OpenConnections:
    """The connections of a server that are open, or were accepted and are opening (with TLS that takes a while), and
    the requests that run on them."""

    def __init__(self) -> None:
        self.connections: set[ClientConnection] = set()
        self.opening: dict[Opening, None] = {}  # the oldest first
        self.tasks: set[asyncio.Task[None]] = set()


class ClientConnection(asyncio.Protocol):
    __slots__ = (
        *("_client", "_counted", "_deadline", "_head_size", "_headers", "_heads_left", "_ignores_input", "_in_head"),
        *("_incoming", "_known", "_leaving", "_limits", "_lost", "_open", "_parser", "_paused", "_port", "_queue"),
        *("_refusal", "_repeated", "_repeated_sizes", "_running", "_served", "_stall_timer", "_task", "_timer"),
        *("_timer_at", "_unsent", "_unwanted", "_url", "_way"),
        *("app", "loop", "stalled", "transport"),
    )

    def __init__(self, app: App, others: OpenConnections) -> None:
        self.app = app
        self._limits: RequestLimits = app.gateway.now.settings.limits
        self.loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.stalled: asyncio.Future[None] | None = None  # set while the client does not read
        self._open = others
        self._parser: Any = httptools.HttpRequestParser(self)
        self._client = ""
        self._port = 0
        self._url = b""
        self._headers: dict[str, str] = {}
        self._repeated: frozenset[str] = NONE_REPEATED
        self._repeated_sizes: list[int] = []  # header sizes already counted
        self._head_size = 0
        self._counted = False  # all of the head that arrives now is in `_head_size`
        self._in_head = False  # part of a head has arrived
        self._incoming: ClientExchange | None = None  # the request whose body is still arriving
        self._queue: deque[ClientExchange] = deque()
        self._known: KnownHead | None = None
        self._heads_left = MOST_HEADS
        self._running: ClientExchange | None = None  # the request that is being answered
        self._task: asyncio.Task[None] | None = None
        self._way: Way | None = None  # of the request that is being answered, if there is no task for it
        self._paused = self._lost = self._leaving = self._served = False
        self._ignores_input = False  # bytes that still arrive are thrown away
        self._unwanted = 0  # bytes that arrived since then
        self._refusal = 0  # the status to answer with after the requests before it
        self._unsent = 0  # bytes that a slow client had not taken yet at the last check
        self._deadline = _BUSY
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None

    # ---- of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._open.connections.add(self)
        peer = transport.get_extra_info("peername")
        here = transport.get_extra_info("sockname")
        self._port = here[1] if isinstance(here, tuple) else 0
        self._client = str(peer[0]) if peer else ""
        if len(self._open.connections) > (self._limits.connections or most_connections()):
            self._refuse(503)
        else:
            self._wait_at_most(self._limits.head_s)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            self._discard(len(data))
            return
        incoming, heading, known = self._incoming, self._in_head, self._known
        between = incoming is None and not heading and not self._head_size
        if known is not None and between and data.startswith(known.before):  # fast path: known head
            body = known.find_body(data)
            if body is not None:
                self._queue.append(self._take_known(known, body))
                self._answer_next()
                return
        if incoming is None:
            self._head_size += len(data)
            self._counted = not heading
        else:
            incoming.wire_size += len(data)
        queued = len(self._queue)
        self._parse(data)
        if self.transport.is_closing():
            return
        if self._is_out_of_bounds(incoming):
            self._refuse(431)
        if between and self._heads_left and len(self._queue) == queued + 1 and not self._ignores_input:
            self._heads_left -= 1
            self._known = remember_head(data, self._queue[-1], self._limits.head_bytes)
        self._answer_next()
        if self._in_head != heading or self._incoming is not incoming:
            self._find_deadline()

    def _take_known(self, known: KnownHead, body: bytes) -> ClientExchange:
        """A request with a head that was parsed before. The parser waits for the next head, as it would after this."""
        _, _, method, path, query, headers, facts = known
        http = HttpRequest(method, path, query, headers, client=self._client, port=self._port, facts=facts)
        exchange = ClientExchange(self, http, self.app.gateway.now.settings.max_body_bytes, body)
        http.read, http.direct = exchange.read, exchange
        return exchange

    def _is_out_of_bounds(self, incoming: ClientExchange | None) -> bool:
        """Whether a head, or what frames a body, goes on for too long."""
        if self._in_head:
            return self._head_size > self._limits.head_bytes
        return incoming is not None and not incoming.done and incoming.is_mostly_framing(self._limits.head_bytes)

    def _parse(self, data: bytes) -> None:
        rest: bytes | None = data
        while rest is not None:
            rest = self._feed(rest)

    def _feed(self, data: bytes) -> bytes | None:
        """What is still to be parsed, if the client offers another protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400)
        return None

    def _decline_upgrade(self, rest: bytes) -> bytes | None:
        """The client offers another protocol. Java's client offers h2c with every request, and httptools then skips the
        body: we parse such a head again without the offer. Any other offer gets one answer, and then we close."""
        if self._ignores_input:
            return None
        http = self._queue[-1].http
        if http.headers.get("upgrade", "").lower() != "h2c" or http.repeated:
            self._leaving = True
            return None
        version = 1 if self._queue.pop().chunked else 0
        if len(self._queue) > MOST_AHEAD:  # each offer costs a parser and a copy of what follows
            self._refuse(400)
            return None
        fields = {name: value for name, value in http.headers.items() if name not in _OFFER}
        self._parser = httptools.HttpRequestParser(self)
        return write_head(f"{http.method} {self._url.decode('latin-1')} HTTP/1.{version}", fields) + rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._parser = self._incoming = None  # breaks the reference cycle, so that no garbage collection is needed
        self._open.connections.discard(self)
        self._queue.clear()
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall_timer = None
        self._resume()
        if self._way is not None:
            self._way.leave()
        self.loop.call_soon(self._cancel)  # a task has to run before it can be cancelled: it may have just been made

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self.stalled = self.loop.create_future()
        self._unsent = count_unsent(self.transport)
        self._stall_timer = self.loop.call_later(self._limits.write_s, self._check_progress)

    def _check_progress(self) -> None:
        """Ends a client that does not read. One that reads slowly may take as long as it needs (T28)."""
        unsent = count_unsent(self.transport)
        if self._unsent - unsent < LEAST_PROGRESS_BYTES:
            self.transport.abort()
            return
        self._unsent = unsent
        self._stall_timer = self.loop.call_later(self._limits.write_s, self._check_progress)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._resume()

    def _resume(self) -> None:
        waiter, self.stalled = self.stalled, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """The server shuts down: this connection ends after its answer, or after a short wait."""
        self._leaving = True
        if self._way is not None:
            self._way.leave()  # so that it is among the tasks that the server waits for
        elif self._running is None:
            self._wait_at_most(LINGER_S)

    # ---- of the parser

    def on_message_begin(self) -> None:
        self._url, self._headers, self._repeated = b"", {}, NONE_REPEATED
        if self._repeated_sizes:
            self._repeated_sizes = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: whatever it says comes too late to be judged (RFC 9110, 6.5)
        word = _NAMES.get(name) or name.decode("latin-1").lower()  # a client may make up names: they are not kept
        if word in self._headers:
            self._repeated |= {word}
            self._repeated_sizes.append(len(name) + len(value) + 4)
        else:
            self._headers[word] = value.decode("latin-1")
        if len(self._headers) + len(self._repeated_sizes) > self._limits.headers:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        headers, limits, self._in_head = self._headers, self._limits, False
        if not self._counted or self._head_size > limits.head_bytes:
            size = sum(map(len, headers)) + sum(map(len, headers.values())) + 4 * len(headers)
            if size + len(self._url) + sum(self._repeated_sizes) > limits.head_bytes:
                self._refuse(431)
        if len(self._url) > limits.line_bytes:
            self._refuse(431)
        self._head_size, self._counted = 0, False
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse(505)
        coding = headers.get("transfer-encoding")
        if coding is not None and "content-length" in headers:
            raise httptools.HttpParserError("both transfer-encoding and content-length")
        if coding is not None and (coding.strip().lower() != "chunked" or "transfer-encoding" in self._repeated):
            self._refuse(501)
        if self._ignores_input:
            return
        path, query = read_target(self._url)
        if self._url[:1] != b"/" and not names_host(self._url, headers.get("host", "")):
            raise httptools.HttpParserError("the target and Host name two servers")
        method = self._parser.get_method().decode("ascii")
        http = HttpRequest(method, path, query, headers, self._repeated, self._client, self._port)
        exchange = self._incoming = ClientExchange(self, http, self.app.gateway.now.settings.max_body_bytes)
        http.read, http.direct = exchange.read, exchange
        exchange.chunked = version != "1.0"
        exchange.keep = exchange.chunked and self._parser.should_keep_alive()
        self._queue.append(exchange)

    def on_body(self, data: bytes) -> None:
        if self._incoming is not None and not self._ignores_input:
            self._incoming.feed(data)

    def on_message_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.done = True
            self._incoming.wake()
            self._incoming = None

    # ---- answers, one after the other

    def _answer_next(self) -> None:
        if self._running is None and self._queue:
            self._served, self._deadline = True, _BUSY
            exchange = self._running = self._queue.popleft()
            gateway = self.app.gateway
            gateway.metrics.running += 1
            way = begin(gateway, self, exchange, self.app.new_id)
            if way is not None and way.waits:  # fast path: plain way
                self._way = way
            else:
                self._start(self._serve(exchange, way))
        if len(self._queue) > MOST_AHEAD:
            self.pause_reading()  # a client that pipelines has to wait

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._task = asyncio.Task(work, loop=self.loop, name="request")  # without a name asyncio makes one up
        self._open.tasks.add(task)  # `_end` takes it out

    def take_over(self, exchange: ClientExchange) -> None:
        way, self._way = self._way, None
        self._start(self._serve(exchange, way))

    def end_plain(self, exchange: ClientExchange, response: HttpResponse) -> None:
        self._way = None
        try:
            self._begin_answer(exchange, response)
        except Exception as error:
            self._give_up(exchange, error)
        finally:
            self._release(exchange)

    def end_written(self, exchange: ClientExchange, head: bytes, body: bytes) -> None:
        """The same as `end_plain` with a head that only lacks its last fields."""
        self._way = None
        try:
            exchange.keep = exchange.keep and exchange.done and not self._leaving
            last = b"" if exchange.keep else b"connection: close\r\n"
            exchange.begun = True
            self.transport.write(b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), last, body))
        except Exception as error:
            self._give_up(exchange, error)
        finally:
            self._release(exchange)

    async def _serve(self, exchange: ClientExchange, way: Way | None = None) -> None:
        """`way`: the part of the plain way that the request has gone already."""
        try:
            response = await self.app.handle(exchange.http, way)
            try:
                await self._answer(exchange, response)
            finally:
                if response.close is not None:
                    response.close()
        except asyncio.CancelledError:
            if not self._lost:
                raise
        except Exception as error:
            self._give_up(exchange, error)
        finally:
            self._release(exchange)

    def _release(self, exchange: ClientExchange) -> None:
        """Gives back what a request uses, and goes on with the next one."""
        http = exchange.http
        self.app.gateway.metrics.running -= 1
        if http.scope is not None:
            http.scope.finish()
            http.scope = None  # breaks a reference cycle
        http.read, http.direct = nothing_more, None  # breaks others
        self._end(exchange)

    async def _answer(self, exchange: ClientExchange, response: HttpResponse) -> None:
        self._begin_answer(exchange, response)
        if response.stream is None or exchange.http.method == "HEAD":
            return
        await response.stream(exchange.write)
        if exchange.chunked:
            self.transport.write(b"0\r\n\r\n")

    def _begin_answer(self, exchange: ClientExchange, response: HttpResponse) -> None:
        """Writes the head, and the body if it is whole."""
        fields, stream = response.headers, response.stream
        if stream is None:
            fields["content-length"] = str(len(response.body))
        elif exchange.chunked:
            fields["transfer-encoding"] = "chunked"
        # the rest of an unwanted body is not read (F37)
        exchange.keep = exchange.keep and exchange.done and not self._leaving and fields.get("connection") != "close"
        if not exchange.keep:
            fields["connection"] = "close"
        head = write_head(_STATUS.get(response.status) or f"HTTP/1.1 {response.status} ", fields)
        exchange.begun = True
        self.transport.write(head if exchange.http.method == "HEAD" else head + response.body)

    def _give_up(self, exchange: ClientExchange, error: Exception) -> None:
        """Cuts the connection if an answer cannot be written to its end, so that no client takes it for complete."""
        log.warning(own_error("answer_failed", exchange.http.id, error))
        if exchange.begun:
            self.transport.abort()
        else:
            self._write_refusal(500)
            exchange.keep = False

    def _end(self, exchange: ClientExchange) -> None:
        if self._task is not None:
            self._open.tasks.discard(self._task)
        self._task = self._running = None
        if self._lost or self.transport.is_closing():
            return
        if not exchange.keep:
            self._close(still_sending=not exchange.done)
            return
        if self._refusal and not self._queue:
            self._write_refusal(self._refusal)
            self._close(still_sending=True)
            return
        self._answer_next()
        if not self._queue and not self._ignores_input:
            self.resume_reading()
        self._find_deadline()

    def _refuse(self, status: int) -> None:
        """What arrives is no valid request. Those before it are answered first, and then this one without the app."""
        if self._ignores_input or self.transport.is_closing():
            return
        self._ignores_input = True
        if self._incoming is not None:
            self._incoming.fail(status, _WORDS[status])  # the app answers it
        elif self._running is not None or self._queue:
            self._refusal = status
        else:
            self._write_refusal(status)
            self._close(still_sending=status != 503)  # with too many connections, none may stay for longer

    def _write_refusal(self, status: int) -> None:
        words = f'{{"error": {{"message": "{_WORDS[status]}", "type": "invalid_request_error"}}}}'
        fields = {"content-type": "application/json", "content-length": str(len(words)), "connection": "close"}
        fields["x-request-id"] = self.app.new_id()
        if status == 503:
            fields["retry-after"] = "1"
        self.transport.write(write_head(_STATUS[status], fields) + words.encode())

    def _close(self, *, still_sending: bool) -> None:
        """Closes. A client that is still sending is read for a while: to close on unread bytes would reset the
        connection, and the client would never read its answer."""
        self._ignores_input = True
        self._queue.clear()
        if not still_sending or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.resume_reading()
        self._wait_at_most(UNWANTED_S)

    def _discard(self, size: int) -> None:
        self._unwanted += size
        if self._unwanted > UNWANTED_BYTES:
            self.transport.abort()

    # ---- deadlines: one timer for all. It is moved only when it fires, so most requests never touch it

    def _find_deadline(self) -> None:
        """Finds out what the connection waits for now, and until when."""
        if self._running is not None and self._running is not self._incoming:
            self._deadline = _BUSY  # what comes after this request has time until it is answered
        elif self._incoming is not None:
            size = self._incoming.length / 1024 / 1024
            self._wait_at_most(self._limits.body_s + size * self._limits.body_s_per_mib)
        elif self._in_head:
            self._wait_at_most(self._limits.head_s)
        else:
            self._wait_at_most(LINGER_S if self._leaving else self._limits.keep_alive_s)

    def _wait_at_most(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._timer is None or self._deadline < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self.loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self.loop.time() < self._deadline - 0.001:
            if self._deadline != _BUSY:
                self._set_timer()
        elif self._ignores_input or (self._served and not self._in_head and self._incoming is None):
            self.transport.close()  # its time is over, or it is idle
        else:
            self._refuse(408)


def count_unsent(transport: Any) -> int:
    """Bytes that the client has not taken yet, with those in the kernel where it tells them: it may hold megabytes, and
    takes more only in large steps."""
    unsent: int = transport.get_write_buffer_size()
    try:
        from fcntl import ioctl
        from termios import TIOCOUTQ  # SIOCOUTQ of tcp(7) has the same number

        number = transport.get_extra_info("socket").fileno()
        return unsent + int.from_bytes(ioctl(number, TIOCOUTQ, bytes(4)), sys.byteorder)
    except (ImportError, OSError, AttributeError):  # not on Windows
        return unsent


@lru_cache(1)
def most_connections() -> int:
    """Leaves file descriptors for upstreams: a client connection needs one, its upstream another (F53)."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 1000
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files * 2 // 5, 16) if files != resource.RLIM_INFINITY else 100_000


def names_host(url: bytes, host: str) -> bool:
    """Whether an absolute target names the same server as Host. A proxy in front may judge one, and we the other."""
    return url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].lower() == host.encode("latin-1").lower()


def read_target(url: bytes) -> tuple[str, str]:
    """Path and query of a request line; httptools parses the unusual ones."""
    raw, _, query = url.partition(b"?")
    if url[:1] != b"/" or b"#" in url:
        parsed = httptools.parse_url(url)
        raw, query = parsed.path, parsed.query or b""
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, query.decode("latin-1")
