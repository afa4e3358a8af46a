"""Ollama: reading a stream. One JSON object per line (application/x-ndjson), no SSE framing.

    line* done        line = {"message": a piece of it, "done": false}

Text and thinking come in pieces. A call comes whole in one line. Only the last line says `"done": true`, and it has the
counters. A line `{"error": "text"}` ends the stream.
"""

from msgspec.structs import replace

from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.ollama.failure import decode_failure
from dragoman.dialects.ollama.parts import (
    MintId,
    encode_logprobs,
    take_answered_media,
    take_calls,
    take_content,
    take_logprobs,
    take_side,
)
from dragoman.dialects.ollama.reply import (
    ALWAYS,
    id_minter,
    note_missing,
    take_created,
    take_finish,
    take_message,
    take_usage,
)
from dragoman.dialects.ollama.words import FORM, NAME
from dragoman.fields import take_text_or_none
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.framing.templates import DeltaTemplate, LearntDelta, word_slot
from dragoman.jsontypes import JsonObject, load_object
from dragoman.model.events import (
    Aside,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailed,
    ReplyStart,
    TextRun,
)
from dragoman.model.messages import Part, Reasoning, Seal, Text, TokenLogprob, ToolCall
from dragoman.notes import ROOT, Notes
from dragoman.wire import WireReply

_VARYING = (word_slot("created_at"),)


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
        self._template = DeltaTemplate(frame_end=b"\n")  # of lines that add to one part
        self._template_owner = -1  # index of that part

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        if (
            self.joins and self._template_owner >= 0 and (data := self._lines.gather(piece)) is not None
        ):  # fast path: ollama run
            text, pieces, piece = self._template.read_run(data)
            if pieces:
                events.append(TextRun(index=self._template_owner, text=text, pieces=pieces))
            if not piece:
                return events
        for line in self._lines.feed(piece):
            if self._ended:
                break
            index = self._template_owner
            if index >= 0 and (delta := self._template.read(line)) is not None:  # fast path: ollama delta
                if delta:
                    events.append(PartDelta(index=index, text=delta))
            else:
                self._read(load_object(line), events, line)
        return events

    def learnt(self) -> LearntDelta | None:
        known = self._template_owner >= 0 and self._lines.is_between()
        return LearntDelta(self._template, self._template_owner) if known else None

    def close(self) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.close():
            if not self._ended:
                self._read(load_object(line), events)
        if not self._ended:
            self._ended = True
            events.append(ReplyFailed(failure=CUT))
        return events

    def _read(self, body: JsonObject, events: list[Event], line: bytes = b"") -> None:
        # Nearly every line has model, created_at, done and one more piece of the same field as the line before.
        index, text, key = -1, None, b""
        if (
            len(body) == 4 and body.get("done") is False and "created_at" in body and "model" in body
        ):  # fast path: ollama line
            message = body.get("message")
            if type(message) is not dict:
                index, text, key = self._text, body.get("response"), b'"response"'
            elif message.get("role") == "assistant":
                if len(message) == 2:
                    index, text, key = self._text, message.get("content"), b'"content"'
                elif len(message) == 3 and message.get("content") == "":
                    index, text, key = self._thought, message.get("thinking"), b'"thinking"'
        if index >= 0 and type(text) is str:
            if text:
                events.append(PartDelta(index=index, text=text))
            self._template_owner = index if self._template.learn(line, key, text, _VARYING, index) else -1
        else:
            self._template_owner = -1
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
            note_missing(body, *ALWAYS)
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
