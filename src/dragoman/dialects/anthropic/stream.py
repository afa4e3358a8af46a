"""Anthropic Messages: the stream, both ways.
https://docs.anthropic.com/en/api/messages-streaming (digest read 2026-11-15)

    message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop

Blocks never overlap. `ping` may come anywhere. `error` ends the stream.
"""

from collections.abc import Iterable
from typing import Any, assert_never

from msgspec.structs import replace

from dragoman.dialects._seals import SIDE, is_late, late_side, note_unsaid, take_seal, write_seal
from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.anthropic.failure import decode_failure, encode_error
from dragoman.dialects.anthropic.parts import (
    LATE,
    decode_citation,
    decode_part,
    encode_citation,
    encode_part,
)
from dragoman.dialects.anthropic.reply import (
    decode_reply,
    decode_usage,
    demand_counts,
    encode_finish,
    encode_usage,
    take_finish,
    take_tier,
    write_tier,
)
from dragoman.dialects.anthropic.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    OMIT,
    add_extras,
    drop_constant,
    expected,
    leftovers,
    need_object,
    take_one,
    take_text_or_none,
)
from dragoman.framing.delta_template import DeltaTemplate
from dragoman.framing.sse import SseDecoder, SseFrame, read_frame
from dragoman.jsontypes import JsonObject, dump_json, dump_text, load_json, load_object
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
from dragoman.model.fold import merge_extras, unfold
from dragoman.model.messages import Citation, Part, Reasoning, Refusal, Seal, Text, ToolCall
from dragoman.model.reply import Finish, Usage
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireReply

# ---------------------------------------------------------------- decode


class _Block:
    """A block between its start and its stop."""

    __slots__ = ("body", "index", "json", "opened", "seal", "thinks")

    def __init__(self, index: int, body: JsonObject) -> None:
        self.thinks = body.get("type") == "thinking"
        self.index = index  # our own index: counts from 0 without gaps
        self.body = body
        self.json: list[str] = []  # pieces of a streamed `input`
        self.seal: Seal | None = None
        self.opened = False

    def keep(self, delta: JsonObject) -> None:
        """Collect the deltas of a block that only Anthropic knows, until it is complete."""
        if delta.get("type") == "input_json_delta":
            self.json.append("" + delta["partial_json"])
            return
        for key, value in delta.items():
            if key != "type":
                so_far = self.body.get(key)
                self.body[key] = so_far + value if type(so_far) is type(value) is str else value


_LATE = _Block(-1, {})  # stands for a block that only had a seal


def _index_of(body: JsonObject) -> int | None:
    index = body.get("index")
    if index is not None and type(index) is not int:
        raise expected("integer", index, "index")
    return index


