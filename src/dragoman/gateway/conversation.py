"""A conversation from a client's door to an upstream and back. One request is one scope; it gives everything back once.

decode -> (previous_response_id) -> route -> per attempt: passes, encode, send -> decode -> restore -> encode
"""

import asyncio
import logging
from typing import cast

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import HOP, ClientRequest
from dragoman.failure import Failure
from dragoman.gateway.bodies import load_body, read_body
from dragoman.gateway.http import JSON_TYPE, HttpRequest, HttpResponse, Write
from dragoman.gateway.response_routes import remember, resolve
from dragoman.gateway.scope import NO_USAGE, Scope
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.log_line import own_error
from dragoman.model.events import ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import ReplyBuilder
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.upstream.answer import OpenAnswer, Piece
from dragoman.upstream.attempts import Job
from dragoman.upstream.fan_out import ask_each
from dragoman.upstream.render import render, split
from dragoman.wire import WireRequest

log = logging.getLogger(__name__)
PING_S = 15.0
AFTER_END_S = 1.0
BIG_BYTES = 1024 * 1024
MAX_NOTES_HEADER = 3500
CHARS_PER_TOKEN = 4
SHUT = Failure(kind="overloaded", status=503, code="shutting_down", message="the server is shutting down")
OLD = Failure(kind="timed_out", status=504, code="stream_too_long", message="the stream took longer than it may")
OWN = Failure(kind="server_error", status=500, code="internal", message="an error of the gateway's own")


async def converse(
    gateway: Gateway, http: HttpRequest, dialect: Dialect, path: str, door: str, *, raw: bytes | None = None
) -> HttpResponse:
    """The whole way of one request; `raw` is its body, if it was read already."""
    scope = http.scope = Scope(gateway, http, dialect, door)
    await take_in(scope, path, raw)
    if "x-dragoman-mcp" in http.headers or scope.now.settings.mcp.default:
        from dragoman.gateway.mcp_loop import answer_in_loop  # most gateways never need it

        return await answer_in_loop(scope)
    return await answer_with(scope)


async def take_in(scope: Scope, path: str, raw: bytes | None) -> None:
    """Reads, checks and decodes what the client asked."""
    http = scope.http
    if raw is None:
        raw = await read_body(http, scope.now.settings)
    scope.size = len(raw)
    if len(raw) > BIG_BYTES:
        scope.client_request = await asyncio.to_thread(decode, scope, raw, path)
    else:
        scope.client_request = decode(scope, raw, path)
    scope.model = scope.client_request.request.model
    if scope.dialect.stores_replies:
        scope.resolved = await resolve(scope.gateway, http.key_id, scope.client_request, scope.now)
        scope.client_request = scope.resolved.client_request


def decode(scope: Scope, raw: bytes, path: str) -> ClientRequest:
    headers = own_headers(scope.dialect, scope.http)
    notes = Notes(scope.refuse)
    wire = WireRequest(body=load_body(raw, scope.now.settings.limits), path=path, headers=headers)
    try:
        request = scope.dialect.decode_request(wire, notes)
    except RecursionError as error:
        raise DecodeError("nested too deeply") from error
    if request.choices is not None and request.choices > scope.now.settings.limits.choices:
        raise DecodeError(f"more answers than {scope.now.settings.limits.choices} to one request")
    return ClientRequest(
        dialect=scope.dialect,
        request=request,
        raw=raw,
        headers=headers,
        notes=tuple(notes),
        path=path,
        hops=read_hops(scope.http),
    )


def own_headers(dialect: Dialect, http: HttpRequest) -> dict[str, str]:
    """Those of a request's headers that belong to its dialect."""
    return {name: http.headers[name] for name in dialect.carried_headers if name in http.headers}


def read_hops(http: HttpRequest) -> int:
    said = http.headers.get(HOP, "0")
    return int(said) if said.isdigit() and len(said) < 5 else 0


