"""OpenAI Responses: decodes a stream. (The encoder is in stream_encoder.py.)
https://platform.openai.com/docs/api-reference/responses-streaming (digest read 2026-11-15)

    created in_progress (item.added (part.added delta* text.done part.done)* item.done)* completed|incomplete|failed

The `done` event of an item has the whole item, and the last event repeats all items. Many servers leave out deltas,
parts or whole items; we add exactly what is missing from these later events.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.openai_responses.failure import decode_failure
from dragoman.dialects.openai_responses.items import (
    REASONING_TEXTS,
    decode_model_item,
    decode_thought,
    take_head,
    take_thought_head,
)
from dragoman.dialects.openai_responses.parts import decode_block, decode_citation, decode_logprob
from dragoman.dialects.openai_responses.reply import decode_reply, natural_reason, take_response
from dragoman.dialects.openai_responses.stream_encoder import StreamEncoder
from dragoman.dialects.openai_responses.tools import SPACE, flatten_name
from dragoman.dialects.openai_responses.words import CALLS, NAME
from dragoman.fields import decode_each, expected, need_object
from dragoman.framing.sse import SseDecoder, SseFrame, read_frame
from dragoman.framing.templates import DeltaTemplate, LearntDelta, number_slot, word_slot
from dragoman.jsontypes import MOST_VALUES, JsonObject, copy_json, load_object
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
from dragoman.model.fold import unfold, unfold_part
from dragoman.model.messages import SILENT, Extras, Opaque, Part, Reasoning, Refusal, Text, ToolCall
from dragoman.notes import ROOT, Notes
from dragoman.wire import WireReply

__all__ = ["StreamDecoder", "StreamEncoder"]

PartKey = tuple[str, Any]  # a part of an item: its list and its place in that list


class _Item:
    """An item between its start and its end."""

    __slots__ = (
        "added",
        "citations",
        "done",
        "ended",
        "final",
        "key",
        "logprobs",
        "part",
        "pieces",
        "previous",
        "reserved",
        "slot",
    )

    def __init__(self, added: JsonObject, previous: Part | None) -> None:
        self.added = added  # as it was announced
        self.previous = previous  # the part before its first
        self.reserved = -1  # our index for its first part, so that items keep their order
        self.slot = -1  # our index of the open part
        self.part: Part | None = None  # the open part, as it started
        self.key: PartKey = ("", 0)
        self.pieces: list[str] = []  # its streamed text
        self.citations = 0
        self.logprobs = 0
        self.final: JsonObject | None = None  # the part as its `done` event had it
        self.ended = 0  # number of parts that have ended
        self.done = False


_VARYING = (number_slot("sequence_number"), word_slot("obfuscation"))  # the second hides the length of words


class StreamDecoder(StreamMarks):
    def __init__(self, notes: Notes) -> None:
        self._frames = SseDecoder()
        self._notes = notes
        self._items: dict[Any, _Item] = {}  # by id, and by call id
        self._places: dict[Any, _Item] = {}  # by output_index
        self._opened: list[_Item] = []  # all announced items
        self._latest: _Item | None = None
        self._previous: Part | None = None  # the part that started last
        self._kinds: list[Part] = []  # calls and refusals so far: they decide the finish reason
        self._late: list[_Item] = []  # their parts began after they were done
        self._count = 0
        self._model = ""
        self._tier: str | None = None  # the requested tier; the last event has the real one
        self._extras: Extras = {}  # of the start
        self._started = False
        self._ended = False
        self._template = DeltaTemplate()  # of the text deltas
        self._template_owner: _Item | None = None  # the part or choice that the template belongs to

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        if self.joins and self._template_owner is not None:  # fast path: responses run
            piece = self._read_run(piece, self._template_owner, events)
            if not piece:
                return events
        for block in self._frames.split(piece):
            item = self._template_owner
            if item is not None and (text := self._template.read(block)) is not None:  # fast path: responses delta
                item.pieces.append(text)
                if text:
                    events.append(PartDelta(index=item.slot, text=text))
            elif (frame := read_frame(block)) is not None:
                self._template_owner = None
                self._read(frame, events, block)
        return events

    def _read_run(self, piece: bytes, item: _Item, events: list[Event]) -> bytes:
        """Read the deltas at the start of a piece as one event. Gives the rest."""
        data = self._frames.gather(piece)
        if data is None:
            return piece
        text, pieces, rest = self._template.read_run(data)
        if pieces:
            item.pieces.append(text)
            events.append(TextRun(index=item.slot, text=text, pieces=pieces))
        return rest

    def learnt(self) -> LearntDelta | None:
        item = self._template_owner
        if item is None or not self._frames.is_between():
            return None
        return LearntDelta(self._template, item.slot, item.pieces.append)

    def close(self) -> list[Event]:
        events: list[Event] = []
        for frame in self._frames.close():
            self._read(frame, events)
        if not self._ended:
            self._ended = True
            events.append(ReplyFailed(failure=CUT))
        return events

    def _read(self, frame: SseFrame, events: list[Event], block: bytes = b"") -> None:
        if self._ended or frame.data == b"[DONE]":  # some servers add the end mark of Chat
            return
        if frame.event == PROGRESS and _is_progress(frame.data):  # fast path: responses progress
            return
        body = load_object(frame.data)
        kind = body.get("type") or frame.event
        if "sequence_number" not in body or "type" not in body or not _is_placed(kind, body):
            self.irregular = True  # OpenAI's clients sort events by these
        match kind:
            case "response.output_text.delta":
                self._delta(body, "content", "content_index", "output_text", events, block)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._grow_call(body, events, block)
            case "response.reasoning_summary_text.delta":
                self._delta(body, "summary", "summary_index", "summary_text", events, block)
            case "response.reasoning_text.delta":
                self._delta(body, "content", "content_index", "reasoning_text", events, block)
            case "response.refusal.delta":
                self._delta(body, "content", "content_index", "refusal", events, block)
            case "response.output_item.added":
                self._add_item(body, events)
            case "response.output_item.done":
                item = need_object(body.get("item"))
                self._finish_item(self._find_whole(item, body.get("output_index")), item, events)
            case _:
                self._read_rare(str(kind), body, events)

    def _read_rare(self, kind: str, body: JsonObject, events: list[Event]) -> None:
        match kind:
            case "response.content_part.added":
                self._add_part(body, "content", "content_index", events)
            case "response.reasoning_summary_part.added":
                self._add_part(body, "summary", "summary_index", events)
            case "response.content_part.done" | "response.reasoning_summary_part.done":
                self._end_part(body)
            case "response.function_call_arguments.done":
                self._complete_call(body, "arguments", events)
            case "response.custom_tool_call_input.done":
                self._complete_call(body, "input", events)
            case "response.output_text.annotation.added" | "response.output_text_annotation.added":
                self._cite(body, events)
            case (
                "response.output_text.done"
                | "response.refusal.done"
                | "response.reasoning_summary_text.done"
                | "response.reasoning_text.done"
            ):
                self._complete_text(body, events)
            case "response.in_progress" | "response.queued":
                pass  # these repeat the start
            case "response.created":
                self._start(need_object(body.get("response")), events)
            case "response.completed" | "response.incomplete" | "response.cancelled" | "response.done":
                self._end(need_object(body.get("response")), kind, events)
            case "response.failed":
                self._fail(need_object(body.get("response")), events)
            case "error":
                self._fail(body, events)
            case _ if "type" not in body and body.get("object") == "response" and not self._started:
                # Some servers send the whole response in one frame of the stream.
                self._ended = True
                events.extend(unfold(decode_reply(WireReply(body=body), self._notes)))
            case _ if "type" not in body and body.get("error"):
                self._fail(body, events)
            case _:
                events.append(Aside(dialect=NAME, body=body))

    # ------------------------------------------------------------ the response

    def _start(self, response: JsonObject, events: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        self.irregular = self.irregular or not (response.get("id") and response.get("model"))
        for key in ("output", "usage", "status"):
            response.pop(key, None)  # still empty at the start
        head = take_response(response, "stop")
        self._model, self._tier = head.model, head.service_tier
        extras = {
            name: {k: v for k, v in keys.items() if k[:1] != "~" or k == SILENT} for name, keys in head.extras.items()
        }
        self._extras = {name: keys for name, keys in extras.items() if keys}
        events.append(ReplyStart(id=head.id, model=head.model, created=head.created, extras=self._extras))

    def _end(self, response: JsonObject, kind: str, events: list[Event]) -> None:
        if response.get("status") == "failed":
            self._fail(response, events)
            return
        if not self._started:
            self._start(copy_json(response), events)
        output = response.pop("output", None)
        whole = type(output) is list and len(output) == len(self._opened) and all(item.done for item in self._opened)
        self.irregular = self.irregular or not whole  # clients take the last event for the whole answer
        for place, item in enumerate(output if type(output) is list else ()):
            need_object(item)
            self._finish_item(self._items.get(_name_of(item)) or self._places.get(place), item, events)
        for item in self._opened:
            if not item.done:
                self._leave(item, events)
        for item in self._late:
            self._close_part(item, None, events)
        self._ended = True
        if kind == "response.incomplete":
            response.setdefault("status", "incomplete")
        head = take_response(response, natural_reason(self._kinds))
        extras = head.extras
        if head.model and not self._model:
            extras = {NAME: {**extras.get(NAME, {}), "model": head.model}}
        events.append(
            ReplyEnd(
                finishes=(head.finish,),
                usage=head.usage,
                service_tier=head.service_tier or self._tier,
                extras=_news(self._extras, extras),
            )
        )

    def _fail(self, body: JsonObject, events: list[Event]) -> None:
        self._ended = True
        if body.get("object") == "response":
            body = {"error": body.get("error") or {"message": "the response failed", "code": "server_error"}}
        events.append(ReplyFailed(failure=decode_failure(WireReply(body=body))))

    # ------------------------------------------------------------ items

    def _add_item(self, body: JsonObject, events: list[Event]) -> None:
        if not self._started:
            self._start({}, events)
        added = need_object(body.get("item"))
        kind = added.get("type")
        is_call = isinstance(kind, str) and kind in CALLS
        if not added.get("call_id" if is_call else "id") or not all(it.done for it in self._opened):
            self.irregular = True
        item = _Item(added, self._previous)
        item.reserved = self._next_slot()
        self._latest = item
        self._opened.append(item)
        for name in (added.get("call_id"), added.get("id")):
            if type(name) is str:
                self._items[name] = item
        place = body.get("output_index")
        self._places[place if type(place) is int else len(self._places)] = item
        match added.get("type"):
            case "function_call" | "custom_tool_call":
                self._start_call(item, events)
            case "message" | "reasoning":
                pass  # its parts follow
            case _:  # only Responses knows this item: its `done` event has it whole
                events.append(Aside(dialect=NAME, body=body))

    def _imply(self, body: JsonObject, kind: str, events: list[Event]) -> _Item:
        """Make the item of a delta whose item was never announced."""
        self.irregular = True
        added: JsonObject = {"type": "reasoning" if kind in REASONING_TEXTS.values() else "message"}
        added["id"] = body.get("item_id")
        self._add_item({"item": added} | {k: v for k, v in body.items() if k == "output_index"}, events)
        return self._latest or _Item(added, None)

    def _find(self, body: JsonObject) -> _Item | None:
        """The item of an event. llama.cpp sends no numbers, and some relays change the ids."""
        name, place = body.get("item_id"), body.get("output_index")
        item = self._items.get(name) if type(name) is str else None
        if item is None:
            item = self._latest if type(place) is not int else self._places.get(place)
        return item

    def _find_whole(self, item: JsonObject, place: Any) -> _Item:
        """The item that is done. A new one if it was never announced."""
        name = _name_of(item)
        place = place if type(place) is int else None
        known = self._items.get(name) or self._places.get(place)
        if known is None and name is None and self._latest is not None and not self._latest.done:
            known = self._latest
        if known is None:
            self.irregular = True
            known = _Item({}, self._previous)
            self._places[len(self._places) if place is None else place] = known
            if name is not None:
                self._items[name] = known
        return known

    def _finish_item(self, item: _Item | None, body: JsonObject, events: list[Event]) -> None:
        """Finish an item: add the parts and text that were not streamed."""
        if not self._started:
            self._start({}, events)
        if item is None:
            item = _Item({}, self._previous)
        if item.done:
            return
        parts = decode_model_item(body, item.previous, in_reply=True)
        if item.part is not None and item.ended < len(parts):
            self._close_part(item, parts[item.ended], events)
        elif item.part is not None:
            self._close_part(item, None, events)
        for part in parts[item.ended :]:
            events.extend(unfold_part(part, self._slot_in(item), 0))
            self._saw(part)
        item.done = True

    def _leave(self, item: _Item, events: list[Event]) -> None:
        """End an item without a `done` event. Its announcement is all that we have of it."""
        item.done = True
        key = CALLS.get(item.added.get("type", ""))
        if key is not None and not item.pieces and type(item.added.get(key)) is str:
            self._add_missing(item, "", item.added[key], events)
        if item.part is None and item.reserved >= 0 and item.added.get("type") not in ("message", "reasoning"):
            events.extend(unfold_part(Opaque(dialect=NAME, body=item.added), item.reserved, 0))
        self._close_part(item, self._decode_final(item), events)

    def _next_slot(self) -> int:
        slot = self._count
        self._count += 1
        return slot

    def _slot_in(self, item: _Item) -> int:
        slot, item.reserved = item.reserved, -1
        return slot if slot >= 0 else self._next_slot()

    def _saw(self, part: Part) -> None:
        self._previous = part
        if isinstance(part, ToolCall | Refusal):
            self._kinds.append(part)

    # ------------------------------------------------------------ parts

    def _open_part(self, item: _Item, part: Part, key: PartKey, events: list[Event]) -> None:
        if item.done:
            self._late.append(item)
        item.part, item.key, item.final = part, key, None
        item.pieces, item.citations, item.logprobs = [], 0, 0
        item.slot = self._slot_in(item)
        self._saw(part)
        events.append(PartStart(index=item.slot, part=part))

    def _turn_to(self, item: _Item, key: PartKey, kind: str, events: list[Event]) -> None:
        """Open the part of an event, unless it is already open."""
        if item.part is not None:
            if item.key == key:
                return
            self._close_part(item, self._decode_final(item), events)
        part: Part
        own: JsonObject
        if kind in REASONING_TEXTS.values():
            own = {"~item": "same"} if item.ended else take_thought_head(dict(item.added), in_reply=True)
            part = Reasoning(text="", summary=key[0] == "summary", extras={NAME: {**own, "~place": key[0]}})
        else:
            own = {} if item.ended else take_head(dict(item.added), item.previous, in_reply=True)
            extras = {NAME: own} if own else {}
            part = Refusal(text="", extras=extras) if kind == "refusal" else Text(text="", extras=extras)
        self._open_part(item, part, key, events)

    def _decode_final(self, item: _Item) -> Part | None:
        """Decode the part as its own `done` event had it. Used for parts that are not the last of their item."""
        block = item.final
        if block is None:
            return None
        if block.get("type") in REASONING_TEXTS.values():
            return decode_thought(block, item.key[0])
        return decode_block(block, "output_text")

    def _close_part(self, item: _Item, final: Part | None, events: list[Event]) -> None:
        """End the open part. First add what the whole part has and the deltas lacked."""
        started = item.part
        item.part = None
        if started is None:
            return
        item.ended += 1
        if final is None or isinstance(final, Opaque) or type(final) is not type(started):
            events.append(PartEnd(index=item.slot))
            return
        so_far = "".join(item.pieces)
        text = final.arguments if isinstance(final, ToolCall) else getattr(final, "text", "")
        self._add_missing(item, so_far, text, events)
        if isinstance(final, Text):
            citations, logprobs = final.citations[item.citations :], (final.logprobs or ())[item.logprobs :]
            if citations or logprobs:
                events.append(PartDelta(index=item.slot, citations=citations, logprobs=logprobs or None))
        seal = getattr(final, "seal", None)
        events.append(PartEnd(index=item.slot, seal=seal, extras=_news(getattr(started, "extras", {}), final.extras)))

    def _add_missing(self, item: _Item, so_far: str, text: str, events: list[Event]) -> None:
        if text.startswith(so_far):
            if len(text) > len(so_far):
                item.pieces.append(text[len(so_far) :])
                events.append(PartDelta(index=item.slot, text=text[len(so_far) :]))
        else:
            at = ((((ROOT, "choices"), 0), "parts"), item.slot)
            self._notes.altered(at, "its last event differs from what was streamed")

    def _delta(self, body: JsonObject, where: str, place: str, kind: str, events: list[Event], block: bytes) -> None:
        item = self._find(body) or self._imply(body, kind, events)
        self.irregular = self.irregular or item.part is None  # no part was announced
        if item.part is None or item.key != (where, body.get(place, item.key[1])):
            self._turn_to(item, (where, body.get(place, item.ended)), kind, events)
        text = body.get("delta")
        if type(text) is not str:
            raise expected("string", text, "delta")
        item.pieces.append(text)
        logprobs = body.get("logprobs")
        if logprobs and type(logprobs) is list:
            tokens = decode_each(logprobs, "logprobs", decode_logprob)
            item.logprobs += len(tokens)
            events.append(PartDelta(index=item.slot, text=text, logprobs=tokens))
            return
        if text:
            events.append(PartDelta(index=item.slot, text=text))
        self._learn(item, body, block, text)

    def _learn(self, item: _Item, body: JsonObject, block: bytes, text: str) -> None:
        slots = [slot for slot in _VARYING if slot.key in body]
        if self._template.learn(block, b'"delta"', text, slots, item.slot):
            self._template_owner = item

    def _add_part(self, body: JsonObject, where: str, place: str, events: list[Event]) -> None:
        item, block = self._find(body), need_object(body.get("part"))
        kind = block.get("type")
        if item is not None and kind in ("output_text", "refusal", "summary_text", "reasoning_text"):
            started = item.ended + (item.part is not None)
            self._turn_to(item, (where, body.get(place, started)), kind, events)

    def _end_part(self, body: JsonObject) -> None:
        item, block = self._find(body), body.get("part")
        if item is not None and type(block) is dict and type(block.get("text", block.get("refusal"))) is str:
            item.final = block

    def _complete_text(self, body: JsonObject, events: list[Event]) -> None:
        """Read a whole text, and add the rest of it that was not streamed."""
        item, text = self._find(body), body.get("text", body.get("refusal"))
        if item is not None and item.part is not None and type(text) is str:
            self._add_missing(item, "".join(item.pieces), text, events)

    def _cite(self, body: JsonObject, events: list[Event]) -> None:
        item = self._find(body)
        if item is None or type(body.get("annotation")) is not dict:
            return
        number = body.get("content_index", item.key[1] if item.part is not None else item.ended)
        self._turn_to(item, ("content", number), "output_text", events)
        item.citations += 1
        events.append(PartDelta(index=item.slot, citations=(decode_citation(body["annotation"]),)))

    # ------------------------------------------------------------ calls

    def _start_call(self, item: _Item, events: list[Event]) -> None:
        added = item.added
        call_id, name = added.get("call_id"), added.get("name")
        if type(call_id) is not str or type(name) is not str:
            return  # too little to start: the `done` event has it whole
        own: JsonObject = {"id": added["id"]} if type(added.get("id")) is str else {}
        head = take_head(own, None, in_reply=True)
        freeform = added["type"] == "custom_tool_call"
        named: JsonObject = {"name": name, "namespace": added.get("namespace")}
        flatten_name(named)
        if SPACE in named:
            name, head[SPACE] = named["name"], named[SPACE]
        call = ToolCall(id=call_id, name=name, arguments="", freeform=freeform, extras={NAME: head})
        self._open_part(item, call, ("call", 0), events)

    def _grow_call(self, body: JsonObject, events: list[Event], block: bytes) -> None:
        item, text = self._find(body), body.get("delta")
        if type(text) is str and text and item is not None and item.part is not None:
            item.pieces.append(text)
            events.append(PartDelta(index=item.slot, text=text))
            self._learn(item, body, block, text)

    def _complete_call(self, body: JsonObject, key: str, events: list[Event]) -> None:
        """Read the whole arguments, and add the rest of them that was not streamed (FIELD-CASES 8)."""
        item, text = self._find(body), body.get(key)
        if item is not None and item.part is not None and type(text) is str:
            self._add_missing(item, "".join(item.pieces), text, events)


_PLACED = {  # events -> what tells their place
    "response.output_text.delta": ("item_id", "output_index", "content_index"),
    "response.output_text.done": ("item_id", "output_index", "content_index"),
    "response.content_part.added": ("item_id", "output_index", "content_index"),
    "response.content_part.done": ("item_id", "output_index", "content_index"),
    "response.function_call_arguments.delta": ("item_id", "output_index"),
    "response.function_call_arguments.done": ("item_id", "output_index"),
    "response.output_item.added": ("output_index",),
    "response.output_item.done": ("output_index",),
}


def _is_placed(kind: object, body: JsonObject) -> bool:
    return not [key for key in _PLACED.get(str(kind), ()) if body.get(key) is None]


PROGRESS = "response.in_progress"  # repeats all of `response.created`, which repeats the request with its tools


class _Progress(Struct):
    type: Literal["response.in_progress"]
    sequence_number: int


_look_at_progress = msgspec.json.Decoder(_Progress).decode


def _is_progress(data: bytes) -> bool:  # fast path: responses progress
    """Whether the event is well-formed JSON of that kind. Its values are not made."""
    if len(data) > MOST_VALUES:
        return False
    try:
        _look_at_progress(data)
        data.isascii() or str(data, "utf-8")  # what is passed over is text, too
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _name_of(item: JsonObject) -> str | None:
    return next((name for key in ("id", "call_id") if type(name := item.get(key)) is str), None)


def _news(then: Extras, now: Extras) -> Extras:
    """The extras of an end that differ from those of its start."""
    old_keys, says = then.get(NAME, {}), now.get(NAME, {})
    fresh = {key: value for key, value in says.items() if key not in old_keys or old_keys[key] != value}
    if fresh and SILENT in says:
        fresh[SILENT] = says[SILENT]
    return {NAME: fresh} if fresh else {}
