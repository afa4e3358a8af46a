"""The services besides chat: lists of models, token counts, speech."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.client.upstreams import GATEWAY, ClientUpstreams
from dragoman.demo.model import count_tokens as count_demo
from dragoman.demo.model import demo_embedding
from dragoman.dialects import SPOKEN, USUAL, find_dialect
from dragoman.dialects._openai_services import SPEECH_PATH
from dragoman.dialects._services import CountCodec, EmbeddingRequest, unsupported
from dragoman.errors import DecodeError, DragomanError, UpstreamError
from dragoman.exchange import UpstreamCall, write_wire
from dragoman.jsontypes import Json, JsonObject, dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.speech import FORMS, Sound, find_speech, read_sound, shape_sound, speak_demo
from dragoman.upstream.attempts import Job
from dragoman.upstream.failures import malformed
from dragoman.upstream.http.request import build_headers, join_url
from dragoman.upstream.profiles import profile_for
from dragoman.upstream.spec import DEMO, Target, Upstream
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireReply, WireRequest

if TYPE_CHECKING:
    from dragoman.client.async_client import AsyncClient

ASK_S = 10.0
LOCAL_S = 0.5
MOST_BYTES = 8 * 1024 * 1024
CHARS_PER_TOKEN = 4


class ModelInfo(Struct, frozen=True):
    """One model. `name` works as the `model` of a request."""

    name: str
    upstream: str


class Count(Struct, frozen=True):
    tokens: int
    estimated: bool = False  # from the length, because the provider did not count

    def __int__(self) -> int:
        return self.tokens


async def list_models(upstreams: ClientUpstreams, transport: Transport, only: str | None) -> list[ModelInfo]:
    chosen = [upstream for upstream in upstreams.all if only is None or upstream.name == only]
    if not chosen:
        raise DragomanError(f"there is no upstream {only}; there are {', '.join(u.name for u in upstreams.all)}")
    lists = await asyncio.gather(*(_list(upstreams, transport, each) for each in chosen), return_exceptions=True)
    found: list[ModelInfo] = []
    for upstream, names in zip(chosen, lists, strict=True):
        if isinstance(names, BaseException):
            if only is not None or not isinstance(names, UpstreamError):
                raise names
            continue
        found += [ModelInfo(_name(upstreams, upstream, name), upstream.name) for name in names]
    return found


def _name(upstreams: ClientUpstreams, upstream: Upstream, name: str) -> str:
    """Puts the upstream's name in front if the bare name would go to another upstream."""
    if upstream.kind == DEMO or upstream.name == upstreams.only:
        return name
    try:
        found = upstreams.targets(name)[0][1].upstream.name == upstream.name
    except UpstreamError:
        found = False
    return name if found else f"{upstream.name}/{name}"


async def _list(upstreams: ClientUpstreams, transport: Transport, upstream: Upstream) -> list[str]:
    if upstream.models:
        return list(upstream.models)
    state = upstreams.state(upstream)
    dialect = find_dialect(upstream.dialect)
    if dialect.models is None:
        raise DragomanError(f"{dialect.name} has no list of models")
    timeout_s = ASK_S if upstream.keys or upstream.name == GATEWAY else LOCAL_S
    body = await _ask(state, transport, dialect.models.path, None, dialect.default_headers, timeout_s)
    try:
        return [model.name for model in dialect.models.decode(body)]
    except DecodeError:
        return []  # some servers have no list and answer in a form of their own


