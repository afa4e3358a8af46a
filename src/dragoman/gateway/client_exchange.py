"""ClientExchange: one request as it arrives on a client's connection, and how its answer is written back."""

import asyncio
from typing import Any, Protocol

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.bodies import too_large
from dragoman.gateway.http import HttpRequest

UNREAD_BYTES = 64 * 1024  # of a body that the app has not read yet; above this the client has to wait
SMALL_BYTES = 1024  # pieces of a body that are smaller are put together as they come: each costs memory of its own
FRAMING = 16  # bytes around each byte of a chunked body; a body in chunks of one byte has five


async def nothing_more() -> bytes:
    """Stands in for the body of a finished request."""
    return b""


class Connection(Protocol):
    """What an exchange needs of its ClientConnection."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    stalled: asyncio.Future[None] | None

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ClientExchange:
    """One request as it arrives, and how its answer is written back."""

    __slots__ = (
        *("_connection", "_fault", "_pieces", "_size", "_waiter"),
        *("begun", "chunked", "done", "expects", "http", "keep", "length", "limit", "wire_size"),
    )

    def __init__(self, connection: Connection, http: HttpRequest, limit: int, body: bytes | None = None) -> None:
        """`body`: all of it has arrived with the head."""
        self._connection = connection
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._fault: Failure | None = None
        self.http = http
        self.limit = limit  # of the body
        self.wire_size = 0  # of the body so far, with what frames it
        self.keep = True  # keep the connection for the next request
        self.begun = False  # the answer has begun
        self.chunked = True
        self.done = False  # the whole body has arrived
        if body is None:
            header = http.headers.get("content-length", "")
            self.length = int(header) if header.isdigit() and len(header) < 16 else 0
            self.expects = "expect" in http.headers and http.headers["expect"].lower() == "100-continue"
        else:
            self.length, self.expects, self.done = len(body), False, True
            if len(body) <= UNREAD_BYTES and len(body) <= limit:
                self._size, self._pieces = len(body), [body]
            else:
                self.feed(body)

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.limit:
            self.wake()
        else:
            self._keep(data)
            if self._waiter is None and self._size > UNREAD_BYTES:
                self._connection.pause_reading()

    def _keep(self, data: bytes) -> None:
        last = self._pieces[-1] if self._pieces else None
        if type(last) is bytearray and len(last) < UNREAD_BYTES:
            last += data
        elif len(data) < SMALL_BYTES and last is not None:
            self._pieces.append(bytearray(data))
        else:
            self._pieces.append(data)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, status: int, words: str) -> None:
        """The body is incomplete or not as its head says: reading it raises an error."""
        self._fault = Failure(kind="invalid_request", status=status, message=words)
        self.keep = False
        self.wake()

    def is_mostly_framing(self, allowed: int) -> bool:
        """Whether chunk sizes, their extensions and trailers are out of proportion to the body."""
        return self.wire_size - self._size > allowed + FRAMING * self._size

    async def read(self) -> bytes:
        """Reads the body, once. A body over the limit is an error as soon as its size is known."""
        self.limit = self.http.cap(self.limit)
        if self.length > self.limit:
            raise UpstreamError(too_large(self.limit))
        if not self.done and self._size <= self.limit and self._fault is None:
            await self._arrive()
        self._connection.resume_reading()  # from here on we must notice when the client leaves
        if self._size > self.limit:
            raise UpstreamError(too_large(self.limit))
        if self._fault is not None:
            raise UpstreamError(self._fault)
        pieces, self._pieces = self._pieces, []
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def peek(self) -> bytes | None:
        """The body, if all of it came in one piece and within the limit. `read` will return it, too."""
        if not self.done or self._fault is not None or len(self._pieces) != 1 or self._size > self.limit:
            return None
        return bytes(self._pieces[0])

    def take(self) -> None:
        """The body was read by `peek`, and nothing else will read it."""
        self._pieces = []
        self._connection.resume_reading()  # from here on we must notice when the client leaves

    async def _arrive(self) -> None:
        connection = self._connection
        if self.expects:
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.resume_reading()
        self._waiter = connection.loop.create_future()
        await self._waiter

    async def write(self, data: bytes) -> None:
        """Writes a piece of a streamed answer. Waits while the client does not read."""
        if self._connection.stalled is not None:
            await self._connection.stalled
        self.put(data)

    def is_ready(self) -> bool:
        connection = self._connection
        return connection.stalled is None and not connection.transport.is_closing()

    def put(self, data: bytes) -> None:
        self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)
