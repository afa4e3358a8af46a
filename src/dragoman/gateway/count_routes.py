"""Tokens of a request: asked of the provider where it can say, else estimated, and said so (FIELD-CASES 90)."""

from msgspec.structs import replace

from dragoman.demo.model import count_tokens as count_demo
from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.gateway.bodies import load_body, put_model, read_body
from dragoman.gateway.conversation import count_estimate, no_model, own_headers
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject, load_json
from dragoman.notes import Notes
from dragoman.upstream.answer import build_headers
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.upstream.urls import join_url, quote_segment
from dragoman.wire import WireRequest

ASK_S = 10.0
ESTIMATED = {"x-dragoman-estimated": "true"}
# dialect -> its path and the key of its answer
COUNTERS = {
    "anthropic": ("/v1/messages/count_tokens", "input_tokens"),
    "gemini": ("/v1beta/models/{model}:countTokens", "totalTokens"),
    "openai_responses": ("/v1/responses/input_tokens", "input_tokens"),
}


async def serve_count_messages(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    number, headers = await count(gateway, http, find_dialect("anthropic"), "/v1/messages")
    return json_response({"input_tokens": number}, headers=headers)


async def serve_count_responses(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    number, headers = await count(gateway, http, find_dialect("openai_responses"), "/v1/responses")
    return json_response({"object": "response.input_tokens", "input_tokens": number}, headers=headers)


async def count_gemini(gateway: Gateway, http: HttpRequest, model: str) -> HttpResponse:
    number, headers = await count(gateway, http, find_dialect("gemini"), f"/v1beta/models/{model}:generateContent")
    return json_response({"totalTokens": number}, headers=headers)


async def count(gateway: Gateway, http: HttpRequest, dialect: Dialect, path: str) -> tuple[int, dict[str, str]]:
    raw = await read_body(http, gateway.now.settings)
    body = load_body(raw, gateway.now.settings.limits)
    inner = body.get("generateContentRequest")
    asked: JsonObject = inner if dialect.name == "gemini" and type(inner) is dict else body
    own = own_headers(dialect, http)
    request = dialect.decode_request(WireRequest(body=asked, path=path, headers=own), Notes())
    targets = gateway.now.targets(request.model, lambda: 0.0)
    if not targets:
        raise UpstreamError(no_model(request.model))
    state, target = targets[0]
    if state.spec.kind == DEMO:
        return count_demo(request), {}
    if dialect.name in (state.spec.dialects or (state.spec.dialect,)) and dialect.name in COUNTERS:
        found = await _ask(gateway, state, target, dialect.name, put_model(raw, target.model, request.model), own)
        if found is not None:
            return found, {}
    return count_estimate(replace(request, model=target.model)), ESTIMATED


async def _ask(
    gateway: Gateway, state: UpstreamState, target: Target, dialect: str, body: bytes, own: dict[str, str]
) -> int | None:
    """The provider's own count; None when it does not say, and then an estimate does."""
    path, name = COUNTERS[dialect]
    key = state.keys.pick(gateway.clock())
    if key is None:
        return None
    spec = state.spec
    own = {**find_dialect(dialect).default_headers, **own}
    headers = build_headers(own, spec.headers, spec.auth, key, state.origin)
    url = join_url(spec.base_url, path.replace("{model}", quote_segment(target.model)))
    try:
        opened = await gateway.transport.open(
            url, headers, body, timeouts=spec.timeouts, head_s=ASK_S, on_sent=lambda: None
        )
    except UpstreamError:
        return None
    try:
        data = await opened.read(1024 * 1024)
        value = load_json(data) if opened.status == 200 else {}
        counted = value.get(name) if type(value) is dict else None
        return counted if type(counted) is int else None
    except Exception:
        return None
    finally:
        opened.close()
