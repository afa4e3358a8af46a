"""UpstreamAnswer: the answer of one upstream, from its call to its end. Once it has begun, it is an OpenAnswer.

The commit point is here: `UpstreamAnswer.begin` returns when the first meaningful event has arrived, and every failure
before that is an UpstreamError, which `Sender.ask` retries or sends elsewhere. After it, a stream that breaks ends with
ReplyFailed; `next` raises only for a bug of ours.
"""

import asyncio
from collections.abc import Callable, Iterator

from dragoman.errors import DecodeError, UpstreamError
from dragoman.exchange import UpstreamCall
from dragoman.failure import Failure
from dragoman.framing.ndjson import MAX_LINE_BYTES
from dragoman.framing.sse import find_cut
from dragoman.model.events import Event, PartDelta, ReplyFailed, TextRun
from dragoman.model.fold import unfold
from dragoman.model.reply import Reply, Usage
from dragoman.upstream.admission import Ticket
from dragoman.upstream.attempts import Attempt, Attempts, Begun, Job, WireTimes, is_large, log_attempt, off_loop
from dragoman.upstream.failures import MAX_ERROR_BYTES, malformed, redact, redact_error, too_late, unreadable
from dragoman.upstream.keys import Key
from dragoman.upstream.open_answer import Piece, Tap
from dragoman.upstream.read_reply import (
    MAX_MESSAGE,
    count_all,
    decode_whole,
    fold_events,
    is_array,
    is_document,
    may_tell,
    read_refusal,
    refuse_form,
    says_something,
    take_whole,
)
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.transport import Opened, Transport
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.way_back import StreamReader

# A stream that has started but says nothing is committed after this, so that its client gets pings.
QUIET_START_S = 15.0
BIG_EVENT = 64 * 1024  # bytes; one that is larger is decoded off the loop
SLICE_BYTES = 16 * 1024  # of a stream that are worked on at once: in more there may be thousands of events
FIRST_SLICE_BYTES = 2 * 1024  # the first words go out before the rest is looked at; a frame before them may be longer
SLICE_EVENTS = 100
MOST_QUIET_PIECES = 8  # of a stream that says nothing: after them a task reads it
MOST_UNSAID = 8 * 1024 * 1024  # bytes of a stream that says nothing: they are kept until it does


