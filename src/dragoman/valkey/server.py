"""ValkeyServer: sends script calls to Valkey or Redis and receives its messages.

All calls of one turn of the event loop travel together. When the server does not answer in time, every call fails at
once with AwayError until `reach` succeeds again: a request never waits twice for a server that is away.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from dragoman.errors import ConfigError

log = logging.getLogger(__name__)
ANSWER_S = 0.25  # a server in reach answers within a few milliseconds
LINGER_S = 0.005  # a call that no request waits for is held back this long, to be sent with others
SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis": "redis", "rediss": "rediss", "unix": "unix"}

ScriptReply = Any  # what a script returns: numbers, bytes and lists of them
_Call = tuple[Sequence[str], Sequence[str | int], "asyncio.Future[ScriptReply] | None"]


class AwayError(Exception):
    """The server cannot be asked now."""


def client_url(url: str) -> str:
    """The URL as the client library knows it; a ConfigError if it is none of ours."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in SCHEMES:
        raise ConfigError("state", "", f"expected {', '.join(SCHEMES)}://..., found {scheme[:20]!r}")
    return f"{SCHEMES[scheme]}://{rest}"


class ValkeyServer:
    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        self._url, self._answer_s = client_url(url), answer_s
        self.away = "not asked yet"  # why it cannot be asked; "" if it can
        self.on_away: Callable[[], None] = lambda: None
        self.round_trips = 0
        self._script = files("dragoman.valkey").joinpath("limits.lua").read_text("utf-8")
        self._sha = ""
        self._client: Redis | None = None
        self._line: Any = None  # the one connection that all calls use
        self._packed: dict[tuple[str, ...], tuple[int, bytes]] = {}  # the first bytes of a call, by its keys
        self._pending: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    def _open(self) -> Redis:
        if self._client is None:
            self._client = Redis.from_url(
                self._url,
                socket_timeout=None,  # `_send` has a timeout of its own
                socket_connect_timeout=self._answer_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        return self._client

    async def reach(self) -> None:
        """Connects and loads the script. Raises AwayError if the server is still away."""
        try:
            async with asyncio.timeout(2 * self._answer_s):
                self._sha = await self._open().script_load(self._script)
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(error)
            raise AwayError(self.away) from error
        self.away = ""

    def call(self, keys: Sequence[str], args: Sequence[str | int]) -> "asyncio.Future[ScriptReply]":
        """Runs the script; the future has its result, or an AwayError."""
        future: asyncio.Future[ScriptReply] = asyncio.get_running_loop().create_future()
        if self.away:
            future.set_exception(AwayError(self.away))
            return future
        self._pending.append((keys, args, future))
        self._start()
        return future

    def call_later(self, keys: Sequence[str], args: Sequence[str | int]) -> None:
        """Runs the script soon and ignores its result. If the server goes away, the script is not run."""
        if self.away:
            return
        self._pending.append((keys, args, None))
        if self._sending is None and self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._start)

    def _start(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._sending is None and self._pending:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._pending:
                await self._send()
        finally:
            self._sending = None

    async def _send(self) -> None:
        batch, self._pending = self._pending, []
        try:
            replies = await self._run(batch)
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(error)
            for _, _, future in batch:
                _fail(future, self.away)
            return
        for (_, _, future), reply in zip(batch, replies, strict=True):
            if future is None or future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(AwayError(f"{type(reply).__name__}: {reply}"))
            else:
                future.set_result(reply)

    async def _run(self, batch: Sequence[_Call]) -> list[ScriptReply]:
        replies = await self._run_once(batch)
        if any(isinstance(reply, NoScriptError) for reply in replies):  # after a restart: no call was run
            self._sha = await self._open().script_load(self._script)
            replies = await self._run_once(batch)
        return replies

    async def _run_once(self, batch: Sequence[_Call]) -> list[ScriptReply]:
        """All calls in one write, on a connection of their own. Written by hand: the client's packing takes most of the
        time of a call."""
        self.round_trips += 1
        sent = b"".join([self._pack(keys, args) for keys, args, _ in batch])
        async with asyncio.timeout(self._answer_s):
            if self._line is None:
                self._line = await self._open().connection_pool.get_connection()  # type: ignore[no-untyped-call]
            line = self._line
            try:
                await line.send_packed_command(sent, check_health=False)
                return [await _read(line) for _ in batch]
            except BaseException:  # the next bytes on this connection would answer another call
                self._line = None
                await line.disconnect(nowait=True)
                await self._open().connection_pool.release(line)
                raise

    def _pack(self, keys: Sequence[str], args: Sequence[str | int]) -> bytes:
        """One call in Valkey's own form: https://valkey.io/topics/protocol/ (read 2026-11-18)."""
        at = (self._sha, *keys)
        known = self._packed.get(at)
        if known is None:
            words = [b"EVALSHA", self._sha.encode(), str(len(keys)).encode(), *[key.encode() for key in keys]]
            known = self._packed[at] = (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))
        encoded = [str(arg).encode() for arg in args]
        rest = b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])
        return b"*%d\r\n%b%b" % (known[0] + len(encoded), known[1], rest)

    def _lose(self, error: BaseException) -> None:
        was, self.away = self.away, str(error) or type(error).__name__
        for _, _, future in self._pending:
            _fail(future, self.away)
        self._pending.clear()
        if not was:
            self.on_away()

    async def listen(self, channels: Sequence[str], hear: Callable[[str, bytes], None]) -> None:
        """Receives messages until the connection breaks."""
        async with Redis.from_url(self._url, socket_timeout=None, retry=Retry(NoBackoff(), 0), protocol=2) as client:
            pubsub = client.pubsub(ignore_subscribe_messages=True)
            try:
                await pubsub.subscribe(*channels)
                async for message in pubsub.listen():
                    hear(message["channel"].decode(), message["data"])
            except (RedisError, OSError):
                return  # a later `listen` connects again; until then, waiting requests look from time to time
            finally:
                with suppress(RedisError, OSError):
                    await _close(pubsub)

    async def close(self) -> None:
        if self._sending is not None:
            with suppress(Exception):
                await self._sending
        if self._client is not None:
            with suppress(RedisError, OSError):
                if self._line is not None:
                    await self._client.connection_pool.release(self._line)
                await self._client.aclose()


async def _read(line: Any) -> ScriptReply:
    """Reads one answer. An error in it belongs to one call, and the connection stays usable."""
    try:
        return await line.read_response(disconnect_on_error=False)
    except ResponseError as error:
        return error


def _fail(future: "asyncio.Future[ScriptReply] | None", why: str) -> None:
    if future is not None and not future.done():
        future.set_exception(AwayError(why))


async def _close(pubsub: Any) -> None:
    await pubsub.aclose()
