"""The console: its files, and the calls of the admin API that only it makes."""

import asyncio
import re
from functools import cache
from hashlib import sha256
from secrets import token_hex
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from dragoman.console import all_files
from dragoman.convert import AUTO, StreamConverter, convert, convert_reply, first_frame, recognise
from dragoman.dialects import NAMES, SPOKEN
from dragoman.errors import DecodeError, DragomanError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.audit import note_change
from dragoman.gateway.bodies import check_cost
from dragoman.gateway.conversation import converse
from dragoman.gateway.error_responses import refuse, turned_away
from dragoman.gateway.http import JSON_TYPE, HeadFacts, HttpRequest, HttpResponse, Write, json_response, text_response
from dragoman.gateway.routes.table import Match, RouteTable
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.traffic import TrafficPage
from dragoman.gateway.telemetry.traffic_store import read_search
from dragoman.gateway.telemetry.xray import Xray
from dragoman.gateway.telemetry.xray_scenario import write_scenario
from dragoman.jsontypes import Json, dump_json, load_json
from dragoman.log_line import hide_secrets
from dragoman.model.request import Request
from dragoman.notes import Note

# No script and no style but our own files; no page may put the console into a frame.
SECURITY = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}
ORDER = (*NAMES[1:], NAMES[0])  # the neutral form last
USUAL_ROWS = 500
MOST_DIGITS = 15
SILENCE_S = 15.0  # after this much silence we send a comment, so that no proxy closes the stream
MOST_BYTES = 4 * 1024 * 1024  # of a text to translate


class Described(Struct, frozen=True, kw_only=True):
    """A call for the OpenAPI document, beside the calls of routes/admin.py."""

    method: str
    path: str
    says: str
    body: Any = None  # the type of what is sent
    reply: Any = None  # of what comes back; None: any JSON
    query: tuple[str, ...] = ()
    media_type: str = "application/json"  # of what comes back