class UpstreamAnswer:
    """One call to one upstream with one key, and its answer."""

    __slots__ = (
        *("_bug", "_client", "_clock", "_closed", "_decoding", "_demo", "_dice", "_ended", "_key", "_opened"),
        *("_peeked", "_quiet_until", "_read_ahead", "_reader", "_reply", "_request", "_request_hash", "_sent"),
        *("_slice_bytes", "_splice", "_state", "_stopped", "_tap", "_ticket", "_times", "_unread", "_whole"),
        *("as_is", "call", "complete", "dialect", "failure", "headers", "notes", "plain", "raw", "target", "usage"),
    )

    def __init__(
        self,
        client: str,
        request: bytes,
        state: UpstreamState,
        target: Target,
        key: Key,
        call: UpstreamCall,
        *,
        clock: Callable[[], float],
        dice: Callable[[], float],
    ) -> None:
        self.target = target
        self.call = call
        self.dialect = call.dialect
        self.as_is = call.as_is
        self.notes = call.notes
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.complete = self.plain = False
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self._reply: Reply | None = None
        self._state = state
        self._key = key
        self._clock, self._dice = clock, dice
        self._client, self._request = client, request
        self._request_hash: int | None = None  # set when the request is released
        self._opened: Opened | None = None
        self._peeked = b""  # read to see whether a stream comes
        self._slice_bytes = FIRST_SLICE_BYTES
        self._reader: StreamReader | None = None
        self._read_ahead: list[Piece] = []  # before the commit point
        self._quiet_until: float | None = None  # a stream that has started may say nothing for so long
        self._demo: Iterator[Event] | None = None
        self._ticket: Ticket | None = None
        self._sent = False
        self._ended = False
        self._whole = False  # the connection was read to its end
        self._unread = 0  # bytes since the last event: the next event has at least this size
        self._decoding: asyncio.Future[Piece] | None = None  # a large event, off the loop
        self._closed = False
        self._times: WireTimes | None = None
        self._tap: Tap | None = None
        self._splice: Callable[[bytes], bool] | None = None  # of the tap
        self._stopped = False
        self._bug: Exception | None = None  # raised while a piece was tapped

    # ---------------------------------------------------------------- to its first words

    async def begin(self, job: Job, attempts: Attempts, transport: Transport, wall: Callable[[], float]) -> None:
        """Sends the call and reads until the first content arrives. An UpstreamError if there is none."""
        secret = self._key.secret
        attempt = Attempt(
            upstream=self._state.spec.name, model=self.target.model, key=secret.hint if secret is not None else ""
        )
        job.attempts.append(attempt)
        if job.keep_wire:
            attempt.body = self.call.body
            attempt.times = self._times = WireTimes(began=self._clock(), dialect=self.call.dialect.name)
        began, begun, job.begun = self._clock(), job.begun, None
        traced = job.trace(attempt) if job.trace is not None else None
        if begun is None:
            self._state.budget.in_flight += 1
            self._state.breaker(self._key, self.target.model).begin(began)
        else:
            began, self._ticket, self._sent = begun.began, begun.ticket, True
        try:
            if begun is None:
                self._ticket = await self._enter(job, attempt, began)
            if self._state.spec.kind == DEMO and self.call.request is not None:
                from dragoman.demo.model import demo_events  # most gateways have no demo model

                self._take_demo(job, demo_events(self.call.request))
            else:
                await self._send(job, attempts, transport, attempt, wall, traced, begun)
        except UpstreamError as error:
            if secret is not None:
                redact_error(error, secret)
            attempt.failure, attempt.seconds = error.failure.code or error.failure.kind, self._clock() - began
            log_attempt(attempt, error.failure.message)
            self._drop()
            raise
        except BaseException:
            attempt.abandoned = self._sent
            self._state.breaker(self._key, self.target.model).abandoned()
            self.close()
            raise
        self._state.sent += 1
        log_attempt(attempt)

    async def _enter(self, job: Job, attempt: Attempt, now: float) -> Ticket:
        """Takes a place at the upstream's limits."""
        ticket, waiter = Ticket(job.client, job.tokens), self._state.admission_waiter
        if not waiter.enter_now(ticket, now):
            attempt.waited_s = await waiter.enter(ticket, job.deadline - self._clock())
        return ticket

    def keep(self, reply: Reply) -> None:
        """Uses an earlier answer, because asking for a better one failed. Nothing is sent."""
        self._state.budget.in_flight += 1
        self._state.breaker(self._key, self.target.model).begin(self._clock())
        self.usage, self._reply = reply.usage, self.call.accept(reply)
        self.complete = self._ended = True

    def _drop(self) -> None:
        """Cleans up after a failure before the first event. `Sender.ask` tells the upstream's state about it."""
        self._closed = True
        if self._ticket is not None:
            self._state.admission_waiter.leave(self._ticket, sent=self._sent)
        if self._opened is not None:
            self._opened.close()
        self._state.budget.in_flight -= 1

    def _take_demo(self, job: Job, events: Iterator[Event]) -> None:
        self._sent = True
        if job.stream:
            self._reader, self._demo = self.call.open_reader(), events
        else:
            self._take_reply(fold_events(list(events)))

    async def _send(
        self,
        job: Job,
        attempts: Attempts,
        transport: Transport,
        attempt: Attempt,
        wall: Callable[[], float],
        traced: dict[str, str] | None,
        begun: Begun | None,
    ) -> None:
        spec = self._state.spec
        timeouts = spec.timeouts
        if self._opened is not None:  # it was heard already
            attempt.status = self._opened.status
            await self._read_first_words(job.deadline)
            return
        left = job.deadline - (self._clock() if begun is None else begun.began)
        opened = self._opened = await transport.send(
            self._state.find_head(self._key, self.call.path, self.call.headers, traced),
            self.call.body,
            timeouts,
            min(left, timeouts.headers_s) if job.stream else left,
            self._on_sent,
            spec.caps,
            attempts.made > 1,  # an upstream that has just failed may have closed its idle connections too
            attempts.count_resend,
            min(left, timeouts.first_s),
            spec.network,
            begun.asked if begun is not None else None,
        )
        self.headers = opened.headers
        attempt.status = opened.status
        if self._times is not None:
            self._times.heard = self._clock()
        if opened.status >= 300 or opened.status < 200:
            raise UpstreamError(await self._refusal(opened, attempt, wall()))
        refuse_form(opened.headers)
        if job.stream and not await self._opens_document(opened, job.deadline):
            await self._read_first_words(job.deadline)
        else:
            await self._read_whole(job, opened, attempt)

    async def _opens_document(self, opened: Opened, deadline: float) -> bool:
        """Whether one JSON document begins, although a stream was asked for. What was read for this stands first."""
        peeked, found = bytearray(), None
        while found is None:
            opened.says_nothing_yet()
            piece = await opened.next()
            if piece and self._clock() > deadline:
                raise UpstreamError(too_late())
            peeked += piece
            if piece and not may_tell(piece, self.dialect) and len(peeked) <= MAX_LINE_BYTES:
                continue
            self._peeked = bytes(peeked)
            if not piece:
                return False
            if len(peeked) > BIG_EVENT:
                found = await asyncio.to_thread(is_document, self._peeked, self.dialect)
            else:
                found = is_document(self._peeked, self.dialect)
            if found is None and len(peeked) > MAX_LINE_BYTES:
                raise UpstreamError(malformed("the upstream's stream begins with nothing but blanks"))
        if is_array(self._peeked) == self.call.path.endswith(self.dialect.sse_query):
            self.as_is = False  # a stream, but not in the form that was asked for (Gemini has two)
        return found

    def _on_sent(self) -> None:
        self._sent = True
        if self._times is not None:
            self._times.sent = self._clock()
        if self._ticket is not None:
            self._state.admission_waiter.stamp(self._ticket)

    async def _refusal(self, opened: Opened, attempt: Attempt, wall: float) -> Failure:
        try:
            data = await opened.read(MAX_ERROR_BYTES) if opened.status >= 400 else b""
        except UpstreamError:
            data = b""
        if self._key.secret is not None:
            data = self._key.secret.redact(data)
        attempt.reply = data[:MAX_MESSAGE]
        return read_refusal(self.dialect, opened.status, opened.headers, data, wall)

    async def _read_first_words(self, deadline: float) -> None:
        """Reads until the first content arrives: until then another upstream can be asked. A stream of comments alone
        has no content (T42)."""
        if self._reader is None:
            self._reader = self.call.open_reader()
        pieces: list[Piece] = []
        size = 0
        while self._quiet_until is None or self._clock() < self._quiet_until:
            try:
                if self._quiet_until is None:
                    piece = await self.next()
                else:
                    async with asyncio.timeout(self._quiet_until - self._clock()):
                        piece = await self.next()
            except TimeoutError:
                break
            if piece is None:
                raise UpstreamError(malformed("the upstream's stream says nothing"))
            if piece.events and isinstance(failed := piece.events[-1], ReplyFailed):
                raise UpstreamError(failed.failure)
            pieces.append(piece)
            size += len(piece.raw)
            if any(map(says_something, piece.events)):
                break
            if size > MOST_UNSAID:
                raise UpstreamError(malformed(f"the upstream's stream says nothing in its first {size} bytes"))
            if self._opened is not None:
                self._opened.says_nothing_yet()
            if self._quiet_until is None and piece.events:
                self._quiet_until = self._clock() + QUIET_START_S
            elif self._quiet_until is None and self._clock() > deadline:
                raise UpstreamError(too_late())
        self._read_ahead[:0] = pieces

    def open_stream(self, begun: Begun, opened: Opened) -> None:
        """The head of a stream has arrived, to a call that was sent without this answer."""
        self._ticket, self._sent = begun.ticket, True
        self._opened, self.headers = opened, opened.headers
        self._reader = self.call.open_reader()

    @property
    def says_nothing(self) -> bool:
        """Whether a stream that was opened has not even started."""
        return self._quiet_until is None

    def hear_first_words(self, deadline: float) -> bool | None:
        """Reads what has arrived of a stream that was opened. True: its first content is there. False: not yet. None:
        `begin` must go on with it, because of an error, something that takes long, or the deadline."""
        opened, reader = self._opened, self._reader
        if opened is None or reader is None or len(self._read_ahead) >= MOST_QUIET_PIECES:
            return None
        try:
            raw = opened.take_some(BIG_EVENT - self._unread)
            if not raw:
                return None
            while raw:
                piece = self._read(reader, self._cut(raw))
                self._unread = 0 if piece.events else self._unread + len(piece.raw)
                self._read_ahead.append(piece)
                if reader.failure is not None:
                    return None
                if any(map(says_something, piece.events)):
                    self._state.sent += 1
                    return True
                self._slice_bytes = FIRST_SLICE_BYTES
                raw, self._peeked = self._peeked, b""
        except (UpstreamError, DecodeError, RecursionError) as error:
            self._read_ahead.append(self._break_off(reader, error))
            return None
        except Exception as error:
            self._bug = error
            return None
        if opened.ended:
            return None
        if self._quiet_until is None and self._read_ahead[-1].events:
            self._quiet_until = self._clock() + QUIET_START_S
        elif self._quiet_until is None and self._clock() > deadline:
            return None
        opened.says_nothing_yet(None if self._quiet_until is None else self._quiet_until - self._clock())
        return False

    async def _read_whole(self, job: Job, opened: Opened, attempt: Attempt) -> None:
        raw, self._peeked = self._peeked + await opened.read(until=job.deadline), b""
        self._whole = True
        if job.keep_wire:
            attempt.reply = raw if self._key.secret is None else self._key.secret.redact(raw)
        if self.call.opaque:
            self.raw, self._ended = raw, True
            return
        self.as_is = self.as_is and not job.stream and is_document(raw, self.dialect) is not False
        large, native = is_large(raw), self.call.spelling is not None
        if self.as_is and not large and self._looks_plain(raw):  # fast path: plain reply
            return
        if large:
            reply, whole = await off_loop(True, decode_whole, opened.headers, raw, self.dialect, self.notes, native)
        else:
            reply, whole = decode_whole(opened.headers, raw, self.dialect, self.notes, native)
        self.raw, self.as_is = raw, self.as_is and whole
        if job.stream:
            self._reader = reader = self.call.open_reader()
            events = await off_loop(large, lambda: self._take(reader, list(unfold(reply))))
            slices = [events[at : at + SLICE_EVENTS] for at in range(0, len(events), SLICE_EVENTS)]
            self._read_ahead = [Piece(b"", events, large) for events in slices]
            self._ended = True
        elif large:
            await off_loop(True, self._take_reply, reply)
        else:
            self._take_reply(reply)

    def _looks_plain(self, raw: bytes) -> bool:
        """Whether the answer can stay as it is, from a quick look. It is read when its values are asked for."""
        look = self.dialect.look_at_reply
        found = look(raw) if look is not None else None
        if found is None:
            return False
        self.raw, self.usage = raw, found.usage
        self.complete = self.plain = self._ended = True
        return True

    @property
    def reply(self) -> Reply | None:
        if self._reply is None and self.plain:
            self._take_reply(decode_whole(self.headers, self.raw, self.dialect, self.notes)[0])
        return self._reply

    def _take_reply(self, reply: Reply) -> None:
        self.usage = reply.usage
        self._reply, self.as_is = take_whole(self.call, reply, whole=self.as_is)
        self.complete = self._ended = True

    # ---------------------------------------------------------------- after its first words

    async def next(self) -> Piece | None:
        if self._read_ahead:
            if len(self._read_ahead) > 1:
                await asyncio.sleep(0)  # others have their turn between two pieces
            return self._read_ahead.pop(0)
        reader = self._reader
        if self._ended or reader is None:
            return None
        if self._demo is not None:
            return self._next_of_demo(reader, self._demo)
        if self._opened is None:
            return None
        try:
            if self._decoding is not None:
                return await self._end_decoding(self._decoding)
            raw = await self._next_slice(self._opened)
            if self._bug is not None:
                raise self._bug
            if self._stopped:
                return None
            if not raw and self._read_ahead:
                return self._read_ahead.pop(0)
            if raw:
                self._unread += len(raw)
                if self._unread > BIG_EVENT:
                    self._decoding = asyncio.ensure_future(asyncio.to_thread(self._read, reader, raw))
                    return await self._end_decoding(self._decoding)
                piece = self._read(reader, raw)
                if piece.events:
                    self._unread = 0
                return piece
            self._whole = self._ended = True
            events = self._take(reader, reader.decode_rest())
            return Piece(b"", events) if events else None
        except (UpstreamError, DecodeError, RecursionError) as error:
            return self._break_off(reader, error)

    def _break_off(self, reader: StreamReader, error: UpstreamError | DecodeError | RecursionError) -> Piece:
        """The rest of the stream cannot be read."""
        failure = error.failure if isinstance(error, UpstreamError) else unreadable(error)
        self._ended = True
        return Piece(b"", self._take(reader, [ReplyFailed(failure=failure)]))

    def tap(self, tap: Tap, *, join: bool = False) -> None:
        """From here on `tap` gets each piece when it arrives, while `next` waits. So no task has to wake up. `next`
        returns the pieces that the tap does not take. `join`: deltas that arrive together become one TextRun."""
        if self._opened is not None and self._demo is None:
            self._tap = tap
            if join and self._reader is not None:
                self._reader.join()
            self._opened.listen(self._hear)

    @property
    def arrived(self) -> bool:
        """Whether all bytes of the answer have arrived, so that `next` need not wait for the upstream."""
        return self._opened is not None and self._opened.ended

    def stop(self) -> None:
        """Ends the stream: `next` returns None from now on."""
        self._stopped = True

    def _hear(self) -> bool:
        """Bytes have arrived while `next` waits. True: they were dealt with, and it may go on waiting."""
        opened, reader, tap = self._opened, self._reader, self._tap
        if opened is None or reader is None or tap is None or self._ended or self._read_ahead:
            return False
        try:
            raw = opened.take_some(min(SLICE_BYTES, BIG_EVENT - self._unread))
            if not raw:
                return False
            if self._splice is not None and self._splice(raw):  # fast path: spliced text
                return not opened.ended
            piece = self._read(reader, raw)
            self._unread = 0 if piece.events else self._unread + len(raw)
            if not tap.take(piece):
                self._read_ahead.append(piece)
                return False
            if self._times is None and is_run(piece.events):
                self._splice = tap.find_splice(reader)
        except (UpstreamError, DecodeError, RecursionError) as error:
            self._read_ahead.append(self._break_off(reader, error))
            return False
        except Exception as error:
            self._bug = error
            return False
        return not self._stopped and not opened.ended

    async def _next_slice(self, opened: Opened) -> bytes:
        """The next bytes; b"" at the end, or if something else is to be read first."""
        if self._peeked and self._slice_bytes == SLICE_BYTES:
            await asyncio.sleep(0)  # others have their turn between two slices
        raw = self._peeked or opened.take()
        while not raw and not opened.ended and not self._read_ahead and self._bug is None and not self._stopped:
            await opened.wait()
            raw = opened.take() if not self._read_ahead else b""
        return self._cut(raw)

    def _cut(self, raw: bytes) -> bytes:
        """The first slice. What follows it is kept for the next call."""
        if len(raw) > self._slice_bytes and self._unread + len(raw) <= BIG_EVENT:
            cut = find_cut(raw, self._slice_bytes, SLICE_BYTES)
            raw, self._peeked = raw[:cut], raw[cut:]
        else:
            self._peeked = b""
        self._slice_bytes = SLICE_BYTES
        return raw

    async def _end_decoding(self, decoding: "asyncio.Future[Piece]") -> Piece:
        """Waits for a large event that a thread decodes. If the reader stops waiting, its next call gets the event."""
        try:
            piece = await asyncio.shield(decoding)
        finally:
            if decoding.done():
                self._decoding = None
        if piece.events:
            self._unread, piece.large = 0, True
        return piece

    def _next_of_demo(self, reader: StreamReader, demo: Iterator[Event]) -> Piece | None:
        events: list[Event] = []
        for event in demo:
            events.append(event)
            if isinstance(event, PartDelta):
                break
        if not events:
            self._ended = True
            return None
        return Piece(b"", self._take(reader, events))

    def _read(self, reader: StreamReader, raw: bytes) -> Piece:
        self._splice = None  # what it knows of the stream may change with each piece
        if self._times is not None:
            secret = self._key.secret
            self._times.keep_piece(self._clock(), raw if secret is None else secret.redact(raw))
        events = reader.decode(raw)
        if is_run(events) and reader.leaves(events[0]):  # fast path: nothing but text
            return Piece(raw, events)
        if events and isinstance(failed := events[-1], ReplyFailed) and self._key.secret is not None:
            raw = self._key.secret.redact(raw)
            events[-1] = ReplyFailed(failure=redact(failed.failure, self._key.secret))
        return Piece(raw, self._take(reader, events), held=reader.holds)

    def _take(self, reader: StreamReader, events: list[Event]) -> list[Event]:
        events = reader.take(events)
        self.usage, self.failure = reader.usage, reader.failure
        self.as_is = self.as_is and not reader.irregular
        return events

    # ---------------------------------------------------------------- its end

    def release_request(self) -> None:
        """The request will not be sent again: frees its memory, as a stream may be long."""
        self._request_hash, self._request = hash(self._request) if self._request else None, b""
        self.call.body, self.call.request, self.call.exchange, self.call.write_long = b"", None, None, None

    def close(self) -> None:
        """Gives back the socket and the place, settles the tokens, tells the breaker."""
        if self._closed:
            return
        self._closed = True
        self._tap = self._splice = None  # breaks reference cycles
        if self._times is not None:
            self._times.ended = self._clock()
        if self._opened is not None:
            self._opened.close(whole=self._whole)
        self._tell_state()
        if self._ticket is not None:
            self._state.admission_waiter.leave(self._ticket, sent=self._sent, tokens=count_all(self.usage))
        self._state.budget.in_flight -= 1

    def _tell_state(self) -> None:
        """Tells the breaker and the keys of the upstream how this answer went."""
        state, key, model, now = self._state, self._key, self.target.model, self._clock()
        if self.failure is not None:
            state.take_failure(key, model, self.failure, now, self._dice(), self._client, self._find_hash())
        elif self._ended or (self._reader is not None and self._reader.finished):
            state.take_success(key, model, now, self._client)
            if state.suspects:
                state.suspects.pop(self._find_hash() or 0, None)
        else:
            state.breaker(key, model).abandoned()

    def _find_hash(self) -> int | None:
        return self._request_hash or (hash(self._request) if self._request else None)


def is_run(events: list[Event]) -> bool:
    return len(events) == 1 and type(events[0]) is TextRun
