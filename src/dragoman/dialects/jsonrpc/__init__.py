"""JSON-RPC 2.0 with the method `generate_content`: a door for clients, not a protocol of providers (mission D2).

It is no member of `dialects.NAMES`: nothing is converted *to* its requests. A door uses `decode_calls`, then per call
`decode_request`, and answers with `encode_reply` or a StreamEncoder inside the envelope of `calls`.
"""

from dragoman.dialects.jsonrpc.calls import (
    Batch,
    Call,
    Fault,
    decode_calls,
    encode_answers,
    encode_error,
    encode_result,
    make_error,
    refuse_params,
)
from dragoman.dialects.jsonrpc.failure import decode_failure, encode_failure
from dragoman.dialects.jsonrpc.reply import decode_reply, encode_reply
from dragoman.dialects.jsonrpc.request import decode_request
from dragoman.dialects.jsonrpc.stream import StreamDecoder, StreamEncoder
from dragoman.dialects.jsonrpc.words import NAME

MEDIA_TYPE = "application/json"
STREAM_MEDIA_TYPE = "application/x-ndjson"

__all__ = [
    "MEDIA_TYPE",
    "NAME",
    "STREAM_MEDIA_TYPE",
    "Batch",
    "Call",
    "Fault",
    "StreamDecoder",
    "StreamEncoder",
    "decode_calls",
    "decode_failure",
    "decode_reply",
    "decode_request",
    "encode_answers",
    "encode_error",
    "encode_failure",
    "encode_reply",
    "encode_result",
    "make_error",
    "refuse_params",
]
