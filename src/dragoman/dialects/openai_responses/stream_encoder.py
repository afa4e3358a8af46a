"""OpenAI Responses: encodes a stream. Only this module decides the order of events.

    created -> in_progress -> item.added -> part.added -> delta* -> text.done -> part.done -> item.done -> completed

Clients parse it strictly (FIELD-CASES 41): every event has its numbers and ids, an item never changes its id, every
added item and part gets its `done`, and the last event repeats everything. An item is done only when the next one
begins or the reply ends, because only then do we know whether its call was cut off.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import Raw
from msgspec.structs import replace

from dragoman.dialects._base import WritePieces
from dragoman.dialects._streams import CUT
from dragoman.dialects.openai_responses.failure import code_of
from dragoman.dialects.openai_responses.items import (
    REASONING_TEXTS,
    ClientKnowledge,
    Group,
    encode_item,
    identify,
    joins,
    place_of,
)
from dragoman.dialects.openai_responses.parts import encode_citations, encode_logprobs, encode_output
from dragoman.dialects.openai_responses.reply import (
    Head,
    encode_response,
    item_status,
    natural_reason,
    repeat_request,
)
from dragoman.dialects.openai_responses.tools import find_spaces, put_in_space, write_name
from dragoman.dialects.openai_responses.words import CALLS, CODES, FAILURE_CODES, NAME
from dragoman.failure import Failure
from dragoman.fields import add_extras, spelled
from dragoman.framing.sse import SseDecoder
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
    TextRun,
)
from dragoman.model.fold import merge_extras
from dragoman.model.messages import (
    Citation,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Finish
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

CALL_EVENTS = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}
NOWHERE: At = ()
PARTS: At = (((ROOT, "choices"), 0), "parts")


class _Item:
    """The item that is being written."""

    __slots__ = ("counts", "group", "id", "index", "kind")

    def __init__(self, kind: str, item_id: str, index: int) -> None:
        self.kind = kind
        self.id = item_id
        self.index = index
        self.group: Group = []  # parts that have ended
        self.counts = {"summary": 0, "content": 0}  # number of parts that have begun


class _Growing:
    """The part that is being written."""

    __slots__ = ("citations", "head", "key", "logprobs", "number", "part", "pieces", "place")

    def __init__(self, part: Part, place: int) -> None:
        self.part = part
        self.place = place  # in the turn
        self.key = ""  # "summary" or "content" once it has begun
        self.number = 0
        self.head = b""  # the bytes of a delta's frame before its number
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.logprobs: list[TokenLogprob] | None = None


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._notes = notes
        self._request = request
        self._repeated: JsonObject | None = None  # of the request, once it was needed
        self._spaces = find_spaces(request)
        self._sequencer = Sequencer()
        self._out: list[bytes] = []
        self._number = 0  # of the next event
        self._start = ReplyStart(id="resp_dragoman", model=request.model if request is not None else "")
        self._started = False
        self._output: list[JsonObject | None] = []  # items by index; None until they are done
        self._announced: dict[object, int] = {}  # items that Asides have added
        self._item: _Item | None = None
        self._growing: _Growing | None = None
        self._live = -1  # index of the part whose deltas can be written at once
        self._skipped: set[int] = set()
        self._places = PartPlaces()
        self._kinds: list[Part] = []
        self._done = False

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if self._done:
                break
            if isinstance(event, PartDelta) and event.index == self._live:  # fast path: responses delta, written
                self._delta(event)  # only one part is open, so no ordering is needed
                continue
            for delta in event.spread() if type(event) is TextRun else (event,):
                for ordered in self._sequencer.feed(delta):
                    self._write(ordered)
        out, self._out = b"".join(self._out), []
        return out

    def open_text(self, index: int) -> WritePieces | None:
        ready = index == self._live and self._growing is not None and self._growing.head and not self._done
        return self._write_pieces if ready else None

    def _write_pieces(self, text: str, pieces: list[bytes]) -> bytes:
        growing, number = self._growing, self._number
        if growing is None:
            return b""
        growing.pieces.append(text)
        self._number = number + len(pieces)
        if len(pieces) == 1:
            return b'%b%d,"delta":"%b"}\n\n' % (growing.head, number, pieces[0])
        head, numbered = growing.head, enumerate(pieces, number)
        return b"".join([b'%b%d,"delta":"%b"}\n\n' % (head, number, piece) for number, piece in numbered])

    def flush(self) -> bytes:
        """Ends the item whose parts have all ended, as OpenAI's server does at once."""
        if self._growing is None:
            self._close_item()
        out, self._out = b"".join(self._out), []
        return out

    def count_on(self, frames: bytes) -> None:
        """See CountingEncoder."""
        numbers = [load_object(frame.data).get("sequence_number") for frame in SseDecoder().feed(frames)[-1:]]
        self._number = next((number + 1 for number in numbers if type(number) is int), self._number)

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _write(self, event: Event) -> None:
        match event:
            case PartDelta():
                self._delta(event)
            case PartStart():
                self._start_part(event)
            case PartEnd():
                self._end_part(event)
            case ReplyStart():
                self._begin(event)
            case ReplyEnd():
                self._end(event)
            case ReplyFailed():
                self._fail(event.failure)
            case Aside():
                self._pass_on(event)
            case _:
                assert_never(event)

    def _send(self, kind: str, body: JsonObject) -> None:
        frame = {"type": kind, "sequence_number": self._number, **body}
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), dump_json(frame)))

    # ------------------------------------------------------------ the response

    def _begin(self, event: ReplyStart) -> None:
        self._start, self._started = event, True
        head = Head(
            id=event.id,
            model=event.model,
            created=event.created,
            service_tier=event.service_tier,
            usage=None,
            finish=None,
            extras=event.extras,
        )
        response = Raw(dump_json(self._encode_unfinished(head) | {"status": "in_progress", "output": []}))
        self._send("response.created", {"response": response})
        self._send("response.in_progress", {"response": response})

    def _encode_unfinished(self, head: Head) -> JsonObject:
        response = encode_response(head, "stop", Notes(), self._repeat)
        return response if NAME in head.extras else response | {"completed_at": None}

    def _repeat(self) -> JsonObject:
        if self._repeated is None:
            self._repeated = repeat_request(self._request, sends=True)
        return self._repeated

    def _end(self, event: ReplyEnd) -> None:
        finish = event.finishes[0] if event.finishes else None
        for i in range(1, len(event.finishes)):
            self._notes.dropped(((ROOT, "choices"), i), "responses gives one answer")
        self._close_item(item_status(finish))
        for extras in event.choice_extras[:1]:
            add_extras({}, extras, NAME, ((ROOT, "choices"), 0), self._notes)
        response = self._response(event, finish)
        status = response.get("status", "completed")
        kind = status if status in ("completed", "failed") else "incomplete"
        self._send(f"response.{kind}", {"response": response})
        self._done = True

    def _response(self, event: ReplyEnd, finish: Finish | None) -> JsonObject:
        start = self._start
        head = Head(
            id=start.id,
            model=start.model,
            created=start.created,
            service_tier=event.service_tier or start.service_tier,
            usage=event.usage,
            finish=finish,
            extras=merge_extras(start.extras, event.extras),
        )
        response = encode_response(head, natural_reason(self._kinds), self._notes, self._repeat)
        response["output"] = [item for item in self._output if item is not None]
        return response

    def _fail(self, failure: Failure) -> None:
        """Send the failure. Open items get no `done`, because clients act on items that are done."""
        code = code_of(failure) or "server_error"
        self._send("error", {"code": code, "message": failure.message, "param": failure.param})
        if code not in CODES:  # a word of ours: an event may have any, the types of a response have a list
            code = FAILURE_CODES.get(failure.kind, code)
        error = {"code": code, "message": failure.message}
        start = self._start
        head = Head(
            id=start.id,
            model=start.model,
            created=start.created,
            service_tier=start.service_tier,
            usage=None,
            finish=None,
            extras=start.extras,
        )
        response = self._encode_unfinished(head) | {"status": "failed", "error": error}
        response["output"] = [item for item in self._output if item is not None]
        self._send("response.failed", {"response": response})
        self._done = True

    def _pass_on(self, event: Aside) -> None:
        """Pass on the progress of a server tool. Its item is announced now, and done when its part comes."""
        kind, body = event.body.get("type"), event.body
        if event.dialect != NAME or type(kind) is not str or not kind.startswith("response.") or not self._started:
            return
        rest = {k: v for k, v in body.items() if k not in ("type", "sequence_number", "obfuscation")}
        if kind == "response.output_item.added":
            item = body.get("item")
            name = item.get("id") if type(item) is dict else None
            if type(name) is not str:
                return
            if self._growing is None:
                self._close_item()
            self._announced[name] = self._next_index()
            self._send(kind, rest | {"output_index": self._announced[name]})
        elif "item_id" not in body:
            self._send(kind, rest)
        elif type(body["item_id"]) is str and body["item_id"] in self._announced:
            self._send(kind, rest | {"output_index": self._announced[body["item_id"]]})

    # ------------------------------------------------------------ items

    def _next_index(self) -> int:
        self._output.append(None)
        return len(self._output) - 1

    def _open_item(self, kind: str, part: Part, skeleton: JsonObject) -> _Item:
        index = self._next_index()
        client = ClientKnowledge(self._start.id, "in_progress")
        item: JsonObject = {"type": kind}
        identify(item, kind, [(0, part)], index, client)
        item["id"] = item.get("id") or client.mint(kind, index)
        if kind != "reasoning" or "status" in item:
            item["status"] = "in_progress"
        item |= skeleton
        self._item = opened = _Item(kind, item["id"], index)
        self._send("response.output_item.added", {"output_index": index, "item": item})
        return opened

    def _close_item(self, status: str = "completed") -> None:
        item = self._item
        if item is None:
            return
        self._item = None
        client = ClientKnowledge(self._start.id, status)
        body = encode_item(item.group, item.index, PARTS, self._notes, client) if item.group else None
        if body is None:
            return
        body["id"] = item.id
        if item.kind in CALLS:
            key = CALLS[item.kind]
            done = {"item_id": item.id, "output_index": item.index, "name": body["name"], key: body[key]}
            self._send(f"response.{CALL_EVENTS[item.kind]}.done", done)
        self._output[item.index] = body
        self._send("response.output_item.done", {"output_index": item.index, "item": body})

    def _write_whole(self, part: Part, place: int) -> None:
        """Write an item that comes in one piece: added and done, or only done if it was announced before."""
        name = part.body.get("id") if isinstance(part, Opaque) else None
        index = self._announced.pop(name, None) if type(name) is str else None
        fresh = index is None
        if index is None:
            index = len(self._output)
        body = encode_item([(place, part)], index, PARTS, self._notes, ClientKnowledge(self._start.id))
        if body is None:
            return
        if fresh:
            index = self._next_index()
            self._send("response.output_item.added", {"output_index": index, "item": body})
        self._output[index] = body
        self._send("response.output_item.done", {"output_index": index, "item": body})

    # ------------------------------------------------------------ parts

    def _start_part(self, event: PartStart) -> None:
        part, place = put_in_space(event.part, self._spaces), self._places.add(event)
        if event.choice:
            self._skipped.add(event.index)
            self._notes.dropped(((ROOT, "choices"), event.choice), "responses gives one answer")
            return
        item = self._item
        if item is None or not item.group or not joins(item.group[-1][1], part):
            self._close_item()
        self._growing = growing = _Growing(part, place)
        match part:
            case Text() | Refusal():
                self._start_message(growing, part)
            case Reasoning():
                self._start_thought(growing, part)
            case ToolCall():
                self._start_call(growing, part)
            case _:
                self._growing = None
                self._skipped.add(event.index)
                self._write_whole(part, place)
                return
        self._kinds.append(part)
        self._live = event.index
        self._write_start(growing, part)

    def _start_message(self, growing: _Growing, part: Text | Refusal) -> None:
        item = self._item
        if item is None:
            skeleton: JsonObject = {"role": "assistant", "content": []}
            phase = spelled(part.extras, NAME, "phase")
            if phase is not None:
                skeleton["phase"] = phase
            item = self._open_item("message", part, skeleton)
        block: JsonObject = {"type": "refusal", "refusal": ""}
        event = b"response.refusal.delta"
        if isinstance(part, Text):
            block = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            event = b"response.output_text.delta"
        self._begin_text(item, growing, "content", "response.content_part.added", event, block)

    def _start_thought(self, growing: _Growing, part: Reasoning) -> None:
        item = self._item or self._open_item("reasoning", part, {"summary": []})
        place = spelled(part.extras, NAME, "~place")
        if place == "content":
            self._begin_thought(item, growing, "content")
        elif place == "summary" or part.summary:
            self._begin_thought(item, growing, "summary")

    def _begin_thought(self, item: _Item, growing: _Growing, key: str) -> None:
        """Begin a text of a thought. A thought of another dialect without text becomes an item without summary."""
        block: JsonObject = {"type": REASONING_TEXTS[key], "text": ""}
        if key == "content":
            event = b"response.reasoning_text.delta"
            self._begin_text(item, growing, key, "response.content_part.added", event, block)
        else:
            event = b"response.reasoning_summary_text.delta"
            self._begin_text(item, growing, key, "response.reasoning_summary_part.added", event, block)

    def _begin_text(
        self, item: _Item, growing: _Growing, key: str, added: str, delta: bytes, block: JsonObject
    ) -> None:
        growing.key, growing.number = key, item.counts[key]
        item.counts[key] += 1
        where = {"item_id": item.id, "output_index": item.index, f"{key}_index": growing.number}
        self._send(added, {**where, "part": block})
        if delta == b"response.output_text.delta":
            where["logprobs"] = []
        growing.head = _delta_head(delta, where)

    def _start_call(self, growing: _Growing, part: ToolCall) -> None:
        kind = "custom_tool_call" if part.freeform else "function_call"
        skeleton: JsonObject = {"call_id": part.id}
        write_name(skeleton, part)
        item = self._open_item(kind, part, {**skeleton, CALLS[kind]: ""})
        event = f"response.{CALL_EVENTS[kind]}.delta".encode()
        growing.head = _delta_head(event, {"item_id": item.id, "output_index": item.index})

    def _write_start(self, growing: _Growing, part: Part) -> None:
        """Send the text and citations that the start of a part already has, as a delta."""
        if isinstance(part, Text):
            growing.citations.extend(part.citations)
            if part.logprobs:
                self._write_logprobs(growing, part.text, part.logprobs)
                return
        text = part.arguments if isinstance(part, ToolCall) else getattr(part, "text", "")
        if text:
            self._write_text(growing, text)

    def _delta(self, event: PartDelta) -> None:
        growing = self._growing
        if growing is None or event.index in self._skipped:
            return
        if event.citations:
            growing.citations.extend(event.citations)
        if event.logprobs is not None:
            self._write_logprobs(growing, event.text, event.logprobs)
        elif event.text:
            self._write_text(growing, event.text, event.pieces if type(event) is TextRun else None)

    def _write_text(self, growing: _Growing, text: str, run: list[bytes] | None = None) -> None:
        """`run`: the pieces of the text (see TextRun)."""
        if not growing.head and self._item is not None:
            self._begin_thought(self._item, growing, "summary")
        if run is not None:
            self._out.append(self._write_pieces(text, run))
            return
        growing.pieces.append(text)
        self._out.append(b'%b%d,"delta":%b}\n\n' % (growing.head, self._number, dump_json(text)))
        self._number += 1

    def _write_logprobs(self, growing: _Growing, text: str, tokens: tuple[TokenLogprob, ...]) -> None:
        growing.logprobs = [*(growing.logprobs or ()), *tokens]
        item = self._item
        if not isinstance(growing.part, Text) or not tokens or item is None:
            self._write_text(growing, text)
            return
        growing.pieces.append(text)
        body: JsonObject = {"item_id": item.id, "output_index": item.index, "content_index": growing.number}
        body["logprobs"] = encode_logprobs(tokens, NOWHERE, Notes())
        self._send("response.output_text.delta", {**body, "delta": text})

    def _end_part(self, event: PartEnd) -> None:
        if event.index in self._skipped:
            return
        growing, item = self._growing, self._item
        if growing is None or item is None:
            return
        self._growing, self._live = None, -1
        part = _grown(growing, event)
        item.group.append((growing.place, part))
        where: JsonObject = {"item_id": item.id, "output_index": item.index, f"{growing.key}_index": growing.number}
        if isinstance(part, Text | Refusal):
            self._end_message(part, growing.place, where)
        elif isinstance(part, Reasoning) and growing.key:
            self._end_thought(part, where)

    def _end_message(self, part: Text | Refusal, place: int, where: JsonObject) -> None:
        at: At = (PARTS, place)
        block = encode_output(part, at, Notes(), to_client=True)
        if isinstance(part, Refusal):
            self._send("response.refusal.done", {**where, "refusal": part.text})
        else:
            for i, citation in enumerate(encode_citations(part, at, Notes())):
                body = {**where, "annotation_index": i, "annotation": citation}
                self._send("response.output_text.annotation.added", body)
            done = {"text": part.text, "logprobs": block.get("logprobs", [])}
            self._send("response.output_text.done", {**where, **done})
        self._send("response.content_part.done", {**where, "part": block})

    def _end_thought(self, part: Reasoning, where: JsonObject) -> None:
        key = place_of(part)
        block: JsonObject = {"type": REASONING_TEXTS[key], "text": part.text}
        name = "reasoning_text" if key == "content" else "reasoning_summary_text"
        self._send(f"response.{name}.done", {**where, "text": part.text})
        name = "content_part" if key == "content" else "reasoning_summary_part"
        self._send(f"response.{name}.done", {**where, "part": block})


