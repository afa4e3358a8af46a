"""StreamWriter: the events of an answer as the client's stream, with pings while it is quiet."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import cast

from msgspec.structs import replace

from dragoman.dialects._base import CountingEncoder, LateEncoder, TextEncoder
from dragoman.exchange import HOP
from dragoman.failure import Failure
from dragoman.gateway.access.charge import NO_USAGE
from dragoman.gateway.access.owners import keep_names
from dragoman.gateway.error_responses import OWN_ERROR
from dragoman.gateway.http import DirectWriter, Write
from dragoman.gateway.kept_turns import find_conversation, keep_turn
from dragoman.gateway.note_header import each_note, write_notes
from dragoman.gateway.passed_frames import FRAME_ENDS, frame_end, leave_out_usage, until_end
from dragoman.gateway.routes.responses import remember
from dragoman.gateway.scope import CHARS_PER_TOKEN, Scope
from dragoman.gateway.splice import Splice
from dragoman.jsontypes import dump_json
from dragoman.log_line import own_error
from dragoman.model.events import Event, PartDelta, ReplyEnd, ReplyFailed, ReplyStart, TextRun
from dragoman.model.fold import ReplyBuilder
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_ranks import fold_notes
from dragoman.notes import Notes
from dragoman.reasoning_state.carry import carry_reply
from dragoman.reasoning_state.stored import TurnKeeper
from dragoman.upstream.answer import UpstreamAnswer
from dragoman.upstream.open_answer import OpenAnswer, Piece
from dragoman.way_back import StreamReader

log = logging.getLogger(__name__)
PING_S = 15.0
JOIN_AT = 200  # after this many events their texts are joined, to save memory
AFTER_END_S = 1.0
ENDS = (ReplyEnd, ReplyFailed)
SHUTTING_DOWN = Failure(kind="overloaded", status=503, code="shutting_down", message="the server is shutting down")
TOO_LONG = Failure(kind="timed_out", status=504, code="stream_too_long", message="the stream took too long")


class StreamWriter:
    """Writes the events of one answer to the client, and pings while there are none."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        request = scope.client_request.request if scope.client_request else None
        self._encoder = scope.dialect.stream_encoder(scope.answer.notes if scope.answer else Notes(), request)
        self._as_is = scope.answer is not None and scope.answer.as_is
        self._hides_usage = isinstance(scope.answer, UpstreamAnswer) and scope.answer.call.hides_usage
        self._said: list[Event] = []  # events of bytes that were passed on unchanged
        self._joined: list[Event] = []  # earlier ones, with their texts joined
        self._carrier = scope.open_carrier()
        if self._carrier is not None and scope.answer is not None:
            self._carrier.stage(scope.answer.notes)
        self._tail = b""  # the beginning of a frame that is not complete yet
        self.passed = b""  # the last of the provider's frames that the client has
        self._end_sent = False  # the frame that ends the provider's own stream
        self._held = False  # the client has the bytes of the next event
        self._stores = scope.resolved is not None and scope.resolved.store
        self._builder = ReplyBuilder() if self._stores or scope.makes_names else None
        self._keeper = TurnKeeper() if scope.bare is not None else None
        if scope.bare is not None:
            find_conversation(scope)  # now: the request is not kept for as long as a stream may take
        self._notes_sent = scope.count_notes()  # in the headers
        self._ended = False
        self._stored = False  # the data that the next request may need is kept
        self._finished = False  # the last event was read, though the connection may still be open
        self.written = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write: Write | None = None
        self._until = 0.0
        self._pinging: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

    async def run(self, write: Write) -> None:
        scope, answer = self.scope, self.scope.answer
        if answer is None:
            return
        self._task = cast("asyncio.Task[None]", asyncio.current_task())
        scope.gateway.live.add(self._stop)
        self._watch(write)
        tapped = False
        try:
            while True:
                try:
                    piece = await (answer.next() if not self._finished else self._after_end(answer))
                except asyncio.CancelledError:
                    if scope.ending is None:
                        raise
                    self._task.uncancel()
                    piece = Piece(b"", [ReplyFailed(failure=scope.ending)])
                except Exception as error:  # a bug of ours: the client must not take half an answer for a whole one
                    log.warning(own_error("read_failed", scope.http.id, error))
                    piece = Piece(b"", [ReplyFailed(failure=OWN_ERROR)])
                if piece is None:
                    break
                try:
                    out = await self._out_off_loop(piece) if self._is_large(piece) else self._out(piece)
                except Exception as error:
                    out = self._break_off(error)
                scope.events += count_events(piece.events)
                scope.streamed += len(out)
                if out and scope.keep:
                    scope.keep_sent(out)  # first: the row in the ledger may hold it
                if self._finished and not self._stored:
                    await self._store(answer)
                    scope.record()
                if out:
                    if scope.first_s is None:
                        scope.first_s = scope.gateway.clock() - scope.started
                    self.written = self._loop.time()
                    await write(out)
                if self._ended:
                    break
                if not tapped and isinstance(answer, UpstreamAnswer) and scope.http.direct is not None:
                    tapped = True
                    answer.tap(_WriterTap(self, answer, scope.http.direct), join=scope.dialect.writes_runs)
            if out := self._close() + self._late_notes() + self._late_cost():
                if scope.keep:
                    scope.keep_sent(out)
                await write(out)
        finally:
            self._clean_up()

    def write_now(self, answer: UpstreamAnswer, direct: DirectWriter, piece: Piece) -> bool:
        """Writes a piece from the middle of an answer when it arrives, without waking the task. False: it is for `run`,
        because the answer begins or ends with it, or the client does not read."""
        scope, events = self.scope, piece.events
        if events and (type(events[-1]) in ENDS or type(events[0]) is ReplyStart):
            return False
        if self._finished or scope.ending is not None or not direct.is_ready():
            return False
        out = self._out(piece)
        scope.events += count_events(events)
        scope.streamed += len(out)
        if out:
            if scope.first_s is None:
                scope.first_s = scope.gateway.clock() - scope.started
            self.written = self._loop.time()
            if scope.keep:
                scope.keep_sent(out)
            direct.put(out)
        if self._ended:
            answer.stop()
        return True

    def find_splice(self, reader: StreamReader, direct: DirectWriter) -> Splice | None:
        """The short way for deltas that come without anything else, if their texts go to the client as they come."""
        learnt = reader.learnt()
        if learnt is None or self.scope.keep or self._finished or self._tail:
            return None
        index, keeps = learnt.index, list[Callable[[str], object]]()
        if self._keeper is not None and (keep := self._keeper.find_keep(index)) is not None:
            keeps.append(keep)
        if self._builder is not None:
            keeps.append(self._builder.find_keep(index))
        if self._as_is:
            return Splice(self, self.scope, direct, learnt, None, *keeps, partial(self._note_said, index))
        if self._carrier is not None and not self._carrier.passes(index):
            return None
        if self._carrier is not None and (keep := self._carrier.find_keep(index)) is not None:
            keeps.append(keep)
        if not self.scope.dialect.writes_runs:
            return None
        write = cast("TextEncoder", self._encoder).open_text(index)
        return None if write is None else Splice(self, self.scope, direct, learnt, write, *keeps)

    def _note_said(self, index: int, text: str) -> None:
        """Of bytes that were passed on unchanged."""
        self._said.append(PartDelta(index=index, text=text))
        self._join_said()

    def _join_said(self) -> None:
        if len(self._said) > JOIN_AT:
            self._joined += join_texts(self._said)
            self._said = []

    def _is_large(self, piece: Piece) -> bool:
        """Whether to write it off the loop: Responses repeats the request's tools where a reply starts and ends."""
        events = piece.events
        if piece.large or not events or not self.scope.large:
            return piece.large
        return type(events[0]) is ReplyStart or type(events[-1]) is ReplyEnd

    async def _out_off_loop(self, piece: Piece) -> bytes:
        """A thread that has begun goes on when this is cancelled. We wait for its end, because both use one encoder."""
        work = asyncio.ensure_future(asyncio.to_thread(self._out, piece))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            out = await work
            if self.scope.ending is None or self._task is None:
                raise
            self._task.uncancel()
            return out if self._ended else out + self._out(Piece(b"", [ReplyFailed(failure=self.scope.ending)]))

    async def _store(self, answer: OpenAnswer) -> None:
        """Stores the answer before the client has read its end: the next request may come at once and need it."""
        self._stored = True
        if self._builder is not None:
            await self._remember(answer, self._builder)
        if self._keeper is not None and self._keeper.reply is not None:
            await keep_turn(self.scope, self._keeper.reply)

    async def _after_end(self, answer: OpenAnswer) -> Piece | None:
        """After the last event the connection ends, mostly at once. If an upstream keeps it open, we close it (F27)."""
        if isinstance(answer, UpstreamAnswer) and answer.arrived:
            return await answer.next()
        try:
            async with asyncio.timeout(AFTER_END_S):
                return await answer.next()
        except TimeoutError:
            return None

    def _out(self, piece: Piece) -> bytes:
        events = piece.events
        scope = self.scope
        if self._as_is:
            answer = scope.answer
            whole = events and type(events[0]) is ReplyStart and self._is_no_stream(piece.raw)
            if whole or answer is None or not answer.as_is:
                self._write_anew()
            elif events and (piece.raw or type(events[-1]) is not ReplyFailed):  # an error of ours is not there yet
                self._said += events
                self._join_said()
        if events:
            if not self._as_is and type(events[0]) is ReplyStart:
                events = [self._complete(events[0]), *events[1:]]
            if self._keeper is not None:
                self._keeper.feed(events)
            if self._builder is not None:
                for event in events:
                    self._builder.feed(event)
            last = events[-1]
            if isinstance(last, PartDelta):  # nearly all of them
                pass
            elif isinstance(last, ReplyFailed):
                scope.failure = last.failure
                self._ended = True
            elif isinstance(last, ReplyEnd):
                scope.usage = last.usage
                self._finished = True
                if scope.dialect.timed is not None and not self._as_is:
                    events = [*events[:-1], scope.time(last)]
        if self._as_is:
            self._held = piece.held
            return self._raw(piece)
        try:
            if self._held and events:
                self._held, events = False, self._skip(events)
            out = self._encoder.feed(events if self._carrier is None else self._carrier.feed(events))
        except Exception as error:
            out = self._break_off(error)
        return out

    def _break_off(self, error: Exception) -> bytes:
        """Ends a stream at a bug of ours: after the first byte an error can only be an event."""
        log.warning(own_error("encode_failed", self.scope.http.id, error))
        self._ended = True
        self.scope.failure = OWN_ERROR
        fresh = self.scope.dialect.stream_encoder(Notes(), None)  # a new one: the old one may be in any state
        return fresh.feed([ReplyFailed(failure=OWN_ERROR)])

    def _raw(self, piece: Piece) -> bytes:
        """The provider's own bytes, in complete frames: a stream that is cut must not end within a frame (F06)."""
        failed = self._ended and not piece.raw
        if failed and self.scope.failure is not None:
            self._tail = b""
            if self.scope.failure.kind == "cut_off" or self.scope.failure.code is not None:
                self._catch_up()
                return self._encoder.feed([ReplyFailed(failure=self.scope.failure)])
            return b""
        if self._end_sent:
            return b""  # bytes after the end of the stream are not part of the answer
        data = self._tail + piece.raw if self._tail else piece.raw
        cut = frame_end(data, self.scope.dialect.media_type)
        data, self._tail = data[:cut], data[cut:]
        self.passed = data or self.passed
        if self._hides_usage and not (piece.events and isinstance(piece.events[-1], PartDelta | TextRun)):
            data = leave_out_usage(data, self.scope.dialect)
        if not self._finished:
            return data
        out, self._end_sent = until_end(data, self.scope.dialect)
        return out

    def _is_no_stream(self, raw: bytes) -> bool:
        """Vertex may send the whole message in one frame. Anthropic's clients cannot read that as a stream."""
        return self.scope.dialect.start_mark not in self._tail + raw

    def _write_anew(self) -> None:
        """Called when the provider's bytes become illegal. From here on the encoder writes."""
        self._as_is, self._tail = False, b""
        self._catch_up()

    def _catch_up(self) -> None:
        """The encoder will continue behind the whole frames that the client has, whose events are known."""
        self._carrier = self.scope.open_carrier()
        if self._carrier is not None and self.scope.answer is not None:
            self._carrier.stage(self.scope.answer.notes)
        events, self._joined, self._said = self._joined + self._said, [], []
        self._encoder.feed(events if self._carrier is None else self._carrier.feed(events))
        if isinstance(self._encoder, LateEncoder):
            self._encoder.flush()
        self._count_on()

    def _count_on(self) -> None:
        if self.passed and isinstance(self._encoder, CountingEncoder):
            self._encoder.count_on(self.passed)

    def _skip(self, events: list[Event]) -> list[Event]:
        """Without the first one, whose bytes the client has."""
        first = events[:1]
        self._encoder.feed(first if self._carrier is None else self._carrier.feed(first))
        self._count_on()
        return events[1:]

    def _close(self) -> bytes:
        if not self._as_is:
            return self._encoder.close()
        tail, self._tail = self._tail, b""
        if self._ended or self._end_sent:
            return b""
        dialect, ended = self.scope.dialect, False
        if tail and self._finished:  # its last frame lacks the blank line, without which clients do not read it
            tail, ended = until_end(tail.rstrip(b"\r\n") + FRAME_ENDS[dialect.media_type], dialect)
        return tail if ended else tail + dialect.end_frame

    def _late_notes(self) -> bytes:
        """Notes made after the headers were sent."""
        if self._as_is or self.scope.count_notes() <= self._notes_sent or not self.scope.dialect.ping:
            return b""
        late, canonical = self.scope.notes[self._notes_sent :], HOP in self.scope.http.headers
        text = write_notes(each_note(late) if canonical else fold_notes(late), canonical=canonical)
        return self._write_late("x-dragoman-notes", text)

    def _late_cost(self) -> bytes:
        """The cost of an answer is known long after the headers were sent. A provider's own bytes stay as they are."""
        if self._as_is or not self._finished or not self.scope.dialect.ping:
            return b""
        cost = self.scope.cost
        return self._write_late("x-dragoman-cost", str(cost)) if cost is not None and cost.micros else b""

    def _write_late(self, name: str, value: str) -> bytes:
        """A header that is known only now. Readers of event streams skip a comment."""
        write = self.scope.dialect.write_late
        return write(name, value) if write is not None else f": {name} {value}\n\n".encode()

    def _complete(self, start: ReplyStart) -> ReplyStart:
        """Adds what the encoder cannot know: the id, the time, and about how many tokens were read."""
        if self.scope.dialect.counts_first and (start.usage is None or not start.usage.input):
            read = max(self.scope.size // CHARS_PER_TOKEN, 1)
            start = replace(start, usage=replace(start.usage or NO_USAGE, input=read))
        return self.scope.stamp(start)

    async def _remember(self, answer: OpenAnswer, builder: ReplyBuilder) -> None:
        scope = self.scope
        if scope.failure is not None or scope.client_request is None:
            return
        reply = builder.reply()
        if not isinstance(reply, Reply):
            return
        body = b""
        if self._stores:
            body = await asyncio.to_thread(self._encode_whole, reply, scope.client_request.request)
            await remember(scope.gateway, scope.http.key_id, scope.resolved, answer, reply, body)
        if scope.makes_names:
            await keep_names(scope.gateway, scope.http.key_id, reply, body)

    def _encode_whole(self, reply: Reply, request: Request) -> bytes:
        carrier = self.scope.open_carrier()
        carried = reply if carrier is None else carry_reply(reply, carrier, Notes())
        return dump_json(self.scope.dialect.encode_reply(carried, Notes(), request).body)

    # ---- ending it from outside

    def _stop(self) -> None:
        """The server shuts down: the stream ends with an error that says so."""
        self._end(SHUTTING_DOWN)

    def _end(self, why: Failure) -> None:
        if self.scope.ending is None and self._task is not None:
            self.scope.ending = why
            self._task.cancel()

    def _watch(self, write: Write) -> None:
        """Starts the stream's one timer. It pings while the stream is quiet, and ends a stream that takes too long."""
        self.written = self._loop.time()
        self._write = write
        limit = self.scope.answer.target.upstream.timeouts.stream_s if self.scope.answer else 0.0
        self._until = self.written + limit
        self._timer = self._loop.call_later(PING_S, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._end(TOO_LONG)
            return
        quiet = now - self.written
        ping = self.scope.dialect.ping
        if quiet >= PING_S - 0.001 and ping and not self._tail and self._write is not None:
            self.written, quiet = now, 0.0
            self._pinging = self._loop.create_task(_write_ping(self._write, ping))
        self._timer = self._loop.call_later(max(PING_S - quiet, 0.05), self._tick)

    def _clean_up(self) -> None:
        """Ends the timer and breaks reference cycles."""
        self.scope.gateway.live.discard(self._stop)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._task = self._write = self._pinging = None


class _WriterTap:
    """See Tap."""

    __slots__ = ("_answer", "_direct", "_writer")

    def __init__(self, writer: StreamWriter, answer: UpstreamAnswer, direct: DirectWriter) -> None:
        self._writer, self._answer, self._direct = writer, answer, direct

    def take(self, piece: Piece) -> bool:
        return self._writer.write_now(self._answer, self._direct, piece)

    def find_splice(self, reader: StreamReader) -> Callable[[bytes], bool] | None:
        splice = self._writer.find_splice(reader, self._direct)
        return None if splice is None else splice.take


def count_events(events: list[Event]) -> int:
    """The number of events as the provider sent them. A run of deltas, which stands first, counts as many."""
    if events and type(first := events[0]) is TextRun:
        return len(events) - 1 + len(first.pieces)
    return len(events)


def join_texts(events: list[Event]) -> list[Event]:
    """The same events, with the pieces of each text in one: for the memory of long streams."""
    last = events[-1]
    if isinstance(last, PartDelta):  # mostly there is only one text
        texts = [
            event.text
            for event in events
            if isinstance(event, PartDelta)
            and event.index == last.index
            and event.logprobs is None
            and not event.citations
        ]
        if len(texts) == len(events):
            return [PartDelta(index=last.index, text="".join(texts))]
    joined: list[Event] = []
    for index, group in groupby(events, _plain_index):
        if index is None:
            joined.extend(group)
        else:
            joined.append(PartDelta(index=index, text="".join(e.text for e in group if isinstance(e, PartDelta))))
    return joined


def _plain_index(event: Event) -> int | None:
    """The part to which an event adds text and nothing else."""
    return event.index if isinstance(event, PartDelta) and not event.citations and event.logprobs is None else None


async def _write_ping(write: Write, data: bytes) -> None:
    await write(data)
