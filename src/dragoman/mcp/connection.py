"""ServerConnection: one server, kept connected. (F60-F65)

It connects at the first use, lists the tools again when they change, and reconnects after a failure, with growing
pauses. The mcp package requires that one task enters and leaves its contexts. `_run` is that task.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.auth import OAuthTokenError

from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from dragoman.log_line import LogLine
from dragoman.mcp.approvals import Approvals, Change
from dragoman.mcp.content import (
    RESOURCE_TOOLS,
    has_resource_link,
    list_all,
    make_resource_tools,
    read_tool_result,
    run_resource_tool,
)
from dragoman.mcp.http_client import make_client, make_network_policy, open_http, open_sse
from dragoman.mcp.oauth import AwaitCode, ShowPage, make_auth
from dragoman.mcp.spec import ServerSpec
from dragoman.mcp.stdio import Child, forget_child, open_stdio, start_child
from dragoman.mcp.tool_listing import ListedTool, read_listed_tool
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.tools.results import make_failed_result

Health: TypeAlias = Literal["unasked", "connecting", "up", "down", "off", "disabled"]
MAX_TOOLS, MAX_PAGES = 512, 100
MAX_LISTING_BYTES = 2 * 1024 * 1024  # of all tools: models get these texts with each request
RETRY_PAUSE_S, MAX_RETRY_PAUSE_S = 1.0, 60.0  # between a failure and the next try
MAX_STARTS, STARTS_WITHIN_S = 5, 600.0
MAX_TIMEOUTS = 3
LIST_STALE_S = 60.0  # after this the tools are listed again, if the server does not announce changes
LIST_TIMEOUT_S = 10.0
CHILDREN_FOLDER = ".children"  # not a legal server name
MARGIN_S = 0.5  # after a deadline, for the error message to arrive
TIMED_OUT = "it did not answer in time"
NOT_APPROVED = "it has changed since its server was approved. See `dragoman mcp tools --changed`"
# Codes that servers use for a session they do not know, and for other errors too: the message tells which.
SESSION_CODES = (-32000, -32001, -32600)
SESSION_STATUSES = (400, 404, 410)
TIMEOUT_CODE = -32001

log = logging.getLogger(__name__)
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False  # its problems are raised as errors too, and reported once

Report: TypeAlias = Callable[[str, JsonObject], None]


def _log_event(event: str, fields: JsonObject) -> None:
    log.warning(LogLine(event, fields))


class ServerConnection:
    def __init__(
        self,
        spec: ServerSpec,
        approvals: Approvals,
        home: Path,
        env: Mapping[str, str],
        report: Report | None = None,
        *,
        allow_private: bool = True,
        login_handlers: tuple[ShowPage, AwaitCode] | None = None,
    ) -> None:
        """`home` is the home folder of its program. `allow_private`: the server may be on this machine or its network.
        `login_handlers` reach a person who can log in."""
        self.spec = spec
        self.allow_private = allow_private
        self.listed_tools: dict[str, ListedTool] = {}  # all tools of the server, by name
        self.tools: tuple[ListedTool, ...] = ()  # the tools that models may use
        self.withheld: frozenset[str] = frozenset()
        self.changes: tuple[Change, ...] = ()
        self.last_error = spec.problem
        self.protocol = ""
        self.transport = spec.transport
        self._approvals, self._home, self._env, self._login_handlers = approvals, home, env, login_handlers
        self._approvals_version = -1  # the version that `tools` is based on
        self._report: Report = report or _log_event
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected: asyncio.Event = asyncio.Event()
        self._stop: asyncio.Event = asyncio.Event()
        self._child: Child | None = None
        self._listed_at = 0.0
        self._list_outdated = False
        self._resource_tools: dict[str, ListedTool] = {}  # our tools that list and read its resources
        self._has_resource_link = False  # the server has sent a link to a resource
        self._announces_changes = False  # the server sends a message when its tools change
        self._list_lock: asyncio.Lock = asyncio.Lock()
        self._renew_lock: asyncio.Lock = asyncio.Lock()
        self._failures = 0
        self._timeouts = 0  # in a row
        self._last_status = 0  # the last HTTP status of the server
        self._retry_at = 0.0
        self._starts: deque[float] = deque(maxlen=MAX_STARTS + 1)

    # ---- public

    @property
    def health(self) -> Health:
        if self.spec.disabled:
            return "disabled"
        if self._client is not None:
            return "up"
        if self._is_switched_off():
            return "off"
        if self._task is not None and not self._task.done():
            return "connecting"
        return "down" if self.last_error else "unasked"

    async def list_tools(self, timeout_s: float | None = None) -> tuple[ListedTool, ...]:
        """The tools that models may use now. Does not wait for a server that failed before."""
        if self._client is None:
            started = self._start()
            if started and self._failures == 0:
                await self._wait_until_connected(self.spec.connect_s + MARGIN_S if timeout_s is None else timeout_s)
        elif self._list_outdated or (not self._announces_changes and time.monotonic() - self._listed_at > LIST_STALE_S):
            await self._refresh_tools()
        if self._client is not None and self._approvals.refresh() != self._approvals_version:
            self._apply_approvals()  # there is a new approval
        return self.tools if self._client is not None else ()

    async def list_all(self, kind: str) -> list[Any]:
        """Its resources, templates or prompts; empty if the server has none or is not running."""
        await self.list_tools()
        return [] if self._client is None else await list_all(self._client, kind)

    @property
    def client(self) -> Client | None:
        """The client of the mcp package while the server is connected."""
        return self._client

    async def call(self, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
        """Calls a tool. A failed result says why it did not work. Takes no longer than the timeout of the server."""
        if self._client is None:
            if not self._start():
                return make_failed_result(
                    call, f"{self.spec.name} is not running: {self.last_error or 'it is switched off'}"
                )
            await self._wait_until_connected(self.spec.connect_s + MARGIN_S)
        if tool in self.withheld:
            return make_failed_result(call, f"{tool} is not approved: {NOT_APPROVED}")
        if self._client is None:
            return make_failed_result(
                call, f"{self.spec.name} is not running: {self.last_error or 'it does not answer'}"
            )
        child, client = self._child, self._client
        try:
            return await self._call(call, tool, arguments)
        except MCPError as error:
            if self._is_session_lost(error) and await self._renew_session(client):  # the tool did not run (F65)
                try:
                    return await self._call(call, tool, arguments)
                except MCPError as second_error:
                    error = second_error
            return make_failed_result(call, await self._explain_error(error, child))
        except (DragomanError, httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:
            return make_failed_result(call, f"{tool}: {str(error)[:500] or type(error).__name__}")

    async def close(self) -> None:
        """Ends the connection, and waits until its task and its program have ended."""
        self._stop.set()
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait([task], timeout=4.0)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=2.0)

    def approve(self) -> None:
        """Approves the current texts of the tools, and forgets earlier failures."""
        if self.listed_tools:
            self._approvals.approve(self.spec, self.listed_tools)
        else:
            self._approvals.forget(self.spec)
        self._failures, self._retry_at = 0, 0.0
        self._starts.clear()
        self._list_outdated = True

    # ---- calls

    async def _call(self, call: ToolCall, tool: str, arguments: JsonObject) -> ToolResult:
        client, timeout_s = self._client, self.spec.timeout_s
        if client is None:
            return make_failed_result(call, f"{self.spec.name} is not running: {self.last_error}")
        try:
            async with asyncio.timeout(timeout_s + 1.0):
                if tool in RESOURCE_TOOLS and tool not in self.listed_tools:
                    return await run_resource_tool(client, call, tool, arguments)
                answer = await client.call_tool(tool, arguments, read_timeout_seconds=timeout_s)
        except TimeoutError:
            return make_failed_result(call, self._count_timeout())
        self._timeouts = 0
        if not self._has_resource_link and has_resource_link(answer):
            self._has_resource_link = self._list_outdated = True
        return read_tool_result(call, answer)

    async def _explain_error(self, error: MCPError, child: Child | None) -> str:
        code, message = error.error.code, error.error.message
        if code == TIMEOUT_CODE and "timed out" in message.lower():
            return self._count_timeout()
        if self._is_session_lost(error):
            self._stop.set()  # the next call begins a new session
        if _is_closed(error):
            self._stop.set()
            if child is not None:
                await child.wait_for_exit(MARGIN_S)  # its stderr and exit code arrive a little later
                message = child.describe_end()
            return f"{self.spec.name} ended during the call: {message}"
        return f"{message[:1000]} ({code})"

    def _count_timeout(self) -> str:
        """One call may hang. If several calls in a row hang, the server is restarted. (F61)"""
        self._timeouts += 1
        if self._timeouts >= MAX_TIMEOUTS:
            self._timeouts = 0
            self._stop.set()
        return f"{self.spec.name} took longer than {self.spec.timeout_s:g} s"

    def _is_session_lost(self, error: MCPError) -> bool:
        """Whether the server does not know our session: it was restarted, or has ended the session. (F65)

        The specification says 404; the reference server answers 400. An error that a tool raised has the status 200.
        """
        code, message = error.error.code, error.error.message.lower()
        if code == -32600 and message == "session terminated":  # the mcp package's own words for a bare 404
            return True
        return code in SESSION_CODES and self._last_status in SESSION_STATUSES and "session" in message

    async def _renew_session(self, client: Client) -> bool:
        """Connects again. Calls that lose the same session at the same time share the new one."""
        async with self._renew_lock:
            if self._client is client:
                await self.close()
                self._start()
            await self._wait_until_connected(self.spec.connect_s)
        return self._client is not None

    # ---- connecting

    def _is_switched_off(self) -> bool:
        now = time.monotonic()
        return len([t for t in self._starts if now - t < STARTS_WITHIN_S]) > MAX_STARTS and self._client is None

    def _start(self) -> bool:
        """Starts to connect if that is allowed now. True if connected or connecting."""
        if self._task is not None and not self._task.done():
            return True
        if self.spec.problem or self.spec.disabled or self._is_switched_off() or time.monotonic() < self._retry_at:
            return False
        self._starts.append(time.monotonic())
        self._last_status = 0
        self._connected, self._stop = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"mcp {self.spec.name}")
        return True

    async def _wait_until_connected(self, timeout_s: float) -> None:
        """Waits until the server is connected, has failed, or the time is over."""
        task = self._task
        if task is None:
            return
        connected = asyncio.ensure_future(self._connected.wait())
        try:
            await asyncio.wait([connected, task], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connected.cancel()

    async def _run(self) -> None:
        try:
            await self._connect()
            if not self._stop.is_set():
                self._record_failure("the connection ended")
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the package raises nested exception groups
            self._record_failure(self._describe_failure(error))
        finally:
            self._client, self._child = None, None
            self._announces_changes = False

    def _describe_failure(self, error: BaseException) -> str:
        """The HTTP status, if there is one: the mcp package does not put it into its errors."""
        refused = self._last_status >= 400 and not any(
            isinstance(leaf, DragomanError | TimeoutError) for leaf in _flatten_groups(error)
        )
        message = f"it answered {self._last_status}" if refused else describe_error(error)
        if message == TIMED_OUT:
            return f"{TIMED_OUT}: it has {self.spec.connect_s:g} s to start and to list its tools (connect_s)"
        if refused and self._last_status == 401:
            return f"{message}: set a key for it, or log in: dragoman mcp login {self.spec.name}"
        return message

    def _record_failure(self, message: str) -> None:
        child = self._child
        ended_alone = child is not None and child.ended.is_set() and not message.startswith(TIMED_OUT)
        self.last_error = child.describe_end() if child is not None and (child.kill_reason or ended_alone) else message
        self._failures += 1
        self._retry_at = time.monotonic() + min(RETRY_PAUSE_S * 2 ** (self._failures - 1), MAX_RETRY_PAUSE_S)
        self._report("mcp_server_down", {"server": self.spec.name, "why": self.last_error})

    async def _connect(self) -> None:
        if self.spec.transport == "stdio":
            children = self._home.parent / CHILDREN_FOLDER
            child = self._child = await start_child(self.spec, self._home, self._env, children)
            try:
                await self._run_session(open_stdio(child), "stdio")
            finally:
                forget_child(children, child.process.pid)
            return
        url = self.spec.url or ""
        if self.spec.transport == "sse" or (self.spec.transport == "auto" and url.rstrip("/").endswith("/sse")):
            await self._run_session(open_sse(url, self._make_client), "sse")
            return
        try:
            await self._run_session(open_http(url, self._make_client), "http")
        except BaseException as error:
            # an older server refuses the POST and speaks HTTP+SSE (specification, backwards compatibility)
            if self.spec.transport != "auto" or self._connected.is_set() or not _is_refusal(error):
                raise
            await self._run_session(open_sse(url, self._make_client), "sse")

    async def _run_session(self, transport: Any, kind: Literal["http", "sse", "stdio"]) -> None:
        """Connects, lists the tools, and stays connected until the end."""
        client = Client(
            transport,
            read_timeout_seconds=max(self.spec.timeout_s, LIST_TIMEOUT_S),
            message_handler=self._handle_message,
            client_info=mcp_types.Implementation(name="dragoman", version="1"),
            cache=None,
        )
        async with asyncio.timeout(self.spec.connect_s) as deadline:
            async with client:
                await self._fetch_tools(client)
                deadline.reschedule(None)
                self.transport, self.protocol = kind, client.protocol_version
                self._client, self.last_error = client, ""
                self._connected.set()
                try:
                    await self._wait_for_end(client)
                finally:
                    self._client = None

    async def _wait_for_end(self, client: Client) -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if self._child is not None:
            waits.append(asyncio.ensure_future(self._child.ended.wait()))
        if client.protocol_version >= "2026":
            waits.append(asyncio.ensure_future(self._watch_tool_list(client)))
        try:
            started = time.monotonic()
            await asyncio.wait(waits[:2] if self._child is not None else waits[:1], return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() - started > MAX_RETRY_PAUSE_S:
                self._failures = 0  # it worked for a while: start again with the shortest pause
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits, timeout=1.0)

    async def _watch_tool_list(self, client: Client) -> None:
        """Subscribes to changes of the tool list, which protocol versions since 2026-07-28 require."""
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                self._announces_changes = True
                async for _ in subscription:
                    self._list_outdated = True
        except asyncio.CancelledError:
            raise
        except Exception:  # no subscription: the tools are listed again from time to time
            self._announces_changes = False

    async def _handle_message(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._list_outdated = self._announces_changes = True

    # ---- tools

    async def _refresh_tools(self) -> None:
        async with self._list_lock:
            client = self._client
            if client is None or not (self._list_outdated or time.monotonic() - self._listed_at > LIST_STALE_S):
                return
            try:
                async with asyncio.timeout(LIST_TIMEOUT_S):
                    await self._fetch_tools(client)
            except (MCPError, TimeoutError, OSError, RuntimeError, ValueError, httpx2.HTTPError) as error:
                self.last_error = describe_error(error)
                self._listed_at = time.monotonic()
                if isinstance(error, MCPError) and (_is_closed(error) or self._is_session_lost(error)):
                    self._stop.set()

    async def _fetch_tools(self, client: Client) -> None:
        self._list_outdated = False
        listed: dict[str, ListedTool] = {}
        cursor, size = None, 0
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in map(read_listed_tool, page.tools[: MAX_TOOLS - len(listed)]):
                size += tool.size_bytes
                if size <= MAX_LISTING_BYTES:
                    listed.setdefault(tool.name, tool)
            if not page.next_cursor or page.next_cursor == cursor or len(listed) >= MAX_TOOLS:
                break
            if size > MAX_LISTING_BYTES:
                break
            cursor = page.next_cursor
        if size > MAX_LISTING_BYTES:
            self._report("mcp_tools_left_out", {"server": self.spec.name, "kept": len(listed)})
        self.listed_tools = listed
        self._resource_tools = (
            await make_resource_tools(client, listed, linked=self._has_resource_link) if self.spec.resources else {}
        )
        self._apply_approvals()
        self._listed_at = time.monotonic()

    def _apply_approvals(self) -> None:
        listed = self.listed_tools
        withheld, changes = self._approvals.check(self.spec, listed)
        self._approvals_version = self._approvals.version
        hidden = [Change(name, "hidden characters") for name, tool in listed.items() if tool.has_hidden_characters]
        for change in (*changes, *hidden):
            if change not in self.changes:
                event = f"mcp_tool_{change.kind.replace(' ', '_')}"
                fields = {"server": self.spec.name, "tool": change.tool, "old": change.old[:12], "new": change.new[:12]}
                self._report(event, fields)
        self.changes = (*changes, *hidden)
        self.withheld = frozenset(withheld)
        wanted = self.spec.tools
        self.tools = tuple(
            tool.show_hidden_characters()
            for name, tool in {**listed, **self._resource_tools}.items()
            if name not in withheld and (wanted is None or name in wanted)
        )

    # ---- over HTTP

    def _make_client(self) -> httpx2.AsyncClient:
        show_page, await_code = self._login_handlers or (None, None)
        auth = make_auth(self.spec, self._home.parent.parent, show_page, await_code)
        policy = make_network_policy(self.spec, allow_private=self.allow_private)
        return make_client(self.spec, policy, auth, self._note_status, self._env)

    def _note_status(self, status: int) -> None:
        self._last_status = status


def _is_refusal(error: BaseException) -> bool:
    """Whether the server refused the newer transport. False if it did not answer at all."""
    for leaf in _flatten_groups(error):
        if isinstance(leaf, MCPError) and leaf.error.code != -32001:
            return True
        if isinstance(leaf, httpx2.HTTPStatusError):
            return True
    return False


def _is_closed(error: MCPError) -> bool:
    """With the message, because servers use the same code for other errors."""
    return error.error.code == -32000 and error.error.message.lower() == "connection closed"


def _flatten_groups(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _flatten_groups(inner)]
    return [error]


def describe_error(error: BaseException) -> str:
    """What went wrong, in one line: the first error inside nested exception groups."""
    for leaf in _flatten_groups(error):
        match leaf:
            case DragomanError():
                return str(leaf)
            case TimeoutError():
                return TIMED_OUT
            case MCPError():
                return f"{leaf.error.message[:300]} ({leaf.error.code})"
            case httpx2.ConnectError():
                return "no server listens there" if not str(leaf) else f"cannot be reached: {str(leaf)[:200]}"
            case httpx2.HTTPStatusError():
                return f"it answered {leaf.response.status_code}"
            case OAuthTokenError():  # after the colon comes the server's text, which may contain our secret
                return f"no token: {str(leaf).partition(':')[0]}"
            case _:
                return f"{type(leaf).__name__}: {str(leaf)[:300]}" if str(leaf) else type(leaf).__name__
    return "it failed"