async def serve_console(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    name = match.groups.get("file") or "index.html"
    found = all_files().get(name)
    if found is None:
        raise UpstreamError(Failure(kind="not_found", status=404, message=f"the console has no file {name[:100]!r}"))
    data, kind = found
    tag = f'"{sha256(data).hexdigest()[:16]}"'
    headers = {"content-type": kind, "etag": tag, "cache-control": "no-cache", **SECURITY}
    if http.headers.get("if-none-match") == tag:
        return HttpResponse(304, headers=headers)
    return HttpResponse(200, data, headers=headers)


async def serve_model_names(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return json_response({"models": list(gateway.now.models)})


# ---------------------------------------------------------------- login


class Login(Struct, frozen=True, kw_only=True):
    key: str


async def serve_login(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """An admin key for a cookie. A wrong key is counted and answered as at every other door."""
    key = read_json(await http.read(), Login).key
    http.headers, http.facts = {**http.headers, "authorization": f"Bearer {key}"}, HeadFacts()
    access = gateway.now.access
    verdict = access.admit(http, "admin")
    if verdict is not None:
        raise UpstreamError(turned_away(*verdict))
    if access.sessions is None or not http.key_id:
        return json_response({"needed": False})
    secure = http.headers.get("origin", "").startswith("https://")
    cookie = access.sessions.open(http.key_id, access.keys.digest(key.strip()), secure=secure)
    return json_response({"needed": True}, headers={"set-cookie": cookie})


class Session(Struct, frozen=True, kw_only=True):
    """What the page must know before it shows anything."""

    open: bool  # it may call the admin API
    session: bool = False  # it has logged in, and may log out
    name: str = ""
    read_only: bool = False
    xray_keep: int = 0  # requests whose bodies are kept
    key_store: bool = False
    other_port: int = 0  # where the admin API is, if not here


async def serve_session(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    now, port = gateway.now, gateway.admin_port
    if port and http.port != port:
        return json_response(msgspec.to_builtins(Session(open=False, other_port=port)))
    if not now.access.find_browser(http):
        return json_response(msgspec.to_builtins(Session(open=False)))
    holder = http.holder
    found = Session(
        open=True,
        session=holder is not None,
        name=holder.name or holder.id if holder is not None else "",
        read_only=holder is not None and holder.read_only,
        xray_keep=now.settings.xray_keep,
        key_store=now.access.keys.store is not None and now.settings.store_path is not None,
    )
    return json_response(msgspec.to_builtins(found))


async def serve_logout(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    sessions = gateway.now.access.sessions
    return json_response({}, headers={"set-cookie": sessions.close()} if sessions is not None else {})


# ---------------------------------------------------------------- traffic


async def serve_traffic(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """`q` is a search, `before` the cursor of the page before."""
    asked = parse_qs(http.query)
    search = read_search(asked.get("q", [""])[0])
    page = await gateway.traffic.read(search, read_number(asked, "before"), read_number(asked, "limit") or USUAL_ROWS)
    return HttpResponse(200, msgspec.json.encode(page), headers={"content-type": JSON_TYPE})


async def serve_live_traffic(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    after = read_number(parse_qs(http.query), "after")
    reader = gateway.traffic.follow()
    task: asyncio.Task[None] | None = None

    async def run(write: Write) -> None:
        nonlocal task
        task = asyncio.current_task()
        gateway.live.add(stop)
        await write(b": hello\n\n" if after is None else await gateway.traffic.read_missed(after))
        while gateway.now.access.admit(http, "admin") is None:  # until the key or the session ends
            await write(await reader.take(SILENCE_S) or b": still here\n\n")

    def stop() -> None:
        if task is not None:
            task.cancel()

    def close() -> None:
        gateway.live.discard(stop)
        gateway.traffic.leave(reader)

    headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
    return HttpResponse(200, headers=headers, stream=run, close=close)


def read_number(query: dict[str, list[str]], name: str) -> int | None:
    found = query.get(name, [""])[0]
    if not found:
        return None
    if not found.isdecimal() or len(found) > MOST_DIGITS:
        raise DecodeError(f"expected a whole number, found {found[:50]!r}", name)
    return int(found)


# ---------------------------------------------------------------- replay


class Replay(Struct, frozen=True, kw_only=True):
    id: str  # of a request that X-ray keeps
    model: str
    dialect: str = ""  # in which it is sent; "": as it was


class Replayed(Struct, frozen=True, kw_only=True):
    id: str  # of the new request, which X-ray keeps
    status: int


async def serve_replay(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """Sends a kept request again, to another model. X-ray keeps the new one too."""
    asked = read_json(await http.read(), Replay)
    kept = gateway.xray.get(asked.id)
    if kept is None or not isinstance(kept.raw, bytes):
        words = "no body of this request is kept" if kept is None else "its body was too long to be kept"
        raise UpstreamError(Failure(kind="not_found", status=404, message=words))
    path, body = name_model(*translate_kept(kept, asked.dialect), asked.model)
    found = replayed_routes().find("POST", path)
    if found is None:
        raise DecodeError(f"no conversation is held at {path[:100]}")
    fresh = HttpRequest("POST", path, headers={"content-type": JSON_TYPE, "x-dragoman-xray": "1"}, body=body)
    fresh.client, fresh.key_id, fresh.holder = http.client, http.key_id, http.holder
    fresh.id = f"{asked.id[:40]}-{token_hex(3)}"
    fresh.unique_id = fresh.id
    await note_change(gateway, http, "replay", asked.id[:100], {"model": asked.model[:200]})
    status = await run_replay(gateway, fresh, found)
    return json_response(msgspec.to_builtins(Replayed(id=fresh.id, status=status)))


async def run_replay(gateway: Gateway, fresh: HttpRequest, found: Match) -> int:
    """Sends it and returns its status. Only X-ray keeps the answer."""
    route = found.route
    try:
        response = await converse(gateway, fresh, route.dialect, found.path(""), route.name)
    except DragomanError as error:
        response = refuse(gateway, fresh, route.dialect, error)
    try:
        if response.stream is not None:
            await response.stream(forget)
    finally:
        if response.close is not None:
            response.close()
        if fresh.scope is not None:
            fresh.scope.finish()
    return response.status


async def forget(data: bytes) -> None: ...


@cache
def replayed_routes() -> RouteTable:
    return RouteTable()


def translate_kept(kept: Xray, dialect: str) -> tuple[str, bytes]:
    """Path and body of a kept request, in another dialect if one is named."""
    raw = kept.raw if isinstance(kept.raw, bytes) else b""
    if not dialect or dialect == kept.dialect:
        return kept.path, raw
    if dialect not in SPOKEN or kept.dialect not in NAMES:
        raise DecodeError(f"expected one of {', '.join(SPOKEN)}, found {dialect[:50]!r}", "/dialect")
    done = convert(raw, to=dialect, source=kept.dialect, path=kept.path)
    return done.path, done.json()


def name_model(path: str, raw: bytes, model: str) -> tuple[str, bytes]:
    """The same request for another model: in its body, or in its path."""
    body = load_json(raw)
    if not isinstance(body, dict):
        raise DecodeError("only a JSON object can be sent again")
    path = path.partition("?")[0]
    named = re.sub(r"(/models/)[^:]+(:\w+)$", lambda found: f"{found[1]}{model}{found[2]}", path)
    if named == path:
        body["model"] = model
    return named, dump_json(body)


async def serve_scenario(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """A kept request as a file for `dragoman verify --scenarios FILE`. Keys in its texts are masked."""
    kept = gateway.xray.get(match.groups["id"])
    request = kept.read_request() if kept is not None else None
    if kept is None or not isinstance(request, Request):
        raise UpstreamError(Failure(kind="not_found", status=404, message="no body of this request is kept"))
    return text_response(hide_secrets(write_scenario(request, f"xray {kept.id}")))


# ---------------------------------------------------------------- translate


class Translate(Struct, frozen=True, kw_only=True):
    text: str
    what: Literal["request", "reply", "stream"] = "request"
    source: str = AUTO


class Translation(Struct, frozen=True, kw_only=True):
    dialect: str
    value: Json = None  # a JSON body, or the text of a stream
    notes: tuple[Note, ...] = ()
    error: str | None = None


class Translations(Struct, frozen=True, kw_only=True):
    source: str
    results: tuple[Translation, ...]


async def serve_translate(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return await asyncio.to_thread(_translate_body, await http.read())


def _translate_body(data: bytes) -> HttpResponse:
    return json_response(msgspec.to_builtins(translate(read_json(data, Translate))))


def translate(request: Translate) -> Translations:
    """A text in every dialect but its own."""
    data = request.text.encode("utf-8", "surrogatepass")
    if len(data) > MOST_BYTES:
        raise DecodeError(f"the text has {len(data)} bytes, at most {MOST_BYTES} are translated")
    check_cost(data)
    source = find_source(data, request)
    return Translations(
        source=source, results=tuple(translate_to(data, request, source, to) for to in ORDER if to != source)
    )


def find_source(data: bytes, request: Translate) -> str:
    if request.source != AUTO:
        if request.source not in NAMES:
            raise DecodeError(
                f"expected a dialect ({', '.join(NAMES)}) or {AUTO}, found {request.source[:50]!r}", "/source"
            )
        return request.source
    frame = first_frame(data)
    if frame is None:
        raise DecodeError("there is no whole JSON object in the text")
    return recognise(frame, request.what).name


def translate_to(data: bytes, request: Translate, source: str, to: str) -> Translation:
    try:
        if request.what == "stream":
            converter = StreamConverter(source, to)
            text = converter.feed(data) + converter.close()
            return Translation(dialect=to, value=text.decode("utf-8", "replace"), notes=tuple(converter.notes.items))
        done = (convert if request.what == "request" else convert_reply)(data, to=to, source=source)
        return Translation(dialect=to, value=done.body, notes=tuple(done.notes))
    except DragomanError as error:
        return Translation(dialect=to, error=str(error))


DESCRIBED = (
    Described(
        method="GET",
        path="/traffic",
        says="requests, the newest first; the first page also has the charts",
        reply=TrafficPage,
        query=("q", "before", "limit"),
    ),
    Described(
        method="GET",
        path="/traffic/live",
        says="new requests, as server-sent events",
        query=("after",),
        media_type="text/event-stream",
    ),
    Described(method="GET", path="/xray", says="requests whose bodies are kept"),
    Described(method="GET", path="/xray/{id}", says="one request, from the client to the provider and back"),
    Described(
        method="GET",
        path="/xray/{id}/scenario",
        says="the same as a scenario of `dragoman verify`, in TOML",
        media_type="text/plain",
    ),
    Described(method="POST", path="/replay", says="send a kept request again", body=Replay, reply=Replayed),
    Described(method="GET", path="/models", says="the names of all models"),
    Described(
        method="POST",
        path="/translate",
        says="a request, a reply or a stream in all other dialects",
        body=Translate,
        reply=Translations,
    ),
    Described(method="GET", path="/mcp", says="MCP servers, their tools, and what changed since it was approved"),
    Described(method="POST", path="/mcp/approve", says="approve the tools of a server as they are now"),
    Described(method="POST", path="/mcp/call", says="call a tool"),
)
T = TypeVar("T")


def read_json(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None
