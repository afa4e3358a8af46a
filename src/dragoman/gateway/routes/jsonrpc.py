"""The JSON-RPC door (mission D2): a call or a batch of calls, each served as a conversation of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from dragoman.dialects._base import Dialect
from dragoman.dialects.jsonrpc import Batch, RpcCall, RpcFault, decode_calls, dialect_for, encode_answers, encode_error
from dragoman.dialects.jsonrpc.words import METHOD
from dragoman.errors import DecodeError
from dragoman.gateway.bodies import check_cost, read_body
from dragoman.gateway.conversation import converse
from dragoman.gateway.error_responses import refuse
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import dump_json
from dragoman.upstream.attempts import is_large, off_loop

PATH = "/generate"
ServeCall: TypeAlias = Callable[[Gateway, HttpRequest, RpcCall], Awaitable[HttpResponse]]


async def serve_jsonrpc(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return await serve_calls(gateway, http, serve_call)


async def serve_calls(
    gateway: Gateway, http: HttpRequest, serve: ServeCall, methods: tuple[str, ...] = (METHOD,)
) -> HttpResponse:
    """A body of calls, each served by `serve`; only a call that stands alone may stream."""
    raw = await read_body(http, gateway.now.settings)
    batch = await off_loop(is_large(raw), read_calls, raw, methods)
    first = batch.calls[0]
    if batch.single and isinstance(first, RpcCall) and not first.notification:
        return await serve(gateway, http, first)
    answers = await asyncio.gather(*(_answer(gateway, http, call, i, serve) for i, call in enumerate(batch.calls)))
    body = encode_answers(batch, answers)
    return HttpResponse(204) if body is None else HttpResponse(200, body, headers={"content-type": JSON_TYPE})


def read_calls(raw: bytes, methods: tuple[str, ...]) -> Batch:
    check_cost(raw)
    return decode_calls(raw, methods)


async def serve_call(gateway: Gateway, http: HttpRequest, call: RpcCall) -> HttpResponse:
    dialect = dialect_for(call.id)
    try:
        return await converse(gateway, http, dialect, PATH, "jsonrpc", raw=dump_json(call.params))
    except Exception as error:
        return refuse_call(gateway, http, dialect, error)


def refuse_call(gateway: Gateway, http: HttpRequest, dialect: Dialect, error: Exception) -> HttpResponse:
    """The response for an error of one call. The body was its `params`; the client sent what is around them too."""
    if isinstance(error, DecodeError) and error.path:
        error.under("params")
    return refuse(gateway, http, dialect, error)


async def _answer(
    gateway: Gateway, http: HttpRequest, call: RpcCall | RpcFault, number: int, serve: ServeCall
) -> bytes | None:
    """One call of a batch, never streamed; a bad one does not lose the others."""
    if isinstance(call, RpcFault):
        return None if call.notification else encode_error(call.id, call.error)
    own = HttpRequest(http.method, http.path, headers=http.headers, client=http.client)
    own.unique_id = f"{http.unique_id}{number:02x}"
    own.id, own.key_id, own.holder = f"{http.id}.{number}", http.key_id, http.holder
    whole = {key: value for key, value in call.params.items() if key != "stream"}
    try:
        response = await serve(gateway, own, RpcCall(method=call.method, params=whole, id=call.id))
        if response.close is not None:
            response.close()
        return response.body
    finally:
        if own.scope is not None:
            own.scope.finish()
