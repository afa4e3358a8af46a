"""StreamWriter: the events of an answer as the client's stream, with pings while it is quiet."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import cast

from msgspec.structs import replace

from dragoman.dialects._base import Dialect, LateEncoder, TextEncoder
from dragoman.exchange import HOP
from dragoman.failure import Failure
from dragoman.framing.sse import read_frame
from dragoman.gateway.access.owners import keep_names
from dragoman.gateway.http import DirectWriter, Write
from dragoman.gateway.kept_turns import find_conversation, keep_turn
from dragoman.gateway.routes.responses import remember
from dragoman.gateway.scope import CHARS_PER_TOKEN, NO_USAGE, Scope
from dragoman.gateway.splice import Splice
from dragoman.jsontypes import dump_json
from dragoman.log_line import own_error
from dragoman.model.events import Event, PartDelta, ReplyEnd, ReplyFailed, ReplyStart, TextRun
from dragoman.model.fold import ReplyBuilder
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.note_ranks import FoldedNote, fold_notes
from dragoman.notes import Note, Notes
from dragoman.reasoning_state.carry import carry_reply
from dragoman.reasoning_state.stored import TurnKeeper
from dragoman.upstream.answer import OpenAnswer, Piece, UpstreamAnswer
from dragoman.way_back import StreamReader

log = logging.getLogger(__name__)
PING_S = 15.0
JOIN_AT = 200  # after this many events their texts are joined, to save memory
AFTER_END_S = 1.0
ENDS = (ReplyEnd, ReplyFailed)
MAX_NOTES_HEADER = 3500
SHUTTING_DOWN = Failure(kind="overloaded", status=503, code="shutting_down", message="the server is shutting down")
TOO_LONG = Failure(kind="timed_out", status=504, code="stream_too_long", message="the stream took too long")
OWN_ERROR = Failure(kind="server_error", status=500, code="internal", message="an internal error of the gateway")


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
        self._end_sent = False  # the frame that ends the provider's own stream
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
                out = await self._out_off_loop(piece) if self._is_large(piece) else self._out(piece)
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
                if not tapped and out and isinstance(answer, UpstreamAnswer) and scope.http.direct is not None:
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
            self.written = self._loop.time()
            if scope.keep:
                scope.keep_sent(out)
            direct.put(out)
        if self._ended:
            answer.stop()
        return True

    def find_splice(self, reader: StreamReader, direct: DirectWriter) -> Splice | None:
        """The short way for a delta that comes alone, if nothing here looks at texts."""
        found = reader.open_text()
        if found is None or self._builder is not None or self.scope.keep or self._finished or self._tail:
            return None
        if self._keeper is not None and not self._keeper.is_idle():
            return None
        template, index = found
        there, encoder = None, self._encoder
        if self._carrier is not None and not self._carrier.passes(index):
            return None
        if not self._as_is:
            there = encoder.open_text(index) if isinstance(encoder, TextEncoder) else None
            if there is None:
                return None
        return Splice(self, self.scope, direct, index, template, there)

    def note_said(self, index: int, text: str) -> None:
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
            elif events:
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
            return self._raw(piece)
        try:
            out = self._encoder.feed(events if self._carrier is None else self._carrier.feed(events))
        except Exception as error:  # after the first byte an error can only be an event of the stream
            log.warning(own_error("encode_failed", scope.http.id, error))
            self._ended = True
            scope.failure = Failure(kind="server_error", message="the answer cannot be written in this dialect")
            fresh = scope.dialect.stream_encoder(Notes(), None)  # a new one: the old one may be in any state
            out = fresh.feed([ReplyFailed(failure=scope.failure)])
        return out

    def _raw(self, piece: Piece) -> bytes:
        """The provider's own bytes, in complete frames: a stream that is cut must not end within a frame (F06)."""
        failed = self._ended and not piece.raw
        if failed and self.scope.failure is not None:
            self._tail = b""
            if self.scope.failure.kind == "cut_off" or self.scope.failure.code is not None:
                return self._encoder.feed([ReplyFailed(failure=self.scope.failure)])
            return b""
        if self._end_sent:
            return b""  # bytes after the end of the stream are not part of the answer
        data = self._tail + piece.raw if self._tail else piece.raw
        cut = frame_end(data, self.scope.dialect.media_type)
        data, self._tail = data[:cut], data[cut:]
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
        """Called when the provider's bytes become illegal. From here on the encoder writes. It continues behind the
        whole frames that the client has, whose events are known."""
        self._as_is, self._tail = False, b""
        self._carrier = self.scope.open_carrier()
        if self._carrier is not None and self.scope.answer is not None:
            self._carrier.stage(self.scope.answer.notes)
        events, self._joined, self._said = self._joined + self._said, [], []
        self._encoder.feed(events if self._carrier is None else self._carrier.feed(events))
        if isinstance(self._encoder, LateEncoder):
            self._encoder.flush()

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


