"""The gateway as a plain function: an HttpRequest in, an HttpResponse out."""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import parse_qs

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway import counting, embeddings, jsonrpc, lists, seeing, speech, stored
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.relay import SHUT, converse, read_hops
from dragoman.gateway.routes import Match, Route, Table
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import dump_json

Handler: TypeAlias = Callable[[Gateway, HttpRequest, dict[str, str]], Awaitable[HttpResponse]]
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_HOPS = 3


async def serve_chat(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return await converse(gateway, http, find_dialect("openai_chat"), "/v1/chat/completions", "chat")


async def serve_responses(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return await converse(gateway, http, find_dialect("openai_responses"), "/v1/responses", "responses")


async def serve_messages(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return await converse(gateway, http, find_dialect("anthropic"), "/v1/messages", "messages")


async def serve_ollama(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    path = "/api/generate" if http.path.rstrip("/").endswith("/generate") else "/api/chat"
    return await converse(gateway, http, find_dialect("ollama"), path, "ollama")


async def serve_jsonrpc(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return await converse(gateway, http, jsonrpc.DIALECT, "/generate", "jsonrpc")


async def serve_gemini(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    model = words["model"]
    match words["verb"]:
        case "generateContent" | "streamGenerateContent" as verb:
            alt = "?alt=sse" if verb[0] == "s" and parse_qs(http.query).get("alt") == ["sse"] else ""
            path = f"/v1beta/{words['kind']}/{model}:{verb}{alt}"
            return await converse(gateway, http, find_dialect("gemini"), path, "gemini")
        case "countTokens":
            return await counting.count_gemini(gateway, http, model)
        case "embedContent":
            return await embeddings.embed_gemini(gateway, http, model, batch=False)
        case "batchEmbedContents":
            return await embeddings.embed_gemini(gateway, http, model, batch=True)
        case verb:
            words_ = f"there is no method {verb[:50]!r} here"
            raise UpstreamError(Failure(kind="not_found", status=404, message=words_))


async def serve_websocket(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    """Codex tries a WebSocket first; 426 makes it go over to HTTP at once instead of trying again."""
    if http.headers.get("upgrade", "").lower() == "websocket":
        words_ = "no WebSocket here: POST /v1/responses with stream: true"
        headers = {"upgrade": "HTTP/1.1", "connection": "close"}
        body = {"error": {"message": words_, "type": "invalid_request_error", "code": "websocket_unsupported"}}
        return json_response(body, 426, headers)
    raise UpstreamError(Failure(kind="invalid_request", status=405, message="POST here"))


HANDLERS: dict[str, Handler] = {
    "chat": serve_chat,
    "responses": serve_responses,
    "websocket": serve_websocket,
    "count_responses": counting.serve_count_responses,
    "stored_input": stored.serve_stored_input,
    "stored_cancel": stored.serve_stored_cancel,
    "stored": stored.serve_stored,
    "forget": stored.serve_forget,
    "messages": serve_messages,
    "count_messages": counting.serve_count_messages,
    "gemini": serve_gemini,
    "models": lists.serve_models,
    "gemini_models": lists.serve_gemini_models,
    "gemini_model": lists.serve_gemini_model,
    "model": lists.serve_model,
    "embeddings": embeddings.serve_embeddings,
    "speech": speech.serve_speech,
    "root": seeing.serve_root,
    "version": lists.serve_version,
    "tags": lists.serve_tags,
    "running": lists.serve_running,
    "show": lists.serve_show,
    "ollama": serve_ollama,
    "embed": embeddings.serve_embed,
    "embed_old": embeddings.serve_embed_old,
    "jsonrpc": serve_jsonrpc,
    "alive": seeing.serve_alive,
    "ready": seeing.serve_ready,
    "health": seeing.serve_health,
    "metrics": seeing.serve_metrics,
    "xray_list": seeing.serve_xray_list,
    "xray": seeing.serve_xray,
}


class _Ids:
    """Unguessable ids; the operating system is asked for randomness once for many of them."""

    SIZE, COUNT = 12, 512

    def __init__(self) -> None:
        self._pool, self._at = b"", 0

    def next(self) -> str:
        if self._at >= len(self._pool):
            self._pool, self._at = secrets.token_bytes(self.SIZE * self.COUNT), 0
        self._at += self.SIZE
        return self._pool[self._at - self.SIZE : self._at].hex()


class App:
    def __init__(self, gateway: Gateway, table: Table | None = None) -> None:
        self.gateway = gateway
        self.table = table or Table()
        self._ids = _Ids()

    async def handle(self, http: HttpRequest) -> HttpResponse:
        """Never raises, unless it is cancelled: then the client is gone and everything has been given back."""
        given = http.headers.get("x-request-id", "")
        http.id = given if given and _ID.fullmatch(given) else self._ids.next()
        match = self.table.find(http.method, http.path)
        dialect = dialect_of(match.route if match else None, http)
        try:
            self._judge(http, match)
            if match is None:
                response = self._unmatched(http)
            else:
                response = await HANDLERS[match.route.name](self.gateway, http, match.words)
        except asyncio.CancelledError:
            if http.scope is not None:
                http.scope.finish()
            raise
        except Exception as error:
            response = self._refuse(http, dialect, error)
        response.headers["x-request-id"] = http.id
        if dialect.name == "anthropic":
            response.headers["request-id"] = http.id
        return response

    def _judge(self, http: HttpRequest, match: Match | None) -> None:
        """Whether this request may be served at all, before its body is read."""
        gateway = self.gateway
        doorman = gateway.now.doorman
        verdict = doorman.judge_host(http) or doorman.judge_origin(http)
        if verdict is None and match is not None:
            verdict = doorman.admit(http, match.route.access)
        if verdict is not None:
            raise UpstreamError(_turned_away(*verdict))
        if match is None or match.route.access == "public":
            return
        if gateway.draining:
            raise UpstreamError(SHUT)
        if http.method == "POST":
            kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            if kind != "application/json" and not kind.endswith("+json"):
                raise UpstreamError(_not_json(kind))
        if read_hops(http) >= MAX_HOPS:
            words = "this request has been through too many gateways: does an upstream point back here?"
            raise UpstreamError(Failure(kind="server_error", status=508, code="loop_detected", message=words))

    def _unmatched(self, http: HttpRequest) -> HttpResponse:
        methods = self.table.methods(http.path)
        if http.method == "OPTIONS" and methods:
            return HttpResponse(204, headers={"allow": ", ".join([*methods, "OPTIONS"])} | self._cors(http))
        if methods:
            failure = Failure(kind="invalid_request", status=405, message=f"{http.method} is not for this path")
            response = fail(dialect_of(None, http), failure)
            response.headers["allow"] = ", ".join(methods)
            return response
        raise UpstreamError(Failure(kind="not_found", status=404, message=f"there is nothing at {http.path[:200]}"))

    def _cors(self, http: HttpRequest) -> dict[str, str]:
        origin = http.headers.get("origin", "")
        if origin not in self.gateway.now.doorman.origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-headers": http.headers.get("access-control-request-headers", "*"),
            "access-control-allow-methods": "GET, POST, DELETE",
            "vary": "origin",
        }

    def _refuse(self, http: HttpRequest, dialect: Dialect, error: Exception) -> HttpResponse:
        failure = classify(error)
        if failure.code == "internal":
            self.gateway.log.warning("internal_error", id=http.id, error=type(error).__name__, at=_place(error))
        response = fail(dialect, failure, error)
        scope = http.scope
        if scope is not None:
            scope.status, scope.failure = response.status, failure
            scope.finish()
        else:
            self.gateway.metrics.request("other", "", response.status, 0.0)
            self.gateway.log.debug("refused", id=http.id, status=response.status, why=failure.message)
        return response


def classify(error: Exception) -> Failure:
    """Whose fault it is: a body we cannot read at a door is the client's."""
    match error:
        case UpstreamError():
            return error.failure
        case LossError():
            words = f"refused rather than lost: {error}"
            return Failure(kind="invalid_request", status=400, code="loss_refused", param=error.where, message=words)
        case DecodeError():
            return Failure(kind="invalid_request", status=400, param=error.where or None, message=str(error))
        case RecursionError():
            return Failure(kind="invalid_request", status=400, message="nested too deeply")
        case _:
            return Failure(kind="server_error", status=500, code="internal", message="an error of the gateway's own")


def fail(dialect: Dialect, failure: Failure, error: Exception | None = None) -> HttpResponse:
    """A failure as the client's dialect says it."""
    wire = dialect.encode_failure(failure)
    if isinstance(error, jsonrpc.RpcError):
        wire.body["error"]["code"] = error.code
        wire.status = 200
    elif dialect.name == jsonrpc.NAME and isinstance(error, DecodeError) and str(error).startswith("not JSON"):
        wire.body["error"]["code"] = -32700
    status = failure.status if failure.status in (401, 403, 405, 413, 415, 421, 431, 502, 508) else wire.status
    headers = {"content-type": "application/json", **wire.headers}
    if failure.kind in ("rate_limited", "overloaded") and failure.retry_after_s is None:
        headers.setdefault("retry-after", "1") if failure.kind == "overloaded" else None
    if failure.kind in ("invalid_request", "too_long", "not_found", "too_large", "refused", "no_credit"):
        headers["x-should-retry"] = "false"
    return HttpResponse(status, dump_json(wire.body), headers=headers)


def dialect_of(route: Route | None, http: HttpRequest) -> Dialect:
    """In which dialect to say an error."""
    if route is not None:
        if route.dialect == jsonrpc.NAME:
            return jsonrpc.DIALECT
        if route.name in ("models", "model") and "anthropic-version" in http.headers:
            return find_dialect("anthropic")
        return find_dialect(route.dialect)
    if "anthropic-version" in http.headers or "/messages" in http.path:
        return find_dialect("anthropic")
    if http.path.startswith("/v1beta"):
        return find_dialect("gemini")
    return find_dialect("ollama" if http.path.startswith("/api/") else "openai_chat")


def _turned_away(status: int, words: str) -> Failure:
    match status:
        case 401:
            return Failure(kind="unauthenticated", status=401, code="invalid_api_key", message=words)
        case 403:
            return Failure(kind="forbidden", status=403, message=words)
        case 429:
            return Failure(kind="rate_limited", status=429, message=words, retry_after_s=60.0)
        case _:
            return Failure(kind="invalid_request", status=status, message=words)


def _not_json(kind: str) -> Failure:
    words = f"expected content-type application/json, found {kind[:50]}"
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)


def _place(error: Exception) -> str:
    """Where in our code; never what was in the data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('dragoman/')[2]}:{trace.tb_lineno}" if trace else ""
