"""HttpConnection: an HTTP/1.1 connection to an upstream, on httptools' parser. Pool: those that are idle.

A general HTTP client costs more than all the rest of a relayed request (measured: about 110 of 150 us). This does only
what a gateway needs (RFC 9112). It is as lenient as aiohttp's parser.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import httptools

MAX_HEAD_BYTES = 64 * 1024
FRAMING = 16  # bytes around each byte of a chunked body; a body in chunks of one byte has five
# The first frame of an HTTP/2 server, after its length: SETTINGS, or GOAWAY to a client that does not speak it.
HTTP2 = (b"\x04\x00\x00\x00\x00\x00", b"\x07\x00\x00\x00\x00\x00")
POOL_IDLE_S = 20.0  # most servers keep idle connections longer than this (FIELD-CASES 107)
LONG_NAME = 64  # of a header: it is not kept
FULL_BYTES = 256 * 1024  # unread bytes at which the upstream has to wait


class HungUp(ConnectionError):
    """The upstream closed before its answer was whole."""


class NotHttp(Exception):
    """The upstream's bytes are not an HTTP answer."""


class Http2Only(NotHttp):
    """The upstream speaks HTTP/2 without having been asked to."""


class HttpConnection(asyncio.Protocol):
    """One request at a time. The parser's callbacks collect the answer; `wait` returns when there is more of it."""

    __slots__ = (
        *("_bodiless", "_body_size", "_deadline", "_framed", "_keeps", "_loop", "_parser", "_patience", "_paused"),
        *("_pieces", "_timer", "_timer_at", "_transport", "_waiter", "_wire_size"),
        *("answers", "arrived", "closed", "ended", "error", "headers", "heard", "idle_since", "listener", "loop"),
        *("status", "waiting"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._deadline = self._patience = 0.0
        self._paused = False
        self.listener: Callable[[], bool] | None = None  # hears of bytes first; True: it has taken them
        self.answers = 0  # read on this connection before
        self.idle_since = 0.0
        self.closed = False
        self._reset()
        self.ended = True

    def _reset(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.heard = 0  # bytes of the head so far
        self.arrived = False  # whether the head is complete
        self.ended = False  # whether the body is complete
        self.error: Exception | None = None
        self._pieces: list[bytes] = []
        self.waiting = 0  # bytes that have arrived and were not taken
        self._wire_size = self._body_size = 0  # of the body so far, with and without what frames it
        self._framed = False  # the head says where the body ends
        self._bodiless = False
        self._keeps = False  # the server keeps the connection open

    # ---- for the transport

    def ask(self, head: bytes, body: bytes, *, bodiless: bool = False) -> None:
        """Sends a request. `bodiless`: its answer has no body, whatever its head says (HEAD)."""
        self._reset()
        self._bodiless = bodiless
        if len(body) < FULL_BYTES:
            self._transport.write(head + body)
        else:  # two writes cost less than a copy
            self._transport.write(head)
            self._transport.write(body)

    def now(self) -> float:
        """By the clock of its waits."""
        return self._loop.time()

    def wait(self, seconds: float) -> "asyncio.Future[None]":
        """Done when there is more, an end or an error; a TimeoutError after `seconds`."""
        self.extend(seconds)
        waiter = self._waiter = self._loop.create_future()
        return waiter

    def extend(self, seconds: float) -> None:
        """A wait lasts so many seconds from now on, and from each piece on that the listener takes."""
        self._patience = seconds
        self._deadline = self._loop.time() + seconds
        if self._timer is None or self._deadline < self._timer_at:
            self._set_timer()

    def stop_waiting(self) -> None:
        """From here on no listener is called."""
        self._waiter = self.listener = None

    def take(self) -> bytes:
        """The bytes that have arrived since the last call."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.waiting = 0
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()
        return data

    def end_answer(self) -> None:
        """Forgets what has arrived, and calls no listener from here on."""
        self.take()
        self.stop_waiting()

    def peek(self) -> bytes:
        """The bytes that `take` would return. They stay."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    @property
    def reusable(self) -> bool:
        return self._keeps and self.ended and not self.closed

    def close(self) -> None:
        self.closed = True
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    # ---- one timer for the connection: a wait only moves its end, and the timer is set anew when it goes off

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._deadline - 0.001:
            self._waiter.set_exception(TimeoutError())
            self._waiter = None
        else:
            self._set_timer()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self.listener is not None and self.listener():
            self._deadline = self._loop.time() + self._patience
            return
        self._waiter = None
        waiter.set_result(None)

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.ended:  # bytes without a request: the next answer could be forged (response splitting)
            self.close()
            return
        if not self.arrived:
            self.heard += len(data)
        else:
            self._wire_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Http2Only("it begins as HTTP/2 does") if data[3:9] in HTTP2 and not self.arrived else error)
        else:
            if not self.arrived and self.heard > MAX_HEAD_BYTES:
                self._fail(NotHttp("its head is too large"))
            elif self._wire_size - self._body_size > MAX_HEAD_BYTES + FRAMING * self._body_size:
                self._fail(NotHttp("its chunks and trailers are too large"))
        if self.waiting > FULL_BYTES and not self._paused and not self.closed:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def _fail(self, error: Exception) -> None:
        if not self.ended:
            self.error = error if isinstance(error, Http2Only) else NotHttp("what it wrote is not HTTP")
            self.error.__cause__ = error.with_traceback(None) if self.error is not error else None
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._parser = None  # breaks the reference cycle, so that no garbage collection is needed
        if not self.ended and self.error is None:
            if self.arrived and not self._framed and exc is None:
                self.ended = True  # a body without a length ends with its connection
            else:
                self.error = HungUp("the connection was closed")
        self._stop_timer()
        self._wake()

    # ---- called by the parser

    def on_message_begin(self) -> None:
        if self.ended:
            self._keeps = False  # two answers to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.arrived:  # trailers are ignored
            word = read_name(name) if len(name) < LONG_NAME else name.decode("latin-1").lower()
            self.headers[word] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.headers.get("transfer-encoding", "chunked").strip().lower() not in ("chunked", "identity"):
            raise httptools.HttpParserError("a transfer coding other than chunked")
        if status >= 200 and not self.ended:
            self.status, self.arrived = status, True
            self._framed = "content-length" in self.headers or "transfer-encoding" in self.headers
            self.ended = self._bodiless

    def on_body(self, data: bytes) -> None:
        if not self.ended:
            self._pieces.append(data)
            self.waiting += len(data)
            self._body_size += len(data)

    def on_message_complete(self) -> None:
        if not self.arrived:  # 100 Continue, 103 Early Hints: the answer follows
            self.headers = {}
        elif not self.ended:
            self.ended = True
            self._keeps = self._parser.should_keep_alive()


@lru_cache(1024)
def read_name(name: bytes) -> str:
    """The name of a header in small letters. A provider always sends the same twenty."""
    return name.decode("latin-1").lower()


class Pool:
    """Idle connections to one origin. The one used last is taken first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[HttpConnection] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> HttpConnection | None:
        fresh = self._loop.time() - POOL_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and connection.idle_since > fresh:
                return connection
            connection.close()
        return None

    def give_back(self, connection: HttpConnection) -> None:
        connection.answers += 1
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(POOL_IDLE_S, self._sweep)

    def _sweep(self) -> None:
        fresh = self._loop.time() - POOL_IDLE_S
        kept = [connection for connection in self._idle if not connection.closed and connection.idle_since > fresh]
        for connection in self._idle:
            if connection not in kept:
                connection.close()
        self._idle = kept
        self._timer = self._loop.call_later(POOL_IDLE_S, self._sweep) if kept else None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
