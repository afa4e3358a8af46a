"""Tokens of a request: asked of the provider where it can say, else estimated, and said so (FIELD-CASES 90)."""

from msgspec.structs import replace

from dragoman.demo.model import count_tokens as count_demo
from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import CountCodec
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import put_model
from dragoman.gateway.bodies import load_body, read_body
from dragoman.gateway.conversation import count_estimate, need_messages, no_model, own_headers
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes import Match
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.http.request import build_headers, join_url, quote_segment
from dragoman.upstream.profiles import profile_for
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

ASK_S = 10.0
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
    body = load_body(raw, gateway.now.settings.limits)
    own = own_headers(dialect, http)
    request = codec.decode_request(WireRequest(body=body, path=path, headers=own), Notes())
    need_messages(request, dialect)
    targets = gateway.now.targets(request.model, lambda: 0.0)
    if not targets:
        raise UpstreamError(no_model(request.model))
    state, target = targets[0]
    if state.spec.kind == DEMO:
        return count_demo(request), {}
    spoken = state.spec.dialects or (state.spec.dialect,)
    if dialect.name in spoken:
        own = {**dialect.default_headers, **own}
        found = await _ask(gateway, state, target, codec, put_model(raw, target.model, request.model), own)
        if found is not None:
            return found, {}
    for other in (find_dialect(name) for name in spoken if name != dialect.name):
        found = await _ask_converted(gateway, state, target, other, request)
        if found is not None:
            return found, {}
    return count_estimate(replace(request, model=target.model)), ESTIMATED


async def _ask_converted(
    gateway: Gateway, state: UpstreamState, target: Target, there: Dialect, request: Request
) -> int | None:
    """The count of a provider that counts in another dialect than the client's."""
    if there.counts is None:
        return None
    spec, notes = state.spec, Notes()
    asked = replace(request, model=target.model, stream=None)
    profile = profile_for(spec.kind, target.model, there.name, spec.overrides, spec.rows)
    wire = there.counts.encode_request(legalise(asked, profile, notes), notes)
    headers = {**there.default_headers, **wire.headers}
    return await _ask(gateway, state, target, there.counts, dump_json(wire.body), headers)


async def _ask(
    gateway: Gateway, state: UpstreamState, target: Target, codec: CountCodec, body: bytes, own: dict[str, str]
) -> int | None:
    """The provider's own count; None when it does not say, and then an estimate does."""
    key = state.keys.pick(gateway.clock())
    if key is None:
        return None
    spec = state.spec
    headers = build_headers(own, spec.headers, spec.auth, key, state.origin)
    url = join_url(spec.base_url, codec.path.replace("{model}", quote_segment(target.model)))
    try:
        opened = await gateway.transport.open(
            url, headers, body, timeouts=spec.timeouts, head_s=ASK_S, on_sent=lambda: None
        )
    except UpstreamError:
        return None
    try:
        data = await opened.read(1024 * 1024)
        return codec.decode_reply(load_json(data)) if opened.status == 200 else None
    except Exception:
        return None
    finally:
        opened.close()
