"""Responses that are kept: `store`, `previous_response_id`, and reading and deleting them."""

import asyncio
from contextlib import suppress
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.dialects.openai_responses.items import MINTED
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import ClientRequest
from dragoman.failure import Failure
from dragoman.gateway.access.owners import find_forbidden
from dragoman.gateway.bodies import too_large
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.stores.responses import ResponseStore, StoredResponse, StoreUnavailable
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.messages import Message, Opaque, Part
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.upstream.attempts import is_large, off_loop
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.upstream.render import choose_dialect
from dragoman.wire import WireRequest

RESPONSES = "openai_responses"
PREVIOUS = "previous_response_id"
MOST_READ = 256 * 1024 * 1024  # bytes of stored responses that one request may make us read


class StoredItem(Struct, kw_only=True):
    parts: tuple[Part, ...]
    size: int  # bytes


class Resolved(Struct, kw_only=True):
    """A request of the Responses door with the conversation it continues."""

    client_request: ClientRequest
    store: bool
    input: bytes = b"[]"  # the items of the request
    instructed: bool = False  # its first message is `instructions`, which the next request does not inherit
    added: int = 0  # bytes of the conversation


def stands_alone(request: Request) -> bool:
    """Whether a request refers to nothing that is stored here, and its answer is not to be stored. False: perhaps not,
    as it has items that only Responses knows."""
    if request.store is not False or isinstance(request.extras.get(RESPONSES, {}).get(PREVIOUS), str):
        return False
    return not any(type(part) is Opaque for message in request.messages for part in message.parts)


async def resolve(
    gateway: Gateway, http: HttpRequest, client_request: ClientRequest, now: Generation, *, large: bool = False
) -> Resolved:
    own = client_request.request.extras.get(RESPONSES, {})
    previous = own.get(PREVIOUS)
    store = client_request.request.store is not False
    resolved = Resolved(client_request=client_request, store=store)
    if store or isinstance(previous, str):
        resolved.input, resolved.instructed = await off_loop(large, _read_input, client_request.raw)
    if not isinstance(previous, str):
        return resolved
    found, size = await asyncio.to_thread(_read_conversation, gateway.store, http.key_id, previous)
    if found is None:
        await refuse_foreign(gateway, http, previous)
        if _goes_to_responses(client_request, now, ""):
            return resolved  # not ours: its provider may know it
        raise UpstreamError(_unknown_previous(previous))
    if found.upstream and _goes_to_responses(client_request, now, found.upstream):
        return resolved  # its provider has stored it
    rest = {key: value for key, value in own.items() if key != PREVIOUS}
    extras = {**client_request.request.extras, RESPONSES: rest}
    messages = client_request.request.messages
    lead = 1 if resolved.instructed else 0
    request = replace(
        client_request.request, messages=(*messages[:lead], *found.messages, *messages[lead:]), extras=extras
    )
    return replace(resolved, client_request=replace(client_request, request=request, same_wire=False), added=size)


def _read_conversation(store: ResponseStore, owner: str, response_id: str) -> tuple[StoredResponse | None, int]:
    """A stored response, and the bytes of the conversation up to it."""
    found = store.get(owner, response_id)
    return found, 0 if found is None else len(dump_json(found.messages))


async def refuse_foreign(gateway: Gateway, http: HttpRequest, previous: object) -> None:
    """A provider knows all our keys as one account: it would continue the conversation of another one (T17)."""
    if not isinstance(previous, str):
        return
    foreign = await asyncio.to_thread(gateway.store.is_foreign, http.key_id, previous)
    if foreign or (http.holder is not None and await find_forbidden(gateway, http.holder, [previous])):
        raise UpstreamError(_unknown_previous(previous))


def _unknown_previous(previous: str) -> Failure:
    words = f"Previous response with id '{previous[:100]}' not found."
    own_code = {RESPONSES: {"code": "previous_response_not_found"}}
    return Failure(kind="invalid_request", status=400, param=PREVIOUS, message=words, extras=own_code)


async def fetch_items(gateway: Gateway, owner: str, client_request: ClientRequest) -> tuple[ClientRequest, int]:
    """Puts the items of our own stored responses in the place of references to them, and counts their bytes.

    Vercel's AI SDK refers to what the model said by id, unless it is told `store: false`. Ids of a provider go to it.
    """
    named = [name for message in client_request.request.messages for name in map(_referred, message.parts) if name]
    if not named:
        return client_request, 0
    items = await asyncio.to_thread(_read_items, gateway.store, owner, set(named))
    for name in sorted(set(named) - items.keys()):
        words = f"Item with id '{name[:100]}' not found: send the item itself, or say `store: false`."
        raise UpstreamError(Failure(kind="invalid_request", status=400, param="input", message=words))
    size, most = sum(items[name].size for name in named), gateway.now.settings.max_body_bytes
    if size > most:  # one large item may be named ten thousand times
        raise UpstreamError(too_large(most))
    messages = tuple(_put_items(message, items) for message in client_request.request.messages)
    request = replace(client_request.request, messages=messages)
    return replace(client_request, request=request, same_wire=False, known=None), size


