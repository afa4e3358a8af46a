"""Embeddings, speech and compaction: requests that are no conversation. They use the same queue, keys and retries."""

import asyncio
import struct
from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import EmbeddingRequest, Vectors, unsupported
from dragoman.dialects.openai_responses.reply import decode_usage
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import UpstreamCall
from dragoman.failure import Failure
from dragoman.gateway.access.charge import SPEECH, SPOKEN_TOKENS, begin_charge, check_model
from dragoman.gateway.access.owners import check_names
from dragoman.gateway.bodies import load_body, read_body
from dragoman.gateway.conversation import no_model, reply_headers
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse, json_response
from dragoman.gateway.routes.responses import PREVIOUS, refuse_foreign
from dragoman.gateway.routes.table import Match
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.speech import FORMS, Sound, find_speech, read_sound, shape_sound, speak_demo
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import BIG_BYTES, Job, is_large, off_loop
from dragoman.upstream.failures import malformed
from dragoman.upstream.render import choose_dialect
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

MANY_NUMBERS = 50_000  # of vectors: to write them takes some 5 ms
MOST_NUMBERS = 1_000_000  # of vectors that we make ourselves
Form = Callable[[Dialect, str], WireRequest]  # what to send for a dialect and a model


async def read_object(gateway: Gateway, http: HttpRequest) -> JsonObject:
    raw = await read_body(http, gateway.now.settings)
    http.large, http.size = is_large(raw), len(raw)
    return await off_loop(http.large, load_body, raw, gateway.now.settings.limits)


async def ask(
    gateway: Gateway,
    http: HttpRequest,
    door: str,
    dialect: Dialect,
    model: str,
    form: Form,
    tokens: int,
    output: int | None = 0,
) -> UpstreamAnswer:
    """The answer of the first upstream that gives one; its body is in `raw`. `tokens`: about how many are sent.
    `output`: at most so many come back, as far as they cost; None: not known."""
    scope = http.scope = Scope(gateway, http, dialect, door)
    scope.model = model
    await begin_charge(scope, tokens, output)
    targets = gateway.now.targets(model, gateway.dice)
    if not targets:
        raise UpstreamError(no_model(gateway.now, model, http.holder))

    def render(state: UpstreamState, target: Target) -> UpstreamCall:
        spoken = state.spec.dialects or (state.spec.dialect,)
        own = find_dialect(spoken[0])
        wire = form(own, target.model)
        return UpstreamCall(
            dialect=own, path=wire.path, body=dump_json(wire.body), headers={}, notes=Notes(), opaque=True
        )

    job = Job(
        targets=targets,
        render=render,
        stream=False,
        deadline=scope.started + gateway.now.settings.deadline_s,
        client=http.key_id or http.client,
        attempts=scope.attempts,
        trace=scope.trace.start_attempt if scope.trace is not None else None,
        large=http.large,
    )
    scope.answer = answer = await gateway.sender.ask(job)
    scope.status = 200
    return answer


# ---------------------------------------------------------------- embeddings


