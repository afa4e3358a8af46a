"""Sends the request of a scenario over the network, or takes the answer from a recording. Answers are read whole."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.network import find_network
from dragoman.upstream.http.request import build_headers, join_url
from dragoman.upstream.keys import Key, Secret, origin_of
from dragoman.upstream.spec import Timeouts
from dragoman.upstream.transport import Transport

WRONG_KEY = "sk-dragoman-verify-no-such-key"
KEPT_HEADERS = ("content-type", "retry-after", "x-dragoman-notes", "x-dragoman-upstream")


class WireRequestToSend(Struct, frozen=True, kw_only=True):
    """One HTTP request of a scenario."""

    place: str  # its name in a recording: scenario, mode, and the number of requests before it
    path: str
    body: bytes = b""
    method: str = "POST"
    headers: dict[str, str] = {}
    wrong_key: bool = False
    hang_up: Callable[[bytes], bool] | None = None  # called with each piece of the body; True: hang up


class WireExchange(Struct, kw_only=True):
    """A request and its response, without any key."""

    method: str
    path: str
    request: bytes = b""
    status: int = 0
    headers: dict[str, str] = {}
    reply: bytes = b""
    failure: Failure | None = None  # set if there was no answer, or if it broke off
    seconds: float = 0.0
    left: bool = False  # we hung up
    remark: str = ""  # a remark for the report


class WireLine(Protocol):
    offline: bool

    async def send(self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float) -> WireExchange: ...

    async def close(self) -> None: ...


class LiveSender:
    """Sends over the network, with the transport of the gateway."""

    offline = False

    def __init__(self) -> None:
        self._transport = Transport()

    async def send(self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float) -> WireExchange:
        exchange = WireExchange(method=ask.method, path=ask.path, request=ask.body)
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await self._read(target, ask, timeout_s, exchange)
        except UpstreamError as error:
            exchange.failure = error.failure
        except TimeoutError:
            words = f"no whole answer in {timeout_s:g} s"
            exchange.failure = Failure(kind="timed_out", code="verify_timeout", message=words)
        exchange.seconds = time.monotonic() - started
        if target.key is not None:
            exchange.reply = target.key.redact(exchange.reply)
        return exchange

    async def _read(
        self, target: VerifyTarget, ask: WireRequestToSend, timeout_s: float, exchange: WireExchange
    ) -> None:
        url = join_url(target.base_url, ask.path)
        origin = origin_of(url)
        secret = Secret(WRONG_KEY, origin) if ask.wrong_key else target.key
        headers = build_headers(ask.headers, target.headers, target.auth, Key(0, secret), origin)
        longer_s = timeout_s + 1.0  # our own timer fires first, with a better message
        limits = Timeouts(connect_s=min(5.0, longer_s), idle_s=longer_s)
        opened = await self._transport.open(
            url,
            headers,
            ask.body,
            timeouts=limits,
            head_s=longer_s,
            on_sent=lambda: None,
            method=ask.method,
            network=find_network(url, os.environ),
        )
        exchange.status = opened.status
        exchange.headers = {name: opened.headers[name] for name in KEPT_HEADERS if name in opened.headers}
        pieces: list[bytes] = []
        whole = False
        try:
            while piece := await opened.next():
                pieces.append(piece)
                if ask.hang_up is not None and ask.hang_up(piece):
                    exchange.left = True
                    return
            whole = True
        finally:
            exchange.reply = b"".join(pieces)
            opened.close(whole=whole)

    async def close(self) -> None:
        await self._transport.close()
