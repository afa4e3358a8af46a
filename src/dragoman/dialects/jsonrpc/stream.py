"""JSON-RPC `generate_content` with `"stream": true`: our own form of it, described in docs/jsonrpc.md.

One JSON object per line: notifications while the answer grows, then the same response as without streaming, with the
whole result or an error. A client that skips the notifications loses nothing.

    generate_content.start  {id, model}
    generate_content.delta  {id, and one of text, reasoning, tool_call, image}
    the response            {id, result | error}
"""

from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.jsonrpc.calls import Id
from dragoman.dialects.jsonrpc.failure import decode_failure, encode_error_object
from dragoman.dialects.jsonrpc.parts import decode_call, decode_image, encode_call, encode_image
from dragoman.dialects.jsonrpc.reply import decode_reply, encode_reply
from dragoman.dialects.jsonrpc.words import DELTA, NAME, START, VERSION
from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.fields import need_object, take_text_or_none
from dragoman.framing.ndjson import NdjsonDecoder
from dragoman.jsontypes import JsonObject, dump_json, load_object
from dragoman.model.events import (
    Aside,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailed,
    ReplyStart,
    Sequencer,
)
from dragoman.model.fold import ReplyBuilder, merge_extras, unfold
from dragoman.model.messages import Image, Part, Reasoning, Refusal, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# ---------------------------------------------------------------- decode