class StreamDecoder(StreamMarks):
    def __init__(self, notes: Notes) -> None:
        self._frames = SseDecoder()
        self._notes = notes
        self._blocks: dict[Any, _Block] = {}
        self._count = 0
        self._usage: Usage | None = None
        self._tier: str | None = None  # the tier named at the end
        self._finish: Finish | None = None
        self._thought: PartEnd | None = None  # end of a thought whose seal may follow in its own block
        self._extras: dict[str, JsonObject] = {}
        self._called = False
        self._started = False
        self._ended = False
        self._template = DeltaTemplate()  # of the text deltas
        self._template_owner: _Block | None = None  # the part or choice that the template belongs to

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        for lines in self._frames.split(piece):
            block = self._template_owner
            if block is not None and (text := self._template.read(lines)) is not None:  # fast path: anthropic delta
                events.append(PartDelta(index=block.index, text=text))
            elif (frame := read_frame(lines)) is not None:
                self._read(frame, events, lines)
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        for frame in self._frames.close():
            self._read(frame, events)
        if self._finish is not None and not self._ended:
            self._end(events)  # Vertex sends no message_stop: a stop reason is enough
        if not self._ended:
            self._ended = True
            events.append(ReplyFailed(failure=CUT))
        return events

    def _read(self, frame: SseFrame, events: list[Event], lines: bytes = b"") -> None:
        if self._ended or frame.data == b"[DONE]":  # some servers add OpenAI's end mark
            return
        body = load_object(frame.data)
        kind = body.get("type")
        if frame.event != kind:
            self.irregular = True  # Anthropic's clients find the kind of an event only in its `event:` line
        if kind == "content_block_delta":
            try:
                self._delta(body, events, lines)
            except KeyError as error:
                raise DecodeError("expected string, found null", "delta", str(error.args[0])) from None
            except TypeError:  # `"" + text` raises it: the fastest check for a string
                raise DecodeError("not a delta of this stream") from None
            return
        self._template_owner = None
        if self._thought is not None and kind != "ping":
            if kind == "content_block_start" and self._take_late_seal(body):
                return
            events.append(self._thought)
            self._thought = None
        match kind or frame.event:
            case "content_block_start":
                self._start_block(body, events)
            case "content_block_stop":
                self._stop_block(body, events)
            case "message_start":
                self._start(body, events)
            case "message_delta":
                self._finish_message(body)
            case "message_stop":
                self._keep_rest(body)  # Bedrock says how long it took
                self._end(events)
            case "message" if not self._started:
                # Vertex may send the whole message in one frame of the stream.
                self._ended = True
                reply = decode_reply(WireReply(body=body), self._notes)
                events.extend(unfold(reply))
            case "error":
                self._ended = True
                events.append(ReplyFailed(failure=decode_failure(WireReply(body=body))))
            case _:
                events.append(Aside(dialect=NAME, body=body))

    def _start(self, body: JsonObject, events: list[Event]) -> None:
        message = need_object(body.get("message"))
        if self._started:
            return
        self._started = True
        if not all(message.get(key) for key in ("id", "model", "role", "type", "usage")) or "content" not in message:
            self.irregular = True  # Anthropic's clients fail without them
        tier = take_tier(message)
        self._usage = take_one(message, "usage", decode_usage)
        drop_constant(message, "type", "message")
        drop_constant(message, "role", "assistant")
        for key in ("content", "stop_reason", "stop_sequence", "stop_details"):
            if not message.get(key):
                message.pop(key, None)
        events.append(
            ReplyStart(
                id=take_text_or_none(message, "id") or "",
                model=take_text_or_none(message, "model") or "",
                usage=self._usage,
                service_tier=tier,
                extras=leftovers(message, NAME),
            )
        )

    def _start_block(self, body: JsonObject, events: list[Event]) -> None:
        if not self._started:
            self._start({"message": {}}, events)
        block = _Block(self._count, need_object(body.get("content_block")))
        index = _index_of(body)
        if index != self._count or self._blocks:
            self.irregular = True  # blocks are numbered, and none begins before the last one has stopped
        self._count += 1
        self._blocks[index if index is not None else -self._count] = block
        match block.body.get("type"):
            case "text" | "thinking" | "redacted_thinking":
                # Some streams start thinking without a signature, others with an empty one.
                self._open(block, _decode_start(block.body), events)
            case "tool_use":
                given = block.body.get("input")
                block.body["input"] = {}
                self._called = True
                if not block.body.get("id"):
                    block.body["id"], self.irregular = f"toolu_{self._count}", True
                part = _decode_start(block.body)
                block.body = {"input": given}
                self._open(block, part, events)
            case _:
                pass  # only Anthropic knows this block: we collect it until it is complete

    def _open(self, block: _Block, part: Part, events: list[Event]) -> None:
        block.opened = True
        events.append(PartStart(index=block.index, part=part))

    def _delta(self, body: JsonObject, events: list[Event], lines: bytes) -> None:
        block, delta = self._find(body), body.get("delta")
        if block is None:
            raise DecodeError("content_block_delta outside its block")
        if type(delta) is not dict:
            raise expected("object", delta, "delta")
        if not block.opened:
            block.keep(delta)
            return
        match delta.get("type"):
            case "text_delta":
                self._grow(block, "" + delta["text"], events, lines, b'"text"')
            case "thinking_delta":
                self._grow(block, "" + delta["thinking"], events, lines, b'"thinking"')
            case "input_json_delta":
                piece = "" + delta["partial_json"]
                block.json.append(piece)
                if piece:
                    events.append(PartDelta(index=block.index, text=piece))
            case "signature_delta":
                value = (block.seal.value if block.seal else "") + delta["signature"]
                block.seal = Seal(origin=NAME, value=value)
            case "citations_delta":
                citation = decode_citation(need_object(delta.get("citation")))
                events.append(PartDelta(index=block.index, citations=(citation,)))
            case _:
                events.append(Aside(dialect=NAME, body=body))

    def _find(self, body: JsonObject) -> _Block | None:
        """The block of an event. Without a number it is the one that began last."""
        index = _index_of(body)
        return self._blocks.get(index) if index is not None else next(reversed(self._blocks.values()), None)

    def _grow(self, block: _Block, text: str, events: list[Event], lines: bytes, key: bytes) -> None:
        events.append(PartDelta(index=block.index, text=text))
        self._template_owner = block if self._template.learn(lines, key, text) else None

    def _stop_block(self, body: JsonObject, events: list[Event]) -> None:
        index = _index_of(body)
        block = self._blocks.pop(index if index is not None else next(reversed(self._blocks), 0), None)
        if block is _LATE:
            return
        if block is None:
            raise DecodeError("content_block_stop outside its block")
        if not block.opened:
            self._open(block, _complete(block), events)
        elif "input" in block.body and not any(block.json):
            # The input of the start counts only if no delta followed (FIELD-CASES 123).
            events.append(PartDelta(index=block.index, text=dump_text(block.body["input"] or {})))
        end = PartEnd(index=block.index, seal=block.seal or take_seal(body))
        if block.thinks and end.seal is None:
            self._thought = end
        else:
            events.append(end)

    def _take_late_seal(self, body: JsonObject) -> bool:
        """Whether a block only has the seal of the thought that has just ended (see _seals)."""
        block = body.get("content_block")
        if self._thought is None or type(block) is not dict or block.get("type") != "thinking" or not is_late(block):
            return False
        own = {**self._thought.extras.get(NAME, {}), LATE: True}
        self._thought = replace(self._thought, seal=take_seal(block), extras={**self._thought.extras, NAME: own})
        self._blocks[_index_of(body)] = _LATE
        return True

    def _finish_message(self, body: JsonObject) -> None:
        self._tier = take_tier(body) or self._tier
        usage = take_one(body, "usage", decode_usage)
        if usage is not None:
            self._usage = _later(self._usage, usage)
        if usage is None or usage.output is None or self._blocks:
            self.irregular = True
        delta = need_object(body.get("delta") or {})
        finish = take_finish(delta)
        if finish is not None:
            self._finish = finish
            self.irregular = self.irregular or (self._called and finish.reason == "stop")
        body.pop("delta", None)
        self._keep_rest({**body, **delta})

    def _keep_rest(self, body: JsonObject) -> None:
        said = {key: value for key, value in body.items() if value is not None and key != "type"}
        if said:
            self._extras = merge_extras(self._extras, {NAME: said})

    def _end(self, events: list[Event]) -> None:
        self._ended = True
        self.irregular = self.irregular or self._finish is None
        if self._thought is not None:
            events.append(self._thought)
        if not self._started:
            events.append(ReplyFailed(failure=CUT))
            return
        for block in self._blocks.values():
            if block is _LATE:
                continue
            if not block.opened:
                self._open(block, _complete(block), events)
            events.append(PartEnd(index=block.index, seal=block.seal))
        events.append(
            ReplyEnd(finishes=(self._finish,), usage=self._usage, service_tier=self._tier, extras=self._extras)
        )