def _read_items(store: ResponseStore, owner: str, wanted: set[str]) -> dict[str, StoredItem]:
    """Those of the items that an owner has. A request may refer to items of thousands of responses."""
    items: dict[str, StoredItem] = {}
    read = 0
    for response_id in {_response_of(name) for name in wanted}:
        found = store.get(owner, response_id)
        if found is None:
            continue
        read += len(found.wire) + len(found.input)
        if read > MOST_READ:
            raise UpstreamError(too_large(MOST_READ))
        for item in load_json(found.wire).get("output", ()):
            name = item.get("id")
            if name in wanted:
                size = len(dump_json(item))  # first: decoding takes an item apart
                items[name] = StoredItem(parts=_read_item(item), size=size)
    return items


def _put_items(message: Message, items: dict[str, StoredItem]) -> Message:
    if not any(map(_referred, message.parts)):
        return message
    found = [(items.get(_referred(part)), part) for part in message.parts]
    whole = chain.from_iterable((part,) if item is None else item.parts for item, part in found)
    return replace(message, parts=tuple(whole))


def _referred(part: Part) -> str:
    """The id of one of our own items that a part refers to."""
    if type(part) is not Opaque or part.body.get("type", "item_reference") != "item_reference":
        return ""
    name = part.body.get("id")
    return name if isinstance(name, str) and MINTED in name else ""


def _response_of(name: str) -> str:
    """`msg_dragoman_resp_1_0` is the first item of the response `resp_1`."""
    return name.partition(MINTED)[2].rpartition("_")[0]


def _read_item(item: JsonObject) -> tuple[Part, ...]:
    body = {"model": "", "input": [item]}
    read = find_dialect(RESPONSES).decode_request(WireRequest(body=body, path=""), Notes())
    return tuple(part for message in read.messages for part in message.parts)


def _read_input(raw: bytes) -> tuple[bytes, bool]:
    """The items of a request, and whether it has instructions."""
    body = load_json(raw)
    return dump_json(body.get("input", [])), bool(body.get("instructions"))


def _goes_to_responses(client_request: ClientRequest, now: Generation, upstream: str) -> bool:
    targets = now.targets(client_request.request.model, lambda: 0.0)
    if not targets:
        return False
    spec, model = targets[0][0].spec, targets[0][1].model
    if upstream and spec.name != upstream:
        return False
    return choose_dialect(spec, RESPONSES, model) == RESPONSES


async def remember(
    gateway: Gateway, owner: str, resolved: Resolved | None, answer: OpenAnswer, reply: Reply, body: bytes
) -> None:
    """Keeps a response for as long as there is room. Losing one is not the client's error."""
    if resolved is None or not resolved.store or not reply.choices:
        return
    request = resolved.client_request.request
    turn = Message(role="assistant", parts=reply.choices[0].parts)
    lead = 1 if resolved.instructed else 0
    row = StoredResponse(
        id=reply.id,
        messages=(*request.messages[lead:], turn),
        wire=body,
        input=resolved.input,
        upstream=answer.target.upstream.name if answer.as_is else "",
        created=gateway.wall(),
    )
    with suppress(StoreUnavailable):  # the answer is there and paid for; the store has logged why
        await asyncio.to_thread(gateway.store.put, owner, row)


async def serve_stored(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    found = await _find(gateway, http, match.groups["id"])
    if "stream=true" not in http.query:
        return HttpResponse(200, found.wire, headers={"content-type": "application/json"})
    raise DecodeError("a stored response is not streamed again")


async def serve_stored_input(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    found = await _find(gateway, http, match.groups["id"])
    return await off_loop(is_large(found.input), _show_input, found.input)


def _show_input(data: bytes) -> HttpResponse:
    items = load_json(data)
    if not isinstance(items, list):
        items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": items}]}]
    shown = [{"id": f"item_{i}", **item} if "id" not in item else item for i, item in enumerate(items)]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": shown, **ends, "has_more": False})


async def serve_stored_cancel(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    await _find(gateway, http, match.groups["id"])
    raise DecodeError("only background responses can be cancelled, and there are none here")


async def serve_forget(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    if not await asyncio.to_thread(gateway.store.delete, http.key_id, match.groups["id"]):
        raise UpstreamError(_unknown(match.groups["id"]))
    return json_response({"id": match.groups["id"], "object": "response", "deleted": True})


async def _find(gateway: Gateway, http: HttpRequest, response_id: str) -> StoredResponse:
    found = await asyncio.to_thread(gateway.store.get, http.key_id, response_id)
    if found is None:
        raise UpstreamError(_unknown(response_id))
    return found


def _unknown(response_id: str) -> Failure:
    words = f"Response with id '{response_id[:100]}' not found."
    return Failure(kind="not_found", status=404, message=words)
