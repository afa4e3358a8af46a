"""OpenAI Chat Completions: events -> a stream of chunks.
https://platform.openai.com/docs/api-reference/chat/streaming (digest read 2026-11-15), FIELD-CASES appendix C

    role chunk, (content | reasoning_content | refusal | tool_calls deltas)*, a finish chunk per choice, usage, [DONE]

Id, time and model are the same in every chunk. Indexes of calls count from 0 without gaps; their id and name come once.
An error frame is the last one, because the openai packages raise on it. [DONE] would say success, so it is not sent.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.dialects._base import WritePieces
from dragoman.dialects._seals import SIDE, note_seal_losses
from dragoman.dialects._streams import CUT
from dragoman.dialects._tools import opaque_word
from dragoman.dialects.openai_chat.annotations import encode_annotation, encode_logprobs
from dragoman.dialects.openai_chat.assistant import encode_spoken
from dragoman.dialects.openai_chat.calls import OPAQUE_CALL, encode_call, encode_call_seal, encode_legacy, is_legacy
from dragoman.dialects.openai_chat.failure import encode_error
from dragoman.dialects.openai_chat.parts import encode_image, encode_thinking
from dragoman.dialects.openai_chat.reasoning import DETAIL_KEYS, detail_type, encode_detail, is_detail, names_of
from dragoman.dialects.openai_chat.reply import asks_legacy, encode_created, encode_finish
from dragoman.dialects.openai_chat.stream_fast import TEXT_END, ChoiceState, Growing
from dragoman.dialects.openai_chat.usage import encode_usage, write_tier
from dragoman.dialects.openai_chat.words import CALL_SEAL, NAME
from dragoman.fields import OMIT, add_extras, spelled
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
    TextRun,
)
from dragoman.model.messages import (
    Audio,
    Citation,
    Extras,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Choice, Finish
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._notes = notes
        self._legacy = asks_legacy(request)
        self._usage_wanted = _wants_usage(request)
        self._base: JsonObject = {}
        self._out: list[bytes] = []
        self._states: dict[int, ChoiceState] = {}
        self._choice_of: dict[int, int] = {}  # part -> choice
        self._places = PartPlaces()
        self._direct: dict[int, Growing] = {}  # open parts that already have some text
        self._done = False

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if self._done:
                break
            if isinstance(event, PartDelta):
                growing = self._direct.get(event.index)
                text = event.text
                if (
                    growing is not None and text and not event.citations and event.logprobs is None
                ):  # fast path: chat delta, written
                    if type(event) is TextRun:
                        self._out.append(growing.write(text, event.pieces))
                    else:
                        growing.grow(text)
                        self._out.append(b"%b%b%b" % (growing.head, dump_json(text), growing.tail))
                    continue
            if type(event) is TextRun:
                for delta in event.spread():
                    self._write(delta)
            else:
                self._write(event)
        out, self._out = b"".join(self._out), []
        return out

    def open_text(self, index: int) -> WritePieces | None:
        growing = self._direct.get(index)
        return None if self._done or growing is None else growing.write

    def flush(self) -> bytes:
        """What waits for the end of a call. Servers write a text at once, also if a call before it is open."""
        for choice, state in self._states.items():
            for event in state.forget_waiting():
                self._write_part(choice, state, event)
        out, self._out = b"".join(self._out), []
        return out

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _write(self, event: Event) -> None:
        match event:
            case PartDelta() | PartStart() | PartEnd():
                self._place(event)
            case ReplyStart():
                self._start(event)
            case ReplyEnd():
                self._end(event)
            case ReplyFailed():
                self._out.append(b"data: %b\n\n" % dump_json({"error": encode_error(event.failure)}))
                self._done = True
            case Aside():
                if event.dialect == NAME:
                    self._out.append(b"data: %b\n\n" % dump_json(event.body))
            case _:
                assert_never(event)

    # ------------------------------------------------------------ frames

    def _send(self, choice: int, delta: JsonObject, logprobs: JsonObject | None = None) -> None:
        body = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        self._out.append(b"data: %b\n\n" % dump_json({**self._base, "choices": [body]}))

    def _start(self, event: ReplyStart) -> None:
        self._base = {
            "id": event.id,
            "object": "chat.completion.chunk",
            "created": encode_created(event.created, event.extras, self._notes),
            "model": event.model,
        }
        write_tier(self._base, event.service_tier, event.extras, self._notes)
        first = dict(self._base)
        if event.extras:
            add_extras(first, _streamed(event.extras), NAME, ROOT, self._notes)
            if "system_fingerprint" in first:
                self._base["system_fingerprint"] = first["system_fingerprint"]
        base, self._base = self._base, first
        self._state(0)
        self._base = base

    def _state(self, choice: int) -> ChoiceState:
        state = self._states.get(choice)
        if state is None:
            state = self._states[choice] = ChoiceState()
            self._send(choice, {"role": "assistant", "content": ""})
        return state

    # ------------------------------------------------------------ parts

    def _place(self, event: PartStart | PartDelta | PartEnd) -> None:
        if isinstance(event, PartStart):
            self._choice_of[event.index] = event.choice
            self._places.add(event)
        choice = self._choice_of[event.index]
        state = self._state(choice)
        for ordered in state.order(event):
            self._write_part(choice, state, ordered)

    def _write_part(self, choice: int, state: ChoiceState, event: PartStart | PartDelta | PartEnd) -> None:
        if isinstance(event, PartStart):
            parts: At = (((ROOT, "choices"), choice), "parts")
            growing = Growing(event.part, state.kept, (parts, self._places[event.index]))
            spoken = state.spoken
            opening = self._open(choice, state, growing)
            if opening and spoken:
                self._notes.altered(parts, "openai_chat's replies have speech at the end")
            state.kept += opening
            state.open[event.index] = growing if opening else None
            return
        open_part = state.open[event.index]
        if isinstance(event, PartDelta):
            if open_part is not None:
                self._grow(choice, state, open_part, event)
                if open_part.length and open_part.head:
                    self._direct[event.index] = open_part
            return
        del state.open[event.index]
        self._direct.pop(event.index, None)
        if open_part is not None:
            self._finish(choice, state, open_part, event)

    def _open(self, choice: int, state: ChoiceState, growing: Growing) -> bool:
        """Write the start of a part. False if Chat has no such part."""
        part = growing.part
        match part:
            case Text():
                self._open_text(choice, state, growing, part)
            case Refusal():
                growing.head = self._head(choice, '"refusal":')
                self._say(choice, state, growing, part.text, None, part.logprobs)
                if part.extras:
                    add_extras({}, part.extras, NAME, growing.at, self._notes)
            case Reasoning():
                return self._open_thought(choice, state, growing, part)
            case ToolCall():
                return self._open_call(choice, state, growing, part)
            case Audio() if not state.spoken and (part.id is not None or part.data is not None):
                state.spoken = True
                state.last = None
                self._send(choice, {"audio": encode_spoken(part, growing.at, self._notes, to_client=True)})
            case Image():
                image = encode_image(part, growing.at, self._notes, to_client=True)
                if image is not None:
                    state.last = None
                    self._send(choice, {"images": [image]})
            case Opaque() if part.dialect == NAME:
                state.last = None
                self._send(choice, self._opaque(state, part))
            case Opaque():
                self._notes.dropped(growing.at, f"only {part.dialect} has {opaque_word(part)}")
                return False
            case _:
                self._notes.dropped(
                    growing.at, f"openai_chat has no {type(part).__name__.lower()} in a turn of the assistant"
                )
                return False
        return True

    def _opaque(self, state: ChoiceState, part: Opaque) -> JsonObject:
        if is_detail(part):
            return {"reasoning_details": [part.body["detail"]]}
        if part.body.get("type") == OPAQUE_CALL:
            state.calls += 1
            return {"tool_calls": [{**part.body["call"], "index": state.calls - 1}]}
        return {"content": [part.body]}

    def _merge(self, state: ChoiceState, kind: type[Part], growing: Growing) -> None:
        """Note two texts in a row: the client joins them."""
        if state.last is kind:
            self._notes.altered(growing.at[0] if growing.at else ROOT, "openai_chat's replies have one text: joined")
        state.last = kind

    def _head(self, choice: int, keys: str) -> bytes:
        """The bytes of a frame before the text of a delta. They are the same in every chunk, so they are made once."""
        base = dump_json(self._base)[:-1]
        return b'data: %b,"choices":[{"index":%d,"delta":{%b' % (base, choice, keys.encode())

    # ------------------------------------------------------------ texts and refusals

    def _open_text(self, choice: int, state: ChoiceState, growing: Growing, part: Text) -> None:
        growing.head = self._head(choice, '"content":')
        if part.cache is not None:
            self._notes.dropped((growing.at, "cache"), "openai_chat's replies have no cache marks")
        if part.extras:
            add_extras({}, part.extras, NAME, growing.at, self._notes)
        self._say(choice, state, growing, part.text, part.citations, part.logprobs)

    def _say(
        self,
        choice: int,
        state: ChoiceState,
        growing: Growing,
        text: str,
        citations: tuple[Citation, ...] | None,
        logprobs: tuple[TokenLogprob, ...] | None,
    ) -> None:
        key = "content" if growing.kind is Text else "refusal"
        delta: JsonObject = {key: text} if text else {}
        if text and not growing.length:
            self._merge(state, growing.kind, growing)
            state.refused = state.refused or growing.kind is Refusal
        growing.length += len(text)
        if citations:
            self._cite(delta, state, growing, citations)
        logprobs_body = None
        if logprobs is not None:
            logprobs_body = {key: encode_logprobs(logprobs, (growing.at, "logprobs"), self._notes)}
        if delta or logprobs_body:
            self._send(choice, delta, logprobs_body)

    def _cite(self, delta: JsonObject, state: ChoiceState, growing: Growing, citations: tuple[Citation, ...]) -> None:
        """Write citations. Clients count their spans from the beginning of the whole answer."""
        if state.texts and not growing.citations:
            self._notes.altered((growing.at, "citations"), "counted from the beginning of the whole answer")
        for citation in citations:
            at: At = ((growing.at, "citations"), growing.citations)
            growing.citations += 1
            annotation = encode_annotation(citation, state.texts, state.texts + growing.length, at, self._notes)
            if annotation is not None:
                growing.cited += 1
                delta.setdefault("annotations", []).append(annotation)

    # ------------------------------------------------------------ thoughts

    def _open_thought(self, choice: int, state: ChoiceState, growing: Growing, part: Reasoning) -> bool:
        if is_detail(part):
            detail = encode_detail(part, growing.at, self._notes)
            detail.pop("signature", None)
            self._send(choice, self._detail_delta(part, detail))
            state.last = None
            return True
        if part.extras:
            add_extras({}, part.extras, NAME, growing.at, self._notes)
        if part.text:
            self._think(choice, state, growing, part.text)
        return True

    def _begin_thought(self, state: ChoiceState, growing: Growing) -> None:
        """Begins a thought. The client joins it with a thought directly before it, so that becomes a note."""
        growing.joined = state.last is Reasoning
        if growing.joined:
            self._notes.altered(growing.at[0] if growing.at else ROOT, "several thoughts said as one")
        state.last = Reasoning

    def _think(self, choice: int, state: ChoiceState, growing: Growing, text: str) -> None:
        part = growing.part
        if not isinstance(part, Reasoning):
            return
        if is_detail(part):
            kind = detail_type(part)
            if kind == "reasoning.encrypted":
                if not growing.pieces:
                    self._notes.altered((growing.at, "text"), "an encrypted thought has no text here")
                growing.pieces.append(text)
                return
            detail: JsonObject = {"type": kind, DETAIL_KEYS.get(kind, "text"): text}
            index = spelled(part.extras, NAME, "~index")
            self._send(choice, self._detail_delta(part, detail if index is None else detail | {"index": index}, text))
            return
        if not growing.pieces:
            self._begin_thought(state, growing)
        growing.grow(text)
        if spelled(part.extras, NAME, "~name") == "content":
            piece = encode_thinking(Reasoning(text=text), growing.at, self._notes)
            self._send(choice, {"content": [piece]})
            return
        names = names_of(part)
        if len(names) == 1:
            growing.head = self._head(choice, f'"{names[0]}":')
        self._send(choice, dict.fromkeys(names, text))

    def _detail_delta(self, part: Reasoning, detail: JsonObject, text: str = "") -> JsonObject:
        delta: JsonObject = {"reasoning_details": [detail]}
        if text:
            delta |= dict.fromkeys(spelled(part.extras, NAME, "~names") or (), text)
        return delta

    def _end_thought(self, choice: int, state: ChoiceState, growing: Growing, part: Reasoning, event: PartEnd) -> None:
        seal = event.seal or part.seal
        if is_detail(part):
            if seal is not None and detail_type(part) != "reasoning.encrypted":
                kind = detail_type(part)
                detail = encode_detail(replace(part, text="", seal=seal), growing.at, Notes())
                self._send(choice, {"reasoning_details": [detail | {DETAIL_KEYS.get(kind, "text"): ""}]})
            return
        text = "".join(growing.pieces)
        if not text and seal is None:
            self._notes.dropped(growing.at, "a thought without words")
        if part.summary and text:  # the client has the words already: an entry behind them comes too late to say it
            self._notes.altered((growing.at, "summary"), "openai_chat does not distinguish a summary from the thought")
        if seal is None:
            return
        if growing.joined:
            self._notes.dropped((growing.at, "seal"), "several thoughts said as one have no seal")
            return
        entry: JsonObject = {"index": state.entries, "at": growing.position, "text": text, "seal": to_builtins(seal)}
        if part.summary:
            entry["summary"] = True
        state.entries += 1
        state.last = None
        self._send(choice, {SIDE: {"reasoning": [entry]}})

    # ------------------------------------------------------------ calls

    def _open_call(self, choice: int, state: ChoiceState, growing: Growing, part: ToolCall) -> bool:
        state.last = None
        whole = replace(part, extras={n: k for n, k in part.extras.items() if n != NAME} | _keep(part.extras))
        if self._legacy or is_legacy(part):
            if state.legacy:
                self._notes.dropped(growing.at, "function_call says one call only")
                return False
            state.legacy = True
            self._send(choice, {"function_call": encode_legacy(whole, growing.at, self._notes)})
            return True
        growing.call = state.calls
        state.calls += 1
        call = encode_call(whole, growing.at, self._notes, to_client=True)
        self._send(choice, {"tool_calls": [{"index": growing.call, **{k: v for k, v in call.items() if k != "index"}}]})
        return True

    def _grow_call(self, choice: int, growing: Growing, part: ToolCall, text: str) -> None:
        growing.grow(text)
        if growing.call < 0:
            self._send(choice, {"function_call": {"arguments": text}})
            return
        place, key = ("custom", "input") if part.freeform else ("function", "arguments")
        growing.head = self._head(choice, f'"tool_calls":[{{"index":{growing.call},"{place}":{{"{key}":')
        growing.tail = b"}}]" + TEXT_END
        self._send(choice, {"tool_calls": [{"index": growing.call, place: {key: text}}]})

    # ------------------------------------------------------------ any part

    def _grow(self, choice: int, state: ChoiceState, growing: Growing, event: PartDelta) -> None:
        part = growing.part
        if growing.kind is Text or growing.kind is Refusal:
            self._say(choice, state, growing, event.text, event.citations, event.logprobs)
        elif isinstance(part, Reasoning):
            if event.text:
                self._think(choice, state, growing, event.text)
        elif isinstance(part, ToolCall) and event.text:
            self._grow_call(choice, growing, part, event.text)

    def _finish(self, choice: int, state: ChoiceState, growing: Growing, event: PartEnd) -> None:
        part = growing.part
        if event.extras:
            self._end_extras(choice, growing, event.extras)
        if isinstance(part, Reasoning):
            self._end_thought(choice, state, growing, part, event)
        elif isinstance(part, ToolCall) and event.seal is not None:
            self._end_call(choice, growing, part, event.seal)
        elif isinstance(part, Text):
            self._end_text(choice, state, growing, event.seal or part.seal)
        elif isinstance(part, Refusal) and not growing.length:
            self._notes.dropped(growing.at, "an empty refusal is said as nothing")

    def _end_extras(self, choice: int, growing: Growing, extras: Extras) -> None:
        late: JsonObject = {}
        add_extras(late, extras, NAME, growing.at, self._notes)
        if late and growing.call >= 0:
            self._send(choice, {"tool_calls": [{"index": growing.call, **late}]})

    def _end_call(self, choice: int, growing: Growing, part: ToolCall, seal: Seal) -> None:
        if growing.call < 0:
            self._notes.dropped((growing.at, "seal"), f"only {seal.origin} can read its {seal.form}")
            return
        own: JsonObject = {SIDE: {"seal": to_builtins(seal)}}
        if seal.origin == NAME:
            note_seal_losses(seal, (CALL_SEAL,), growing.at, self._notes)
            own = {"extra_content": encode_call_seal(seal)}
        place, key = ("custom", "input") if part.freeform else ("function", "arguments")
        # OpenAI's client cannot read a delta of a call without this.
        self._send(choice, {"tool_calls": [{"index": growing.call, place: {key: ""}, **own}]})

    def _end_text(self, choice: int, state: ChoiceState, growing: Growing, seal: Seal | None) -> None:
        state.texts += growing.length
        if growing.citations and not growing.cited:
            self._notes.dropped((growing.at, "citations"), "openai_chat has no form for any of them")
        if not growing.length and (seal is None or state.sealed):
            self._notes.dropped(growing.at, "an empty text is said as nothing")
        elif seal is not None and state.sealed:
            self._notes.dropped((growing.at, "seal"), f"{seal.origin} sealed several texts, which are one here")
        elif seal is not None:
            if not growing.length:
                self._merge(state, Text, growing)  # the client adds the seal to the text before
            state.sealed = True
            state.last = None
            self._send(choice, {SIDE: {"seal": to_builtins(seal)}})

    # ------------------------------------------------------------ the end

    def _end(self, event: ReplyEnd) -> None:
        for choice in range(len(event.finishes)):
            self._state(choice)
        last = max(self._states)
        for choice in sorted(self._states):
            finish = event.finishes[choice] if choice < len(event.finishes) else None
            extras = event.choice_extras[choice] if choice < len(event.choice_extras) else {}
            self._end_turn(choice, finish, extras, event if choice == last else None)
        if event.usage is not None and self._usage_wanted:
            usage = encode_usage(event.usage, (ROOT, "usage"), self._notes)
            self._out.append(b"data: %b\n\n" % dump_json({**self._base, "choices": [], "usage": usage}))
        self._out.append(b"data: [DONE]\n\n")
        self._done = True

    def _end_turn(self, choice: int, finish: Finish | None, extras: Extras, event: ReplyEnd | None) -> None:
        state, at = self._states[choice], ((ROOT, "choices"), choice)
        own = extras.get(NAME, {})
        if own.get("message"):
            self._send(choice, own["message"])
        stand_ins: list[Part] = [ToolCall(id="", name="", arguments="")] if state.calls or state.legacy else []
        if state.refused:
            stand_ins.append(Refusal(text="no"))
        body: JsonObject = {"index": choice, "delta": {}, "logprobs": own.get("logprobs")}
        ended = Choice(parts=tuple(stand_ins), finish=finish, extras=extras)
        encode_finish(body, ended, at, self._notes, self._legacy)
        if extras:
            others = {key: value for key, value in own.items() if key not in ("message", "logprobs")}
            add_extras(body, {**extras, NAME: others}, NAME, at, self._notes)
        body.setdefault("finish_reason", None)
        body.setdefault("logprobs", None)
        body["index"] = choice
        chunk: JsonObject = {**self._base, "choices": [body]}
        if event is not None:
            said_before = self._base.get("service_tier") is not None
            write_tier(chunk, event.service_tier, event.extras, Notes() if said_before else self._notes)
            add_extras(chunk, _streamed(event.extras), NAME, ROOT, self._notes)
        self._out.append(b"data: %b\n\n" % dump_json(chunk))


def _wants_usage(request: Request | None) -> bool:
    if request is None:
        return True
    options = request.extras.get(NAME, {}).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _streamed(extras: Extras) -> Extras:
    """A reply's extras without the keys that a stream writes in its own form."""
    own = extras.get(NAME)
    if own is None:
        return extras
    return {**extras, NAME: {key: value for key, value in own.items() if key not in (OMIT, "object")}}


def _keep(extras: Extras) -> Extras:
    """A call's extras without the spelling that only an unstreamed message needs."""
    own = {key: value for key, value in extras.get(NAME, {}).items() if key not in ("~id", "~arguments", "~omit")}
    return {NAME: own} if own else {}
