"""Anthropic Messages: reading a stream.
https://docs.anthropic.com/en/api/messages-streaming (digest read 2026-11-15)

    message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop

Blocks never overlap. `ping` may come anywhere. `error` ends the stream.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.dialects._seals import is_late, take_seal
from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.anthropic.citations import decode_citation
from dragoman.dialects.anthropic.failure import decode_failure
from dragoman.dialects.anthropic.parts import LATE, decode_part
from dragoman.dialects.anthropic.reply import decode_reply, decode_usage, take_finish, take_tier
from dragoman.dialects.anthropic.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import OMIT, drop_constant, expected, leftovers, need_object, take_one, take_text_or_none
from dragoman.framing.sse import SseDecoder, SseFrame, read_frame
from dragoman.framing.templates import DeltaTemplate, LearntDelta
from dragoman.jsontypes import JsonObject, dump_text, load_json, load_object
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
from dragoman.model.fold import merge_extras, unfold
from dragoman.model.messages import Part, Reasoning, Seal, ToolCall
from dragoman.model.reply import Finish, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply


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
        if self.joins and self._template_owner is not None:  # fast path: anthropic run
            piece = self._read_run(piece, self._template_owner, events)
            if not piece:
                return events
        for lines in self._frames.split(piece):
            block = self._template_owner
            if block is not None and (text := self._template.read(lines)) is not None:  # fast path: anthropic delta
                if text or not block.json:
                    events.append(PartDelta(index=block.index, text=text))
            elif (frame := read_frame(lines)) is not None:
                self._read(frame, events, lines)
        return events

    def _read_run(self, piece: bytes, block: _Block, events: list[Event]) -> bytes:
        """Read the deltas at the start of a piece as one event. Gives the rest."""
        data = self._frames.gather(piece)
        if data is None:
            return piece
        text, pieces, rest = self._template.read_run(data)
        if pieces:
            events.append(TextRun(index=block.index, text=text, pieces=pieces))
        return rest

    def learnt(self) -> LearntDelta | None:
        block = self._template_owner
        return None if block is None or not self._frames.is_between() else LearntDelta(self._template, block.index)

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
            self._thought, self.holds = None, False
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
            if index in self._blocks:
                self._stop_block({"index": index}, events)  # or nothing would end the one before
        self._count += 1
        self._blocks[index if index is not None else -self._count] = block
        match block.body.get("type"):
            case "text" | "thinking" | "redacted_thinking" as kind:
                if kind == "thinking" and "signature" not in block.body:
                    self.irregular = True
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
                if piece := "" + delta["partial_json"]:
                    block.json.append(piece)  # the first is enough: that there are some is all that is asked
                    self._grow(block, piece, events, lines, b'"partial_json"')
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
        self._template_owner = block if self._template.learn(lines, key, text, (), block.index) else None

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
            self._thought, self.holds = end, True
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
        rest = {key: value for key, value in body.items() if value is not None and key != "type"}
        if rest:
            self._extras = merge_extras(self._extras, {NAME: rest})

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
