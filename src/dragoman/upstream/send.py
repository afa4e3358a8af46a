"""Sender: asks upstreams until one begins to answer. Deciders decide; this waits, sends and reads.

The commit point is here: `ask` returns when the first meaningful event has arrived, and every failure before that is
an UpstreamError, retried or sent elsewhere as `retry.decide` says. After it, a stream that breaks ends with
ReplyFailed; `Answer.next` raises only for a bug of ours.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects._base import Dialect, StreamDecoder
from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import load_json
from dragoman.log_line import LogLine, own_error
from dragoman.model.events import Event, PartDelta, ReplyEnd, ReplyFailed
from dragoman.model.fold import unfold
from dragoman.model.reply import Reply, Usage
from dragoman.notes import Notes
from dragoman.upstream.admission import Ticket
from dragoman.upstream.attempts import Attempts
from dragoman.upstream.failures import MAX_ERROR_BYTES, for_client, left_alone, malformed, redact, too_late, unreadable
from dragoman.upstream.key_ring import Key
from dragoman.upstream.read_reply import count_all, decode_whole, fold_events, is_whole, says_something
from dragoman.upstream.retry import LONGEST_HINT_S, MOST_ATTEMPTS, Again, GiveUp, decide
from dragoman.upstream.retry_after import DAY_S, read_hint, read_words
from dragoman.upstream.spec import Auth, Target
from dragoman.upstream.transport import Opened, Transport
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.upstream.urls import join_url
from dragoman.wire import WireReply

log = logging.getLogger(__name__)
HOLD_S = 15.0  # a stream that has started but says nothing is committed after this, so that its client hears pings
MAX_MESSAGE = 2000
MOST_LESSONS = 3  # things a model refuses that one request may teach


class UpstreamCall(Struct, kw_only=True):
    """A request as one target wants it, made afresh for each attempt."""

    dialect: Dialect
    path: str
    body: bytes
    headers: dict[str, str]
    notes: Notes
    opaque: bool = False  # the answer's body is not a reply: embeddings, sound
    as_is: bool = False  # the client's own bytes: the reply's bytes may go back as they are
    restore: Callable[[list[Event]], list[Event]] | None = None
    restore_reply: Callable[[Reply], Reply] | None = None
    events: Callable[[], Iterator[Event]] | None = None  # the demo model answers by itself
    learn: Callable[[Failure], "UpstreamCall | None"] | None = None  # what to send instead, if a refusal tells


class Attempt(Struct, kw_only=True):
    """One try, for logs and X-ray."""

    upstream: str
    model: str
    key: str = ""
    waited_s: float = 0.0
    status: int | None = None
    failure: str | None = None
    body: bytes = b""  # what was sent
    reply: bytes = b""  # what came back, as far as it was kept


class Job(Struct, kw_only=True):
    """What `ask` needs to know."""

    targets: Sequence[tuple[UpstreamState, Target]]
    render: Callable[[UpstreamState, Target], UpstreamCall]
    stream: bool
    deadline: float
    who: str = ""
    asked: bytes = b""  # the client's body, to tell one request from another
    tokens: int = 0
    attempts: list[Attempt] = []
    keep_wire: bool = False  # for X-ray
    most: int = MOST_ATTEMPTS  # 1: whoever is asked tries again by itself


class Piece(Struct):
    """What arrived together."""

    raw: bytes
    events: list[Event]


class UpstreamAnswer:
    """A provider that has begun to answer. Whoever holds it calls `close`, once or more."""

    def __init__(
        self, sender: "Sender", job: Job, state: UpstreamState, target: Target, key: Key, rendered: UpstreamCall
    ) -> None:
        self._who, self._asked = job.who, job.asked
        self._about: int | None = None  # what was asked, once that is let go
        self.state = state
        self.target = target
        self.rendered = rendered
        self.headers: dict[str, str] = {}
        self.raw = b""  # an unstreamed body
        self.reply: Reply | None = None
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self.waited_s = 0.0
        self._sender = sender
        self._key = key
        self._opened: Opened | None = None
        self._decoder: StreamDecoder | None = None
        self._held: list[Piece] = []
        self._events: Iterator[Event] | None = None
        self._ticket: Ticket | None = None
        self._sent = False
        self._ended = False
        self._finished = False  # all was said, though the connection may still be open
        self._whole = False
        self._closed = False

    async def next(self) -> Piece | None:
        """What comes next, None at the end."""
        if self._held:
            return self._held.pop(0)
        if self._ended:
            return None
        if self._events is not None:
            return self._demo_piece()
        if self._opened is None:
            return None
        try:
            raw = await self._opened.next()
        except UpstreamError as error:
            return self._broke(error.failure)
        if not raw:
            self._whole = True
            return self._last()
        return self._piece(raw)

    def hold(self, piece: Piece) -> None:
        """Keep it for `next`."""
        self._held.append(piece)

    def _demo_piece(self) -> Piece | None:
        events: list[Event] = []
        for event in self._events or ():
            events.append(event)
            if isinstance(event, PartDelta):
                break
        if not events:
            self._ended = True
            return None
        return Piece(b"", self._observe(events))

    def _piece(self, raw: bytes) -> Piece:
        try:
            events = self._decoder.feed(raw) if self._decoder else []
            if events and isinstance(failed := events[-1], ReplyFailed) and self._key.secret is not None:
                raw = self._key.secret.redact(raw)
                events[-1] = ReplyFailed(failure=redact(failed.failure, self._key.secret))
            return Piece(raw, self._observe(events))
        except (DecodeError, RecursionError) as error:
            return self._broke(unreadable(error))

    def _last(self) -> Piece | None:
        self._ended = True
        try:
            events = self._observe(self._decoder.close() if self._decoder else [])
        except (DecodeError, RecursionError) as error:
            return self._broke(unreadable(error))
        return Piece(b"", events) if events else None

    def _broke(self, failure: Failure) -> Piece:
        self._ended = True
        return Piece(b"", self._observe([ReplyFailed(failure=failure)]))

    def _observe(self, events: list[Event]) -> list[Event]:
        if events:
            last = events[-1]
            if isinstance(last, ReplyEnd):
                self.usage = last.usage
                self._finished = True
            elif isinstance(last, ReplyFailed):
                self.failure = last.failure
            if self.rendered.restore is not None:
                return self.rendered.restore(events)
        return events

    def let_go(self) -> None:
        """It will not be asked again: what was sent need not be kept for as long as the answer takes."""
        self._about, self._asked = _about(self._asked), b""
        self.rendered.body, self.rendered.learn = b"", None

    def close(self) -> None:
        """Gives back the socket and the place, settles the tokens, tells the breaker. Only the first call counts."""
        if self._closed:
            return
        self._closed = True
        if self._opened is not None:
            self._opened.close(whole=self._whole)
        breaker = self.state.breaker(self._key, self.target.model)
        now = self._sender.clock()
        if self.failure is not None:
            state, dice = self.state, self._sender.dice()
            about = self._about or _about(self._asked)
            state.learn(self._key, self.target.model, self.failure, now, dice, self._who, about)
        elif self._ended or self._finished:
            breaker.succeeded(now, self._who)
        else:
            breaker.abandoned()
        if self._ticket is not None:
            self.state.admission_waiter.leave(self._ticket, sent=self._sent, tokens=count_all(self.usage))
        self.state.budget.in_flight -= 1


class Sender:
    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.wall = wall
        self.dice = dice

    async def ask(self, job: Job) -> UpstreamAnswer:
        """The first answer that begins; an UpstreamError when there is none to be had."""
        course = Attempts(job.targets)
        try:
            while True:
                state, target, key = await self._choose(job, course)
                course.attempts += 1
                try:
                    return await self._try(job, state, target, key)
                except UpstreamError as error:
                    failure = error.failure
                course.free()
                await self._go_on(job, course, state, target, key, failure)
        finally:
            course.free()

    async def _go_on(
        self, job: Job, course: Attempts, state: UpstreamState, target: Target, key: Key, failure: Failure
    ) -> None:
        """After a failure: prepares the next attempt, or raises."""
        now = self.clock()
        others = course.others(target)
        if failure.code in ("queue_full", "queue_timeout"):
            state.breaker(key, target.model).abandoned()
            if not others:  # waiting was tried already, or there is no room to wait
                raise UpstreamError(failure)
        else:
            state.learn(key, target.model, failure, now, self.dice(), job.who, _about(job.asked))
        failure = _soonest(failure, job, now)
        told, of = course.to_tell(target, failure, state.spec.name)
        decision = decide(
            failure,
            attempts=course.attempts,
            other=bool(others),
            other_key=course.has_other_key(state, target, key),
            left_s=job.deadline - now,
            dice=self.dice(),
            budget=state.budget.allows(),
            most=job.most,
        )
        match decision:
            case GiveUp():
                raise UpstreamError(for_client(told, of))
            case Again() if failure.kind == "rate_limited":
                course.start_again(state.budget)  # `_choose` waits for whoever may be asked first
            case Again(wait_s=wait):
                course.hold(state.budget)  # which also bounds how many wait here
                await asyncio.sleep(wait)
            case _:
                course.go_on(state, target, key, now)

    async def _choose(self, job: Job, course: Attempts) -> tuple[UpstreamState, Target, Key]:
        """The first target that has a usable key; waits when one will have one soon."""
        while True:
            now = self.clock()
            left = course.left
            for state, target in left:
                key = state.pick(target.model, now, course.tried(state, target))
                if key is not None:
                    return state, target, key
            for state, target in left:
                key = state.probe(target.model, now) if state.keys.wait_s(now, target.model) == 0 else None
                if key is not None:
                    return state, target, key
            wait, first = min(((s.wait_s(t.model, now), s) for s, t in left), key=lambda found: found[0])
            wait = max(wait, 0.01)
            resting = all(state.keys.wait_s(now, target.model) > 0 for state, target in left)
            failure = left_alone([s.spec.name for s, _ in left], wait, resting=resting)
            if not resting or wait > min(LONGEST_HINT_S, job.deadline - now):
                raise UpstreamError(failure)
            await self._wait_for_cooldown(first, wait * (1 + 0.1 * self.dice()), failure)

    async def _wait_for_cooldown(self, state: UpstreamState, wait_s: float, failure: Failure) -> None:
        """Waits for a cool-down to end, beside as many others as may wait at this upstream (F14)."""
        if state.waiting_for_cooldown >= state.spec.queue:
            raise UpstreamError(failure)
        state.waiting_for_cooldown += 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            state.waiting_for_cooldown -= 1

    async def _try(self, job: Job, state: UpstreamState, target: Target, key: Key) -> UpstreamAnswer:
        rendered = job.render(state, target)
        for _ in range(MOST_LESSONS):
            try:
                return await self._try_with(job, state, target, key, rendered)
            except UpstreamError as error:
                again = rendered.learn(error.failure) if rendered.learn is not None else None
                if again is None:
                    raise
                rendered = again
        return await self._try_with(job, state, target, key, rendered)

    async def _try_with(
        self, job: Job, state: UpstreamState, target: Target, key: Key, rendered: UpstreamCall
    ) -> UpstreamAnswer:
        attempt = Attempt(upstream=state.spec.name, model=target.model, key=key.secret.hint if key.secret else "")
        job.attempts.append(attempt)
        if job.keep_wire:
            attempt.body = rendered.body
        answer = UpstreamAnswer(self, job, state, target, key, rendered)
        state.budget.in_flight += 1
        breaker = state.breaker(key, target.model)
        breaker.begin(self.clock())
        try:
            ticket = Ticket(job.who, job.tokens)
            attempt.waited_s = answer.waited_s = await state.admission_waiter.enter(ticket, job.deadline - self.clock())
            answer._ticket = ticket
            if rendered.events is not None:
                self._answer_by_itself(job, answer, rendered.events())
            else:
                await self._send(job, answer, attempt, key)
        except UpstreamError as error:
            failure = error.failure if key.secret is None else redact(error.failure, key.secret)
            attempt.failure = failure.code or failure.kind
            _tell(attempt, failure.message)
            if answer._ticket is not None:
                state.admission_waiter.leave(answer._ticket, sent=answer._sent)
                answer._ticket = None
            self._drop(answer)
            raise UpstreamError(failure) from error
        except BaseException:
            breaker.abandoned()
            answer.close()
            raise
        state.sent += 1
        _tell(attempt)
        return answer

    def _drop(self, answer: UpstreamAnswer) -> None:
        """An attempt that failed: `ask` tells the state what it learnt."""
        answer._closed = True
        if answer._opened is not None:
            answer._opened.close()
        answer.state.budget.in_flight -= 1

    def _answer_by_itself(self, job: Job, answer: UpstreamAnswer, events: Iterator[Event]) -> None:
        answer._sent = True
        if job.stream:
            answer._events = events
        else:
            self._take_reply(answer, fold_events(list(events)))

    async def _send(self, job: Job, answer: UpstreamAnswer, attempt: Attempt, key: Key) -> None:
        state, rendered = answer.state, answer.rendered
        spec = state.spec
        headers = build_headers(rendered.headers, spec.headers, spec.auth, key, state.origin)

        def on_sent() -> None:
            answer._sent = True
            if answer._ticket is not None:
                state.admission_waiter.stamp(answer._ticket)

        left = job.deadline - self.clock()
        opened = await self.transport.open(
            join_url(spec.base_url, rendered.path),
            headers,
            rendered.body,
            timeouts=spec.timeouts,
            head_s=min(left, spec.timeouts.headers_s) if job.stream else left,
            on_sent=on_sent,
            caps=spec.caps,
        )
        answer._opened = opened
        answer.headers = opened.headers
        attempt.status = opened.status
        if opened.status >= 300 or opened.status < 200:
            raise UpstreamError(await self._refusal(answer, opened, key, attempt))
        encoding = opened.headers.get("content-encoding", "identity")
        if encoding not in ("", "identity"):
            raise UpstreamError(malformed(f"the upstream's answer is {encoding[:20]}, which was not asked for"))
        if job.stream and not is_whole(opened.headers, rendered.dialect):
            await self._hold(answer, job.deadline)
        else:
            await self._read_whole(job, answer, opened, attempt)

    async def _refusal(self, answer: UpstreamAnswer, opened: Opened, key: Key, attempt: Attempt) -> Failure:
        if opened.status < 400:
            words = f"the upstream answered {opened.status}; redirects are not followed"
            return Failure(kind="server_error", status=502, code="upstream_redirect", message=words)
        try:
            data = await opened.read(MAX_ERROR_BYTES)
        except UpstreamError:
            data = b""
        if key.secret is not None:
            data = key.secret.redact(data)
        attempt.reply = data[:MAX_MESSAGE]
        return self._failure(answer.rendered.dialect, opened, data)

    def _failure(self, dialect: Dialect, opened: Opened, data: bytes) -> Failure:
        try:
            body = load_json(data) if data else {}
        except DecodeError:
            body = data.decode("utf-8", "replace") if "html" not in opened.headers.get("content-type", "") else ""
        try:
            failure = dialect.decode_failure(WireReply(body=body, status=opened.status, headers=opened.headers))
        except Exception as error:  # an error body can be anything, and its status tells enough to go on
            if not isinstance(error, DecodeError | RecursionError):
                log.warning(own_error("failure_unread", "", error))
            failure = Failure(kind="server_error", status=opened.status, message="")
        changes: dict[str, object] = {}
        if not failure.message:
            changes["message"] = f"the upstream answered {opened.status}"
        elif len(failure.message) > MAX_MESSAGE:
            changes["message"] = failure.message[:MAX_MESSAGE]
        hint = read_hint(opened.headers, self.wall())
        if hint is None and failure.retry_after_s is None and failure.kind == "rate_limited":
            hint = read_words(failure.message)
        said = failure.retry_after_s if failure.retry_after_s is None or failure.retry_after_s <= DAY_S else None
        if hint is not None and failure.kind in ("rate_limited", "overloaded", "server_error"):
            said = max(hint, said or 0.0)
        if said != failure.retry_after_s:
            changes["retry_after_s"] = said
        return replace(failure, **changes) if changes else failure

    async def _hold(self, answer: UpstreamAnswer, deadline: float) -> None:
        """Reads until something is said: what fails before that can still be tried elsewhere. Comments for ever say
        nothing (T42)."""
        answer._decoder = answer.rendered.dialect.stream_decoder(answer.rendered.notes)
        held: list[Piece] = []
        until: float | None = None  # set once it has started
        while until is None or self.clock() < until:
            try:
                async with asyncio.timeout(None if until is None else until - self.clock()):
                    piece = await answer.next()
            except TimeoutError:
                break
            answer.failure = None  # `ask` hears of it instead
            if piece is None:
                raise UpstreamError(malformed("the upstream's stream says nothing"))
            if piece.events and isinstance(failed := piece.events[-1], ReplyFailed):
                raise UpstreamError(failed.failure)
            held.append(piece)
            if any(says_something(event) for event in piece.events):
                break
            if until is None and piece.events:
                until = self.clock() + HOLD_S
            elif until is None and self.clock() > deadline:
                raise UpstreamError(too_late())
        for piece in held:
            answer.hold(piece)

    async def _read_whole(self, job: Job, answer: UpstreamAnswer, opened: Opened, attempt: Attempt) -> None:
        raw = await opened.read(until=job.deadline)
        answer._whole = True
        if job.keep_wire:
            attempt.reply = raw if answer._key.secret is None else answer._key.secret.redact(raw)
        rendered = answer.rendered
        if rendered.opaque:
            answer.raw, answer._ended = raw, True
            return
        reply = decode_whole(opened.headers, raw, rendered.dialect, rendered.notes, as_is=rendered.as_is)
        answer.raw = raw
        if job.stream:
            answer.hold(Piece(b"", answer._observe(list(unfold(reply)))))
            answer._ended = True
        else:
            self._take_reply(answer, reply)

    def _take_reply(self, answer: UpstreamAnswer, reply: Reply) -> None:
        answer.usage = reply.usage
        restore = answer.rendered.restore_reply
        answer.reply = restore(reply) if restore is not None else reply
        answer._ended = True


def build_headers(
    wire: dict[str, str], configured: dict[str, str], auth: Auth, key: Key, origin: str
) -> dict[str, str]:
    """Every header an upstream gets: the dialect's own, the configured ones, the key. Nothing of the client's."""
    headers = {
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": "dragoman",
        **wire,
        **configured,
    }
    if key.secret is not None and auth != "none":
        value = key.secret.reveal(origin)
        if auth == "bearer":
            headers["authorization"] = f"Bearer {value}"
        else:
            headers[auth] = value
    return headers


def _soonest(failure: Failure, job: Job, now: float) -> Failure:
    """A client that has to come again comes when the first of its targets may be asked again (F14)."""
    if failure.kind != "rate_limited":
        return failure
    wait = min(state.wait_s(target.model, now) for state, target in job.targets)
    return replace(failure, retry_after_s=wait) if wait > 0 else failure


def _about(asked: bytes) -> int | None:
    return hash(asked) if asked else None


def _tell(attempt: Attempt, why: str = "") -> None:
    if log.isEnabledFor(logging.DEBUG):
        fields = {"upstream": attempt.upstream, "model": attempt.model, "key": attempt.key, "status": attempt.status}
        times = {"waited_ms": round(attempt.waited_s * 1000), "failure": attempt.failure, "why": why}
        log.debug(LogLine("attempt", fields | times))
