"""Responses that are kept: `store`, `previous_response_id`, and reading and deleting them."""

import asyncio
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import ClientRequest
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.stores.responses import StoredResponse, StoreUnavailable
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.messages import Message
from dragoman.model.reply import Reply
from dragoman.upstream.answer import OpenAnswer
from dragoman.upstream.attempts import off_loop
from dragoman.upstream.render import choose_dialect

RESPONSES = "openai_responses"
PREVIOUS = "previous_response_id"


class Resolved(Struct, kw_only=True):
    """A request of the Responses door with the conversation it continues."""

    client_request: ClientRequest
    store: bool
    input: bytes = b"[]"  # the items it was asked with
    instructed: bool = False  # its first message is `instructions`, which the next request does not inherit


async def resolve(
    gateway: Gateway, owner: str, client_request: ClientRequest, now: Generation, *, large: bool = False
) -> Resolved:
    own = client_request.request.extras.get(RESPONSES, {})
    previous = own.get(PREVIOUS)
    store = client_request.request.store is not False
    resolved = Resolved(client_request=client_request, store=store)
    if store or isinstance(previous, str):
        resolved.input, resolved.instructed = await off_loop(large, _read_input, client_request.raw)
    if not isinstance(previous, str):
        return resolved
    found = await asyncio.to_thread(gateway.store.get, owner, previous)
    if found is None:
        await refuse_foreign(gateway, owner, previous)
        if _goes_to_responses(client_request, now, ""):
            return resolved  # not ours: its provider may know it
        raise UpstreamError(_unknown_previous(previous))
    if found.upstream and _goes_to_responses(client_request, now, found.upstream):
        return resolved  # who answered it still has it
    rest = {key: value for key, value in own.items() if key != PREVIOUS}
    extras = {**client_request.request.extras, RESPONSES: rest}
    said = client_request.request.messages
    lead = 1 if resolved.instructed else 0
    request = replace(client_request.request, messages=(*said[:lead], *found.messages, *said[lead:]), extras=extras)
    return replace(resolved, client_request=replace(client_request, request=request, same_wire=False))


async def refuse_foreign(gateway: Gateway, owner: str, previous: object) -> None:
    """A provider knows all our keys as one account: it would continue the conversation of another one (T17)."""
    if isinstance(previous, str) and await asyncio.to_thread(gateway.store.is_foreign, owner, previous):
        raise UpstreamError(_unknown_previous(previous))


def _unknown_previous(previous: str) -> Failure:
    words = f"Previous response with id '{previous[:100]}' not found."
    own_code = {RESPONSES: {"code": "previous_response_not_found"}}
    return Failure(kind="invalid_request", status=400, param=PREVIOUS, message=words, extras=own_code)


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
    said = Message(role="assistant", parts=reply.choices[0].parts)
    lead = 1 if resolved.instructed else 0
    row = StoredResponse(
        id=reply.id,
        messages=(*request.messages[lead:], said),
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
    items = load_json(found.input)
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
