"""The way back: a server's answer becomes the answer to what the client asked.

`exchange.py` writes the call and gives each one its `WayBack`. Whole answers are read by `read_reply`, streams by a
`StreamReader`.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from dragoman.answers.call_arguments import CallMender, mend_calls
from dragoman.answers.call_ids import FreshIds
from dragoman.answers.json_answers import ask_again
from dragoman.answers.mcp_calls import McpStream, translate_calls
from dragoman.answers.spelling import SpellingMender
from dragoman.answers.think_tags import ThoughtFinder, find_thoughts
from dragoman.answers.undo import StreamRenamer, StreamUndo, undo_reply
from dragoman.dialects._base import Dialect
from dragoman.errors import LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.framing.templates import LearntDelta
from dragoman.model.events import Event, PartDelta, PartStart, ReplyEnd, ReplyFailed, TextRun
from dragoman.model.fold import StartedParts
from dragoman.model.messages import ToolCall, ToolResult
from dragoman.model.reply import Reply, Usage, add_usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.emulate import Undo
from dragoman.reasoning_state.carry import StateCarrier, StateSource
from dragoman.reasoning_state.envelope import StateKey
from dragoman.wire import WireReply

BACKSLASH = 92
INVALID_ANSWER = "invalid_answer"
WITH_IDS = frozenset((ToolCall, ToolResult))  # ids of calls
# Every escape, with groups for a lone first half at the end of a string and for any other lone half.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89abAB][0-9a-fA-F]{2})(?=\")|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_BEGUN = re.compile(rb"\\(?:u(?:[dD].*)?)?$", re.DOTALL)  # perhaps a half, or the first of two


class InvalidAnswer(UpstreamError):
    """The answer is not what was asked for, and can be asked for once more."""

    def __init__(self, why: str, again: Request, reply: Reply) -> None:
        super().__init__(_invalid(why))
        self.again = again
        self.reply = reply  # as it came: it stands if no better one comes


class WayBack(Struct, frozen=True, kw_only=True):
    """How a server's answer becomes the answer to what the client asked.

    Thoughts are found first, because a thought is no text (FIELD-CASES 73). Then what the passes changed is undone, and
    then an answer that should be JSON is checked, where the server did not hold the model to it."""

    notes: Notes
    undo: Undo = Undo()
    think_tags: tuple[str, ...] = ()
    think_opened: bool = False
    asked: Request | None = None  # if its answer is wrong, it is asked once more
    spent: Usage | None = None  # by the first answer, which was wrong

    def reply(self, reply: Reply) -> Reply:
        """A whole answer. An UpstreamError when it is not what was asked for and the client takes nothing else."""
        if self.spent is not None:
            reply = replace(reply, usage=add_usage(self.spent, reply.usage))
        if self.think_tags:
            reply = self.notes.stage(find_thoughts(reply, self.think_tags, opened=self.think_opened))
        if self.undo.mcp is not None:
            reply = self.notes.stage(translate_calls(reply, self.undo.mcp.dialect, self.undo.mcp.names))
        if self.asked is not None:
            self._check(reply, self.asked)
        try:
            return self.notes.stage(undo_reply(reply, self.undo, self.notes))
        except LossError as error:
            raise UpstreamError(_invalid(error.why)) from error

    def _check(self, reply: Reply, asked: Request) -> None:
        trial = Notes()
        undone = undo_reply(reply, self.undo, trial)
        why = next((note.why for note in trial if note.kind == "dropped"), None)
        again = ask_again(asked, undone, why) if why is not None else None
        if why is not None and again is not None:
            raise InvalidAnswer(why, again, reply)


class StreamWayBack:
    """The way back for the events of one stream, in the order they come."""

    def __init__(self, way: WayBack) -> None:
        self._thoughts = ThoughtFinder(way.think_tags, opened=way.think_opened) if way.think_tags else None
        self._found = StartedParts()  # with the thoughts among them
        self._notes = way.notes
        mcp = way.undo.mcp
        self._mcp = McpStream(mcp.dialect, mcp.names) if mcp is not None else None
        self._undo: StreamRenamer | StreamUndo
        if way.undo.is_only_names():  # fast path: only names to undo
            self._undo = StreamRenamer(way.undo.renames)
        else:
            self._undo = StreamUndo(way.undo, way.notes)

    def takes_runs(self) -> bool:
        """Whether it looks for no words in texts, and changes no numbers of parts."""
        return self._thoughts is None and self._mcp is None

    def leaves(self, index: int) -> bool:
        """Whether the texts of this part, which has begun, stay as they are."""
        return isinstance(self._undo, StreamRenamer) or self._undo.leaves(index)

    def feed(self, events: list[Event]) -> list[Event]:
        if self._thoughts is not None:
            events = [out for event in events for out in self._thoughts.feed(event)]
            self._found.feed(events)
            self._notes.stage(self._found)
        if self._mcp is not None:
            events = self._mcp.feed(events)
        undo = self._undo
        if isinstance(undo, StreamRenamer):
            return undo.feed_all(events)
        undone: list[Event] = []
        try:
            for event in events:
                undone.extend(undo.feed(event))
        except LossError as error:
            undone.append(ReplyFailed(failure=_invalid(error.why)))
        return undone


class PairJoiner:
    r"""Joins surrogate pairs that a server splits over two events: `"\ud83d"` in one and `"\ude00"` in the next.

    Either half alone is no text. Servers do this whose tokens are pieces of UTF-16, and whose JSON is ASCII. The bytes
    may come in any pieces. Lines without halves pass unchanged.
    """

    __slots__ = ("_first", "_held", "found", "holds")

    def __init__(self) -> None:
        self._first = b""  # a first half that waits for its second
        self._held = b""  # a line that is not complete yet
        self.holds = False  # one of these
        self.found = False  # a half that was alone in its event

    def feed(self, piece: bytes) -> bytes:
        data = self._held + piece
        cut = data.rfind(b"\n") + 1
        if not _BEGUN.search(data, cut) and b"\\ud" not in data[cut:].lower():
            cut = len(data)
        self._held = data[cut:]
        joined = self._join(data[:cut])
        self.holds = bool(self._held or self._first)
        return joined

    def close(self) -> bytes:
        held, self._held = self._held, b""
        return self._join(held)

    def _join(self, data: bytes) -> bytes:
        if b"\\ud" not in data and b"\\uD" not in data:
            return data
        return _ESCAPE.sub(self._mend, data)

    def _mend(self, found: re.Match[bytes]) -> bytes:
        if found[1]:
            self._first, self.found = found[0], True
            return b""
        if not found[2]:
            return found[0]
        self.found = True
        first, self._first = self._first, b""
        return first + found[0] if first and found[0][3:4].lower() in b"cdef" else b"\\ufffd"


class StreamReader:
    """Reads one streamed answer: the server's bytes in, events as the client asked for them out."""

    def __init__(
        self,
        dialect: Dialect,
        notes: Notes,
        way_back: WayBack | None = None,
        fresh_ids: FreshIds | None = None,
        spelling: SpellingMender | None = None,
    ) -> None:
        self.usage: Usage | None = None
        self.failure: Failure | None = None  # the server's, if the stream did not end well
        self.finished = False  # the last event was read
        self.irregular = False  # the bytes are not what clients of this dialect can read: they must be written anew
        self._started = StartedParts()
        notes.begin("reply", dialect.locate_reply, self._started)
        self._decoder = dialect.stream_decoder(notes)
        self._notes = notes
        self._mender: CallMender | None = None  # from the first call on
        self._way_back = StreamWayBack(way_back) if way_back is not None else None
        self._fresh_ids = fresh_ids
        self._spelling = spelling
        self._pairs = PairJoiner()

    def join(self) -> None:
        """From here on deltas that come together may be given as a TextRun, if no one looks for words in them."""
        self._decoder.joins = self._way_back is None or self._way_back.takes_runs()

    @property
    def holds(self) -> bool:
        """See StreamDecoder."""
        return self._decoder.holds

    def feed(self, piece: bytes) -> list[Event]:
        return self.take(self.decode(piece))

    def close(self) -> list[Event]:
        """The last events. A stream that was cut ends with a failure."""
        return self.take(self.decode_rest())

    def decode(self, piece: bytes) -> list[Event]:
        """The events of a piece as the server sent them; `take` makes of them what the client asked for."""
        decoder = self._decoder
        if BACKSLASH in piece or self._pairs.holds:  # most pieces have no escapes
            piece = self._pairs.feed(piece)
        events = decoder.feed(piece)
        if decoder.irregular or self._pairs.found:
            self.irregular = True
        return events

    def decode_rest(self) -> list[Event]:
        rest, decoder = self._pairs.close(), self._decoder
        events = (decoder.feed(rest) if rest else []) + decoder.close()
        self.irregular = self.irregular or decoder.irregular or self._pairs.found
        return events

    def learnt(self) -> LearntDelta | None:
        """See StreamDecoder; also, nothing that stands between it and the client changes texts."""
        decoder = self._decoder
        learnt = decoder.learnt() if decoder.joins and not self._pairs.holds else None
        if learnt is None or (self._way_back is not None and not self._way_back.leaves(learnt.index)):
            return None
        check = self._mender.find_check(learnt.index) if self._mender is not None else None
        return learnt if check is None else replace(learnt, check=check)

    def leaves(self, run: Event) -> bool:
        """Whether `take` need not see this run, because it stays as it is."""
        if not isinstance(run, TextRun):
            return False
        if self._way_back is not None and not self._way_back.leaves(run.index):
            return False
        return self._mender is None or self._mender.takes(run)

    def take(self, events: list[Event]) -> list[Event]:
        """Events that the server sent, or that were made for it."""
        if not events:
            self._look_at_calls()
            return events
        last = events[-1]
        if not isinstance(last, PartDelta) or len(events) > 1:  # most pieces are a delta
            starts = [event for event in events if type(event) is PartStart]
            if starts:
                events = self._start(events, starts)
            if self._spelling is not None:
                events = self._spelling.feed(events)
                self.irregular = self.irregular or self._spelling.changed
            if type(last) is ReplyEnd:
                self.usage, self.finished = last.usage, True
                self._started.feed([last])
            elif type(last) is ReplyFailed:
                self.failure = last.failure
        mender = self._mender
        if mender is not None:
            events = mender.feed(events)
            self._look_at_calls()
        return events if self._way_back is None else self._way_back.feed(events)

    def _look_at_calls(self) -> None:
        """A call may end later than its reason to end comes: what it lacks must be known before."""
        mender = self._mender
        if mender is not None and (mender.changed or (self._decoder.finishing and mender.is_cut())):
            self.irregular = True

    def _start(self, events: list[Event], starts: list[PartStart]) -> list[Event]:
        """Parts begin. What a call says is checked from the first call on."""
        kinds = {type(start.part) for start in starts}
        if self._mender is None and ToolCall in kinds:
            self._mender = CallMender(self._notes, self._started)
        self._started.feed(starts)
        if self._fresh_ids is not None and not kinds.isdisjoint(WITH_IDS):
            events = self._fresh_ids.feed(events)
            self.irregular = self.irregular or self._fresh_ids.repaired
        return events


def open_carrier(here: Dialect, there: Dialect, source: StateSource, key: StateKey) -> StateCarrier | None:
    """For an answer in `here` to a client of `there`; None if such clients keep no state of others."""
    return None if here is there or there.slots is None else StateCarrier(there.slots, source, key)


def read_reply(dialect: Dialect, wire: WireReply, notes: Notes) -> Reply:
    """A whole answer in our own form, as the server gave it."""
    return read_checked_reply(dialect, wire, notes)[0]


def read_checked_reply(dialect: Dialect, wire: WireReply, notes: Notes) -> tuple[Reply, bool]:
    """The same, and whether the arguments of its calls were whole."""
    notes.begin("reply", dialect.locate_reply)
    return mend_reply(notes.stage(dialect.decode_reply(wire, notes)), notes)


def mend_reply(reply: Reply, notes: Notes) -> tuple[Reply, bool]:
    """A reply as it was read, with calls that have whole arguments; and whether they had them."""
    mended = notes.stage(mend_calls(reply, notes))
    return mended, mended is reply


def _invalid(why: str) -> Failure:
    """The model's mistake: neither the caller's fault nor the upstream's."""
    return Failure(kind="refused", status=502, code=INVALID_ANSWER, message=why)