def _delta_head(kind: bytes, where: JsonObject) -> bytes:
    """The bytes of a delta's frame before its number. They are the same for all deltas of a part."""
    fields = dump_json(where)[1:-1]
    return b'event: %b\ndata: {"type":"%b",%b,"sequence_number":' % (kind, kind, fields)


def _grown(growing: _Growing, event: PartEnd) -> Part:
    """The complete part, with all its deltas."""
    part, text = growing.part, "".join(growing.pieces)
    extras = merge_extras(getattr(part, "extras", {}), event.extras)
    if isinstance(part, Text):
        logprobs = part.logprobs if growing.logprobs is None else tuple(growing.logprobs)
        return replace(
            part,
            text=text,
            citations=tuple(growing.citations),
            logprobs=logprobs,
            seal=event.seal or part.seal,
            extras=extras,
        )
    if isinstance(part, Refusal):
        logprobs = part.logprobs if growing.logprobs is None else (part.logprobs or ()) + tuple(growing.logprobs)
        return replace(part, text=text, logprobs=logprobs, extras=extras)
    if isinstance(part, Reasoning):
        return replace(part, text=text, seal=event.seal or part.seal, extras=extras)
    if isinstance(part, ToolCall):
        return replace(part, arguments=text, seal=event.seal or part.seal, extras=extras)
    return part
