"""Ollama: writing a stream. `stream_decoder.py` shows its grammar."""

from collections.abc import Iterable
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects._base import WritePieces
from dragoman.dialects._seals import SIDE, write_seal
from dragoman.dialects._settings import note_missing_tier
from dragoman.dialects._streams import CUT, OpenFrame, hold
from dragoman.dialects.ollama.failure import encode_error
from dragoman.dialects.ollama.parts import RANKS, MessageWriter, encode_call, encode_logprobs
from dragoman.dialects.ollama.reply import encode_created, encode_end, put_message
from dragoman.dialects.ollama.words import NAME, says_generate
from dragoman.fields import add_extras
from dragoman.framing.templates import write_frames
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.model.events import (
    Aside,
    Event,
    PartDelta,
    PartEnd,
    PartPlaces,
    PartStart,
    ReplyEnd,
    ReplyFailed,
    ReplyStart,
    Sequencer,
    TextRun,
)
from dragoman.model.fold import merge_extras
from dragoman.model.messages import Extras, Part, Reasoning, Refusal, Text, TokenLogprob, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._notes = notes
        self._generate = None if request is None else says_generate(request.extras)
        self._sequencer = Sequencer()
        self._out: list[bytes] = []
        self._base: JsonObject = {}  # model and created_at, on every line
        self._extras: Extras = {}
        self._tier: str | None = None
        self._open: Part | None = None
        self._at: At = ROOT  # of the open part
        self._index = -1  # of the open part
        self._active = -1  # the same, once it has text: then its deltas take the fast path
        self._head, self._tail = b"", b""  # the bytes around its text in a line
        self._pieces: list[str] = []  # of the open part's text
        self._gap = False  # the next piece continues another part's field
        self._filled: set[str] = set()  # fields of the message that have text
        self._sealed: set[str] = set()
        self._calls = 0
        self._rank = 0
        self._skipped: set[int] = set()
        self._places = PartPlaces()
        self._noted: set[At] = set()
        self._done = False

    def feed(self, events: Iterable[Event]) -> bytes:
        out = self._out
        for event in events:
            if self._done:
                break
            if (
                isinstance(event, PartDelta) and event.index == self._active and event.logprobs is None
            ):  # fast path: ollama delta, written
                if type(event) is TextRun:
                    out.append(write_frames(self._head, event.pieces, self._tail))
                elif event.text:
                    out.append(self._head + dump_json(event.text) + self._tail)
                if event.citations:
                    self._note_once((self._at, "citations"), "ollama has no citations")
            elif (
                isinstance(event, PartDelta) and event.index == self._index and self._holds()
            ):  # fast path: ollama delta, held
                self._pieces.append(event.text)
            elif not self._is_skipped(event):
                for delta in event.spread() if type(event) is TextRun else (event,):
                    for ordered in self._sequencer.feed(delta):
                        self._write(ordered)
        joined = b"".join(out)
        out.clear()
        return joined

    def open_text(self, index: int) -> WritePieces | None:
        if not self._done and index == self._index and self._holds():
            return partial(hold, self._pieces)
        return None if self._done or index != self._active else OpenFrame(self._head, self._tail).write

    def _holds(self) -> bool:
        """Whether the open part is written when it is complete."""
        return type(self._open) is ToolCall

    def flush(self) -> bytes:
        """Ollama's server writes a call at once, also while a text is open: nothing more of it is to be written."""
        self._calls += sum(type(event) is PartStart for event in self._sequencer.forget_ended())
        return b""

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _is_skipped(self, event: Event) -> bool:
        """Whether a part belongs to a second answer, which Ollama does not have."""
        if isinstance(event, PartStart) and event.choice:
            self._skipped.add(event.index)
            self._places.add(event)
            self._note_once(((ROOT, "choices"), event.choice), "ollama gives one answer")
        return isinstance(event, PartStart | PartDelta | PartEnd) and event.index in self._skipped

    def _note_once(self, at: At, why: str) -> None:
        if at not in self._noted:
            self._noted.add(at)
            self._notes.dropped(at, why)

    def _write(self, event: Event) -> None:
        match event:
            case PartDelta():
                self._grow(event)
            case PartStart():
                self._start_part(event)
            case PartEnd():
                self._end_part(event)
            case ReplyStart():
                self._start(event)
            case ReplyEnd():
                self._end(event)
            case ReplyFailed():
                self._out.append(dump_json(encode_error(event.failure)) + b"\n")
                self._done = True
            case Aside():
                if event.dialect == NAME:
                    self._out.append(dump_json(event.body) + b"\n")
            case _:
                assert_never(event)

    def _start(self, event: ReplyStart) -> None:
        if self._generate is None:
            self._generate = says_generate(event.extras)
        self._extras = event.extras
        self._base = {"model": event.model, "created_at": encode_created(event.created, event.extras, self._notes)}
        if event.id:
            self._notes.altered((ROOT, "id"), "ollama's answers have no id")
        self._tier = event.service_tier

    def _line(self, message: JsonObject, logprobs: list[JsonObject] | None = None) -> None:
        body = dict(self._base)
        put_message(body, {"content": "", **message}, {}, self._notes, generate=bool(self._generate))
        if logprobs is not None:
            body["logprobs"] = logprobs
        body["done"] = False
        self._out.append(dump_json(body) + b"\n")

    # -- parts

    def _start_part(self, event: PartStart) -> None:
        part = event.part
        parts: At = (((ROOT, "choices"), 0), "parts")
        place = self._places.add(event)
        self._at = (parts, place)
        self._check_order(part, parts)
        self._open, self._index, self._pieces = part, event.index, []
        match part:
            case Text() | Refusal():
                self._note_text(part)
                self._start_text("content", part.text, part.logprobs)
            case Reasoning():
                if part.summary:
                    self._notes.altered((self._at, "summary"), "ollama does not distinguish a summary from the thought")
                self._note_extras(part.extras)
                self._start_text("thinking", part.text, None)
            case ToolCall():
                self._pieces.append(part.arguments)
            case _:
                turn = MessageWriter(parts, self._notes, to_client=True)
                turn.add(part, place)
                message = turn.body()
                if message is not None:
                    self._line(message)

    def _check_order(self, part: Part, parts: At) -> None:
        rank = RANKS.get(type(part))
        if rank is None:
            return  # it is not said at all
        again = rank < 2 and ("content" if rank else "thinking") in self._filled | self._sealed
        if (again or rank < self._rank) and parts not in self._noted:
            self._noted.add(parts)
            self._notes.altered(parts, "ollama's order is thinking, text, images, calls, with one text in each")
        self._rank = max(rank, self._rank)

    def _note_text(self, part: Text | Refusal) -> None:
        if isinstance(part, Refusal):
            self._notes.altered(self._at, "ollama has no refusal part: said as text")
        else:
            if part.citations:
                self._note_once((self._at, "citations"), "ollama has no citations")
            if part.cache is not None:
                self._notes.dropped((self._at, "cache"), "ollama has no cache marks")
        self._note_extras(part.extras)

    def _note_extras(self, extras: Extras) -> None:
        if extras:
            add_extras({}, extras, NAME, self._at, self._notes)

    def _start_text(self, field: str, text: str, logprobs: tuple[TokenLogprob, ...] | None) -> None:
        """Make the bytes around a piece of text. They are the same in each line, so they are made once."""
        body = dict(self._base)
        mark = "\0"
        put_message(body, {"content": "", field: mark}, {}, self._notes, generate=bool(self._generate))
        body["done"] = False
        self._head, _, tail = dump_json(body).rpartition(dump_json(mark))
        self._tail = tail + b"\n"
        self._gap = field in self._filled
        if text or logprobs is not None:
            self._say(field, text, logprobs)

    def _grow(self, event: PartDelta) -> None:
        part = self._open
        match part:
            case Text() | Refusal():
                self._say("content", event.text, event.logprobs)
            case Reasoning():
                self._say("thinking", event.text, None)
            case ToolCall():
                self._pieces.append(event.text)
            case _:
                pass
        if event.citations:
            self._note_once((self._at, "citations"), "ollama has no citations")

    def _say(self, field: str, text: str, logprobs: tuple[TokenLogprob, ...] | None) -> None:
        """Write the first piece of a part, or a piece with logprobs."""
        encoded = None
        if logprobs is not None:
            encoded = encode_logprobs(logprobs, (self._at, "logprobs"), self._notes)
        if text:
            if self._gap:
                self._gap = False
                text = "\n" + text
            self._filled.add(field)
            self._active = self._index
        if text or encoded is not None:
            self._line({field: text}, encoded)

    def _end_part(self, event: PartEnd) -> None:
        part, spoke = self._open, self._active == event.index
        self._active, self._open = -1, None
        match part:
            case ToolCall():
                seal, extras = event.seal or part.seal, merge_extras(part.extras, event.extras)
                whole = replace(part, arguments="".join(self._pieces), seal=seal, extras=extras)
                call = encode_call(whole, self._calls, self._at, self._notes, to_client=True)
                self._calls += 1
                self._line({"tool_calls": [call]})
            case Text() | Reasoning() | Refusal():
                self._end_text(part, event, spoke)
            case _:
                self._note_extras(event.extras)

    def _end_text(self, part: Text | Reasoning | Refusal, event: PartEnd, spoke: bool) -> None:
        field = "thinking" if isinstance(part, Reasoning) else "content"
        seal = event.seal or (None if isinstance(part, Refusal) else part.seal)
        if seal is not None and field == "content" and field in self._sealed:
            self._notes.dropped((self._at, "seal"), "the side field has one place for the text, and it is taken")
        elif seal is not None:
            holder: JsonObject = {}
            write_seal(holder, seal, self._at, self._notes, to_client=True)
            self._line({SIDE: {field: holder[SIDE]}})
            self._sealed.add(field)
            if field == "thinking":
                self._filled.discard(field)  # a reader takes the sealed thought as complete
        elif not spoke:
            self._notes.dropped(self._at, f"ollama does not distinguish an empty {field} from none")
        self._note_extras(event.extras)

    # -- the end

    def _end(self, event: ReplyEnd) -> None:
        for i in range(1, len(event.finishes)):
            self._note_once(((ROOT, "choices"), i), "ollama gives one answer")
        note_missing_tier(event.service_tier or self._tier, NAME, self._notes)
        extras = merge_extras(self._extras, event.extras)
        finish = event.finishes[0] if event.finishes else None
        body = dict(self._base)
        said_by = event.choice_extras[0] if event.choice_extras else {}
        put_message(body, {"content": ""}, said_by, self._notes, generate=bool(self._generate))
        body.update(encode_end(finish, event.usage, extras, self._calls > 0, self._notes))
        if extras:
            add_extras(body, extras, NAME, ROOT, self._notes)
        self._out.append(dump_json(body) + b"\n")
        self._done = True