async def serve_embeddings(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    dialect = match.route.dialect
    if dialect.embeddings is None:
        raise unsupported(f"{dialect.name} has no embeddings")
    body = await read_object(gateway, http)
    wire = WireRequest(body=body, path=match.path(http.query))
    asked = await off_loop(http.large, dialect.embeddings.decode_request, wire)
    found = await embed(gateway, http, dialect, asked)
    many = sum(map(len, found.rows)) > MANY_NUMBERS
    codec = dialect.embeddings
    response = await off_loop(many, lambda: json_response(codec.encode_reply(found, asked)))
    return describe(http, response)


def describe(http: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Adds who answered, what it cost, and what the key has left."""
    if isinstance(http.scope, Scope):  # not for the demo model
        response.headers.update(reply_headers(http.scope))
        if cost := http.scope.cost_text:
            response.headers["x-dragoman-cost"] = cost
    return response


async def embed(gateway: Gateway, http: HttpRequest, dialect: Dialect, request: EmbeddingRequest) -> Vectors:
    check_model(gateway.now, http.holder, request.model)
    targets = gateway.now.targets(request.model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        return await asyncio.to_thread(_embed_demo, request, targets[0][1].model)

    def form(there: Dialect, model: str) -> WireRequest:
        if there.embeddings is None:
            raise unsupported(f"{there.name} has no embeddings")
        return there.embeddings.encode_request(replace(request, model=model))

    tokens = sum(len(str(text)) for text in request.inputs) // CHARS_PER_TOKEN
    answer = await ask(gateway, http, "embeddings", dialect, request.model, form, tokens)
    try:
        codec = answer.dialect.embeddings
        if codec is None:
            raise ValueError("no embeddings")
        big = len(answer.raw) > BIG_BYTES
        found = await off_loop(big, lambda: codec.decode_reply(load_json(answer.raw), answer.target.model))
        if len(found.rows) != len(request.inputs):
            raise ValueError("the number of vectors differs from the number of inputs")
        if isinstance(http.scope, Scope) and found.tokens:  # Gemini does not report them
            http.scope.usage = Usage(input=found.tokens, output=0)
        return found
    except (DecodeError, KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise UpstreamError(malformed("the upstream's embeddings cannot be read")) from error
    finally:
        if http.scope is not None:
            http.scope.finish()


def _embed_demo(request: EmbeddingRequest, model: str) -> Vectors:
    from dragoman.demo.model import demo_embedding  # most gateways have no demo model

    size = request.size or 8
    if size * len(request.inputs) > MOST_NUMBERS:
        raise DecodeError(f"the demo model writes at most {MOST_NUMBERS} numbers in one answer")
    rows = [list(demo_embedding(str(text), size)) for text in request.inputs]
    return Vectors(rows=rows, model=model, tokens=sum(len(str(text).split()) for text in request.inputs))


# ---------------------------------------------------------------- speech


async def serve_speech(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    model, text, wanted = body.get("model"), body.get("input"), body.get("response_format")
    if type(model) is not str or type(text) is not str:
        raise DecodeError("expected `model` and `input` as strings")
    if wanted is not None and wanted not in FORMS:
        raise DecodeError(f"expected one of {', '.join(FORMS)}", "response_format")
    check_model(gateway.now, http.holder, model)
    targets = gateway.now.targets(model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        _check_whole(body)
        return _respond(await shape_sound(await asyncio.to_thread(speak_demo, body), wanted))

    def form(there: Dialect, name: str) -> WireRequest:
        codec = find_speech(there)
        if codec.decode_reply is not None:
            _check_whole(body)
        return codec.encode_request(name, body)

    tokens = len(text) // CHARS_PER_TOKEN
    answer = await ask(gateway, http, SPEECH, match.route.dialect, model, form, tokens, max(tokens, 1) * SPOKEN_TOKENS)
    try:
        big = len(answer.raw) > BIG_BYTES
        sound = await off_loop(big, read_sound, answer.dialect, answer.raw, form=wanted or "mp3")
        if find_speech(answer.dialect).decode_reply is not None:
            return describe(http, _respond(await shape_sound(sound, wanted)))
        if wanted is not None and _differs(sound.form, wanted):  # some servers speak one form whatever is asked
            return describe(http, _respond(await shape_sound(sound, wanted)))
        return describe(http, HttpResponse(200, answer.raw, headers={"content-type": sound.media_type}))
    finally:
        if http.scope is not None:
            http.scope.finish()


def _check_whole(body: JsonObject) -> None:
    if body.get("stream_format") == "sse":
        raise DecodeError("only the sound itself comes from this upstream, not events", "stream_format")


def _differs(form: str, wanted: str) -> bool:
    return form != wanted and {form, wanted} != {"ogg", "opus"}


def _respond(sound: Sound) -> HttpResponse:
    return HttpResponse(200, sound.data, headers={"content-type": sound.media_type})


# ---------------------------------------------------------------- compaction
#
# Codex asks the server to shorten a conversation (FIELD-CASES 148). A Responses upstream gets the request as it is,
# because only it can read its encrypted items. Elsewhere we say plainly that we cannot, and Codex shortens it itself.


async def serve_compact(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    dialect, path = match.route.dialect, match.path(http.query)
    body = await read_object(gateway, http)
    model = body.get("model")
    if type(model) is not str:
        raise DecodeError("expected the name of a model", "model")
    await _check_names(gateway, http, dialect, body)
    targets = gateway.now.targets(model, lambda: 0.0)
    if not targets:
        raise UpstreamError(no_model(gateway.now, model, http.holder))
    spec, name = targets[0][0].spec, targets[0][1].model
    if choose_dialect(spec, dialect.name, name) != dialect.name:
        words_ = f"remote compaction ({path}) is not offered by {spec.name}: compact on your side"
        raise UpstreamError(Failure(kind="not_found", status=404, code="compaction_unsupported", message=words_))

    def form(there: Dialect, model: str) -> WireRequest:
        return WireRequest(path=path, body={**body, "model": model})

    answer = await ask(gateway, http, "compact", dialect, model, form, http.size // CHARS_PER_TOKEN, None)
    try:
        if isinstance(http.scope, Scope):
            http.scope.usage = await off_loop(len(answer.raw) > BIG_BYTES, _read_usage, answer.raw)
        return describe(http, HttpResponse(200, answer.raw, headers={"content-type": JSON_TYPE}))
    finally:
        if http.scope is not None:
            http.scope.finish()


async def _check_names(gateway: Gateway, http: HttpRequest, dialect: Dialect, body: JsonObject) -> None:
    """Refuses a body that names things of another key, because the provider gets the body unchanged."""

    def decode() -> Request:
        return dialect.decode_request(WireRequest(body=load_json(dump_json(body)), path=""), Notes())

    check_model(gateway.now, http.holder, str(body["model"]))
    if http.holder is not None:
        await check_names(gateway, http.holder, await off_loop(http.large, decode), dialect)
    await refuse_foreign(gateway, http, body.get(PREVIOUS))


def _read_usage(raw: bytes) -> Usage | None:
    """What a compaction has cost; None if its answer does not say so."""
    try:
        usage = load_json(raw).get("usage")
        return decode_usage(usage) if isinstance(usage, dict) else None
    except (DecodeError, AttributeError):
        return None
