"""Gemini's cachedContents: the beginning of a conversation under a name (CLIENTS 17).

https://ai.google.dev/api/caching (read 2026-11-16). The gateway keeps it itself and puts it in front of every request
that names it, so that it works with every provider. A name that we did not give goes to the provider as it is.
"""

import asyncio
import re
import secrets
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.bodies import load_body, read_body
from dragoman.gateway.conversation import converse, count_estimate
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.non_chat import read_object
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.responses import ResponseStore, StoredResponse
from dragoman.gateway.take_in import ToSent
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.note_places import Place
from dragoman.notes import Notes
from dragoman.upstream.attempts import is_large, off_loop
from dragoman.wire import WireRequest

ROOM = "cachedContents/"
TTL_S = 3600.0
LONGEST_S = 7 * 24 * 3600.0
MOST_LISTED = 1000
KEPT = {
    "contents": "contents",
    "systemInstruction": "system_instruction",
    "tools": "tools",
    "toolConfig": "tool_config",
}
_NAMES = (b'"cachedContent"', b'"cached_content"')


async def serve_cache_new(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    model = body.get("model")
    if type(model) is not str:
        raise DecodeError("expected the name of a model", "model")
    data, tokens = await asyncio.to_thread(_read_kept, match.route.dialect, model, body)
    now = gateway.wall()
    shown: JsonObject = {
        "name": f"{ROOM}{secrets.token_hex(12)}",
        "model": model if model.startswith("models/") else f"models/{model}",
        "displayName": str(body.get("displayName", body.get("display_name", ""))),
        "createTime": _date(now),
        "updateTime": _date(now),
        "expireTime": _date(_expiry(body, now)),
        "usageMetadata": {"totalTokenCount": tokens},
    }
    row = StoredResponse(id=shown["name"], messages=(), wire=dump_json(shown), input=data, created=now)
    if not await asyncio.to_thread(gateway.store.put, http.key_id, row):
        raise UpstreamError(Failure(kind="too_large", status=413, message="the content is too large to be kept"))
    return json_response(shown)


async def serve_cache(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return json_response(load_json((await _find(gateway, http, ROOM + match.groups["id"])).wire))


async def serve_caches(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    alive = await asyncio.to_thread(_list_alive, gateway.store, http.key_id, gateway.wall())
    return json_response({"cachedContents": alive} if alive else {})


def _list_alive(store: ResponseStore, owner: str, now: float) -> list[JsonObject]:
    rows = (store.get(owner, name) for name in store.list_ids(owner, ROOM, MOST_LISTED))
    shown = (load_json(row.wire) for row in rows if row is not None)
    return [row for row in shown if _time(row["expireTime"]) > now]


async def serve_cache_change(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """Only how long it is kept can be changed, as at Google's."""
    row = await _find(gateway, http, ROOM + match.groups["id"])
    body = await read_object(gateway, http)
    now = gateway.wall()
    shown = {**load_json(row.wire), "expireTime": _date(_expiry(body, now)), "updateTime": _date(now)}
    row.wire = dump_json(shown)
    await asyncio.to_thread(gateway.store.put, http.key_id, row)
    return json_response(shown)


async def serve_cache_end(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    name = ROOM + match.groups["id"]
    if not await asyncio.to_thread(gateway.store.delete, http.key_id, name):
        raise UpstreamError(_unknown(name))
    return json_response({})


async def serve_cached_conversation(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    raw, to_sent = await read_with_cache(gateway, http)
    path, door = match.path(http.query), match.route.name
    return await converse(gateway, http, match.route.dialect, path, door, raw=raw, to_sent=to_sent)


async def read_with_cache(gateway: Gateway, http: HttpRequest) -> tuple[bytes, ToSent | None]:
    """The body of a request at the Gemini door, with what it names in front."""
    settings = gateway.now.settings
    raw = await read_body(http, settings)
    if not any(name in raw for name in _NAMES):
        return raw, None
    large = is_large(raw)
    body = await off_loop(large, load_body, raw, settings.limits)
    name = body.get("cachedContent", body.get("cached_content"))
    if type(name) is not str or not name.startswith(ROOM):
        return raw, None
    found = await asyncio.to_thread(gateway.store.get, http.key_id, name)
    if found is None:
        return raw, None  # not ours: its provider may know it
    if _time(load_json(found.wire)["expireTime"]) <= gateway.wall():
        raise UpstreamError(_unknown(name))
    large = large or is_large(found.input)
    kept = await off_loop(large, load_json, found.input)
    return await off_loop(large, _joined, kept, body), partial(_place_in, kept, body)


def _joined(kept: JsonObject, body: JsonObject) -> bytes:
    rest = {key: value for key, value in body.items() if key not in ("cachedContent", "cached_content")}
    first, then = kept.get("contents"), rest.get("contents")
    return dump_json({**rest, **kept, "contents": [*_turns(first), *_turns(then)]})


def _place_in(kept: JsonObject, body: JsonObject, place: Place) -> Place:
    """A place in the joined body, as a place in the body that the client sent. What is kept is where it is named."""
    number = len(_turns(kept.get("contents")))
    named: Place = ("cachedContent" if "cachedContent" in body else "cached_content",)
    match place:
        case ("contents", int(i), *rest) if i >= number:
            return ("contents", i - number, *rest) if type(body["contents"]) is list else ("contents", *rest)
        case ("contents", int(_), *_):
            return named
        case (str(key), *_) if key in kept and key != "contents":
            return named
        case _:
            return place


def _turns(value: Any) -> list[Any]:
    return value if type(value) is list else [] if value is None else [value]


def _read_kept(dialect: Dialect, model: str, body: JsonObject) -> tuple[bytes, int]:
    """The content to keep, and its tokens. Reading it here also finds mistakes while the client still waits."""
    data = dump_json(
        {name: value for name, other in KEPT.items() if (value := body.get(name, body.get(other))) is not None}
    )
    path = f"/v1beta/models/{model.removeprefix('models/')}:generateContent"
    wire = WireRequest(body={"contents": [], **load_json(data)}, path=path)  # decoding takes a body apart
    return data, count_estimate(dialect.decode_request(wire, Notes()))


def _expiry(body: JsonObject, now: float) -> float:
    ttl, until = body.get("ttl"), body.get("expireTime", body.get("expire_time"))
    if ttl is not None:
        if type(ttl) is not str or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?s", ttl):
            raise DecodeError("expected seconds, like 3600s", "ttl")
        return now + min(float(ttl[:-1]), LONGEST_S)
    if until is None:
        return now + TTL_S
    try:
        end = min(_time(until), now + LONGEST_S)
        _date(end)
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError("expected a time, like 2026-11-16T08:00:00Z", "expireTime") from error
    return end


async def _find(gateway: Gateway, http: HttpRequest, name: str) -> StoredResponse:
    found = await asyncio.to_thread(gateway.store.get, http.key_id, name)
    if found is None or _time(load_json(found.wire)["expireTime"]) <= gateway.wall():
        raise UpstreamError(_unknown(name))
    return found


def _unknown(name: str) -> Failure:
    return Failure(kind="not_found", status=404, message=f"there is no {name[:100]}, or it has expired")


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
