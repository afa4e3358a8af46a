"""Bodies as they arrive: inflated within bounds, read as strict JSON, and edited in place where only a word changes."""

import json
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.settings import Limits, Settings
from dragoman.jsontypes import JsonObject, dump_json, kind_of, load_json

RATIO_FREE_BYTES = 1024 * 1024
ZSTD_WINDOW_BITS = 23  # "an encoder must not use a window of more than 8 MB" (RFC 9659, section 3)

# A second `model` could be read by us and by a provider in two ways.
_TELLING = (b'"model"', b'"stream"', b'"messages"', b'"input"', b'"contents"', b'"tools"', b'"prompt"')
# Where a request goes is configured, never said by a client (T04).
_DESTINATIONS = frozenset({"api_base", "base_url", "apiBase", "baseURL", "api_key", "endpoint", "custom_host"})

_space = " \t\r\n"
_raw_decode = json.JSONDecoder().raw_decode


async def read_body(http: HttpRequest, settings: Settings) -> bytes:
    """A request's body, plain."""
    raw = await http.read()
    encoding = http.headers.get("content-encoding", "")
    return inflate(raw, encoding, settings.max_body_bytes, settings.limits.inflate_ratio) if encoding else raw


def inflate(data: bytes, encoding: str, limit: int, ratio: int = 100) -> bytes:
    """A body without its Content-Encoding. The size is counted while inflating, so a bomb never goes off."""
    match encoding.strip().lower():
        case "" | "identity":
            return data
        case "gzip" | "x-gzip":
            return _unpack(data, lambda: zlib.decompressobj(31), zlib.error, limit, ratio)
        case "deflate":
            return _unpack(data, lambda: zlib.decompressobj(15), zlib.error, limit, ratio)
        case "zstd":
            return _unzstd(data, limit, ratio)
        case other:
            raise UpstreamError(_unsupported(f"content-encoding {other[:20]!r} is not one we read"))


def _unpack(data: bytes, make: Callable[[], Any], wrong: type[Exception], limit: int, ratio: int) -> bytes:
    """One frame after the other, as both formats allow, and no more than may come out of so few bytes."""
    most = min(limit, max(RATIO_FREE_BYTES, len(data) * ratio))
    plain, rest = b"", data
    while rest:
        inflater = make()
        try:
            plain += inflater.decompress(rest, most + 1 - len(plain))
        except wrong as error:
            raise DecodeError("the body is not what its content-encoding says") from error
        if len(plain) > most:
            raise UpstreamError(too_large(limit))
        if not inflater.eof:
            raise DecodeError("the body is not what its content-encoding says: it is cut off")
        rest = inflater.unused_data
    return plain


def _unzstd(data: bytes, limit: int, ratio: int) -> bytes:
    zstd = _find_zstd()
    if zstd is None:
        words = "zstd bodies need the package backports.zstd here: send them plain or as gzip"
        raise UpstreamError(_unsupported(words))
    options = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_BITS}
    return _unpack(data, lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError, limit, ratio)


def _find_zstd() -> Any:
    """The module, loaded when somebody sends such a body."""
    for name in ("compression.zstd", "backports.zstd"):  # Python has it from 3.14 on
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def load_body(data: bytes, limits: Limits) -> JsonObject:
    """The object a client sent. Nothing in it may mean two things, and nothing names a destination."""
    body = load_json(data)
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    if any(data.count(word) > 1 for word in _TELLING):
        top_spans(data)
    found = _DESTINATIONS & body.keys()
    if found:
        raise DecodeError("where a request goes is configured, not asked for", min(found))
    for key in ("messages", "input", "contents"):
        if type(body.get(key)) is list and len(body[key]) > limits.entries:
            raise DecodeError(f"more than {limits.entries} entries", key)
    return body


def top_spans(data: bytes) -> dict[str, tuple[int, int]]:
    """Where each value of the outermost object stands, in characters; a key said twice is a DecodeError."""
    text = data.decode()
    spans: dict[str, tuple[int, int]] = {}
    at = _skip(text, _skip(text, 0) + 1)
    while at < len(text) and text[at] == '"':
        key, at = _raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        try:
            _, end = _raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise DecodeError("not JSON we read") from error
        if key in spans:
            raise DecodeError("duplicate key", key)
        spans[key] = (start, end)
        at = _skip(text, end)
        if at < len(text) and text[at] == ",":
            at = _skip(text, at + 1)
    return spans


def put_model(data: bytes, model: str, old: str) -> bytes:
    """The same bytes with another model's name in them."""
    if model == old:
        return data
    found, new = dump_json(old), dump_json(model)
    if data.count(b'"model"') == 1 and data.count(found) == 1:
        return data.replace(found, new)
    spans = top_spans(data)
    if "model" not in spans:
        return data
    text = data.decode()
    start, end = spans["model"]
    return (text[:start] + new.decode() + text[end:]).encode()


def too_large(limit: int) -> Failure:
    return Failure(
        kind="too_large", status=413, code="request_too_large", message=f"the request is larger than {limit} bytes"
    )


def _unsupported(words: str) -> Failure:
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _space:
        at += 1
    return at
