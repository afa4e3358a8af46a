"""Counts the tokens of a request: the provider does it if it can, otherwise we estimate and say so (FIELD-CASES 90)."""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import CountCodec, read_count
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import put_model
from dragoman.gateway.access.charge import check_model
from dragoman.gateway.access.owners import check_names
from dragoman.gateway.bodies import check_size, load_body, read_body
from dragoman.gateway.conversation import count_estimate, no_model
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.responses import PREVIOUS, refuse_foreign
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway
from dragoman.gateway.take_in import need_messages, own_headers
from dragoman.jsontypes import Json, dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.attempts import is_large, off_loop
from dragoman.upstream.http.request import build_headers, join_url, quote_segment
from dragoman.upstream.model_lists import put_at_root
from dragoman.upstream.profiles import find_kind
from dragoman.upstream.render import find_profile
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

ASK_S = 10.0
NO_COUNTER = (404, 405, 501)
MOST_PLACES = 100  # addresses that we remember: some contain a model name, and clients choose those
ESTIMATED = {"x-dragoman-estimated": "true"}


async def serve_count(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    dialect = match.route.dialect
    if dialect.counts is None:
        raise DecodeError(f"{dialect.name} has no token count")
    number, headers = await count(gateway, http, dialect, dialect.counts, match.path(http.query))
    return json_response(dialect.counts.encode_reply(number), headers=headers)


async def count(
    gateway: Gateway, http: HttpRequest, dialect: Dialect, codec: CountCodec, path: str
) -> tuple[int, dict[str, str]]:
    raw = await read_body(http, gateway.now.settings)
    large, own, limits = is_large(raw), own_headers(dialect, http), gateway.now.settings.limits

    def decode() -> Request:
        wire = WireRequest(body=load_body(raw, limits), path=path, headers=own)
        request = codec.decode_request(wire, Notes())
        check_size(request, limits)
        return request

    request = await off_loop(large, decode)
    need_messages(request, dialect)
    holder = http.holder
    check_model(gateway.now, holder, request.model)
    if holder is None:
        return await _count(gateway, http, dialect, codec, request, raw)
    await check_names(gateway, holder, request, dialect)
    await refuse_foreign(gateway, http, request.extras.get(dialect.name, {}).get(PREVIOUS))
    places = await gateway.key_limits.enter(holder, 0)  # it costs no tokens, but it is one request
    try:
        return await _count(gateway, http, dialect, codec, request, raw)
    finally:
        gateway.key_limits.leave(places, sent=True, tokens=0)


async def _count(
    gateway: Gateway, http: HttpRequest, dialect: Dialect, codec: CountCodec, request: Request, raw: bytes
) -> tuple[int, dict[str, str]]:
    large, own = is_large(raw), own_headers(dialect, http)
    targets = gateway.now.targets(request.model, lambda: 0.0)
    if not targets:
        raise UpstreamError(no_model(gateway.now, request.model, http.holder))
    state, target = targets[0]
    if state.spec.kind == DEMO:
        from dragoman.demo.model import count_tokens  # most gateways have no demo model

        return count_tokens(request), {}
    spoken = state.spec.dialects or (state.spec.dialect,)
    if dialect.name in spoken:
        own = {**dialect.default_headers, **own}
        url = _find_url(state, target, codec)
        same = await off_loop(large, put_model, raw, target.model, request.model)
        found = await _ask(gateway, state, url, same, own, codec.decode_reply)
        if found is not None:
            return found, {}
    for other in (find_dialect(name) for name in spoken if name != dialect.name):
        found = await _ask_converted(gateway, state, target, other, request, large=large)
        if found is not None:
            return found, {}
    if path := find_kind(state.spec.kind, state.spec.rows).tokenize:
        url = put_at_root(state.spec.base_url, path)
        body = await off_loop(large, _write_tokenize, state, target, request)
        found = await _ask(gateway, state, url, body, {}, _read_tokens)
        if found is not None:
            return found, {}
    return await off_loop(large, count_estimate, replace(request, model=target.model)), ESTIMATED


async def _ask_converted(
    gateway: Gateway, state: UpstreamState, target: Target, there: Dialect, request: Request, *, large: bool
) -> int | None:
    """The count of a provider that counts in another dialect than the client's."""
    if there.counts is None:
        return None
    wire = await off_loop(large, _write, state, target, there, request, there.counts.encode_request)
    headers = {**there.default_headers, **wire.headers}
    url = _find_url(state, target, there.counts)
    return await _ask(gateway, state, url, dump_json(wire.body), headers, there.counts.decode_reply)


def _write(
    state: UpstreamState,
    target: Target,
    there: Dialect,
    request: Request,
    encode: Callable[[Request, Notes], WireRequest],
) -> WireRequest:
    notes, asked = Notes(), replace(request, model=target.model, stream=None)
    return encode(legalise(asked, find_profile(state, there.name, target.model), notes), notes)


def _write_tokenize(state: UpstreamState, target: Target, request: Request) -> bytes:
    """vLLM counts what its template makes of a conversation of Chat."""
    chat = find_dialect(USUAL)
    body = _write(state, target, chat, request, chat.encode_request).body
    return dump_json({key: body[key] for key in ("model", "messages", "tools") if key in body})


def _read_tokens(body: Json) -> int:
    return read_count(body, "count")


def _find_url(state: UpstreamState, target: Target, codec: CountCodec) -> str:
    return join_url(state.spec.base_url, codec.path.replace("{model}", quote_segment(target.model)))


async def _ask(
    gateway: Gateway,
    state: UpstreamState,
    url: str,
    body: bytes,
    own: dict[str, str],
    decode: Callable[[Json], int],
) -> int | None:
    """The provider's own count; None when it does not say, and then an estimate does. A place where there is no counter
    is not asked again."""
    key = state.keys.pick(gateway.clock())
    if key is None or url in state.no_counters:
        return None
    spec = state.spec
    headers = build_headers(own, spec.headers, spec.auth, key, state.origin)
    try:
        opened = await gateway.transport.open(
            url, headers, body, timeouts=spec.timeouts, head_s=ASK_S, on_sent=lambda: None, network=spec.network
        )
    except UpstreamError:
        return None
    try:
        data = await opened.read(1024 * 1024)
        if opened.status in NO_COUNTER and len(state.no_counters) < MOST_PLACES:
            state.no_counters.add(url)
        return decode(load_json(data)) if opened.status == 200 else None
    except Exception:
        return None
    finally:
        opened.close()
