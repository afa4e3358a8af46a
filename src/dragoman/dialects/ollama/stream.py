"""Ollama: the stream, both ways. One JSON object per line (application/x-ndjson), no SSE framing.

    line* done        line = {"message": a piece of it, "done": false}

Text and thinking come in pieces. A call comes whole in one line. Only the last line says `"done": true`, and it has the
counters. A line `{"error": "text"}` ends the stream.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects._seals import SIDE, write_seal
from dragoman.dialects._settings import note_missing_tier
from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.ollama.failure import decode_failure, encode_error
from dragoman.dialects.ollama.parts import (
    RANKS,
    MessageWriter,
    MintId,
    encode_call,
    encode_logprobs,
    take_answered_media,
    take_calls,
    take_content,
    take_logprobs,
    take_side,
)
from dragoman.dialects.ollama.reply import (
    ALWAYS,
    encode_created,
    encode_end,
    id_minter,
    note_unsaid,
    put_message,
    take_created,
    take_finish,
    take_message,
    take_usage,
)
from dragoman.dialects.ollama.words import FORM, NAME, says_generate
from dragoman.fields import add_extras, take_text_or_none
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.jsontypes import JsonObject, dump_json, load_object
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
)
from dragoman.model.fold import merge_extras
from dragoman.model.messages import Extras, Part, Reasoning, Refusal, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# ---------------------------------------------------------------- decode


class StreamDecoder(StreamMarks):
    def __init__(self, notes: Notes) -> None:
        self._lines = NdjsonDecoder()
        self._count = 0
        self._text = -1  # index of the open text. Calls do not end it: unstreamed, it is one text too
        self._thought = -1  # of the open thought
        self._text_seal: Seal | None = None
        self._logprobs: tuple[TokenLogprob, ...] = ()  # logprobs of thinking, kept until there is a text
        self._calls = 0
        self._called = False
        self._mint_id: MintId = id_minter("", "")
        self._extras: JsonObject = {}
        self._message_extras: JsonObject = {}
        self._started = False
        self._ended = False

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.feed(piece):
            if self._ended:
                break
            self._read(load_object(line), events)
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.close():
            if not self._ended:
                self._read(load_object(line), events)
        if not self._ended:
            self._ended = True
            events.append(ReplyFailed(failure=CUT))
        return events

    def _read(self, body: JsonObject, events: list[Event]) -> None:
        # Nearly every line has model, created_at, done and one more piece of the same field as the line before.
        index, text = -1, None
        if (
            len(body) == 4 and body.get("done") is False and "created_at" in body and "model" in body
        ):  # fast path: ollama line
            message = body.get("message")
            if type(message) is not dict:
                index, text = self._text, body.get("response")
            elif message.get("role") == "assistant":
                if len(message) == 2:
                    index, text = self._text, message.get("content")
                elif len(message) == 3 and message.get("content") == "":
                    index, text = self._thought, message.get("thinking")
        if index >= 0 and type(text) is str:
            if text:
                events.append(PartDelta(index=index, text=text))
        else:
            self._read_any(body, events)

    def _read_any(self, body: JsonObject, events: list[Event]) -> None:
        if body.get("error"):
            self._ended = True
            events.append(ReplyFailed(failure=decode_failure(WireReply(body=body))))
            return
        done = body.get("done") is True
        if not done and "message" not in body and "response" not in body:
            events.append(Aside(dialect=NAME, body=body))  # the progress of an image
            return
        if not self._started:
            self._start(body, events)
        for key in ("model", "created_at"):
            body.pop(key, None)
        if done:
            note_unsaid(body, *ALWAYS)
        else:
            body.pop("done", None)
        message = take_message(body)
        body.pop(FORM, None)
        logprobs = take_logprobs(body)
        self._read_message(message, logprobs, events)
        if message:
            self._message_extras.update(message)
        if done:
            self._end(body, events)
        elif body:
            self._extras.update(body)

    def _start(self, body: JsonObject, events: list[Event]) -> None:
        self._started = True
        model = take_text_or_none(body, "model") or ""
        self.irregular = self.irregular or not (model and body.get("created_at"))
        spelling: JsonObject = {"created_at": body.pop("created_at", None)}
        created = take_created(spelling)
        self._mint_id = id_minter(spelling.get("~created_at", ""), model)
        spelling.pop("created_at", None)
        if "message" not in body:
            spelling[FORM] = "generate"
        events.append(ReplyStart(id="", model=model, created=created, extras={NAME: spelling} if spelling else {}))

    def _read_message(
        self, message: JsonObject, logprobs: tuple[TokenLogprob, ...] | None, events: list[Event]
    ) -> None:
        if message.pop("~omit", None) is not None:  # a line may lack its role, which Ollama's client needs
            self.irregular = True
        self._think(message, events)
        text = take_content(message)
        message.pop("~content", None)
        seal = take_side(message, "content")
        if text or seal is not None:
            self._say(text or "", logprobs, events)
            self._text_seal = seal or self._text_seal
        elif logprobs is not None:
            self._file_logprobs(logprobs, events)
        for part in take_answered_media(message):
            self._whole(part, events)
        self._call(message, events)
        for key in ("~images", "~tool_calls"):
            message.pop(key, None)

    def _think(self, message: JsonObject, events: list[Event]) -> None:
        thinking, seal = take_text_or_none(message, "thinking"), take_side(message, "thinking")
        if not thinking and seal is None:
            return
        if self._thought < 0:
            self._thought = self._open(Reasoning(text=""), events)
        if thinking:
            events.append(PartDelta(index=self._thought, text=thinking))
        if seal is not None:  # a seal ends the thought
            self._stop_thinking(events, seal)

    def _stop_thinking(self, events: list[Event], seal: Seal | None = None) -> None:
        if self._thought >= 0:
            events.append(PartEnd(index=self._thought, seal=seal))
            self._thought = -1

    def _open(self, part: Part, events: list[Event]) -> int:
        index = self._count
        self._count += 1
        events.append(PartStart(index=index, part=part))
        return index

    def _say(self, text: str, logprobs: tuple[TokenLogprob, ...] | None, events: list[Event]) -> None:
        if self._text < 0:
            self._stop_thinking(events)
            self._text = self._open(Text(text=""), events)
        if self._logprobs:
            logprobs, self._logprobs = self._logprobs + (logprobs or ()), ()
        if text or logprobs is not None:
            events.append(PartDelta(index=self._text, text=text, logprobs=logprobs))

    def _file_logprobs(self, logprobs: tuple[TokenLogprob, ...], events: list[Event]) -> None:
        if self._text >= 0:
            events.append(PartDelta(index=self._text, logprobs=logprobs))
        else:
            self._logprobs += logprobs

    def _call(self, message: JsonObject, events: list[Event]) -> None:
        before = self._calls
        for part in take_calls(message, lambda position, name: self._mint_id(before + position, name), asked=False):
            self._calls += 1
            self._whole(part, events)

    def _whole(self, part: Part, events: list[Event]) -> None:
        self._stop_thinking(events)
        if isinstance(part, ToolCall):
            self._called = True
            index = self._open(replace(part, arguments=""), events)
            events.append(PartDelta(index=index, text=part.arguments))
        else:
            index = self._open(part, events)
        events.append(PartEnd(index=index))

    def _end(self, body: JsonObject, events: list[Event]) -> None:
        self._ended = True
        self._stop_thinking(events)
        if self._text >= 0:
            events.append(PartEnd(index=self._text, seal=self._text_seal))
        elif self._logprobs:
            body["logprobs"] = encode_logprobs(self._logprobs, ROOT, Notes())
        finish = take_finish(body, self._called)
        usage = take_usage(body)
        extras = self._extras | body
        events.append(
            ReplyEnd(
                finishes=(finish,),
                usage=usage,
                choice_extras=({NAME: self._message_extras},) if self._message_extras else (),
                extras={NAME: extras} if extras else {},
            )
        )


# ---------------------------------------------------------------- encode


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
                type(event) is PartDelta and event.index == self._active and event.logprobs is None
            ):  # fast path: ollama delta, written
                if event.text:
                    out.append(self._head + dump_json(event.text) + self._tail)
                if event.citations:
                    self._note_once((self._at, "citations"), "ollama has no citations")
            elif not self._is_skipped(event):
                for ordered in self._sequencer.feed(event):
                    self._write(ordered)
        joined = b"".join(out)
        out.clear()
        return joined

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
