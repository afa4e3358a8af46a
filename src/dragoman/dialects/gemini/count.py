"""Gemini `:countTokens`, both ways. https://ai.google.dev/api/tokens (digest read 2026-11-15)

The request is what would be generated from: under `generateContentRequest` on the developer API, where alone system
text and tools are counted, or flat as on Vertex.
"""

from msgspec.structs import replace

from dragoman.dialects._services import CountCodec, read_count
from dragoman.dialects.gemini.request import decode_request, encode_request
from dragoman.dialects.gemini.spelling import to_camel
from dragoman.dialects.gemini.words import NAME
from dragoman.fields import need_object
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

METHOD = "countTokens"
WRAPPER = "generateContentRequest"
FLAT = "~flat"  # spelling: the request stood there without its wrapper


def decode_count_request(wire: WireRequest, notes: Notes) -> Request:
    """What is to be counted, as the request it would be."""
    to_camel(wire.body)
    wire.body.pop("~snake", None)
    wrapped = wire.body.get(WRAPPER)
    body = wire.body if wrapped is None else need_object(wrapped)
    request = decode_request(WireRequest(body=body, path=wire.path, headers=wire.headers), notes)
    if wrapped is not None:
        return request
    own = request.extras.get(NAME, {}) | {FLAT: True}
    return replace(request, extras=request.extras | {NAME: own})


def encode_count_request(request: Request, notes: Notes) -> WireRequest:
    own = request.extras.get(NAME, {})
    said = {key: value for key, value in own.items() if key not in (FLAT, "~query")} | {"~method": METHOD}
    wire = encode_request(replace(request, stream=None, extras=request.extras | {NAME: said}), notes)
    if FLAT in own:
        return wire
    body = {"model": f"models/{request.model}"} | wire.body
    return WireRequest(path=wire.path, body={WRAPPER: body})


COUNTS = CountCodec(
    path=f"/v1beta/models/{{model}}:{METHOD}",
    decode_request=decode_count_request,
    encode_request=encode_count_request,
    decode_reply=lambda body: read_count(body, "totalTokens"),
    encode_reply=lambda count: {"totalTokens": count},
)
