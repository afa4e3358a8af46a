"""The models upstreams have, and how many tokens a request is."""

import asyncio

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.client.wiring import GATEWAY, Wiring
from dragoman.demo.model import count_tokens as count_demo
from dragoman.dialects import SPOKEN, find_dialect
from dragoman.dialects._services import CountCodec
from dragoman.errors import DecodeError, DragomanError, UpstreamError
from dragoman.jsontypes import Json, JsonObject, dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.http.request import build_headers, join_url
from dragoman.upstream.profiles import profile_for
from dragoman.upstream.spec import DEMO, Upstream
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireReply

ASK_S = 10.0
LOCAL_S = 0.5
MOST_BYTES = 8 * 1024 * 1024
CHARS_PER_TOKEN = 4


class ListedModel(Struct, frozen=True):
    """`name` can be asked for as it is."""

    name: str
    upstream: str


class Count(Struct, frozen=True):
    tokens: int
    estimated: bool = False  # by length: the provider could not be asked

    def __int__(self) -> int:
        return self.tokens


async def list_models(wiring: Wiring, transport: Transport, only: str | None) -> list[ListedModel]:
    chosen = [upstream for upstream in wiring.upstreams if only is None or upstream.name == only]
    if not chosen:
        raise DragomanError(f"there is no upstream {only}; there are {', '.join(u.name for u in wiring.upstreams)}")
    lists = await asyncio.gather(*(_list(wiring, transport, upstream) for upstream in chosen), return_exceptions=True)
    found: list[ListedModel] = []
    for upstream, names in zip(chosen, lists, strict=True):
        if isinstance(names, BaseException):
            if only is not None or not isinstance(names, UpstreamError):
                raise names
            continue
        found += [ListedModel(_name(wiring, upstream, name), upstream.name) for name in names]
    return found


def _name(wiring: Wiring, upstream: Upstream, name: str) -> str:
    """With the upstream in front where the bare name would not lead there."""
    if upstream.kind == DEMO or upstream.name == wiring.only:
        return name
    try:
        leads = wiring.targets(name)[0][1].upstream.name == upstream.name
    except UpstreamError:
        leads = False
    return name if leads else f"{upstream.name}/{name}"


async def _list(wiring: Wiring, transport: Transport, upstream: Upstream) -> list[str]:
    if upstream.models:
        return list(upstream.models)
    state = wiring.state(upstream)
    dialect = find_dialect(upstream.dialect)
    if dialect.models is None:
        raise DragomanError(f"{dialect.name} has no list of models")
    timeout_s = ASK_S if upstream.keys or upstream.name == GATEWAY else LOCAL_S
    body = await _ask(state, transport, dialect.models.path, None, dialect.default_headers, timeout_s)
    try:
        return dialect.models.decode(body)
    except DecodeError:
        return []  # some servers have none, and say so in words of their own


async def count_tokens(wiring: Wiring, transport: Transport, request: Request) -> Count:
    state, target = wiring.targets(request.model)[0]
    request = replace(request, model=target.model)
    if state.spec.kind == DEMO:
        return Count(count_demo(request))
    try:
        counter = _find_counter(state.spec)
        if counter is not None:
            name, codec = counter
            notes = Notes()
            profile = profile_for(state.spec.kind, target.model, name, state.spec.overrides)
            wire = codec.encode_request(legalise(request, profile, notes), notes)
            body = await _ask(state, transport, wire.path, wire.body, wire.headers, ASK_S)
            return Count(codec.decode_reply(body))
    except DecodeError:
        pass  # an answer without a number: the estimate does
    except UpstreamError as error:
        if error.failure.kind in ("unauthenticated", "not_found", "invalid_request") and error.failure.status != 404:
            raise
    size = len(dump_json(to_builtins(request.messages))) + len(dump_json(to_builtins(request.tools or ())))
    return Count(max(1, size // CHARS_PER_TOKEN), estimated=True)


def _find_counter(upstream: Upstream) -> tuple[str, CountCodec] | None:
    """The first dialect the upstream speaks that has a token count."""
    spoken = upstream.dialects or (upstream.dialect,)
    if upstream.name == GATEWAY:
        spoken = SPOKEN
    found = ((name, find_dialect(name).counts) for name in spoken)
    return next(((name, codec) for name, codec in found if codec is not None), None)


async def _ask(
    state: UpstreamState,
    transport: Transport,
    path: str,
    body: JsonObject | None,
    own: dict[str, str],
    timeout_s: float,
) -> Json:
    """One small question; an UpstreamError when there is no answer to it."""
    spec = state.spec
    key = state.keys.keys[0]
    headers = build_headers(own, spec.headers, spec.auth, key, state.origin)
    opened = await transport.open(
        join_url(spec.base_url, path),
        headers,
        b"" if body is None else dump_json(body),
        timeouts=replace(spec.timeouts, connect_s=min(timeout_s, spec.timeouts.connect_s)),
        head_s=timeout_s,
        on_sent=lambda: None,
        method="GET" if body is None else "POST",
    )
    try:
        data = await opened.read(MOST_BYTES)
        try:
            value = load_json(data)
        except DragomanError:
            value = {}
        if opened.status == 200:
            return value
        reply = WireReply(body=value, status=opened.status, headers=opened.headers)
        raise UpstreamError(find_dialect(spec.dialect).decode_failure(reply))
    finally:
        opened.close()
