"""Request bodies: decompressed within limits, parsed as strict JSON, and checked for too many pieces."""

import asyncio
import zlib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from msgspec import Raw

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.fields import refuse_spellings
from dragoman.gateway.config.settings import RequestLimits, Settings
from dragoman.gateway.http import HttpRequest
from dragoman.jsontypes import (
    LONG_BYTES,
    MOST_VALUES,
    Json,
    JsonObject,
    check_keys,
    has_more_values,
    kind_of,
    load_in_pieces,
    load_json,
    split_members,
)
from dragoman.known_turns.tools import LEAST_BYTES, KnownTools, Owner, find_tools_key
from dragoman.model.request import AnyTool, Request

RATIO_FREE_BYTES = 1024 * 1024
SMALL_BYTES = 16 * 1024  # compressed; more is decompressed off the loop
PIECE_BYTES = 64 * 1024
MOST_ESCAPES = 4_000_000  # backslashes of a JSON body: to read that many takes about 30 ms
MOST_KEYS = 1_000  # of the outermost object: each is looked at by itself
PARTS_PER_ENTRY = 3
MOST_STOPS = 100  # sequences: each piece of an answer is searched for those that the upstream does not take
MOST_FRAMES = 1000  # gzip calls them members; programs that compress in parallel write a few dozen
ZSTD_WINDOW_BITS = 23  # "an encoder must not use a window of more than 8 MB" (RFC 9659, section 3)

# The configuration decides where a request goes, never a client (T04).
_DESTINATIONS = frozenset({"api_base", "base_url", "apiBase", "baseURL", "api_key", "endpoint", "custom_host"})


async def read_body(http: HttpRequest, settings: Settings) -> bytes:
    """Reads the body of a request, decompressed."""
    raw = await http.read()
    encoding = http.headers.get("content-encoding", "")
    if not encoding:
        return raw
    how = encoding, http.cap(settings.max_body_bytes), settings.limits.inflate_ratio
    return await asyncio.to_thread(inflate, raw, *how) if len(raw) > SMALL_BYTES else inflate(raw, *how)


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
            raise UpstreamError(_unsupported(f"content-encoding {other[:20]!r} is not supported"))


def _unpack(data: bytes, make: Callable[[], Any], wrong: type[Exception], limit: int, ratio: int) -> bytes:
    """Decompresses frame after frame, within the size limit. Each frame copies what is left of its piece, so the pieces
    are small and the frames are counted: a body of empty frames costs no more than any other."""
    most = min(limit, max(RATIO_FREE_BYTES, len(data) * ratio))
    plain: list[bytes] = []
    size, frames, inflater = 0, 0, None
    for start in range(0, len(data), PIECE_BYTES):
        rest = data[start : start + PIECE_BYTES]
        while rest:
            if inflater is None:
                inflater, frames = make(), frames + 1
            try:
                plain.append(inflater.decompress(rest, most + 1 - size))
            except wrong as error:
                raise DecodeError("the body is not what its content-encoding says") from error
            size += len(plain[-1])
            if size > most:
                raise UpstreamError(too_large(limit))
            if frames > MOST_FRAMES:
                raise DecodeError(f"the compressed body has more than {MOST_FRAMES} parts")
            rest, inflater = (inflater.unused_data, None) if inflater.eof else (b"", inflater)
    if inflater is not None:
        raise DecodeError("the body is not what its content-encoding says: it is cut off")
    return b"".join(plain)


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


class LoadedBody(NamedTuple):
    values: JsonObject
    spans: dict[str, tuple[int, int]] | None = None  # where each value stands, if that was looked for
    tools_text: bytes = b""  # the JSON of tools that are not known yet


def load_body(data: bytes, limits: RequestLimits) -> JsonObject:
    """Parses the client's JSON object. Refuses duplicate keys and keys that name a destination."""
    check_cost(data)
    return _check(load_json(data, strict=True), data, limits).values


def load_apart(
    data: bytes, limits: RequestLimits, dialect: Dialect, known: KnownTools, owner: Owner, *, usual: bool = True
) -> LoadedBody:
    """The same for a dialect whose turns and tools can be read apart. Tools that are known and turns that are usual
    are in our own form already: they are tuples, which JSON does not have. `usual`: its turns may be usual."""
    check_cost(data)
    members = split_members(data)
    if members is None:
        return _check(load_json(data, strict=True), data, limits)
    tools_text = _find_tools(members, dialect.tools_keys)
    tools = known.find(owner, tools_text) if tools_text else None
    if tools is not None:  # fast path: tools known
        tools_text = b""
    values: Json = None
    if tools is not None or dialect.read_turns is not None:
        values = _load_members(members, dialect, tools, usual=usual)
    if values is None:  # an error is raised again, with its place
        values = _load(data, members)
    return _check(values, data, limits, members, tools_text)


