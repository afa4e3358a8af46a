"""Request bodies: decompressed within limits, parsed as strict JSON, and edited in place to change the model name."""

import re
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.settings import RequestLimits, Settings
from dragoman.jsontypes import JsonObject, dump_json, kind_of, load_json, load_members, load_string

RATIO_FREE_BYTES = 1024 * 1024
ZSTD_WINDOW_BITS = 23  # "an encoder must not use a window of more than 8 MB" (RFC 9659, section 3)

# Where a request goes is configured, never said by a client (T04).
_DESTINATIONS = frozenset({"api_base", "base_url", "apiBase", "baseURL", "api_key", "endpoint", "custom_host"})

_MEMBER = re.compile(rb'[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)  # a key and its colon


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


def top_spans(data: bytes) -> dict[str, tuple[int, int]]:
    """Where each value of the outermost object stands; a key said twice is a DecodeError.

    Of two members with one key the decoder keeps the last. So what it found is laid beside the bytes: if each member
    stands there, one after the other and nothing else, there is no second one.
    """
    return _find_spans(data, load_members(data))


def check_keys(data: bytes) -> None:
    """A DecodeError when a key is said twice; in the two usual spellings of JSON one look at the whole tells."""
    members = load_members(data)
    for comma, colon in ((b",", b":"), (b", ", b": ")):
        pieces = [b'"%b"%b%b' % (key.encode(), colon, value) for key, value in members.items()]
        if data == b"{%b}" % comma.join(pieces):
            return
    _find_spans(data, members)


def _find_spans(data: bytes, members: dict[str, bytes]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    at = 0
    for key, value in members.items():
        start = _value_at(data, at, key)
        at = start + len(value)
        if data[start:at] != value:
            raise DecodeError("duplicate key", key)
        spans[key] = (start, at)
    if spans and data[at:].strip() != b"}":
        _value_at(data, at, None)
    return spans


def _value_at(data: bytes, at: int, key: str | None) -> int:
    """Where the next value begins; a DecodeError when it is not of this key."""
    found = _MEMBER.match(data, at)
    said = load_string(found[1]) if found is not None else None
    if found is None or said != key:
        raise DecodeError("duplicate key", said or "")
    return found.end()


def put_model(data: bytes, model: str, old: str) -> bytes:
    """Replaces the model's name and keeps every other byte."""
    spans = {} if model == old else top_spans(data)
    if "model" not in spans:
        return data
    start, end = spans["model"]
    return data[:start] + dump_json(model) + data[end:]


def too_large(limit: int) -> Failure:
    return Failure(
        kind="too_large", status=413, code="request_too_large", message=f"the request is larger than {limit} bytes"
    )


def _unsupported(words: str) -> Failure:
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)
