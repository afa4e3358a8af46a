"""OpenAI Chat Completions: decodes one choice of a stream."""

from collections.abc import Iterator
from typing import Any

from msgspec import ValidationError, convert

from dragoman.dialects._seals import SIDE, take_seal
from dragoman.dialects.openai_chat.annotations import decode_annotation, decode_logprobs
from dragoman.dialects.openai_chat.assistant import decode_drawn, decode_spoken, is_blank, is_drawn, is_spoken
from dragoman.dialects.openai_chat.calls import CallIds, take_call_seal
from dragoman.dialects.openai_chat.parts import decode_part, keep_inner, thinking_text
from dragoman.dialects.openai_chat.reasoning import DETAIL_KEYS, decode_detail, spell_names
from dragoman.dialects.openai_chat.words import END_WORDS, FINISHES, NAME, REASONING_NAMES
from dragoman.fields import leftovers, note_spelling
from dragoman.jsontypes import JsonObject, dump_text
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart
from dragoman.model.messages import Part, Reasoning, Refusal, Seal, Text, ToolCall

_CHOICE = frozenset({"index", "delta", "message", "logprobs", "role", "text", "obfuscation"})
_DELTA = frozenset(
    {*REASONING_NAMES, "role", "content", "reasoning_details", "refusal", "audio", "images", "tool_calls"}
    | {"function_call", "annotations", "obfuscation"}
)
_FRAGMENT, _ARGUMENTS = {"index", "function"}, {"arguments"}


class _StreamCall:
    """A call, from its first fragment on. Its part starts once its name is known."""

    __slots__ = ("extras", "freeform", "id", "index", "name", "pieces", "seal")

    def __init__(self) -> None:
        self.index: int | None = None  # of its part, once that has started
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []  # arguments that came before the name
        self.freeform = False
        self.seal: Seal | None = None
        self.extras: JsonObject = {}