async def answer_with(scope: Scope) -> HttpResponse:
    """Asks an upstream and makes its answer the client's."""
    gateway, client_request = scope.gateway, scope.client_request
    if client_request is None:
        raise DecodeError("nothing was asked")
    request = client_request.request
    targets = scope.now.targets(request.model, gateway.dice)
    if not targets:
        raise UpstreamError(no_model(request.model))
    stream = bool(request.stream)
    load = scope.dialect.encode_loaded
    if load is not None and not request.messages and targets[0][0].spec.dialect != scope.dialect.name:
        return only_load(scope, load(request, gateway.wall()))  # elsewhere there is nothing to load
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
        tokens=len(client_request.raw) // CHARS_PER_TOKEN + (client_request.request.max_output or 0),
        attempts=scope.attempts,
        keep_wire=scope.keep,
    )
    scope.answer = await (gateway.sender.ask(job) if copies == 1 else ask_each(gateway.sender, job, copies))
    response = await respond(scope, stream=stream)
    if stream and copies == 1:
        scope.release_request()
    return response


async def respond(scope: Scope, *, stream: bool) -> HttpResponse:
    """The answer as the client's response."""
    if scope.answer is None:
        raise DecodeError("nothing was asked")
    scope.status = 200
    if stream:
        headers = reply_headers(scope)
        kind = scope.answer.headers.get("content-type") if scope.answer.as_is else None
        headers["content-type"] = kind or stream_type(scope)
        headers["cache-control"] = "no-cache"
        headers["x-accel-buffering"] = "no"
        return HttpResponse(200, headers=headers, stream=StreamWriter(scope).run, close=scope.finish)
    body = await whole(scope, scope.answer)
    headers = reply_headers(scope)  # only now: what the answer cannot say in the client's words is noted too
    headers["content-type"] = JSON_TYPE
    if scope.keep:
        scope.sent.append(body)
    return HttpResponse(200, body, headers=headers, close=scope.finish)


def only_load(scope: Scope, body: JsonObject) -> HttpResponse:
    scope.status = 200
    return HttpResponse(200, dump_json(body) + b"\n", headers={"content-type": JSON_TYPE}, close=scope.finish)


def stream_type(scope: Scope) -> str:
    if scope.dialect.media_type == "text/event-stream":
        return JSON_TYPE if wants_array(scope) else "text/event-stream; charset=utf-8"
    return scope.dialect.media_type


def wants_array(scope: Scope) -> bool:
    """Gemini without `alt=sse` streams one JSON array (CLIENTS 17)."""
    asked = scope.client_request
    return asked is not None and not asked.path.endswith(scope.dialect.sse_query)


async def whole(scope: Scope, answer: OpenAnswer) -> bytes:
    """An unstreamed answer, as its client reads it."""
    reply, client_request = answer.reply, scope.client_request
    if reply is None or client_request is None:
        raise UpstreamError(Failure(kind="server_error", status=502, message="the upstream said nothing"))
    if answer.as_is:
        body = answer.raw
    else:
        if scope.dialect.stores_replies:
            reply = replace(reply, id=f"{scope.dialect.reply_id_prefix}{scope.http.id}")
        if reply.created is None and scope.dialect.dated:
            reply = replace(reply, created=round(scope.gateway.wall()))
        wire = scope.dialect.encode_reply(reply, answer.notes, client_request.request)
        body = dump_json(wire.body)
    await remember(scope.gateway, scope.http.key_id, scope.resolved, answer, reply, body)
    return body


