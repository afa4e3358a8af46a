"""A conversation from a client's door to an upstream and back.

    decode -> stored conversation -> route -> for each attempt: passes, encode, send -> decode -> undo -> encode

One request is one scope, which gives everything back once.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.accounts.grants import Holder
from dragoman.dialects._base import Dialect
from dragoman.dialects.canonical import NAME as CANONICAL
from dragoman.errors import DecodeError, DragomanError, LossError, UpstreamError
from dragoman.exchange import HOP, ClientRequest, read_request
from dragoman.failure import Failure
from dragoman.gateway.access.charge import begin_charge, bound_output, charge_stored, check_other_models, may_use
from dragoman.gateway.access.owners import check_names, keep_names, makes_names
from dragoman.gateway.bodies import LoadedBody, check_size, load_apart, load_body, read_body
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse
from dragoman.gateway.kept_turns import keep_turn, recall_turns
from dragoman.gateway.own_door import check_extras
from dragoman.gateway.routes.responses import fetch_items, remember, resolve
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.stream_writer import StreamWriter, each_note, write_notes
from dragoman.jsontypes import MOST_VALUES, JsonObject, dump_json, find_surrogates, mend_surrogates
from dragoman.known_turns.history import History, Hit
from dragoman.known_turns.read import count_parts, count_values, find_cuts, join, make_history, make_later, read_new
from dragoman.known_turns.write import know
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_places import Place
from dragoman.notes import MOST_PLACES, Locate, Note, Notes
from dragoman.passes.turns import join_pieces
from dragoman.reasoning_state.carry import carry_reply
from dragoman.reasoning_state.envelope import has_mark
from dragoman.reasoning_state.take_back import take_back_state
from dragoman.upstream.answer import OpenAnswer
from dragoman.upstream.attempts import MANY_BRACES, Begun, Job, is_large, off_loop
from dragoman.upstream.fan_out import ask_each
from dragoman.upstream.render import choose_dialect, render, split
from dragoman.upstream.routing import find_nearest, find_rule, hint_key, is_legal_model
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

Targets: TypeAlias = list[tuple[UpstreamState, Target]]
ToSent: TypeAlias = Callable[[Place], Place]
FRESH_S = 5.0  # a list of models that is younger than this is not asked for again
HALF = "half of a surrogate pair became U+FFFD"
MOST_RATE_HEADERS = 32  # Anthropic has some twenty
LEAST_TURNS = 3  # turns of a shorter request are not remembered
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_VALUE = re.compile(r"[ -~]{1,200}")


async def converse(
    gateway: Gateway,
    http: HttpRequest,
    dialect: Dialect,
    path: str,
    door: str,
    *,
    raw: bytes | None = None,
    to_sent: ToSent | None = None,
) -> HttpResponse:
    """Serves one request from its body to its response. `raw`: the body, if it was read already. `to_sent` finds a
    place of `raw` in the body that the client sent, if the two differ."""
    scope = http.scope = Scope(gateway, http, dialect, door)
    try:
        await take_in(scope, path, raw, to_sent)
    except DecodeError as error:
        if to_sent is not None:
            error.path = to_sent(error.path)
        raise
    if "x-dragoman-mcp" in http.headers or scope.now.settings.mcp.default:
        from dragoman.gateway.mcp_loop import answer_in_loop  # most gateways never need it

        return await answer_in_loop(scope)
    return await answer_with(scope)


async def take_in(scope: Scope, path: str, raw: bytes | None, to_sent: ToSent | None = None) -> None:
    """Reads, checks and decodes a client's request."""
    http = scope.http
    if raw is None:
        raw = await read_body(http, scope.now.settings)
    scope.size = len(raw)
    if scope.keep:
        scope.raw = raw  # set first: X-ray also shows bodies that cannot be read
    if to_sent is None and scope.dialect.reads_turns_apart and scope.gateway.known_turns.most_bytes:
        scope.client_request = await take_in_turns(scope, path, raw)
    else:
        scope.large = is_large(raw)
        scope.client_request = await off_loop(scope.large, decode, scope, raw, path, to_sent)
    request = scope.client_request.request
    scope.model = request.model
    await begin_charge(scope, scope.size // CHARS_PER_TOKEN, request.max_output, request.choices or 1)
    scope.client_request.counted = scope.charge is not None and scope.charge.books is not None
    if http.holder is not None:
        check_other_models(scope.now, http.holder, request)
        await check_names(scope.gateway, http.holder, request, scope.dialect, large=scope.large)
        scope.makes_names = makes_names(request, scope.dialect)
    sent, size = request, scope.size
    if scope.dialect.stores_replies:
        scope.client_request = await take_in_items(scope, scope.client_request)
    if scope.keeps_turns:
        scope.client_request = await recall_turns(scope, scope.client_request)
    if scope.dialect.stores_replies:
        kept = scope.gateway, http, scope.client_request, scope.now
        scope.resolved = await resolve(*kept, large=scope.large)
        scope.client_request, scope.size = scope.resolved.client_request, scope.size + scope.resolved.added
    if scope.size > size:
        await take_in_stored(scope, scope.client_request.request, sent, size)


async def take_in_stored(scope: Scope, request: Request, sent: Request, size: int) -> None:
    """What a request names by id counts as if the client had sent it. `sent`, `size`: what it did send."""
    limits = scope.now.settings.limits
    if len(request.messages) > limits.entries:
        raise DecodeError(f"more than {limits.entries} messages, with those of stored responses")
    check_size(request, limits)
    scope.large = scope.large or sum([len(message.parts) for message in request.messages]) > MANY_BRACES
    added = (scope.size - size) // CHARS_PER_TOKEN
    await charge_stored(scope, scope.size // CHARS_PER_TOKEN, added, sent.max_output)


async def take_in_items(scope: Scope, client_request: ClientRequest) -> ClientRequest:
    """With the items of stored responses that it only refers to, and the reasoning state in them."""
    found, size = await fetch_items(scope.gateway, scope.http.key_id, client_request)
    scope.size += size
    if found is client_request or scope.dialect.slots is None:
        return found
    restored = take_back_state(found.request, scope.dialect.slots, scope.state_key, Notes())
    return replace(found, request=restored)


async def take_in_turns(scope: Scope, path: str, raw: bytes) -> ClientRequest:
    """Reads a request, but not the turns that came in an earlier one of the same client."""
    gateway, owner = scope.gateway, (scope.http.key_id, scope.dialect.name)
    later = gateway.known_turns.find_later(owner, raw)
    if later is not None:
        await off_loop(is_large(later.raw), find_cuts, later)
    hit = gateway.known_turns.find(owner, raw, gateway.clock())
    found: tuple[ClientRequest, History | None] | None = None
    if hit is not None:
        found = await off_loop(is_large(hit.new or hit.short), decode_turns, scope, raw, path, hit)
    if found is None or found[0].known is None or not found[0].known.history.chunks:
        scope.large = is_large(raw)  # reading and writing it takes long
    if found is None and scope.large:
        found = await off_loop(True, decode_all_turns, scope, raw, path)
    client_request, history = found or decode_all_turns(scope, raw, path)
    if history is not None:
        gateway.known_turns.keep(owner, history, gateway.clock(), instead=None if hit is None else hit.history)
    return client_request


def decode_turns(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest, History | None] | None:
    """Reads a request without its known turns. Also returns the turns that the next request may begin with. None: the
    whole body must be read."""
    client_request, ends = decode_known(scope, raw, path, hit)
    return None if client_request is None else remember_turns(client_request, hit, ends)


def decode_all_turns(scope: Scope, raw: bytes, path: str) -> tuple[ClientRequest, History | None]:
    return remember_turns(decode(scope, raw, path))


def remember_turns(
    client_request: ClientRequest, hit: Hit | None = None, ends: list[int] | None = None
) -> tuple[ClientRequest, History | None]:
    """The request, and the turns that the next request may begin with."""
    request = client_request.request
    if not client_request.same_wire or client_request.notes or len(request.messages) < LEAST_TURNS:
        return client_request, None
    raw, dialect = client_request.raw, client_request.dialect
    history = make_later(raw, request, dialect) if hit is None else None
    if history is None:
        history = make_history(raw, request, dialect, hit, ends)
    if history is not None:
        history.headers = client_request.headers
    client_request.known = know(hit, history, request)
    return client_request, history


def decode_known(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest | None, list[int] | None]:
    """Reads a request without its known turns and puts these back. None: the whole body must be read. Also returns
    where the new turns end in the body, if nothing else was read."""
    limits = scope.now.settings.limits
    if count_values(raw, hit) > MOST_VALUES:
        return None, None
    found, ends = decode_new(scope, raw, path, hit)
    if found is None:
        try:
            found = decode(scope, hit.short, path)
        except DragomanError:  # the slow path raises it again, with the place in the whole body
            return None, None
        joined = join(hit, found.request, scope.dialect) if found.same_wire and not found.notes else None
        if joined is None:
            return None, None
        found = replace(found, request=joined, decoded=joined, raw=raw)
    if len(found.request.messages) > limits.entries:
        return None, None
    if count_parts(found.request, hit) > limits.entries:  # seldom: to count them all takes time
        check_size(found.request, limits)
    return found, ends


def decode_new(scope: Scope, raw: bytes, path: str, hit: Hit) -> tuple[ClientRequest | None, list[int] | None]:
    """Reads a request of which only turns are new. Also returns where they end in the body."""
    headers = own_headers(scope.dialect, scope.http)
    if hit.new is None or headers != hit.history.headers or has_mark(hit.new):
        return None, None
    request, ends = read_new(hit, scope.dialect) or (None, None)
    if request is None:
        return None, None
    return ClientRequest(
        dialect=scope.dialect,
        request=request,
        decoded=request,
        raw=raw,
        headers=headers,
        path=path,
        hops=read_hops(scope.http),
        id=scope.http.unique_id,
    ), ends


def decode(scope: Scope, raw: bytes, path: str, to_sent: ToSent | None = None) -> ClientRequest:
    headers = own_headers(scope.dialect, scope.http)
    notes = Notes(scope.refuse)
    find = scope.dialect.locate_request
    locate: Locate | None = None if to_sent is None else lambda value, place: to_sent(find(value, place))
    plain = scope.dialect.read_plain_request(raw) if scope.dialect.read_plain_request is not None else None
    if plain is not None and len(plain.messages) <= scope.now.settings.limits.entries:  # fast path: plain request
        notes.begin("request", locate or find)
        request = notes.stage(plain)
    else:
        raw, request = _decode_each(scope, raw, path, headers, notes, locate)
    restored = notes.stage(join_pieces(request, notes)) if scope.dialect.keeps_pieces else request
    if scope.dialect.slots is not None and has_mark(raw):
        restored = take_back_state(restored, scope.dialect.slots, scope.state_key, notes)
    return ClientRequest(
        dialect=scope.dialect,
        request=restored,
        decoded=request,
        same_wire=restored is request,
        raw=raw,
        headers=headers,
        notes=tuple(notes.read(MOST_PLACES)) if len(notes) else (),
        path=path,
        locate=locate,
        hops=read_hops(scope.http),
        id=scope.http.unique_id,
    )


def _decode_each(
    scope: Scope, raw: bytes, path: str, headers: dict[str, str], notes: Notes, locate: Locate | None
) -> tuple[bytes, Request]:
    """Reads a request key by key. Also returns its bytes, which may have been repaired."""
    raw, body = _load(raw, scope, notes)
    try:
        request = read_request(scope.dialect, WireRequest(body=body.values, path=path, headers=headers), notes, locate)
    except RecursionError as error:
        raise DecodeError("nested too deeply") from error
    if body.tools_text and request.tools and not len(notes):
        scope.gateway.known_tools.keep((scope.http.key_id, scope.dialect.name), body.tools_text, request.tools)
    if scope.dialect.name == CANONICAL and request.extras:
        check_extras(request)
    need_messages(request, scope.dialect)
    check_size(request, scope.now.settings.limits)
    return raw, request


def _load(raw: bytes, scope: Scope, notes: Notes) -> tuple[bytes, LoadedBody]:
    """The body as bytes and as JSON. Half a surrogate pair is JSON, but no text that servers take: it is replaced."""
    limits = scope.now.settings.limits
    owner = scope.http.key_id, scope.dialect.name
    try:
        if not scope.dialect.tools_keys:
            return raw, LoadedBody(load_body(raw, limits))
        return raw, load_apart(raw, limits, scope.dialect, scope.gateway.known_tools, owner)
    except DecodeError:
        mended = mend_surrogates(raw)
        if mended is None:
            raise
    for where in find_surrogates(raw):
        if "repaired" in scope.refuse:
            raise LossError(where, HALF)
        notes.extend([Note("repaired", where, HALF)])
    return mended, LoadedBody(load_body(mended, limits))


def need_messages(request: Request, dialect: Dialect) -> None:
    """Refuses a request without messages, as every provider does. But Ollama loads a model then, and others may go on
    with a conversation that a server keeps."""
    if request.messages or dialect.encode_loaded is not None:
        return
    own = request.extras.get(dialect.name, {})
    state_keys = {*dialect.profile.state_keys, *(kept.key for kept in dialect.kept_state)}
    if not any(own.get(key) is not None for key in state_keys):
        raise DecodeError("expected at least one message", dialect.messages_key)


def keep_state(request: Request, dialect: Dialect, targets: Targets) -> Targets:
    """Only targets that may have the state that a request names. Any other would silently answer without it."""
    if not dialect.kept_state:
        return targets
    own = request.extras.get(dialect.name, {})
    named = next((kept for kept in dialect.kept_state if kept.is_name(own.get(kept.key))), None)
    if named is None:
        return targets
    own_dialect = [
        (state, to) for state, to in targets if choose_dialect(state.spec, dialect.name, to.model) == dialect.name
    ]
    if own_dialect:
        return own_dialect
    words = f"{named.key}: the upstream of {request.model[:100]} does not keep it: {named.advice}"
    raise UpstreamError(
        Failure(kind="invalid_request", status=400, param=named.key, message=words, extras=named.extras)
    )


def own_headers(dialect: Dialect, http: HttpRequest) -> dict[str, str]:
    """The headers of a request that belong to its dialect."""
    known = http.facts.carried
    if known is None or known[0] is not dialect:
        found = {name: http.headers[name] for name in dialect.carried_headers if name in http.headers}
        known = http.facts.carried = (dialect, found)
    return known[1]


def read_hops(http: HttpRequest) -> int:
    hops = http.facts.hops
    if hops is None:
        header = http.headers.get(HOP, "")
        hops = http.facts.hops = int(header) if header.isdigit() and len(header) < 5 else 0
    return hops


async def answer_with(scope: Scope, begun: Begun | None = None) -> HttpResponse:
    """Sends the request to an upstream and answers the client with what comes back. `begun`: it was sent already."""
    gateway, client_request = scope.gateway, scope.client_request
    if client_request is None:
        raise DecodeError("the request has no messages")
    request = client_request.request
    targets = keep_state(request, scope.dialect, await find_request_targets(scope, request))
    stream = bool(request.stream)
    load = scope.dialect.encode_loaded
    if load is not None and not request.messages and targets[0][0].spec.dialect != scope.dialect.name:
        return only_load(scope, load(request, gateway.wall()))  # servers of other dialects cannot load a model
    copies = 1
    if (request.choices or 1) > 1:
        client_request, copies = split(client_request, *targets[0], refuse=scope.refuse)
    job = Job(
        targets=targets,
        render=lambda state, target: render(client_request, state, target, stream=stream, refuse=scope.refuse),
        stream=stream,
        deadline=scope.started + scope.now.settings.deadline_s,
        client=scope.http.key_id or scope.http.client,
        raw=client_request.raw,
        tokens=scope.size // CHARS_PER_TOKEN + (bound_output(request.max_output) or 0),
        attempts=scope.attempts,
        trace=scope.trace.start_attempt if scope.trace is not None else None,
        keep_wire=scope.in_xray,
        large=scope.large,
        begun=begun,
    )
    scope.answer = await (gateway.sender.ask(job) if copies == 1 else ask_each(gateway.sender, job, copies))
    response = await respond(scope, stream=stream)
    if stream and copies == 1:
        scope.release_request()
    return response


async def respond(scope: Scope, *, stream: bool) -> HttpResponse:
    """An answer as the client's HTTP response."""
    if scope.answer is None:
        raise DecodeError("the request has no messages")
    scope.status = 200
    if stream:
        headers = reply_headers(scope)
        headers["content-type"] = stream_type(scope)
        headers["cache-control"] = "no-cache"
        headers["x-accel-buffering"] = "no"
        return HttpResponse(200, headers=headers, stream=StreamWriter(scope).run, close=scope.finish)
    return respond_whole(scope, await whole(scope, scope.answer))


def respond_whole(scope: Scope, body: bytes) -> HttpResponse:
    """A whole answer. Its notes are complete now: encoding it may have added some."""
    scope.status = 200
    headers = reply_headers(scope)
    headers["content-type"] = JSON_TYPE
    if scope.keep:
        scope.keep_sent(body)
    scope.record()
    if cost := scope.cost_text:
        headers["x-dragoman-cost"] = cost
    return HttpResponse(200, body, headers=headers, close=scope.finish)


def only_load(scope: Scope, body: JsonObject) -> HttpResponse:
    scope.status = 200
    return HttpResponse(200, dump_json(body) + b"\n", headers={"content-type": JSON_TYPE}, close=scope.finish)


def stream_type(scope: Scope) -> str:
    """Gemini without `alt=sse` streams one JSON array (CLIENTS 17)."""
    if scope.dialect.media_type != "text/event-stream":
        return scope.dialect.media_type
    asked = scope.client_request
    as_array = asked is not None and not asked.path.endswith(scope.dialect.sse_query)
    return JSON_TYPE if as_array else "text/event-stream; charset=utf-8"


async def whole(scope: Scope, answer: OpenAnswer) -> bytes:
    """The body of an unstreamed answer, in the client's dialect."""
    if answer.plain and scope.resolved is None and not scope.makes_names:  # its bytes can be passed on unread
        return answer.raw
    reply, client_request = answer.reply, scope.client_request
    if reply is None or client_request is None:
        raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream sent an empty answer"))
    if answer.as_is:
        body = answer.raw
    else:
        reply = scope.time(scope.stamp(reply))
        carrier = scope.open_carrier()
        carried = reply if carrier is None else answer.notes.stage(carry_reply(reply, carrier, answer.notes))
        work = scope.dialect, carried, answer.notes, client_request.request
        large = scope.large or is_large(answer.raw)  # Responses repeats the request's tools in its reply
        body = await off_loop(True, encode, *work) if large else encode(*work)
    await remember(scope.gateway, scope.http.key_id, scope.resolved, answer, reply, body)
    if scope.makes_names:
        await keep_names(scope.gateway, scope.http.key_id, reply, body)
    if scope.keeps_turns:
        await keep_turn(scope, reply)
    return body


def encode(dialect: Dialect, reply: Reply, notes: Notes, request: Request) -> bytes:
    return dump_json(dialect.encode_reply(reply, notes, request).body)


def reply_headers(scope: Scope) -> dict[str, str]:
    """Our headers. Of the upstream's, only those that say how much of a limit is left (T10)."""
    answer = scope.answer
    headers: dict[str, str] = {}
    if answer is None:
        return headers
    headers["x-dragoman-upstream"] = f"{answer.target.upstream.name}/{answer.target.model}"
    if scope.charge is not None and scope.charge.warning:
        headers["x-dragoman-budget"] = scope.charge.warning
    if answer.dialect.name == scope.dialect.name:
        headers.update(rate_headers(answer.headers, scope.dialect))
    if scope.count_notes():
        canonical = HOP in scope.http.headers
        rows = each_note(scope.notes) if canonical else scope.fold_notes()
        headers["x-dragoman-notes"] = write_notes(rows, canonical=canonical)
    return headers


def rate_headers(headers: dict[str, str], dialect: Dialect) -> dict[str, str]:
    """Those of an upstream's headers that tell how much of a limit is left: a few short ones, in plain letters."""
    names = [name for name in headers if name.startswith(dialect.rate_headers)]
    if not names:
        return {}
    legal = [name for name in names if _NAME.fullmatch(name) and _VALUE.fullmatch(headers[name])]
    return {name: headers[name] for name in legal[:MOST_RATE_HEADERS]}


async def find_request_targets(scope: Scope, request: Request) -> Targets:
    """Where a request goes. If nothing knows its model, upstreams are asked for their lists again."""
    gateway, client = scope.gateway, scope.http.key_id or scope.http.client
    targets = scope.now.route(request, client, gateway.dice)
    if targets:
        return targets
    await gateway.look_for_models(FRESH_S)
    targets = scope.now.route(request, client, gateway.dice)
    if not targets:
        raise UpstreamError(no_model(scope.now, request.model, scope.http.holder, request))
    return targets


def no_model(now: Generation, name: str, holder: Holder | None, request: Request | None = None) -> Failure:
    """No other model answers instead: a prompt for a server on this machine must not leave it. A key hears only of
    models that it may use."""
    rule = None if request is None else find_rule(now.routes, request)
    named = request is not None and name in now.routes.aliases and may_use(now, holder, name)
    if rule is not None or named:
        leading = f"the alias {name[:200]!r}" if rule is None else f"rule {rule + 1} ([[route]])"
        words = f"{leading} of the configuration leads to a model that no upstream serves; see `dragoman check`"
        return Failure(kind="not_found", status=404, code="model_not_found", param="model", message=words)
    words = f"there is no model {name[:200]!r} here"
    if hint := hint_key(now.routes, name) if is_legal_model(name) else "":
        words += f"; {hint}"
    nearest = find_nearest(now.routes, name) if is_legal_model(name) else []
    if nearest := [model for model in nearest if may_use(now, holder, model)]:
        words += f"; did you mean {' or '.join(nearest)}?"
    if holder is None or holder.free_models:
        names = ", ".join(upstream.name for upstream in now.routes.upstreams)
        end = "" if nearest else "."
        words += f"{end} One that is not listed is asked for as UPSTREAM/MODEL; the upstreams are {names}"
    return Failure(kind="not_found", status=404, code="model_not_found", param="model", message=words)


def count_estimate(request: Request) -> int:
    """About how many tokens a request has, from its number of characters. For when no provider can count them."""
    size = len(dump_json(to_builtins(request.messages))) + len(dump_json(to_builtins(request.tools or ())))
    return max(1, size // CHARS_PER_TOKEN)