async def count_tokens(upstreams: ClientUpstreams, transport: Transport, request: Request) -> Count:
    state, target = upstreams.targets(request.model)[0]
    request = replace(request, model=target.model)
    if state.spec.kind == DEMO:
        return Count(count_demo(request))
    try:
        counter = _find_counter(state.spec)
        if counter is not None:
            name, codec = counter
            profile = profile_for(state.spec.kind, target.model, name, state.spec.overrides, state.spec.rows)
            wire = write_wire(request, profile, codec.encode_request, Notes())
            body = await _ask(state, transport, wire.path, wire.body, wire.headers, ASK_S)
            return Count(codec.decode_reply(body))
    except DecodeError:
        pass  # the answer has no number, so we estimate
    except UpstreamError as error:
        if error.failure.kind in ("unauthenticated", "not_found", "invalid_request") and error.failure.status != 404:
            raise
    size = len(dump_json(to_builtins(request.messages))) + len(dump_json(to_builtins(request.tools or ())))
    return Count(max(1, size // CHARS_PER_TOKEN), estimated=True)


def _find_counter(upstream: Upstream) -> tuple[str, CountCodec] | None:
    """The upstream's first dialect that can count tokens."""
    spoken = upstream.dialects or (upstream.dialect,)
    if upstream.name.startswith(GATEWAY):
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
    """Sends one small request. Raises UpstreamError if there is no good answer."""
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
        network=spec.network,
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


# ---------------------------------------------------------------- speech


async def speak(
    client: "AsyncClient",
    model: str,
    text: str,
    *,
    voice: str | None,
    instructions: str | None,
    form: str | None,
    timeout_s: float | None,
) -> Sound:
    if form is not None and form not in FORMS:
        raise DragomanError(f"no such form of sound: {form}; there are {', '.join(FORMS)}")
    arguments = {"model": model, "input": text, "voice": voice, "instructions": instructions, "response_format": form}
    body: JsonObject = {name: value for name, value in arguments.items() if value is not None}
    targets = client.upstreams.targets(model)
    if targets[0][0].spec.kind == DEMO:
        return await shape_sound(speak_demo(body), form)
    job = Job(targets=targets, render=lambda state, target: _render_speech(state, target, body), stream=False,
              deadline=client.deadline(timeout_s))  # fmt: skip
    open_answer = await client.ask(job)
    try:
        sound = read_sound(open_answer.dialect, open_answer.raw or b"", form=form or "mp3")
        return await shape_sound(sound, form)
    finally:
        client.close_answer(open_answer)


def _render_speech(state: UpstreamState, target: Target, body: JsonObject) -> UpstreamCall:
    spec = state.spec
    if spec.name.startswith(GATEWAY):  # its OpenAI endpoint speaks for every upstream
        dialect = find_dialect(USUAL)
        wire = WireRequest(path=SPEECH_PATH, body={**body, "model": target.model})
    else:
        dialect = find_dialect((spec.dialects or (spec.dialect,))[0])
        wire = find_speech(dialect).encode_request(target.model, body)
    return UpstreamCall(
        dialect=dialect, path=wire.path, body=dump_json(wire.body), headers={}, notes=Notes(), opaque=True
    )


# ---------------------------------------------------------------- embeddings


async def embed(
    client: "AsyncClient", model: str, texts: list[str], *, size: int | None, timeout_s: float | None
) -> list[list[float]]:
    asked = EmbeddingRequest(model=model, inputs=list(texts), size=size)
    targets = client.upstreams.targets(model)
    if targets[0][0].spec.kind == DEMO:
        return [list(demo_embedding(text, size or 8)) for text in texts]
    job = Job(targets=targets, render=lambda state, target: _render_embedding(state, target, asked), stream=False,
              deadline=client.deadline(timeout_s))  # fmt: skip
    open_answer = await client.ask(job)
    try:
        codec = open_answer.dialect.embeddings
        rows = [] if codec is None else codec.decode_reply(load_json(open_answer.raw or b""), model).rows
    except (DecodeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UpstreamError(malformed("the upstream's embeddings cannot be read")) from error
    finally:
        client.close_answer(open_answer)
    if len(rows) != len(texts):
        raise UpstreamError(malformed("the upstream's embeddings are not one for each text"))
    return rows


def _render_embedding(state: UpstreamState, target: Target, asked: EmbeddingRequest) -> UpstreamCall:
    spec = state.spec
    own = USUAL if spec.name.startswith(GATEWAY) else (spec.dialects or (spec.dialect,))[0]
    dialect = find_dialect(own)
    if dialect.embeddings is None:
        raise unsupported(f"{dialect.name} has no embeddings")
    wire = dialect.embeddings.encode_request(replace(asked, model=target.model))
    return UpstreamCall(
        dialect=dialect, path=wire.path, body=dump_json(wire.body), headers={}, notes=Notes(), opaque=True
    )