def frame_end(data: bytes, media_type: str) -> int:
    """Where the last complete frame ends."""
    if data[-2:] == b"\n\n":  # mostly whole frames come
        return len(data)
    if media_type != "text/event-stream":
        return data.rfind(b"\n") + 1
    if data[:1] == b"[" or data[:1] == b",":  # Gemini's array is passed on as it comes
        return len(data)
    plain, windows, old = data.rfind(b"\n\n"), data.rfind(b"\n\r\n"), data.rfind(b"\r\r")
    return max(plain + 2 if plain >= 0 else 0, windows + 3 if windows >= 0 else 0, old + 2 if old >= 0 else 0)


FRAME_ENDS = {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}
_FRAME_END = {
    "text/event-stream": re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n"),
    "application/x-ndjson": re.compile(rb"\n"),
}


def until_end(frames: bytes, dialect: Dialect) -> tuple[bytes, bool]:
    """Whole frames up to the one that ends the stream, and whether there is one."""
    if dialect.is_end is None:
        return frames, False
    first = 0  # a letter of an end word may be written as \\u006d: then every frame is read
    if b"\\u" not in frames:  # fast path: end words
        words = [frames.find(word) for word in dialect.end_words]
        first = frame_end(frames[: min((at for at in words if at >= 0), default=len(frames))], dialect.media_type)
    for start, end in split_frames(frames, dialect.media_type, first):
        if dialect.is_end(read_data(frames[start:end])):
            return frames[:end], True
    return frames, False


def leave_out_usage(frames: bytes, dialect: Dialect) -> bytes:
    """Whole frames without those that tell the usage, which we asked for and the client did not: a client that reads
    the first choice of every frame would fail."""
    if dialect.is_usage is None or dialect.usage_mark is None or b"usage" not in frames:
        return frames
    first = 0  # the mark may be written with \\u0063: then every frame is read
    if b"\\u" not in frames:  # fast path: usage mark
        found = dialect.usage_mark.search(frames)
        if found is None:
            return frames
        first = frame_end(frames[: found.start()], dialect.media_type)
    spans = split_frames(frames, dialect.media_type, first)
    kept = [frames[start:end] for start, end in spans if not dialect.is_usage(read_data(frames[start:end]))]
    return frames[:first] + b"".join(kept)


def split_frames(data: bytes, media_type: str, first: int = 0) -> Iterator[tuple[int, int]]:
    """Where each whole frame starts and ends, from the start of one of them on."""
    start = first
    for found in _FRAME_END[media_type].finditer(data, first):
        yield start, found.end()
        start = found.end()


def read_data(block: bytes) -> bytes:
    """The data of a frame; a line of NDJSON is its own."""
    frame = read_frame(block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n"))
    return block if frame is None else frame.data


def each_note(notes: tuple[Note, ...]) -> list[FoldedNote]:
    """All notes, none of them folded."""
    return [FoldedNote(note.rank, note) for note in notes]


def write_notes(rows: list[FoldedNote], *, canonical: bool = False) -> str:
    """Notes as ASCII JSON, the worst first, equal ones folded, as many as fit. The last entry counts the others.
    `canonical`: all of them and with those places too, for a client that is a dragoman: its caller knows the canonical
    form, and not the body that it sent."""
    shown: list[bytes] = []
    size = 2
    for i, row in enumerate(rows):
        note = row.first
        entry: dict[str, object] = {"rank": row.rank, "kind": note.kind, "where": note.where, "why": note.why}
        if row.places > 1:
            entry["places"] = row.places
        if note.body != "request":
            entry["body"] = note.body
        if canonical:
            entry["canonical"] = note.canonical
        text = dump_json(entry)
        size += len(text) + 1
        if size > MAX_NOTES_HEADER:
            shown.append(dump_json({"more": len(rows) - i}))
            break
        shown.append(text)
    return f"[{b','.join(shown).decode()}]".encode("ascii", "backslashreplace").decode()