class StreamDecoder(StreamMarks):
    """Decodes the lines of one call's answer, for clients. Lines with other ids are ignored."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._lines = NdjsonDecoder()
        self._count = 0
        self._open: tuple[int, str] | None = None  # index and field of the open text
        self._started = False
        self._ended = False

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.feed(piece):
            self._read(load_object(line), events)
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        for line in self._lines.close():
            self._read(load_object(line), events)
        if not self._ended:
            self._ended = True
            events.append(ReplyFailed(failure=CUT))
        return events

    def _read(self, body: JsonObject, events: list[Event]) -> None:
        if self._ended:
            return
        match body.get("method"):
            case None:
                self._finish(body, events)
            case "generate_content.delta":
                self._delta(need_object(body.get("params")), events)
            case "generate_content.start":
                self._start(need_object(body.get("params")), events)
            case _:
                events.append(Aside(dialect=NAME, body=body))

    def _start(self, params: JsonObject, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(ReplyStart(id="", model=take_text_or_none(params, "model") or ""))

    def _delta(self, params: JsonObject, events: list[Event]) -> None:
        self._start({}, events)
        for field, empty in (("reasoning", Reasoning(text="")), ("text", Text(text=""))):
            text = take_text_or_none(params, field)
            if text is not None:
                self._grow(field, empty, text, events)
        if "tool_call" in params:
            call = decode_call(need_object(params["tool_call"]))
            self._whole(replace(call, arguments=""), call.arguments, events)
        if "image" in params:
            self._whole(decode_image(need_object(params["image"])), "", events)

    def _grow(self, field: str, empty: Part, text: str, events: list[Event]) -> None:
        if self._open is None or self._open[1] != field:
            self._stop(events)
            self._open = (self._count, field)
            self._count += 1
            events.append(PartStart(index=self._open[0], part=empty))
        events.append(PartDelta(index=self._open[0], text=text))

    def _stop(self, events: list[Event]) -> None:
        if self._open is not None:
            events.append(PartEnd(index=self._open[0]))
            self._open = None

    def _whole(self, part: Part, text: str, events: list[Event]) -> None:
        self._stop(events)
        events.append(PartStart(index=self._count, part=part))
        if text:
            events.append(PartDelta(index=self._count, text=text))
        events.append(PartEnd(index=self._count))
        self._count += 1

    def _finish(self, body: JsonObject, events: list[Event]) -> None:
        self._ended = True
        if "result" not in body:
            events.append(ReplyFailed(failure=decode_failure(WireReply(body=body))))
            return
        reply = decode_reply(WireReply(body=body["result"]), self._notes)
        if not self._started:
            events.extend(unfold(reply))  # the server did not stream: the response has the whole answer
            return
        self._stop(events)
        (choice,) = reply.choices
        events.append(ReplyEnd(finishes=(choice.finish,), usage=reply.usage, extras=reply.extras))


# ---------------------------------------------------------------- encode


class StreamEncoder:
    """Encodes the answer to the call with the id `call_id`."""

    def __init__(self, notes: Notes, request: Request | None = None, *, call_id: Id = None) -> None:
        self._notes = notes
        self._call_id = call_id
        self._heads = {field: self._make_head(field) for field in ("text", "reasoning")}
        self._sequencer = Sequencer()
        self._builder = ReplyBuilder()
        self._out: list[bytes] = []
        self._fields: dict[int, bytes] = {}  # open texts and thoughts -> the bytes before a piece of their text
        self._calls: dict[int, tuple[ToolCall, list[str]]] = {}
        self._done = False

    def _make_head(self, field: str) -> bytes:
        """The bytes before the text of a delta, which are the same in each."""
        return self._notification(DELTA, {"id": self._call_id, field: ""}).removesuffix(b'""}}\n')

    def _notification(self, method: str, params: JsonObject) -> bytes:
        return dump_json({"jsonrpc": VERSION, "method": method, "params": params}) + b"\n"

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if self._done:
                break
            if isinstance(event, ReplyFailed):
                self._fail(event.failure)
                break
            self._builder.feed(event)
            for ordered in self._sequencer.feed(event):
                self._write(ordered)
        out = b"".join(self._out)
        self._out.clear()
        return out

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _fail(self, failure: Failure) -> None:
        self._done = True
        self._respond({"error": encode_error_object(failure)})

    def _respond(self, outcome: JsonObject) -> None:
        self._out.append(dump_json({"jsonrpc": VERSION, **outcome, "id": self._call_id}) + b"\n")

    def _write(self, event: Event) -> None:
        match event:
            case PartDelta():
                self._grow(event.index, event.text)
            case PartStart():
                if event.choice == 0:
                    self._start(event.index, event.part)
            case PartEnd():
                self._end_part(event)
            case ReplyStart():
                self._out.append(self._notification(START, {"id": self._call_id, "model": event.model}))
            case ReplyEnd():
                self._finish()
            case _:
                pass  # asides belong to other dialects

    def _start(self, index: int, part: Part) -> None:
        match part:
            case Text() | Refusal():
                self._fields[index] = self._heads["text"]
                self._grow(index, part.text)
            case Reasoning():
                self._fields[index] = self._heads["reasoning"]
                self._grow(index, part.text)
            case ToolCall():
                self._calls[index] = (part, [part.arguments])
            case Image():
                # Losses are noted once, with the result.
                image = encode_image(part, ROOT, Notes())
                if image is not None:
                    self._out.append(self._notification(DELTA, {"id": self._call_id, "image": image}))
            case _:
                pass

    def _grow(self, index: int, text: str) -> None:
        head = self._fields.get(index)
        if head is not None:
            if text:
                self._out.append(head + dump_json(text) + b"}}\n")
        elif index in self._calls:
            self._calls[index][1].append(text)

    def _end_part(self, event: PartEnd) -> None:
        self._fields.pop(event.index, None)
        made = self._calls.pop(event.index, None)
        if made is None:
            return
        part, pieces = made
        extras = merge_extras(part.extras, event.extras)
        whole = replace(part, arguments="".join(pieces), seal=event.seal or part.seal, extras=extras)
        at: At = ROOT
        call = encode_call(whole, at, Notes())
        self._out.append(self._notification(DELTA, {"id": self._call_id, "tool_call": call}))

    def _finish(self) -> None:
        self._done = True
        reply = self._builder.reply()
        if not isinstance(reply, Reply):
            raise DecodeError("a reply that has ended is no reply")  # cannot happen: feed() never folds a failure
        self._respond({"result": encode_reply(reply, self._notes).body})
