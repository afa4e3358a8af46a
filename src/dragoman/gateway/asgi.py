"""The bare ASGI application: bytes of a server into HttpRequest, HttpResponse back into bytes.
https://asgi.readthedocs.io/en/latest/specs/www.html (read 2026-11-15)
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.errors import UpstreamError
from dragoman.gateway.app import App
from dragoman.gateway.bodies import too_large
from dragoman.gateway.http import NOBODY, HttpRequest, HttpResponse

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
CANCELS = "dragoman.cancels"  # our own server ends the task of a client that left; others do not


_NAMES = {
    name.encode(): name
    for name in ("host", "content-type", "content-length", "authorization", "user-agent", "accept", "connection")
}


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class Asgi:
    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        http = read_head(scope)
        limit = self.app.gateway.now.settings.max_body_bytes
        reader = _Body(receive, http.headers.get("content-length"), limit)
        http.read = reader.read
        metrics = self.app.gateway.metrics
        metrics.running += 1
        watcher: asyncio.Task[None] | None = None
        if CANCELS not in scope.get("state", {}):
            watcher = asyncio.ensure_future(_watch(reader, receive, asyncio.current_task()))
        try:
            response = await self.app.handle(http)
            await _answer(http, response, reader, send)
        except ClientLeft:
            pass
        except asyncio.CancelledError:
            if scope.get("state", {}).get(CANCELS) is not True and not (watcher and watcher.done()):
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            metrics.running -= 1
            if http.scope is not None:
                http.scope.finish()
                http.scope = None  # they know each other
            if watcher is not None:
                watcher.cancel()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.app.gateway.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def read_head(scope: Any) -> HttpRequest:
    headers: dict[str, str] = {}
    repeated: set[str] = set()
    for name, value in scope["headers"]:
        word = _NAMES.get(name) or name.decode("latin-1")
        if word in headers:
            repeated.add(word)
        else:
            headers[word] = value.decode("latin-1")
    client = scope.get("client")
    return HttpRequest(
        scope["method"],
        scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        repeated=frozenset(repeated) if repeated else NOBODY,
        client=client[0] if client else "",
    )


class _Body:
    """Reads a body once, up to its limit."""

    def __init__(self, receive: Receive, length: str | None, limit: int) -> None:
        self._receive = receive
        self._length = length
        self._limit = limit
        self.whole: asyncio.Event | None = None  # set when it is, for who waits for that
        self.done = False

    async def read(self) -> bytes:
        if self._length is not None and (not self._length.isdigit() or int(self._length) > self._limit):
            raise UpstreamError(too_large(self._limit))
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._limit:
                raise UpstreamError(too_large(self._limit))
            pieces.append(piece)
            if not message.get("more_body"):
                break
        self.done = True
        if self.whole is not None:
            self.whole.set()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _watch(body: _Body, receive: Receive, task: "asyncio.Task[Any] | None") -> None:
    """ASGI's `send` does not fail when a client has left: somebody has to listen (F34)."""
    if not body.done:
        body.whole = asyncio.Event()
        await body.whole.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


async def _answer(http: HttpRequest, response: HttpResponse, body: _Body, send: Send) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in response.headers.items()]
    head_only = http.method == "HEAD"
    if not body.done and http.method == "POST":
        headers.append((b"connection", b"close"))  # the rest of its body is not read (F37)
    try:
        if response.stream is None:
            headers.append((b"content-length", str(len(response.body)).encode()))
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if head_only else response.body})
            return
        await send({"type": "http.response.start", "status": response.status, "headers": headers})

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await response.stream(write)
        await send({"type": "http.response.body", "body": b""})
    finally:
        if response.close is not None:
            response.close()
