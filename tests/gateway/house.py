"""A gateway on a real port in a thread of its own, in front of scripted upstreams on loopback."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.process.certificate import open_certificate
from dragoman.gateway.process.server import Server, bind
from dragoman.gateway.process.startup import is_public
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.telemetry.log import Log
from dragoman.upstream.discovery import demo_upstream
from dragoman.upstream.keys import Secret, origin_of
from dragoman.upstream.spec import Timeouts, Upstream
from tests.waiting import NEVER_S, until, wait_until

CANARY = "sk-canary-7f3a91c2d4e5f6"
PATIENT = Timeouts(connect_s=100.0, headers_s=100.0, idle_s=100.0)  # the machine may be busy: no answer is late
QUICK = Timeouts(connect_s=100.0, headers_s=0.2, first_s=0.2, idle_s=0.2)  # for an upstream that is silent on purpose


class Loop:
    """An event loop in a thread, for tests that talk to it from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[Any]) -> Any:
        async def wrap() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(wrap(), self.loop).result(NEVER_S)

    def end(self, server: asyncio.Server) -> None:
        """Closes it in its own loop: a connection that ends at the same moment would be a race."""

        async def close() -> None:
            server.close()

        self.run(close())

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(NEVER_S)
        self.loop.close()


@dataclass
class House:
    gateway: Gateway
    server: Server
    url: str
    loop: Loop

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class FirstWords:
    """A piece of `stream`: the rest follows when the gateway has begun to answer its client. What breaks then breaks
    after the first byte, also on a busy machine, where both would arrive together."""

    def __init__(self) -> None:
        self._house: House | None = None
        self._before = 0

    def watch(self, house: House) -> None:
        """Before a request is sent."""
        self._house, self._before = house, self._count(house)

    def __call__(self) -> bool:
        return self._house is not None and self._count(self._house) > self._before

    def _count(self, house: House) -> int:
        return sum(state.sent for state in house.gateway.now.upstream_states.values())


def upstream(name: str, dialect: str, base_url: str, **more: Any) -> Upstream:
    keys = more.pop("keys", (CANARY,))
    return Upstream(
        name=name,
        dialect=dialect,
        base_url=base_url,
        kind=more.pop("kind", KINDS[dialect]),
        auth=more.pop("auth", AUTHS[dialect]),
        models=more.pop("models", (f"{name}-model",)),
        keys=tuple(Secret(key, origin_of(base_url)) for key in keys),
        timeouts=more.pop("timeouts", PATIENT),
        **more,
    )


KINDS = {
    "anthropic": "anthropic",
    "openai_chat": "compatible",
    "openai_responses": "openai",
    "gemini": "gemini",
    "ollama": "ollama",
}
AUTHS: dict[str, Any] = {
    "anthropic": "x-api-key",
    "openai_chat": "bearer",
    "openai_responses": "bearer",
    "gemini": "x-goog-api-key",
    "ollama": "bearer",
}


@contextmanager
def open_house(*upstreams: Upstream, keys: KeyStore | None = None, **settings: Any) -> Iterator[House]:
    """A running gateway; without upstreams it has the demo model."""
    loop = Loop()
    config = Settings(upstreams=upstreams or (demo_upstream(),), port=0, **settings)
    known, wrong = ClientKeys(keys, config.client_keys), config.limits.wrong_keys
    access = Access(known, config.hosts, config.origins, wrong, public=is_public(config.host))
    listener = bind("127.0.0.1", 0)

    async def start() -> tuple[Gateway, Server]:
        gateway = Gateway(config, access, log=Log("json", verbose=True))
        server = Server(gateway, App(gateway), certificate=open_certificate(config))
        return gateway, server

    gateway, server = loop.run(start())
    serving = asyncio.run_coroutine_threadsafe(server.serve([listener]), loop.loop)
    try:
        wait_until(lambda: serving.exception(0) if serving.done() else server.started, "the gateway's start")
        yield House(gateway, server, f"http://127.0.0.1:{listener.getsockname()[1]}", loop)
    finally:
        server.end(at_once=True)
        serving.result(NEVER_S)
        loop.run(hang_up(server))
        loop.run(gateway.close())
        loop.stop()
        listener.close()


def set_deadline(gateway: Gateway, seconds: float) -> None:
    """From now on. What must succeed is asked before, with time enough for a busy machine."""
    gateway.now.settings = replace(gateway.now.settings, deadline_s=seconds)


async def hang_up(server: Server) -> None:
    """Closes the idle connections that a browser keeps."""
    for connection in list(server.open.connections):
        if (transport := getattr(connection, "transport", None)) is not None:
            transport.abort()
    await asyncio.sleep(0)


# ---------------------------------------------------------------- a byte-exact upstream


@dataclass
class Seen:
    """One request an upstream got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    left: threading.Event = field(default_factory=threading.Event)  # the gateway hung up
    at: float = field(default_factory=time.monotonic)


Script = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


class Faultline:
    """An upstream that plays a script for each request, byte for byte; the last one is repeated."""

    def __init__(self, *scripts: Script, keep_alive: bool = False) -> None:
        self.scripts = list(scripts)
        self.seen: list[Seen] = []
        self.keep_alive = keep_alive
        self._loop = Loop()
        self._server = self._loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *rest = head.decode("latin-1").split("\r\n")
                method, path, _ = line.split(" ")
                headers = {k.lower(): v for k, v in (r.split(": ", 1) for r in rest if r)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                seen = Seen(method, path, headers, body)
                script = self.scripts[min(len(self.seen), len(self.scripts) - 1)]
                self.seen.append(seen)
                watcher = asyncio.ensure_future(self._watch(reader, seen)) if not self.keep_alive else None
                try:
                    await script(seen, writer)
                    await writer.drain()
                except ConnectionError:
                    seen.left.set()
                    raise
                finally:
                    if watcher is not None:
                        watcher.cancel()
                if not self.keep_alive:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader, seen: Seen) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        seen.left.set()

    def close(self) -> None:
        self._loop.end(self._server)

        async def end() -> None:
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._loop.run(end())
        self._loop.stop()


@contextmanager
def faultline(*scripts: Script, keep_alive: bool = False) -> Iterator[Faultline]:
    line = Faultline(*scripts, keep_alive=keep_alive)
    try:
        yield line
    finally:
        line.close()


def say(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Script:
    """A whole answer."""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        writer.write(head.encode() + body)

    return script


def stream(
    *pieces: bytes | float | threading.Event | FirstWords, kind: str = "text/event-stream", end: str = "close"
) -> Script:
    """A streamed answer: bytes are sent, numbers are seconds to wait, an event or the answer's begin is waited for; it
    may end in a reset."""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode())
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            elif isinstance(piece, threading.Event):
                await until(piece.is_set)
            elif isinstance(piece, FirstWords):
                await until(piece)
            else:
                await asyncio.sleep(piece)
        if end == "reset":
            reset(writer)

    return script


def reset(writer: asyncio.StreamWriter) -> None:
    handle: socket.socket = writer.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def state(folder: Path) -> dict[str, str]:
    return {"DRAGOMAN_HOME": str(folder), "DRAGOMAN_NO_PROBE": "1"}