def _find_tools(members: dict[str, Raw], keys: tuple[str, ...]) -> bytes:
    """The text of a list of tools that is worth to be known; empty if there is none, or under an unusual key."""
    key = find_tools_key(members, keys)
    return bytes(members[key]) if key and len(memoryview(members[key])) >= LEAST_BYTES else b""


def _load_members(
    members: dict[str, Raw], dialect: Dialect, tools: tuple[AnyTool, ...] | None, *, usual: bool
) -> JsonObject | None:
    read: JsonObject = {}
    if tools is not None:
        read[dialect.tools_keys[0]] = tools
    text = members.get(dialect.messages_key)
    turns = dialect.read_turns(text) if usual and dialect.read_turns is not None and text is not None else None
    if turns is not None:  # fast path: usual turns
        read[dialect.messages_key] = turns
    values = load_in_pieces({key: text for key, text in members.items() if key not in read})
    return None if values is None else values | read


def _load(data: bytes, members: dict[str, Raw] | None) -> Json:
    if members is not None and len(data) > LONG_BYTES:  # fast path: long lists
        values = load_in_pieces(members)
        if values is not None:
            return values
    return load_json(data, strict=True)


def _check(
    body: Json, data: bytes, limits: RequestLimits, members: dict[str, Raw] | None = None, tools_text: bytes = b""
) -> LoadedBody:
    if type(body) is not dict:
        raise DecodeError(f"expected object, found {kind_of(body)}")
    if len(body) > MOST_KEYS:
        raise DecodeError(f"more than {MOST_KEYS} keys")
    spans = check_keys(data, members)  # with two `model` keys, we might read one and the provider the other
    if not _DESTINATIONS.isdisjoint(body):
        found = _DESTINATIONS & body.keys()
        raise DecodeError("only the configuration decides where a request goes", min(found))
    refuse_spellings(body)
    refuse_other_models(body)
    for key in ("messages", "input", "contents"):
        if type(body.get(key)) in (list, tuple) and len(body[key]) > limits.entries:
            raise DecodeError(f"more than {limits.entries} entries", key)
    return LoadedBody(body, spans, tools_text)


def refuse_other_models(keys: Iterable[str]) -> None:
    """Servers written in Go, as Ollama is, read `Model` as `model`: another model than the one that was checked."""
    for key in keys:
        if len(key) == 5 and key != "model" and key.casefold() == "model":
            raise DecodeError("expected `model`, in small letters", key)


def check_cost(data: bytes) -> None:
    """Refuses JSON that takes too long to read: the reader is one call, in which no other request is served."""
    if len(data) > MOST_VALUES and has_more_values(data, MOST_VALUES):
        raise DecodeError(f"more than {MOST_VALUES} values")
    if len(data) > MOST_ESCAPES and data.count(b"\\") > MOST_ESCAPES:
        raise DecodeError(f"more than {MOST_ESCAPES} backslashes")


def too_large(limit: int) -> Failure:
    return Failure(
        kind="too_large", status=413, code="request_too_large", message=f"the request is larger than {limit} bytes"
    )


def _unsupported(words: str) -> Failure:
    return Failure(kind="invalid_request", status=415, code="unsupported_media_type", message=words)


def check_size(request: Request, limits: RequestLimits) -> None:
    """A request in too many pieces is refused: passes look at each of them, and at its neighbours."""
    if request.choices is not None and request.choices > limits.choices:
        raise DecodeError(f"more than {limits.choices} answers to one request")
    if request.tools is not None and len(request.tools) > limits.entries:
        raise DecodeError(f"more than {limits.entries} tools")
    if request.stop is not None and len(request.stop) > MOST_STOPS:
        raise DecodeError(f"more than {MOST_STOPS} stop sequences")
    most = limits.entries * PARTS_PER_ENTRY
    if sum([len(message.parts) for message in request.messages]) > most:
        raise DecodeError(f"more than {most} parts in all messages")
