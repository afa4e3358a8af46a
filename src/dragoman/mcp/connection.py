"""One server, kept alive: connected when it is first asked, listed again when its list changes, connected anew with
growing pauses when it fails (F60-F65). The mcp package wants its contexts entered and left by one task; that task is
here, and everybody else only calls.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.auth import OAuthTokenError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.log_line import LogLine
from dragoman.mcp import orphans
from dragoman.mcp.approvals import Approvals, Change
from dragoman.mcp.content import make_result
from dragoman.mcp.http_client import make_client, make_guard
from dragoman.mcp.oauth import Hear, Show, make_auth
from dragoman.mcp.resources import TOOLS, has_link, list_all, offer_tools, run_tool
from dragoman.mcp.spec import ServerSpec
from dragoman.mcp.stdio import Child, open_stdio, start
from dragoman.mcp.tool_listing import ListedTool, read_listed_tool
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.tools.results import make_failed_result

Health: TypeAlias = Literal["unasked", "connecting", "up", "down", "off", "disabled"]
MOST_TOOLS, MOST_PAGES = 512, 100
MAX_EVENT = 4 * 1024 * 1024
REST_S, MOST_REST_S = 1.0, 60.0  # between one failure and the next try
MOST_STARTS, STARTS_WITHIN_S = 5, 600.0
MOST_HUNG = 3
STALE_S = 60.0  # a list nobody promised to tell changes of is asked for again after this
LIST_S = 10.0
CHILDREN = ".children"  # no server can be called so
MOMENT_S = 0.5  # for what missed its deadline to say so
TOO_LATE = "it did not answer in time"
NOT_APPROVED = "it is not what it was when its server was. See `dragoman mcp tools --changed`"
SESSION_GONE = (-32600, "session terminated")
_CLOSED = ((-32000, "connection closed"), SESSION_GONE)  # the words count too: servers use the codes for more

log = logging.getLogger(__name__)
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False  # what it has to say comes back as errors, and is told once

Report: TypeAlias = Callable[[str, JsonObject], None]


def _log_event(event: str, fields: JsonObject) -> None:
    log.warning(LogLine(event, fields))


class ServerConnection:
    def __init__(
        self,
        spec: ServerSpec,
        pins: Approvals,
        home: Path,
        env: Mapping[str, str],
        report: Report | None = None,
        *,
        private: bool = True,
        person: tuple[Show, Hear] | None = None,
    ) -> None:
        """`home` is where its program lives, beside those of the others; `private`: it may be on this machine or its
        network; `person`: somebody who can log in."""
        self.spec = spec
        self.private = private
        self.offers: dict[str, ListedTool] = {}  # all it says it has
        self.tools: tuple[ListedTool, ...] = ()
        self.withheld: frozenset[str] = frozenset()
        self.changes: tuple[Change, ...] = ()
        self.last_error = spec.problem
        self.protocol = ""
        self.transport = spec.transport
        self._pins, self._home, self._env, self._person = pins, home, env, person
        self._judged = -1  # the version of the pins
        self._report: Report = report or _log_event
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._up: asyncio.Event = asyncio.Event()
        self._stop: asyncio.Event = asyncio.Event()
        self._child: Child | None = None
        self._listed = 0.0
        self._dirty = False
        self._ours: dict[str, ListedTool] = {}  # tools of ours about its resources
        self._linked = False  # it has sent a link to one
        self._watched = False  # the server tells us when its list changes
        self._relisting: asyncio.Lock = asyncio.Lock()
        self._failures = 0
        self._hung = 0  # calls in a row that took too long
        self._status = 0  # the last a server over HTTP answered
        self._not_before = 0.0
        self._starts: deque[float] = deque(maxlen=MOST_STARTS + 1)

    # ---- for others

    @property
    def health(self) -> Health:
        if self.spec.disabled:
            return "disabled"
        if self._client is not None:
            return "up"
        if self._is_off():
            return "off"
        if self._task is not None and not self._task.done():
            return "connecting"
        return "down" if self.last_error else "unasked"

    async def list_tools(self, wait_s: float | None = None) -> tuple[ListedTool, ...]:
        """What may be offered now. A server that failed before is not waited for: it appears when it is there."""
        if self._client is None:
            begun = self._begin()
            if begun and self._failures == 0:
                await self._settled(self.spec.connect_s + MOMENT_S if wait_s is None else wait_s)
        elif self._dirty or (not self._watched and time.monotonic() - self._listed > STALE_S):
            await self._relist()
        if self._client is not None and self._pins.refresh() != self._judged:
            self._judge()  # somebody has approved something
        return self.tools if self._client is not None else ()

    async def list_all(self, what: str) -> list[Any]:
        """Its resources, templates or prompts; nothing of a server that has none or does not run."""
        await self.list_tools()
        return [] if self._client is None else await list_all(self._client, what)

    @property
    def client(self) -> Client | None:
        """While it is up."""
        return self._client

    async def call(self, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
        """The result, or why there is none as a failed result; never longer than the server's timeout and a moment."""
        if self._client is None:
            if not self._begin():
                return make_failed_result(
                    call, f"{self.spec.name} does not run: {self.last_error or 'it is switched off'}"
                )
            await self._settled(self.spec.connect_s + MOMENT_S)
        if tool in self.withheld:
            return make_failed_result(call, f"{tool} is not approved: {NOT_APPROVED}")
        if self._client is None:
            return make_failed_result(call, f"{self.spec.name} does not run: {self.last_error or 'it does not answer'}")
        child = self._child
        try:
            return await self._call(call, tool, arguments)
        except MCPError as error:
            if _identify(error) == SESSION_GONE and await self._again():  # nothing was run (F65)
                with suppress(MCPError):
                    return await self._call(call, tool, arguments)
            return make_failed_result(call, await self._explain(error, child))
        except (DragomanError, httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:
            return make_failed_result(call, f"{tool}: {str(error)[:500] or type(error).__name__}")

    async def close(self) -> None:
        """Returns when nothing of it is left."""
        self._stop.set()
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait([task], timeout=4.0)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=2.0)

    def approve(self) -> None:
        """The texts as they are now are the approved ones; failures are forgotten."""
        if self.offers:
            self._pins.approve(self.spec, self.offers)
        else:
            self._pins.forget(self.spec)
        self._failures, self._not_before = 0, 0.0
        self._starts.clear()
        self._dirty = True

    # ---- calls

    async def _call(self, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
        client, seconds = self._client, self.spec.timeout_s
        if client is None:
            return make_failed_result(call, f"{self.spec.name} does not run: {self.last_error}")
        try:
            async with asyncio.timeout(seconds + 1.0):
                if tool in TOOLS and tool not in self.offers:
                    return await run_tool(client, call, tool, arguments)
                answer = await client.call_tool(tool, arguments, read_timeout_seconds=seconds)
        except TimeoutError:
            return make_failed_result(call, self._too_long())
        self._hung = 0
        if not self._linked and has_link(answer):
            self._linked = self._dirty = True
        return make_result(call, answer)

    async def _explain(self, error: MCPError, child: Child | None) -> str:
        code, words = error.error.code, error.error.message
        if code == -32001:
            return self._too_long()
        if _identify(error) in _CLOSED:
            self._stop.set()
            if child is not None:
                await child.gone(MOMENT_S)  # its last words come a moment later than the end of its output
                words = child.tell()
            return f"{self.spec.name} ended in the middle of the call: {words}"
        return f"{words[:1000]} ({code})"

    def _too_long(self) -> str:
        """One call that hangs is a call; several in a row are a server that does (F61)."""
        self._hung += 1
        if self._hung >= MOST_HUNG:
            self._hung = 0
            self._stop.set()
        return f"{self.spec.name} took longer than {self.spec.timeout_s:g} s"

    async def _again(self) -> bool:
        await self.close()
        self._begin()
        await self._settled(self.spec.connect_s)
        return self._client is not None

    # ---- living

    def _is_off(self) -> bool:
        now = time.monotonic()
        return len([t for t in self._starts if now - t < STARTS_WITHIN_S]) > MOST_STARTS and self._client is None

    def _begin(self) -> bool:
        """Whether it lives or is on its way."""
        if self._task is not None and not self._task.done():
            return True
        if self.spec.problem or self.spec.disabled or self._is_off() or time.monotonic() < self._not_before:
            return False
        self._starts.append(time.monotonic())
        self._status = 0
        self._up, self._stop = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._live(), name=f"mcp {self.spec.name}")
        return True

    async def _settled(self, seconds: float) -> None:
        """Up, or failed, or not soon enough."""
        task = self._task
        if task is None:
            return
        up = asyncio.ensure_future(self._up.wait())
        try:
            await asyncio.wait([up, task], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()

    async def _live(self) -> None:
        try:
            await self._connect()
            self._failed("the connection ended") if not self._stop.is_set() else None
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # groups of groups come out of the package
            self._failed(self._plainly(error))
        finally:
            self._client, self._child = None, None
            self._watched = False

    def _plainly(self, error: BaseException) -> str:
        """The package hides what a server answered; a status says more than its words."""
        refused = self._status >= 400 and not any(
            isinstance(one, DragomanError | TimeoutError) for one in _leaves(error)
        )
        words = f"it answered {self._status}" if refused else say(error)
        if refused and self._status == 401:
            return f"{words}: give it a key, or log in: dragoman mcp login {self.spec.name}"
        return words

    def _failed(self, words: str) -> None:
        child = self._child
        by_itself = child is not None and child.ended.is_set() and words != TOO_LATE
        self.last_error = child.tell() if child is not None and (child.why or by_itself) else words
        self._failures += 1
        self._not_before = time.monotonic() + min(REST_S * 2 ** (self._failures - 1), MOST_REST_S)
        self._report("mcp_server_down", {"server": self.spec.name, "why": self.last_error})

    async def _connect(self) -> None:
        if self.spec.transport == "stdio":
            children = self._home.parent / CHILDREN
            child = self._child = await start(self.spec, self._home, self._env, children)
            try:
                await self._use(open_stdio(child), "stdio")
            finally:
                orphans.drop(children, child.process.pid)
            return
        url = self.spec.url or ""
        if self.spec.transport == "sse" or (self.spec.transport == "auto" and url.rstrip("/").endswith("/sse")):
            await self._use(self._open_sse(url), "sse")
            return
        try:
            await self._use(self._open_http(url), "http")
        except BaseException as error:
            # "old servers": a refused POST means HTTP+SSE (specification, backwards compatibility)
            if self.spec.transport != "auto" or self._up.is_set() or not _is_refusal(error):
                raise
            await self._use(self._open_sse(url), "sse")

    async def _use(self, transport: Any, kind: Literal["http", "sse", "stdio"]) -> None:
        """Everything from the handshake to the end."""
        client = Client(
            transport,
            read_timeout_seconds=max(self.spec.timeout_s, LIST_S),
            message_handler=self._hear,
            client_info=mcp_types.Implementation(name="dragoman", version="1"),
            cache=None,
        )
        async with asyncio.timeout(self.spec.connect_s) as deadline:
            async with client:
                await self._take_list(client)
                deadline.reschedule(None)
                self.transport, self.protocol = kind, client.protocol_version
                self._client, self.last_error = client, ""
                self._up.set()
                try:
                    await self._stay(client)
                finally:
                    self._client = None

    async def _stay(self, client: Client) -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if self._child is not None:
            waits.append(asyncio.ensure_future(self._child.ended.wait()))
        if client.protocol_version >= "2026":
            waits.append(asyncio.ensure_future(self._listen(client)))
        try:
            begun = time.monotonic()
            await asyncio.wait(waits[:2] if self._child is not None else waits[:1], return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() - begun > MOST_REST_S:
                self._failures = 0  # it worked for a while: the next failure is a first one
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits, timeout=1.0)

    async def _listen(self, client: Client) -> None:
        """Since 2026-07-28 a server tells of changes only those who asked to hear."""
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                self._watched = True
                async for _ in subscription:
                    self._dirty = True
        except asyncio.CancelledError:
            raise
        except Exception:  # not offered, or lost: then the list is asked for now and then
            self._watched = False

    async def _hear(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._dirty = self._watched = True

    # ---- what it offers

    async def _relist(self) -> None:
        async with self._relisting:
            client = self._client
            if client is None or not (self._dirty or time.monotonic() - self._listed > STALE_S):
                return
            try:
                async with asyncio.timeout(LIST_S):
                    await self._take_list(client)
            except (MCPError, TimeoutError, OSError, RuntimeError, ValueError, httpx2.HTTPError) as error:
                self.last_error = say(error)
                self._listed = time.monotonic()
                if isinstance(error, MCPError) and _identify(error) in _CLOSED:
                    self._stop.set()

    async def _take_list(self, client: Client) -> None:
        self._dirty = False
        offers: dict[str, ListedTool] = {}
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if len(offers) < MOST_TOOLS:
                    offers.setdefault(tool.name, read_listed_tool(tool))
            if not page.next_cursor or page.next_cursor == cursor or len(offers) >= MOST_TOOLS:
                break
            cursor = page.next_cursor
        self.offers = offers
        self._ours = await offer_tools(client, offers, linked=self._linked) if self.spec.resources else {}
        self._judge()
        self._listed = time.monotonic()

    def _judge(self) -> None:
        offers = self.offers
        withheld, changes = self._pins.judge(self.spec, offers)
        self._judged = self._pins.version
        hidden = [Change(name, "hidden characters") for name, offer in offers.items() if offer.hides]
        for change in (*changes, *hidden):
            if change not in self.changes:
                event = f"mcp_tool_{change.what.replace(' ', '_')}"
                fields = {"server": self.spec.name, "tool": change.tool, "old": change.old[:12], "new": change.new[:12]}
                self._report(event, fields)
        self.changes = (*changes, *hidden)
        self.withheld = frozenset(withheld)
        wanted = self.spec.tools
        self.tools = tuple(
            offer.in_the_open()
            for name, offer in {**offers, **self._ours}.items()
            if name not in withheld and (wanted is None or name in wanted)
        )

    # ---- over HTTP

    @asynccontextmanager
    async def _open_http(self, url: str) -> AsyncGenerator[Any, None]:
        async with (
            self._make_client() as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=MAX_EVENT) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _open_sse(self, url: str) -> AsyncGenerator[Any, None]:
        def make(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return self._make_client()

        async with sse_client(url, sse_read_timeout=3600.0, httpx_client_factory=make) as streams:
            yield streams

    def _make_client(self) -> httpx2.AsyncClient:
        show, hear = self._person or (None, None)
        auth = make_auth(self.spec, self._home.parent.parent, show, hear)
        return make_client(self.spec, make_guard(self.spec, private=self.private), auth, self._see)

    def _see(self, status: int) -> None:
        self._status = status


def _is_refusal(error: BaseException) -> bool:
    """Whether a server said no to the newer transport, rather than nothing at all."""
    for one in _leaves(error):
        if isinstance(one, MCPError) and one.error.code != -32001:
            return True
        if isinstance(one, httpx2.HTTPStatusError):
            return True
    return False


def _identify(error: MCPError) -> tuple[int, str]:
    return error.error.code, error.error.message.lower()


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


def say(error: BaseException) -> str:
    """What went wrong, in one line, from the innermost of a heap of groups."""
    for one in _leaves(error):
        match one:
            case DragomanError():
                return str(one)
            case TimeoutError():
                return TOO_LATE
            case MCPError():
                return f"{one.error.message[:300]} ({one.error.code})"
            case httpx2.ConnectError():
                return "nothing listens there" if not str(one) else f"cannot be reached: {str(one)[:200]}"
            case httpx2.HTTPStatusError():
                return f"it answered {one.response.status_code}"
            case OAuthTokenError():  # behind the colon stands what the server said, and that may be our secret
                return f"no token: {str(one).partition(':')[0]}"
            case _:
                return f"{type(one).__name__}: {str(one)[:300]}" if str(one) else type(one).__name__
    return "it failed"
