"""JSON-RPC 2.0: calls and answers in the form of the specification. https://www.jsonrpc.org/specification

`decode_calls` never raises: for an invalid call it returns the RpcFault to answer with. The answer repeats the call's
id exactly, `1.10` as `1.10`. A call without an id gets no answer.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects.jsonrpc.words import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MESSAGES,
    METHOD,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSION,
)
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject, dump_json, kind_of, load_json, mend_surrogates

METHODS = (METHOD,)
MOST_CALLS = 100  # in one batch
Id: TypeAlias = "str | int | Raw | None"  # Raw: a number with a fraction, as it was written


class RpcCall(Struct, frozen=True, kw_only=True):
    """A valid call."""

    method: str
    params: JsonObject
    id: Id = None
    notification: bool = False  # the client expects no answer


class RpcFault(Struct, frozen=True, kw_only=True):
    """The error to answer with, in place of a call."""

    error: JsonObject
    id: Id = None
    notification: bool = False


class Batch(Struct, frozen=True, kw_only=True):
    """The calls of one body. `single`: the body was not an array, so the answer is not one either."""

    calls: tuple[RpcCall | RpcFault, ...]
    single: bool


class _Identified(Struct):
    id: Raw = Raw(b"null")


def decode_calls(data: bytes, methods: Collection[str] = METHODS) -> Batch:
    """The calls of a body. A batch of more than MOST_CALLS is one fault, and none of its calls is looked at."""
    try:
        body = load_json(data)
    except DecodeError as error:
        return Batch(calls=(RpcFault(error=make_error(PARSE_ERROR, error.what)),), single=True)
    data = mend_surrogates(data) or data
    if type(body) is not list:
        return Batch(calls=(_decode_call(body, data, methods),), single=True)
    if not body:
        return Batch(calls=(RpcFault(error=make_error(INVALID_REQUEST, "an empty batch")),), single=True)
    if len(body) > MOST_CALLS:
        return Batch(calls=(RpcFault(error=make_error(INVALID_REQUEST, f"more than {MOST_CALLS} calls")),), single=True)
    pieces = msgspec.json.decode(data, type=list[Raw])
    return Batch(calls=tuple(_decode_call(b, p, methods) for b, p in zip(body, pieces, strict=True)), single=False)


def _decode_call(body: Json, data: bytes | Raw, methods: Collection[str]) -> RpcCall | RpcFault:
    if type(body) is not dict:
        return RpcFault(error=make_error(INVALID_REQUEST, f"expected object, found {kind_of(body)}"))
    if "id" in body and type(body["id"]) not in (str, int, float, type(None)):
        return RpcFault(
            error=make_error(INVALID_REQUEST, f"/id: expected string or number, found {kind_of(body['id'])}")
        )
    given = body.get("id")
    call_id: Id = msgspec.json.decode(data, type=_Identified).id if type(given) is float else given
    if body.get("jsonrpc") != VERSION:
        return RpcFault(error=make_error(INVALID_REQUEST, '/jsonrpc: expected "2.0"'), id=call_id)
    method, silent = body.get("method"), "id" not in body
    if type(method) is not str:
        error = make_error(INVALID_REQUEST, f"/method: expected string, found {kind_of(method)}")
        return RpcFault(error=error, id=call_id)
    if method not in methods:
        return RpcFault(error=make_error(METHOD_NOT_FOUND, method), id=call_id, notification=silent)
    params = body.get("params", {})
    if type(params) is not dict:
        # Params by position would need an order, and no document defines one.
        error = make_error(INVALID_PARAMS, f"/params: expected object, found {kind_of(params)}")
        return RpcFault(error=error, id=call_id, notification=silent)
    return RpcCall(method=method, params=params, id=call_id, notification=silent)


# ---------------------------------------------------------------- answers


def make_error(code: int, detail: str = "", data: JsonObject | None = None) -> JsonObject:
    """Make an error object. Its message begins with the words of the specification."""
    message = MESSAGES.get(code, "")
    if detail:
        message = f"{message}: {detail}" if message else detail
    error: JsonObject = {"code": code, "message": message or "Server error"}
    if data:
        error["data"] = data
    return error


def refuse_params(error: DecodeError) -> JsonObject:
    """The error for invalid parameters."""
    data: JsonObject = {"kind": "invalid_request"}
    if error.path:
        data["param"] = error.where
    return make_error(INVALID_PARAMS, str(error), data)


def encode_result(call_id: Id, result: Json) -> bytes:
    return dump_json({"jsonrpc": VERSION, "result": result, "id": call_id})


def encode_error(call_id: Id, error: JsonObject) -> bytes:
    return dump_json({"jsonrpc": VERSION, "error": error, "id": call_id})


def encode_answers(batch: Batch, answers: Sequence[bytes | None]) -> bytes | None:
    """One body for all answers, one per call, in any order. None if no call expects an answer. Faults contain their
    answer, so their place in `answers` is ignored."""
    written = list(_answers(batch, answers))
    if not written:
        return None
    return written[0] if batch.single else b"[" + b",".join(written) + b"]"


def _answers(batch: Batch, answers: Sequence[bytes | None]) -> Iterable[bytes]:
    for call, answer in zip(batch.calls, answers, strict=True):
        if call.notification:
            continue
        if isinstance(call, RpcFault):
            yield encode_error(call.id, call.error)
        elif answer is not None:
            yield answer
