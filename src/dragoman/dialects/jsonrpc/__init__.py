"""JSON-RPC 2.0 with the method `generate_content`. Only clients use it, no upstream does (mission D2).

No request is converted to it. The gateway reads a body with `decode_calls` and serves each call with the dialect from
`dialect_for`. `encode_answers` joins the answers. DIALECT is used for a body without a call that we can read.
"""

from functools import partial
from typing import NoReturn

from dragoman.dialects._base import Dialect, Door, What
from dragoman.dialects.jsonrpc.calls import (
    Batch,
    Id,
    RpcCall,
    RpcFault,
    decode_calls,
    encode_answers,
    encode_error,
    encode_result,
    make_error,
    refuse_params,
)
from dragoman.dialects.jsonrpc.failure import decode_failure, encode_failure
from dragoman.dialects.jsonrpc.note_places import locate_request
from dragoman.dialects.jsonrpc.reply import decode_reply, encode_reply
from dragoman.dialects.jsonrpc.request import decode_request
from dragoman.dialects.jsonrpc.stream import StreamDecoder, StreamEncoder
from dragoman.dialects.jsonrpc.words import NAME, VERSION
from dragoman.errors import DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.wire import WireReply

MEDIA_TYPE = "application/json"
STREAM_MEDIA_TYPE = "application/x-ndjson"

__all__ = [
    "DIALECT",
    "MEDIA_TYPE",
    "NAME",
    "STREAM_MEDIA_TYPE",
    "Batch",
    "RpcCall",
    "RpcFault",
    "StreamDecoder",
    "StreamEncoder",
    "decode_calls",
    "decode_failure",
    "decode_reply",
    "decode_request",
    "dialect_for",
    "encode_answers",
    "encode_error",
    "encode_failure",
    "encode_reply",
    "encode_result",
    "make_error",
    "recognise",
    "refuse_params",
]


def dialect_for(call_id: Id) -> Dialect:
    """The dialect of one call. Its request is the params, and its answers and errors have the call's envelope."""

    def answer(reply: Reply, notes: Notes, request: Request | None = None) -> WireReply:
        return WireReply(body={"jsonrpc": VERSION, "result": encode_reply(reply, notes).body, "id": call_id})

    def fail(failure: Failure) -> WireReply:
        wire = encode_failure(failure)
        return WireReply(body={"jsonrpc": VERSION, "error": wire.body, "id": call_id}, headers=wire.headers)

    return Dialect(
        name=NAME,
        title="JSON-RPC 2.0",
        profile=Profile(dialect=NAME),
        media_type=STREAM_MEDIA_TYPE,
        reply_keys=("result",),
        reply_ids=False,
        decode_request=decode_request,
        encode_request=_refuse_request,
        decode_reply=decode_reply,
        encode_reply=answer,
        stream_decoder=StreamDecoder,
        stream_encoder=partial(StreamEncoder, call_id=call_id),
        decode_failure=decode_failure,
        encode_failure=fail,
        locate_request=locate_request,
        recognise=recognise,
        doors=(Door(path="/generate", serves="jsonrpc"), Door(path="/generate_with_mcp", serves="generate_with_mcp")),
    )


def _refuse_request(request: Request, notes: Notes) -> NoReturn:
    raise DragomanError("no provider speaks JSON-RPC: it is a dialect of clients only")


def recognise(body: JsonObject, what: What) -> int:
    if body.get("jsonrpc") != VERSION:
        return 0
    match what:
        case "request":
            return 100 if "method" in body else 0
        case "reply":
            return 100 if "result" in body else 0
        case "stream":
            return 100
        case "failure":
            return 100 if "error" in body else 0


DIALECT = dialect_for(None)
