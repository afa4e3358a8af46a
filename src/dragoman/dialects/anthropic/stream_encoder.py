"""Anthropic Messages: writing a stream. `stream_decoder.py` shows its grammar."""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects._base import WritePieces
from dragoman.dialects._seals import SIDE, late_side, note_seal_losses, write_seal
from dragoman.dialects._streams import CUT, OpenFrame
from dragoman.dialects.anthropic.citations import encode_citation
from dragoman.dialects.anthropic.failure import encode_error
from dragoman.dialects.anthropic.parts import encode_part
from dragoman.dialects.anthropic.reply import demand_counts, encode_finish, encode_usage, write_tier
from dragoman.dialects.anthropic.words import NAME
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
from dragoman.model.messages import Citation, Part, Reasoning, Refusal, Seal, Text, ToolCall
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,"delta":{"type":"%b","%b":'
_DELTA_HEADS: dict[type[Part] | None, bytes] = {
    Text: _DELTA % (b"text_delta", b"text"),
    Reasoning: _DELTA % (b"thinking_delta", b"thinking"),
    ToolCall: _DELTA % (b"input_json_delta", b"partial_json"),
}

_TAIL = b"}}\n\n"


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._notes = notes
        self._sequencer = Sequencer()
        self._places = PartPlaces()
        self._out: list[bytes] = []
        self._index = -1  # of the open block
        self._kind: type[Part] | None = None
        self._open: int | None = None  # the part whose text goes straight into the open block
        self._head = b""  # the bytes of a frame before that text
        self._free: list[str] | None = None  # free text of the open call, which is no JSON: sent when it is complete
        self._skipped: set[int] = set()
        self._tier: str | None = None
        self._cited = 0  # citations of the open block
        self._cited_well = False  # whether one of them was written
        self._done = False

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if self._done:
                break
            if (
                isinstance(event, PartDelta)
                and event.index == self._open
                and event.text
                and not event.citations
                and event.logprobs is None
            ):  # fast path: anthropic delta, written
                # Only the text is encoded: the rest of the frame is always the same.
                if type(event) is TextRun:
                    self._out.append(write_frames(self._head, event.pieces, _TAIL))
                else:
                    self._out.append(b"%b%b}}\n\n" % (self._head, dump_json(event.text)))
                continue
            for delta in event.spread() if type(event) is TextRun else (event,):
                for ordered in self._sequencer.feed(delta):
                    self._write(ordered)
        out, self._out = b"".join(self._out), []
        return out

    def open_text(self, index: int) -> WritePieces | None:
        return None if self._done or index != self._open else OpenFrame(self._head, _TAIL).write

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _write(self, event: Event) -> None:
        match event:
            case PartDelta():
                self._delta(event)
            case PartStart():
                self._start_block(event)
            case PartEnd():
                self._stop_block(event)
            case ReplyStart():
                self._start(event)
            case ReplyEnd():
                self._end(event)
            case ReplyFailed():
                body: JsonObject = {"type": "error", "error": encode_error(event.failure)}
                if event.failure.request_id is not None:
                    body["request_id"] = event.failure.request_id
                self._send(body)
                self._done = True
            case Aside():
                if event.dialect == NAME:
                    self._send(event.body)
            case _:
                assert_never(event)

    def _send(self, body: JsonObject) -> None:
        name = body.get("type")
        if type(name) is str:
            self._out.append(b"event: %b\n" % name.encode())
        self._out.append(b"data: %b\n\n" % dump_json(body))

    def _start(self, event: ReplyStart) -> None:
        ignored = Notes()  # the end of the stream says the same once more
        usage = encode_usage(event.usage or Usage(), (ROOT, "usage"), ignored)
        usage.setdefault("input_tokens", 0)
        usage.setdefault("output_tokens", 0)
        message: JsonObject = {"id": event.id, "type": "message", "role": "assistant", "model": event.model}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if event.created is not None:
            self._notes.dropped((ROOT, "created"), "anthropic's replies have no time")
        self._tier = event.service_tier
        write_tier(usage, self._tier, event.usage, ignored)
        if event.extras:
            add_extras(message, event.extras, NAME, ROOT, self._notes)
        self._send({"type": "message_start", "message": message})

    def _at(self, index: int) -> At:
        return ((((ROOT, "choices"), 0), "parts"), self._places[index])

    def _start_block(self, event: PartStart) -> None:
        part = event.part
        self._places.add(event)
        if event.choice:
            self._skipped.add(event.index)
            self._notes.dropped(((ROOT, "choices"), event.choice), "anthropic gives one answer")
            return
        at = self._at(event.index)
        block = self._start_body(part, at)
        if block is None:
            self._skipped.add(event.index)
            return
        self._index += 1
        self._cited, self._cited_well = 0, False
        self._kind = Text if isinstance(part, Refusal) else type(part)
        self._free = [] if isinstance(part, ToolCall) and part.freeform else None
        if self._kind in _DELTA_HEADS and self._free is None:
            self._open, self._head = event.index, _DELTA_HEADS[self._kind] % self._index
        self._send({"type": "content_block_start", "index": self._index, "content_block": block})
        self._first_delta(part, block, at)

    def _start_body(self, part: Part, at: At) -> JsonObject | None:
        if isinstance(part, ToolCall):
            # Arguments are sent as a delta, never in the start (FIELD-CASES 8, 123).
            freeform = part.freeform
            block = encode_part(replace(part, arguments="{}", freeform=False), at, self._notes, to_client=True)
            if freeform:
                self._notes.altered((at, "freeform"), "anthropic has no freeform calls: said as a function's")
                self._notes.altered((at, "arguments"), "free text, said as the one argument input")
            return block
        if isinstance(part, Reasoning) and part.seal is None:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            if part.summary:
                self._notes.altered((at, "summary"), "anthropic does not distinguish a summary from the thought")
            add_extras(block, part.extras, NAME, at, self._notes)
            return block
        block = encode_part(part, at, self._notes, to_client=True)
        if block is not None:
            if block["type"] == "thinking":
                block = block | {"thinking": "", "signature": ""}
            elif block["type"] == "text":
                block = {key: value for key, value in block.items() if key != "citations"} | {"text": ""}
        return block

    def _first_delta(self, part: Part, block: JsonObject, at: At) -> None:
        """Send the text and citations that the start of a part already has, as deltas."""
        match part:
            case Text() | Refusal():
                if part.text:
                    self._send_delta({"type": "text_delta", "text": part.text})
                for citation in part.citations if isinstance(part, Text) else ():
                    self._send_citation(citation, at)
            case Reasoning():
                if part.text and block["type"] == "thinking":
                    self._send_delta({"type": "thinking_delta", "thinking": part.text})
                if part.seal is not None and part.seal.origin == NAME and block["type"] == "thinking":
                    self._send_delta({"type": "signature_delta", "signature": part.seal.value})
            case ToolCall():
                if self._free is not None:
                    self._free.append(part.arguments)
                elif part.arguments:
                    self._send_delta({"type": "input_json_delta", "partial_json": part.arguments})
            case _:
                pass

    def _delta(self, event: PartDelta) -> None:
        if event.index in self._skipped:
            return
        if self._free is not None:
            self._free.append(event.text)
        elif event.text and event.index == self._open:
            self._out.append(b"%b%b}}\n\n" % (self._head, dump_json(event.text)))
        if event.logprobs is not None:
            self._notes.dropped((self._at(event.index), "logprobs"), "anthropic has no logprobs")
        for citation in event.citations:
            self._send_citation(citation, self._at(event.index))

    def _send_citation(self, citation: Citation, at: At) -> None:
        encoded = encode_citation(citation, ((at, "citations"), self._cited), self._notes)
        self._cited += 1
        if encoded is not None:
            self._cited_well = True
            self._send_delta({"type": "citations_delta", "citation": encoded})

    def _send_delta(self, delta: JsonObject) -> None:
        body = {"type": "content_block_delta", "index": self._index, "delta": delta}
        self._out.append(b"event: content_block_delta\ndata: %b\n\n" % dump_json(body))

    def _stop_block(self, event: PartEnd) -> None:
        if event.index in self._skipped:
            return
        self._open = None
        at = self._at(event.index)
        if self._free is not None:
            whole = dump_json({"input": "".join(self._free)}).decode()
            self._send_delta({"type": "input_json_delta", "partial_json": whole})
            self._free = None
        if self._cited and not self._cited_well:
            self._notes.dropped((at, "citations"), "none of them names a place that anthropic can cite")
        stop: JsonObject = {"type": "content_block_stop", "index": self._index}
        if event.seal is not None:
            if event.seal.origin == NAME and self._kind is Reasoning:
                note_seal_losses(event.seal, ("signature",), at, self._notes)
                self._send_delta({"type": "signature_delta", "signature": event.seal.value})
            elif self._kind is not Reasoning:
                # Clients that build blocks from the stream ignore this place; clients that keep the frames read it.
                write_seal(stop, event.seal, at, self._notes, to_client=True)
        if event.extras:
            add_extras(stop, event.extras, NAME, at, self._notes)
        self._send(stop)
        if event.seal is not None and event.seal.origin != NAME and self._kind is Reasoning:
            self._send_late_seal(event.seal)

    def _send_late_seal(self, seal: Seal) -> None:
        """Send the seal in its own block, because clients read such keys only at a block's start (see _seals)."""
        self._index += 1
        block = {"type": "thinking", "thinking": "", "signature": "", SIDE: late_side(seal)}
        self._send({"type": "content_block_start", "index": self._index, "content_block": block})
        self._send({"type": "content_block_stop", "index": self._index})

    def _end(self, event: ReplyEnd) -> None:
        finish = event.finishes[0] if event.finishes else None
        for i in range(1, len(event.finishes)):
            self._notes.dropped(((ROOT, "choices"), i), "anthropic gives one answer")
        delta = encode_finish(finish, (((ROOT, "choices"), 0), "finish"), self._notes)
        usage = encode_usage(event.usage or Usage(), (ROOT, "usage"), self._notes)
        demand_counts(usage, event.usage, self._notes)
        if event.service_tier is None or event.service_tier == self._tier:
            write_tier({}, self._tier, event.usage, self._notes)  # already written at the start
        else:
            write_tier(usage, event.service_tier, event.usage, self._notes)
        body: JsonObject = {"type": "message_delta", "delta": delta, "usage": usage}
        if event.extras:
            add_extras(body, event.extras, NAME, ROOT, self._notes)
            if "container" in body:
                delta["container"] = body.pop(
                    "container"
                )  # a top-level key of a reply, but in a stream it is in the delta
        for extras in event.choice_extras[:1]:
            add_extras(body, extras, NAME, ((ROOT, "choices"), 0), self._notes)
        self._send(body)
        self._send({"type": "message_stop"})
        self._done = True
