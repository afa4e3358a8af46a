"""A conversation from a client's door to an upstream and back.

    decode -> stored conversation -> route -> for each attempt: passes, encode, send -> decode -> undo -> encode

A Scope holds what one request uses (a place in a queue, reserved money), and gives all of it back exactly once.
"""

import re
from typing import TypeAlias

from msgspec import to_builtins

from dragoman.accounts.grants import Holder
from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import HOP, UpstreamCall
from dragoman.failure import Failure
from dragoman.gateway.access.charge import (
    bound_output,
    may_use,
)
from dragoman.gateway.access.owners import keep_names
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse
from dragoman.gateway.kept_turns import keep_turn
from dragoman.gateway.note_header import each_note, write_notes
from dragoman.gateway.routes.responses import remember
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.state import Gateway, Generation
from dragoman.gateway.stream_writer import StreamWriter
from dragoman.gateway.take_in import ToSent, take_in
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.reasoning_state.carry import carries_state, carry_reply
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.attempts import Begun, Job, is_large, off_loop
from dragoman.upstream.fan_out import ask_each
from dragoman.upstream.open_answer import OpenAnswer
from dragoman.upstream.render import choose_dialect, render, split
from dragoman.upstream.routing import find_nearest, find_rule, hint_key, is_legal_model
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState

Targets: TypeAlias = list[tuple[UpstreamState, Target]]
FRESH_S = 5.0  # a list of models that is younger than this is not asked for again
MOST_RATE_HEADERS = 32  # Anthropic has some twenty
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


async def answer_with(
    scope: Scope, begun: Begun | None = None, call: UpstreamCall | None = None, targets: Targets | None = None
) -> HttpResponse:
    """Sends the request to an upstream and answers the client with what comes back. `call`: it was written already, and
    `begun`: sent, too. `targets`: those that it was written for. To choose again might choose others."""
    gateway, client_request = scope.gateway, scope.client_request
    if client_request is None:
        raise DecodeError("the request has no messages")
    request = client_request.request
    if targets is None:
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
        call=call,
        begun=begun,
    )
    scope.answer = await (gateway.sender.ask(job) if copies == 1 else ask_each(gateway.sender, job, copies))
    return await respond(scope, stream=stream)


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
        writer = StreamWriter(scope)
        if isinstance(scope.answer, UpstreamAnswer):  # a loop needs its request, as do copies that have not begun
            scope.release_request(scope.answer)
        return HttpResponse(200, headers=headers, stream=writer.run, close=scope.finish)
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
    reply = answer.reply
    if reply is None or scope.client_request is None:
        raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream sent an empty answer"))
    large = scope.large or is_large(answer.raw)  # Responses repeats the request's tools in its reply
    body = answer.raw
    if not answer.as_is:
        reply = scope.time(scope.stamp(reply))
        body = await off_loop(large, write_reply, scope, answer, reply, scope.client_request.request)
    await remember(scope.gateway, scope.http.key_id, scope.resolved, answer, reply, body)
    if scope.makes_names:
        await keep_names(scope.gateway, scope.http.key_id, reply, body)
    if scope.keeps_turns:
        await keep_turn(scope, reply)
    return body


def whole_now(scope: Scope, answer: OpenAnswer) -> bytes | None:
    """The same. None: it has to wait, because something of the answer is to be kept, or because it is large."""
    if scope.resolved is not None or scope.makes_names or scope.large or is_large(answer.raw):
        return None
    if answer.plain:
        return answer.raw
    reply, client_request = answer.reply, scope.client_request
    if reply is None or client_request is None or (scope.keeps_turns and carries_state(reply)):
        return None
    if answer.as_is:
        return answer.raw
    return write_reply(scope, answer, scope.time(scope.stamp(reply)), client_request.request)


def write_reply(scope: Scope, answer: OpenAnswer, reply: Reply, request: Request) -> bytes:
    """A whole answer in the client's dialect."""
    carrier = scope.open_carrier() if carries_state(reply) else None
    carried = reply if carrier is None else answer.notes.stage(carry_reply(reply, carrier, answer.notes))
    return dump_json(scope.dialect.encode_reply(carried, answer.notes, request).body)


def reply_headers(scope: Scope) -> dict[str, str]:
    """Our headers. Of the upstream's, only those that say how much of a limit is left (T10), unless the key has limits
    of its own."""
    answer = scope.answer
    headers: dict[str, str] = {}
    if answer is None:
        return headers
    headers["x-dragoman-upstream"] = f"{answer.target.upstream.name}/{answer.target.model}"
    if scope.charge is not None and scope.charge.warning:
        headers["x-dragoman-budget"] = scope.charge.warning
    if quota := scope.write_quota():
        headers.update(quota)
    elif answer.dialect.name == scope.dialect.name:
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