class StreamChoice:
    def __init__(self, parts: Iterator[int], number: int, ids: CallIds) -> None:
        self._parts = parts
        self._number = number
        self._ids = ids
        self.text: int | None = None  # the open part of each kind
        self._refusal: int | None = None
        self._thought: int | None = None
        self._names: list[str] | str = []  # keys that carry the open thought
        self._detail: tuple[Any, ...] | None = None  # which of the reasoning_details is open
        self._summary = False  # the side field announced a summary
        self._calls: list[_StreamCall] = []
        self._by_index: dict[int, _StreamCall] = {}
        self._legacy: _StreamCall | None = None
        self._audio: JsonObject = {}
        self._citations: list[JsonObject] = []  # citations that came before their text
        self._logprobs: dict[str, list[Any]] = {}  # logprobs of other things than text and refusal
        self.choice: JsonObject = {}  # the unknown keys of the choice and, below, of its message
        self.message: JsonObject = {}
        self.finished = False
        self.irregular = False  # OpenAI's clients cannot read it, or read it wrongly
        self._begun = False
        self.called = False
        self.refused = False

    def read(self, choice: JsonObject, events: list[Event]) -> None:
        delta = choice.get("delta")
        if type(delta) is not dict:
            # A whole answer in one frame has a message. A message beside a delta (Perplexity) only repeats it.
            delta, self.irregular = choice.get("message"), True
        else:
            self.irregular = self.irregular or not (self._begun or delta.get("role"))
        self._begun = True
        if type(delta) is dict:
            self._read_delta(delta, events)
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            self._read_logprobs(logprobs, events)
        self.irregular = self.irregular or choice.get("finish_reason") == ""  # strict clients know null and five words
        for key, value in choice.items():
            if key not in _CHOICE and value is not None and value != "":
                self.choice[key] = value
                if key == "finish_reason":
                    self.finished = True
                    self.irregular = self.irregular or _is_wrong_end(value, called=self.called and self._legacy is None)

    def find_grown(self, delta: JsonObject, events: list[Event]) -> tuple[int, str, str] | None:  # fast path: chat text
        """The part that a delta adds to, the key and the text, if that is all it does. A text may begin with it."""
        filled = [key for key, value in delta.items() if value is not None and value != "" and key != "role"]
        if len(filled) != 1:
            return None
        key, value = filled[0], delta[filled[0]]
        if key == "tool_calls":
            return self._find_grown_call(value)
        if type(value) is not str:
            return None
        index = self._open_text(events) if key == "content" else self._find_grown_thought(key)
        return (index, key, value) if index is not None else None

    def _find_grown_thought(self, key: str) -> int | None:  # fast path: chat text
        if self._detail is not None or self._names != [key]:
            return None
        return self._thought

    def _find_grown_call(self, calls: Any) -> tuple[int, str, str] | None:  # fast path: chat text
        """The same for a call: neither its name nor its id comes again."""
        entry = calls[0] if type(calls) is list and len(calls) == 1 else None
        if type(entry) is not dict or entry.keys() != _FRAGMENT or type(entry["index"]) is not int:
            return None
        call, inner = self._by_index.get(entry["index"]), entry["function"]
        if call is None or call.index is None or call.freeform:
            return None
        if type(inner) is not dict or inner.keys() != _ARGUMENTS or type(inner["arguments"]) is not str:
            return None
        return call.index, "arguments", inner["arguments"]

    def _read_delta(self, delta: JsonObject, events: list[Event]) -> None:
        side = delta.pop(SIDE, None)
        if type(side) is dict:
            self._read_side(side, events)
        self._read_thoughts(delta, events)
        content = delta.get("content")
        if content:
            self.irregular = self.irregular or type(content) is not str
            self._read_content(content, events)
        if type(refusal := delta.get("refusal")) is str and refusal:
            self._read_refusal(refusal, events)
        if type(annotations := delta.get("annotations")) is list:
            self._read_annotations(annotations, events)
        if type(audio := delta.get("audio")) is dict:
            self._read_audio(audio)
        if type(images := delta.get("images")) is list:
            self._read_images(images, events)
        if type(calls := delta.get("tool_calls")) is list:
            self._read_calls(calls, events)
        if type(call := delta.get("function_call")) is dict and not is_blank(call):
            self._read_legacy(call, events)
        if not delta.keys() <= _DELTA:
            for key, value in delta.items():
                if key not in _DELTA and not is_blank(value):
                    self.message[key] = value

    # ------------------------------------------------------------ text, refusal, thoughts

    def _begin(self, part: Part, events: list[Event]) -> int:
        """Start a part. This ends the text, refusal or thought before it."""
        self._close(events)
        index = next(self._parts)
        events.append(PartStart(index=index, part=part, choice=self._number))
        return index

    def _close(self, events: list[Event], seal: Seal | None = None) -> None:
        open_parts = (self.text, self._refusal, self._thought)
        events.extend(PartEnd(index=index, seal=seal) for index in open_parts if index is not None)
        self.text = self._refusal = self._thought = self._detail = None

    def _read_content(self, content: Any, events: list[Event]) -> None:
        if type(content) is str:
            self._say(content, events)
        elif type(content) is list:  # Mistral
            for block in content:
                if type(block) is dict:
                    self._read_block(block, events)
        elif type(content) is dict:
            self._say(dump_text(content), events)

    def _say(self, text: str, events: list[Event]) -> None:
        events.append(PartDelta(index=self._open_text(events), text=text))

    def _open_text(self, events: list[Event]) -> int:
        if self.text is None:
            self.text = self._begin(Text(text=""), events)
            if self._citations:
                waiting, self._citations = self._citations, []
                self._cite(waiting, events)
        return self.text

    def _read_block(self, block: JsonObject, events: list[Event]) -> None:
        kind = block.get("type")
        if kind == "text" and type(block.get("text")) is str:
            if block["text"]:
                self._say(block["text"], events)
        elif kind == "thinking" and type(block.get("thinking")) is list:
            text = thinking_text(block["thinking"])
            if text:
                self._think(text, "content", events)
        else:
            events.append(PartEnd(index=self._begin(decode_part(block), events)))

    def _read_refusal(self, text: str, events: list[Event]) -> None:
        self.refused = True
        if self._refusal is None:
            self._refusal = self._begin(Refusal(text=""), events)
        events.append(PartDelta(index=self._refusal, text=text))

    def _read_thoughts(self, delta: JsonObject, events: list[Event]) -> None:
        """Read each thought once: the details, or else the strings, which repeat the details (FIELD-CASES 74)."""
        detail_text = ""
        details = delta.get("reasoning_details")
        if type(details) is list:
            names = [name for name in REASONING_NAMES if delta.get(name)]
            for detail in details:
                if type(detail) is dict:
                    detail_text += self._read_detail(detail, names, events)
        texts: dict[str, list[str]] = {}
        for name in REASONING_NAMES:
            text = delta.get(name)
            if type(text) is str and text and not detail_text:
                texts.setdefault(text, []).append(name)
        for text, names in texts.items():
            self._think(text, names, events)

    def _think(self, text: str, names: list[str] | str, events: list[Event]) -> None:
        if self._thought is None or self._detail is not None or self._names != names:
            extras = {NAME: {"~name": names}} if type(names) is str else spell_names(list(names))
            self._thought = self._begin(Reasoning(text="", summary=self._summary, extras=extras), events)
            self._names = names
            self._summary = False
        events.append(PartDelta(index=self._thought, text=text))

    def _read_detail(self, detail: JsonObject, names: list[str], events: list[Event]) -> str:
        """Read a piece of a detail. Type and index identify the detail, and a signature ends it."""
        kind = detail.get("type")
        key = (kind, detail.get("index"))
        if kind not in ("reasoning.text", "reasoning.summary"):
            events.append(PartEnd(index=self._begin(decode_detail(detail), events)))
            return ""
        text, signature = detail.get(DETAIL_KEYS[kind]), detail.pop("signature", None)
        text = text if type(text) is str else ""
        seal = Seal(origin=NAME, value=signature) if type(signature) is str and signature else None
        if self._thought is None or self._detail != key:
            detail[DETAIL_KEYS[kind]] = ""
            part = decode_detail(detail)
            if isinstance(part, Reasoning) and names:
                part.extras[NAME]["~names"] = names
            self._thought = self._begin(part, events)
            self._detail = key
        if text:
            events.append(PartDelta(index=self._thought, text=text))
        if seal is not None:
            self._close(events, seal)
        return text

    def _read_side(self, side: JsonObject, events: list[Event]) -> None:
        """Read our own side field. An entry without `text` begins a thought; an entry with `text` ends it."""
        try:
            for entry in side.get("reasoning", ()):
                if entry.get("text") is None:
                    self._close(events)
                    self._summary = entry.get("summary") is True
                else:
                    seal = convert(entry["seal"], Seal) if "seal" in entry else None
                    if self._thought is None:
                        summary = self._summary or entry.get("summary") is True
                        self._thought = self._begin(Reasoning(text="", summary=summary), events)
                    self._summary = False
                    self._close(events, seal)
            if "seal" in side:
                seal = convert(side["seal"], Seal)
                self._open_text(events)
                self._close(events, seal)
        except (ValidationError, AttributeError, TypeError):
            self.message[SIDE] = side  # not our side field: an extra

    # ------------------------------------------------------------ citations, logprobs, sound, pictures

    def _read_annotations(self, annotations: list[Any], events: list[Event]) -> None:
        given = [annotation for annotation in annotations if type(annotation) is dict]
        if self.text is None:
            self._citations.extend(given)
        elif given:
            self._cite(given, events)

    def _cite(self, annotations: list[JsonObject], events: list[Event]) -> None:
        if self.text is not None:
            citations = tuple(decode_annotation(annotation) for annotation in annotations)
            events.append(PartDelta(index=self.text, citations=citations))

    def _read_logprobs(self, logprobs: JsonObject, events: list[Event]) -> None:
        scored = {"content": self.text, "refusal": self._refusal}
        for key, given in logprobs.items():
            if type(given) is not list or (not given and scored.get(key) is None):
                continue
            # scores of a call: only this dialect has them, so they stay extras
            of_calls = key == "content" and self.called and self.text is None
            tokens = decode_logprobs(given) if key in ("content", "refusal") and not of_calls else None
            if tokens is None:
                self._logprobs.setdefault(key, []).extend(given)
            elif key == "refusal" and self._refusal is not None:
                events.append(PartDelta(index=self._refusal, logprobs=tokens))
            elif key == "content":
                events.append(PartDelta(index=self._open_text(events), logprobs=tokens))

    def _read_audio(self, audio: JsonObject) -> None:
        for key, value in audio.items():
            if key in ("data", "transcript") and type(value) is str:
                self._audio[key] = self._audio.get(key, "") + value
            elif value is not None:
                self._audio[key] = value

    def _read_images(self, images: list[Any], events: list[Event]) -> None:
        for image in images:
            if is_drawn(image):
                events.append(PartEnd(index=self._begin(decode_drawn(image), events)))

    # ------------------------------------------------------------ calls

    def _read_calls(self, calls: list[Any], events: list[Event]) -> None:
        used: list[_StreamCall] = []
        for entry in calls:
            if type(entry) is dict:
                call = self._find_call(entry, used)
                used.append(call)
                self._grow(call, entry, events)

    def _find_call(self, entry: JsonObject, used: list[_StreamCall]) -> _StreamCall:
        """Find the call of a fragment. The fragment may lack the index, the id or both (FIELD-CASES 6)."""
        index = entry.get("index") if type(entry.get("index")) is int else None
        call_id = entry["id"] if type(entry.get("id")) is str else ""
        inner = entry.get("function") or entry.get("custom")
        name = inner.get("name") if type(inner) is dict else None
        known: _StreamCall | None
        if index is not None:
            known = self._by_index.get(index)
        elif call_id:
            known = next((call for call in self._calls if call.id == call_id), None)
        else:
            known = next((call for call in reversed(self._calls) if call not in used), None)
            if known is not None and known.name and name:
                known = None  # a name begins a new call
        if known is not None and (
            (call_id and known.id and call_id != known.id)  # some servers give all calls one index
            or (not call_id and not known.id and name and known.name and name != known.name)
        ):
            known = None
        if known is None:
            known = _StreamCall()
            self._calls.append(known)
            if not (call_id and name and entry.get("type")) or index != len(self._calls) - 1:
                self.irregular = True  # the first fragment of a call has all of these, and calls are numbered
        elif index is None:
            self.irregular = True
        if index is not None:
            self._by_index[index] = known
        return known

    def _grow(self, call: _StreamCall, entry: JsonObject, events: list[Event]) -> None:
        entry.pop("index", None)
        if entry.pop("type", None) == "custom" or type(entry.get("custom")) is dict:
            call.freeform = True
        call_id = entry.pop("id", None)
        if type(call_id) is str and call_id and call.index is None:
            call.id = call_id
        call.seal = take_call_seal(entry) or take_seal(entry) or call.seal
        place = "custom" if call.freeform else "function"
        inner = entry.pop(place, None)
        piece = self._take_inner(call, inner, place, entry) if type(inner) is dict else ""
        for key, value in entry.items():
            if not is_blank(value):
                call.extras[key] = value
        self._pass_on(call, piece, events)

    def _take_inner(self, call: _StreamCall, inner: JsonObject, place: str, entry: JsonObject) -> str:
        name = inner.pop("name", None)
        if type(name) is str and name and not call.name:
            call.name = name
        value = inner.pop("input" if place == "custom" else "arguments", None)
        keep_inner(entry, place, {key: left for key, left in inner.items() if left is not None})
        if value is None:
            return ""
        return value if type(value) is str else dump_text(value)

    def _pass_on(self, call: _StreamCall, piece: str, events: list[Event]) -> None:
        if call.index is None:
            if piece:
                call.pieces.append(piece)
            if call.name:
                self._open_call(call, events)
        elif piece:
            events.append(PartDelta(index=call.index, text=piece))

    def _open_call(self, call: _StreamCall, events: list[Event]) -> None:
        self.called = True
        if not call.id:
            call.id = self._ids.make(call.name)
            if call is not self._legacy:  # a `function_call` never has one
                note_spelling(call.extras, "id", "absent")
        part = ToolCall(
            id=call.id,
            name=call.name,
            arguments="",
            freeform=call.freeform,
            seal=call.seal,
            extras=leftovers(call.extras, NAME),
        )
        call.extras, call.seal = {}, None
        call.index = self._begin(part, events)
        if call.pieces:
            events.append(PartDelta(index=call.index, text="".join(call.pieces)))

    def _read_legacy(self, given: JsonObject, events: list[Event]) -> None:
        if self._legacy is None:
            self._legacy = _StreamCall()
            self._legacy.extras["~form"] = "function_call"
            self._calls.append(self._legacy)
        call = self._legacy
        piece = self._take_inner(call, given, "function", call.extras)
        self._pass_on(call, piece, events)

    # ------------------------------------------------------------ the end

    def end(self, events: list[Event]) -> None:
        self._close(events)
        for call in self._calls:
            if call.index is None:
                self._open_call(call, events)
            if call.index is not None:
                events.append(PartEnd(index=call.index, seal=call.seal, extras=leftovers(call.extras, NAME)))
        if self._audio and is_spoken(self._audio):
            events.append(PartEnd(index=self._begin(decode_spoken(self._audio), events)))
        if self._citations:
            self.message["annotations"] = self._citations
        if self._logprobs:
            self.choice["logprobs"] = self._logprobs


def _is_wrong_end(word: object, *, called: bool) -> bool:
    """Whether clients misread this finish: `stop` behind a call, or another word for what OpenAI has a word for."""
    if not isinstance(word, str):
        return False
    return (called and word == "stop") or (word not in END_WORDS and word in FINISHES)
