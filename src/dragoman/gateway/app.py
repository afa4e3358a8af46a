"""The gateway as a plain function: an HttpRequest in, an HttpResponse out."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.auth import INSIDE
from dragoman.gateway.conversation import converse
from dragoman.gateway.direct_way import Way
from dragoman.gateway.error_responses import fail, refuse, turned_away
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes import (
    admin,
    cache,
    console,
    count,
    jsonrpc,
    models,
    non_chat,
    responses,
    status,
)
from dragoman.gateway.routes.table import Match, RouteTable, all_routes, guess_client, tell_client
from dragoman.gateway.state import Gateway
from dragoman.gateway.stream_writer import SHUTTING_DOWN
from dragoman.gateway.take_in import read_hops

Handler: TypeAlias = Callable[[Gateway, HttpRequest, Match], Awaitable[HttpResponse]]
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_HOPS = 3
_OF_BROWSERS = ("origin", "referer", "cookie", "sec-fetch-site", "sec-fetch-mode")


def serve_conversation(gateway: Gateway, http: HttpRequest, match: Match) -> Awaitable[HttpResponse]:
    return converse(gateway, http, match.route.dialect, match.path(http.query), match.route.name)


async def serve_unknown_verb(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    words = f"there is no method {match.groups['verb'][:50]!r} here"
    raise UpstreamError(Failure(kind="not_found", status=404, message=words))


async def serve_websocket(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """Codex tries a WebSocket first. A 426 makes it use HTTP at once instead of trying again."""
    if http.headers.get("upgrade", "").lower() == "websocket":
        words_ = "no WebSocket here: POST /v1/responses with stream: true"
        headers = {"upgrade": "HTTP/1.1", "connection": "close"}
        body = {"error": {"message": words_, "type": "invalid_request_error", "code": "websocket_unsupported"}}
        return json_response(body, 426, headers)
    raise UpstreamError(Failure(kind="invalid_request", status=405, message="POST here"))


def later(name: str) -> Handler:
    """A handler of routes/mcp.py. The first request to it loads the module: most gateways have no MCP servers."""

    async def serve(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
        from dragoman.gateway.routes import mcp

        handler: Handler = getattr(mcp, name)
        return await handler(gateway, http, match)

    return serve


# Handlers by what a route serves. The first ones ask the Dialect record; the others belong to one dialect, or to us.
HANDLERS: dict[str, Handler] = {
    "conversation": serve_conversation,
    "count": count.serve_count,
    "models": models.serve_models,
    "model": models.serve_model,
    "embeddings": non_chat.serve_embeddings,
    "speech": non_chat.serve_speech,
    "websocket": serve_websocket,
    "stored_input": responses.serve_stored_input,
    "stored_cancel": responses.serve_stored_cancel,
    "stored": responses.serve_stored,
    "forget": responses.serve_forget,
    "compact": non_chat.serve_compact,
    "cached_conversation": cache.serve_cached_conversation,
    "cache_new": cache.serve_cache_new,
    "caches": cache.serve_caches,
    "cache": cache.serve_cache,
    "cache_change": cache.serve_cache_change,
    "cache_end": cache.serve_cache_end,
    "unknown_verb": serve_unknown_verb,
    "root": status.serve_root,
    "version": models.serve_version,
    "running": models.serve_running,
    "show": models.serve_show,
    "jsonrpc": jsonrpc.serve_jsonrpc,
    "generate_with_mcp": later("serve_generate_with_mcp"),
    "mcp_add": later("serve_mcp_add"),
    "mcp_remove": later("serve_mcp_remove"),
    "mcp_list": later("serve_mcp_list"),
    "mcp_servers": later("serve_mcp_servers"),
    "mcp_approve": later("serve_mcp_approve"),
    "mcp_call": later("serve_mcp_call"),
    "admin": admin.serve_admin,
    "alive": status.serve_alive,
    "ready": status.serve_ready,
    "health": status.serve_health,
    "metrics": status.serve_metrics,
    "xray_list": status.serve_xray_list,
    "xray": status.serve_xray,
    "console": console.serve_console,
    "session": console.serve_session,
    "login": console.serve_login,
    "logout": console.serve_logout,
    "model_names": console.serve_model_names,
    "translate": console.serve_translate,
    "replay": console.serve_replay,
    "scenario": console.serve_scenario,
    "traffic": console.serve_traffic,
    "live_traffic": console.serve_live_traffic,
}
SHARED = ("models", "model")  # at these paths the client's headers say which dialect it speaks


class _Ids:
    """Makes unguessable ids, with one system call for many of them.

    They begin with the time. Databases keep their rows by id, so a new row goes beside the last one. Random ids would
    each go to another page of the file, and each of these pages would have to be read and written.
    """

    SIZE, COUNT = 12, 512

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._pool, self._at, self._prefix = b"", 0, ""

    def next(self) -> str:
        if self._at >= len(self._pool):
            self._pool, self._at = secrets.token_bytes(self.SIZE * self.COUNT), 0
            self._prefix = f"{int(self._wall()) & 0xFFFFFFFF:08x}"
        self._at += self.SIZE
        return self._prefix + self._pool[self._at - self.SIZE : self._at].hex()


class App:
    def __init__(self, gateway: Gateway, table: RouteTable | None = None) -> None:
        self.gateway = gateway
        self.table = table or RouteTable((*all_routes(), *admin.make_routes()))
        self._ids = _Ids()
        self.new_id = self._ids.next

    async def handle(self, http: HttpRequest, sent: Way | None = None) -> HttpResponse:
        """Never raises, except CancelledError: then the client has left and everything is released. `sent`: the request
        was sent to an upstream already."""
        if sent is None:
            given = http.headers.get("x-request-id", "")
            http.unique_id = self._ids.next()
            http.id = given if given and _ID.fullmatch(given) else http.unique_id
        match = http.facts.match
        if match is None:
            match = http.facts.match = self.table.find(http.method, http.path)
        dialect = dialect_of(match, http)
        try:
            if sent is None:
                if self.gateway.now.access.tokens is not None:
                    await self.gateway.now.access.prepare(http)
                self._judge(http, match)
            if sent is not None:
                response = await sent.go_on()
            elif match is None:
                response = self._unmatched(http)
            else:
                response = await HANDLERS[match.route.door.serves](self.gateway, http, match)
        except asyncio.CancelledError:
            if http.scope is not None:
                http.scope.finish()
            raise
        except Exception as error:
            response = refuse(self.gateway, http, dialect, error)
        response.headers["x-request-id"] = response.headers[dialect.request_id_header] = http.id
        if "origin" in http.headers:
            response.headers.update(self._cors(http))
        return response

    def _judge(self, http: HttpRequest, match: Match | None) -> None:
        """Checks host, key and content type before the body is read."""
        gateway = self.gateway
        access = gateway.now.access
        if match is not None and http.facts.judged_by is access and not gateway.draining:  # fast path: judged head
            verdict = access.admit(http, match.route.access)
            if verdict is not None:
                raise UpstreamError(turned_away(*verdict))
            return
        http.most_bytes = match.route.most_bytes if match is not None else 0
        verdict = access.judge_host(http) or access.judge_origin(http)
        if verdict is None and match is not None:
            verdict = access.admit(http, match.route.access)
        if verdict is not None:
            raise UpstreamError(turned_away(*verdict))
        if match is None or match.route.access == "public":
            return
        if http.client in INSIDE:
            return
        if gateway.admin_port and (http.port == gateway.admin_port) != (match.route.access == "admin"):
            words = f"{http.path[:200]} is at another port of this gateway"
            raise UpstreamError(Failure(kind="not_found", status=404, message=words))
        if gateway.draining:
            raise UpstreamError(SHUTTING_DOWN)
        if http.method == "POST":
            _judge_type(http, match.route.dialect)
        if read_hops(http) >= MAX_HOPS:
            words = "this request has been through too many gateways: does an upstream point back here?"
            raise UpstreamError(Failure(kind="server_error", status=508, code="loop_detected", message=words))
        if http.most_bytes is None:
            http.facts.judged_by = access

    def _unmatched(self, http: HttpRequest) -> HttpResponse:
        methods = self.table.methods(http.path)
        if http.method == "OPTIONS" and methods:
            return HttpResponse(204, headers={"allow": ", ".join([*methods, "OPTIONS"])} | self._cors(http))
        if methods:
            failure = Failure(
                kind="invalid_request", status=405, message=f"this path takes {' or '.join(methods)}, not {http.method}"
            )
            response = fail(dialect_of(None, http), failure)
            response.headers["allow"] = ", ".join(methods)
            return response
        near = self.table.find_near(http.path)
        words = f"there is nothing at {http.path[:200]}; " + (
            f"did you mean {near}?" if near else "/ in a browser lists the addresses"
        )
        raise UpstreamError(Failure(kind="not_found", status=404, code="unknown_url", message=words))

    def _cors(self, http: HttpRequest) -> dict[str, str]:
        origin = http.headers.get("origin", "")
        if origin not in self.gateway.now.access.origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-headers": http.headers.get("access-control-request-headers", "*"),
            "access-control-allow-methods": "GET, POST, DELETE",
            "vary": "origin",
        }


def dialect_of(match: Match | None, http: HttpRequest) -> Dialect:
    """The dialect for an error message."""
    if match is None:
        return guess_client(http)
    route = match.route
    return tell_client(http, route.dialect) if route.door.serves in SHARED else route.dialect


def _judge_type(http: HttpRequest, dialect: Dialect) -> None:
    """Refuses a form's type: a web page can send it to any address, and JSON's only if we allow it. Programs of Ollama
    send a form's type too, but none of the headers with which a browser marks the requests of a page (T13)."""
    kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return
    if not dialect.any_content_type or any(name in http.headers for name in _OF_BROWSERS):
        raise UpstreamError(_not_json(kind))


def _not_json(kind: str) -> Failure:
    words = f"expected content-type application/json, found {kind[:50]}"
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)
