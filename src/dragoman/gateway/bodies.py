"""Request bodies: decompressed within limits and parsed as strict JSON."""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.settings import RequestLimits, Settings
from dragoman.jsontypes import JsonObject, check_keys, kind_of, load_json

RATIO_FREE_BYTES = 1024 * 1024
ZSTD_WINDOW_BITS = 23  # "an encoder must not use a window of more than 8 MB" (RFC 9659, section 3)

# Where a request goes is configured, never said by a client (T04).
_DESTINATIONS = frozenset({"api_base", "base_url", "apiBase", "baseURL", "api_key", "endpoint", "custom_host"})


async def read_body(http: HttpRequest, settings: Settings) -> bytes:
    """Reads the body of a request, decompressed."""
    raw = await http.read()
    encoding = http.headers.get("content-encoding", "")
    return inflate(raw, encoding, settings.max_body_bytes, settings.limits.inflate_ratio) if encoding else raw


def inflate(data: bytes, encoding: str, limit: int, ratio: int = 100) -> bytes:
    """Decompresses a body. The size is checked while decompressing, so a bomb stops at the limit."""
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
    """Decompresses frame after frame, within the size limit."""
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
    """Loads the zstd module when the first such body arrives."""
    for name in ("compression.zstd", "backports.zstd"):  # Python has it from 3.14 on
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def load_body(data: bytes, limits: RequestLimits) -> JsonObject:
    """Parses the client's JSON object. Refuses duplicate keys and keys that name a destination."""
    body = load_json(data)
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    check_keys(data)  # with two `model` keys, we might read one and the provider the other
    found = _DESTINATIONS & body.keys()
    if found:
        raise DecodeError("where a request goes is configured, not asked for", min(found))
    for key in ("messages", "input", "contents"):
        if type(body.get(key)) is list and len(body[key]) > limits.entries:
            raise DecodeError(f"more than {limits.entries} entries", key)
    return body


def too_large(limit: int) -> Failure:
    return Failure(
        kind="too_large", status=413, code="request_too_large", message=f"the request is larger than {limit} bytes"
    )


def _unsupported(words: str) -> Failure:
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)
