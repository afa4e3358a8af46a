"""Gemini `:countTokens`, both ways. https://ai.google.dev/api/tokens (digest read 2026-11-15)

The request is what would be generated from: under `generateContentRequest` on the developer API, where alone system
text and tools are counted, or flat as on Vertex.
"""

from msgspec.structs import replace

from dragoman.dialects.gemini.request import decode_request, encode_request
from dragoman.dialects.gemini.spelling import to_camel
from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, leftovers, need_object
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes
from dragoman.wire import WireReply, WireRequest

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


def decode_count_reply(wire: WireReply) -> Usage:
    body = wire.body
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    total, cached = body.pop("totalTokens", None), body.pop("cachedContentTokenCount", None)
    if type(total) is not int:
        raise DecodeError(f"expected whole number, found {kind_of(total)}", "totalTokens")
    read = cached if type(cached) is int else None
    return Usage(input=total - (read or 0), cache_read=read, extras=leftovers(body, NAME))


def encode_count_reply(usage: Usage, notes: Notes) -> WireReply:
    counts = (usage.input, usage.cache_read, usage.cache_write)
    body: JsonObject = {"totalTokens": sum(count for count in counts if count is not None)}
    if usage.cache_read is not None:
        body["cachedContentTokenCount"] = usage.cache_read
    add_extras(body, usage.extras, NAME, (ROOT, "usage"), notes)
    return WireReply(body=body)