def _decode_start(body: JsonObject) -> Part:
    """Decode the start of a text, a thought or a call. An empty signature is a placeholder, not a seal."""
    part = decode_part(body)
    if isinstance(part, ToolCall):
        return replace(part, arguments="")
    if isinstance(part, Reasoning) and (part.seal is None or not part.seal.value):
        return Reasoning(text=part.text, extras={k: v for k, v in part.extras.items() if set(v) != {"~signature"}})
    return part


def _complete(block: _Block) -> Part:
    """Decode a block that we collected until it was complete, with its streamed input."""
    body = block.body
    if any(block.json):
        text = "".join(block.json)
        try:
            body["input"] = load_json(text)
        except DecodeError:
            body["input"] = text
    return decode_part(body)


def _later(first: Usage | None, second: Usage) -> Usage:
    """Counts are cumulative, so a later count replaces the earlier one (`message_delta` repeats the input)."""
    second.extras.get(NAME, {}).pop(OMIT, None)  # a delta need not repeat the input
    if first is None:
        return second
    counts = {
        key: getattr(second, key) if getattr(second, key) is not None else getattr(first, key)
        for key in ("input", "cache_read", "cache_write", "output", "reasoning")
    }
    if second.reasoning is None and second.output is not None:
        counts["reasoning"] = None
    merged = merge_extras(first.extras, second.extras)
    own = merged.get(NAME, {})
    if OMIT in own:  # what the start lacked may have come since
        missing = [key for key in own[OMIT] if counts[_COUNTS[key]] is None]
        kept = {key: value for key, value in own.items() if key != OMIT} | ({OMIT: missing} if missing else {})
        merged = {**merged, NAME: kept} if kept else {name: keys for name, keys in merged.items() if name != NAME}
    return replace(first, extras=merged, **counts)


_COUNTS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_creation_input_tokens": "cache_write",
    "cache_read_input_tokens": "cache_read",
}


# ---------------------------------------------------------------- encode


_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,"delta":{"type":"%b","%b":'
_DELTA_HEADS: dict[type[Part] | None, bytes] = {
    Text: _DELTA % (b"text_delta", b"text"),
    Reasoning: _DELTA % (b"thinking_delta", b"thinking"),
    ToolCall: _DELTA % (b"input_json_delta", b"partial_json"),
}


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
                type(event) is PartDelta
                and event.index == self._open
                and event.text
                and not event.citations
                and event.logprobs is None
            ):  # fast path: anthropic delta, written
                # Only the text is encoded: the rest of the frame is always the same.
                self._out.append(b"%b%b}}\n\n" % (self._head, dump_json(event.text)))
                continue
            for ordered in self._sequencer.feed(event):
                self._write(ordered)
        out, self._out = b"".join(self._out), []
        return out

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
        usage = encode_usage(event.usage or Usage(), (ROOT, "usage"), Notes())
        usage.setdefault("input_tokens", 0)
        usage.setdefault("output_tokens", 0)
        message: JsonObject = {"id": event.id, "type": "message", "role": "assistant", "model": event.model}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if event.created is not None:
            self._notes.dropped((ROOT, "created"), "anthropic's replies have no time")
        self._tier = event.service_tier
        write_tier(usage, self._tier, event.usage, Notes())
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
            self._notes.dropped((at, "citations"), "none of them names a place anthropic could cite")
        stop: JsonObject = {"type": "content_block_stop", "index": self._index}
        if event.seal is not None:
            if event.seal.origin == NAME and self._kind is Reasoning:
                note_unsaid(event.seal, ("signature",), at, self._notes)
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