class StreamWriter:
    """Events of an answer into the client's stream, with pings while it is quiet."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        request = scope.client_request.request if scope.client_request else None
        self._encoder = scope.dialect.stream_encoder(scope.answer.notes if scope.answer else Notes(), request)
        self._as_is = scope.answer is not None and scope.answer.as_is
        self._tail = b""  # of a frame that is not whole yet
        self._last = b""  # what went out last
        self._builder = ReplyBuilder() if scope.resolved is not None and scope.resolved.store else None
        self._told = len(scope.notes)  # in the headers
        self._ended = False
        self._finished = False  # the answer has ended, though its connection may not have
        self._written = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write: Write | None = None
        self._until = 0.0
        self._pinging: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def run(self, write: Write) -> None:
        scope, answer = self.scope, self.scope.answer
        if answer is None:
            return
        self._task = cast("asyncio.Task[None]", asyncio.current_task())
        scope.gateway.live.add(self._stop)
        self._watch(write)
        keep = scope.sent if scope.keep else None
        try:
            while True:
                try:
                    piece = await (answer.next() if not self._finished else self._after_end(answer))
                except asyncio.CancelledError:
                    if scope.ending is None:
                        raise
                    self._task.uncancel()
                    piece = Piece(b"", [ReplyFailed(failure=scope.ending)])
                except Exception as error:  # our bug; the client must not take half an answer for a whole one
                    log.warning(own_error("read_failed", scope.http.id, error))
                    piece = Piece(b"", [ReplyFailed(failure=OWN)])
                if piece is None:
                    break
                out = self._out(piece)
                if out:
                    if scope.first_s is None:
                        scope.first_s = scope.gateway.clock() - scope.started
                    self._written = self._loop.time()
                    if keep is not None and len(keep) < 5000:
                        keep.append(out)
                    await write(out)
                if self._ended:
                    break
            if out := self._close() + self._late_notes():
                await write(out)
            await self._remember(answer)
        finally:
            self._rest()

    async def _after_end(self, answer: OpenAnswer) -> Piece | None:
        """After the end comes the end of the connection, mostly at once; who keeps it open is left (F27)."""
        try:
            async with asyncio.timeout(AFTER_END_S):
                return await answer.next()
        except TimeoutError:
            return None

    def _out(self, piece: Piece) -> bytes:
        events = piece.events
        scope = self.scope
        if events:
            if not self._as_is and isinstance(events[0], ReplyStart):
                events = [self._dress(events[0]), *events[1:]]
            if self._builder is not None:
                for event in events:
                    self._builder.feed(event)
            last = events[-1]
            if isinstance(last, ReplyFailed):
                scope.failure = last.failure
                self._ended = True
            elif isinstance(last, ReplyEnd):
                scope.usage = last.usage
                self._finished = True
        if self._as_is and events and isinstance(events[0], ReplyStart) and self._is_no_stream(piece.raw):
            self._as_is, self._tail = False, b""
        if self._as_is:
            return self._raw(piece)
        try:
            out = self._encoder.feed(events)
        except Exception as error:  # after the first byte an error can only be said in the stream
            log.warning(own_error("encode_failed", scope.http.id, error))
            self._ended = True
            scope.failure = Failure(kind="server_error", message="the answer cannot be said in this dialect")
            fresh = scope.dialect.stream_encoder(Notes(), None)  # nothing of what may have led to this
            out = fresh.feed([ReplyFailed(failure=scope.failure)])
        return out

    def _raw(self, piece: Piece) -> bytes:
        """The provider's own bytes, whole frames only: a cut stream must not end in half a frame (F06)."""
        failed = self._ended and not piece.raw
        if failed and self.scope.failure is not None:
            self._tail = b""
            if self.scope.failure.kind == "cut_off" or self.scope.failure.code is not None:
                return self._encoder.feed([ReplyFailed(failure=self.scope.failure)])
            return b""
        data = self._tail + piece.raw if self._tail else piece.raw
        cut = frame_end(data, self.scope.dialect.media_type)
        self._tail = data[cut:]
        if cut:
            self._last = data[:cut]
            return self._last
        return b""

    def _is_no_stream(self, raw: bytes) -> bool:
        """Vertex may answer with the whole message in one frame, which no client of Anthropic's reads in a stream."""
        return self.scope.dialect.start_mark not in self._tail + raw

    def _close(self) -> bytes:
        if not self._as_is:
            return self._encoder.close()
        tail, self._tail = self._tail, b""
        if self._ended:
            return b""
        mark = self.scope.dialect.end_mark
        if mark in self._last or mark in tail:
            return tail
        return (tail.rstrip(b"\r\n") + b"\n\n" if tail else b"") + self.scope.dialect.end_frame

    def _late_notes(self) -> bytes:
        """What was noted after the headers had gone, as a comment, which every reader of events skips."""
        notes = self.scope.notes
        if self._as_is or len(notes) <= self._told or not self.scope.dialect.ping:
            return b""
        return f": x-dragoman-notes {write_notes(notes[self._told :])}\n\n".encode()

    def _dress(self, start: ReplyStart) -> ReplyStart:
        """An id by which a stored response is found again, and what encoders cannot know: the time, and about how much
        was read."""
        dialect = self.scope.dialect
        if dialect.counts_first and (start.usage is None or not start.usage.input):
            read = max(self.scope.size // CHARS_PER_TOKEN, 1)
            start = replace(start, usage=replace(start.usage or NO_USAGE, input=read))
        if dialect.stores_replies:
            start = replace(start, id=f"{dialect.reply_id_prefix}{self.scope.http.id}")
        if start.created is None and dialect.dated:
            start = replace(start, created=round(self.scope.gateway.wall()))
        return start

    async def _remember(self, answer: OpenAnswer) -> None:
        scope = self.scope
        if self._builder is None or scope.failure is not None or scope.client_request is None:
            return
        reply = self._builder.reply()
        if isinstance(reply, Reply):
            wire = scope.dialect.encode_reply(reply, Notes(), scope.client_request.request)
            await remember(scope.gateway, scope.http.key_id, scope.resolved, answer, reply, dump_json(wire.body))

    # ---- from outside

    def _stop(self) -> None:
        """The server wants to end: say so in the stream."""
        self._end(SHUT)

    def _end(self, why: Failure) -> None:
        if self.scope.ending is None and self._task is not None:
            self.scope.ending = why
            self._task.cancel()

    def _watch(self, write: Write) -> None:
        """One timer a stream: pings while it is quiet, an end when it took too long."""
        self._written = self._loop.time()
        self._write = write
        limit = self.scope.answer.target.upstream.timeouts.stream_s if self.scope.answer else 0.0
        self._until = self._written + limit
        self._timer = self._loop.call_later(PING_S, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._end(OLD)
            return
        quiet = now - self._written
        ping = self.scope.dialect.ping
        if quiet >= PING_S - 0.001 and ping and not self._tail and self._write is not None:
            self._written, quiet = now, 0.0
            self._pinging = self._loop.create_task(_swallow(self._write, ping))
        self._timer = self._loop.call_later(max(PING_S - quiet, 0.05), self._look)

    def _rest(self) -> None:
        """It is over: no timer, no way to end it, nothing that holds on to anything."""
        self.scope.gateway.live.discard(self._stop)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._task = self._write = self._pinging = None


async def _swallow(write: Write, data: bytes) -> None:
    await write(data)


def frame_end(data: bytes, media_type: str) -> int:
    """Where the last whole frame ends."""
    if media_type != "text/event-stream":
        return data.rfind(b"\n") + 1
    if data[:1] == b"[" or data[:1] == b",":  # Gemini's array goes through as it comes
        return len(data)
    plain, windows, old = data.rfind(b"\n\n"), data.rfind(b"\n\r\n"), data.rfind(b"\r\r")
    return max(plain + 2 if plain >= 0 else 0, windows + 3 if windows >= 0 else 0, old + 2 if old >= 0 else 0)


def reply_headers(scope: Scope) -> dict[str, str]:
    """Ours, and of the upstream's only what says how much is left (T10)."""
    answer = scope.answer
    headers: dict[str, str] = {}
    if answer is None:
        return headers
    headers["x-dragoman-upstream"] = f"{answer.target.upstream.name}/{answer.target.model}"
    if answer.dialect.name == scope.dialect.name:
        said, kept = answer.headers.items(), scope.dialect.rate_headers
        headers.update({name: value for name, value in said if name.startswith(kept) and value.isprintable()})
    notes = scope.notes
    if notes:
        headers["x-dragoman-notes"] = write_notes(notes)
    return headers


def write_notes(notes: tuple[Note, ...]) -> str:
    """As many as fit, as ASCII JSON; the last entry says how many more there are."""
    shown: list[object] = []
    size = 2
    for i, note in enumerate(notes):
        entry = {"kind": note.kind, "where": note.where, "why": note.why}
        size += len(dump_json(entry)) + 1
        if size > MAX_NOTES_HEADER:
            shown.append({"more": len(notes) - i})
            break
        shown.append(entry)
    return dump_json(shown).decode().encode("ascii", "backslashreplace").decode()


def no_model(name: str) -> Failure:
    return Failure(
        kind="not_found",
        status=404,
        code="model_not_found",
        param="model",
        message=f"there is no model {name[:200]!r} here",
    )


def count_estimate(request: Request) -> int:
    """Tokens of a request, where no provider can be asked: characters of what is said, by a rule of thumb."""
    size = len(dump_json(to_builtins(request.messages))) + len(dump_json(to_builtins(request.tools or ())))
    return max(1, size // CHARS_PER_TOKEN)
