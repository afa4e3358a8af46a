"""Gemini generateContent: decodes a stream. https://ai.google.dev/api/generate-content (digest read 2026-11-15)

    data: {"candidates": [{"content": {"parts": [{"text": "..."}], "role": "model"}, "index": 0}], ...}

Every frame has the form of a reply, with only the new parts. The last frame has the finish reason and the counts. The
stream has no end mark. Google's own client fails on comments, `event:` lines and `[DONE]`. Without `alt=sse` the frames
are the elements of one JSON array.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.gemini.array import ArrayDecoder
from dragoman.dialects.gemini.calls import Fresh
from dragoman.dialects.gemini.failure import decode_failure
from dragoman.dialects.gemini.grounding import METADATA, Cited, take_citations, take_logprobs
from dragoman.dialects.gemini.partial import PartialCall
from dragoman.dialects.gemini.parts import THOUGHT, decode_part
from dragoman.dialects.gemini.reply import (
    BLOCKED,
    read_block,
    take_created,
    take_finish,
    take_usage,
    take_word,
)
from dragoman.dialects.gemini.spelling import to_camel
from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import leftovers, look_list
from dragoman.framing.sse import SseDecoder, read_frame
from dragoman.framing.templates import DeltaTemplate, LearntDelta, number_slot
from dragoman.jsontypes import JsonObject, kind_of, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart, TextRun
from dragoman.model.fold import unfold_part
from dragoman.model.messages import Opaque, Part, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Finish
from dragoman.notes import Notes
from dragoman.wire import WireReply

MAX_FRAME_BYTES = 64 * 1024 * 1024  # a picture comes in one frame
MAX_CHOICES = 64
SPACE = b" \t\r\n\xef\xbb\xbf"
TOP = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"})
NEW_TEXT, NEW_THOUGHT = Text(text=""), Reasoning(text="", summary=True, extras=THOUGHT)


class _ChoiceDecoder:
    """The state of one candidate."""

    __slots__ = ("called", "cited", "grows", "index", "kind", "partial", "rest", "seal", "texts")

    def __init__(self) -> None:
        self.kind: type[Part] | None = None  # of the open part
        self.index = -1
        self.grows = False  # whether the next text of this kind belongs to the open part
        self.seal: Seal | None = None
        self.texts: list[list[str]] = []  # all texts so far, in pieces: the spans of citations count in them
        self.cited: list[Cited] = []  # citations already sent as events
        self.partial: PartialCall | None = None
        self.called = False
        self.rest: JsonObject = {}  # the keys of the candidate beside its content


_COUNTS = (number_slot("candidatesTokenCount"), number_slot("totalTokenCount"))  # they grow with each frame


class StreamDecoder(StreamMarks):
    """Text of several frames is one part, until it is signed or a part of another kind begins. Two parts in one frame
    stay two. The stream has no end mark: it is complete if every candidate had a finish reason when the bytes end."""

    def __init__(self, notes: Notes) -> None:
        self._frames: SseDecoder | ArrayDecoder | None = None
        self._head = b""
        self._choices: dict[int, _ChoiceDecoder] = {}
        self._count = 0
        self._calls = Fresh("")
        self._usage: JsonObject | None = None
        self._extras: JsonObject = {}
        self._started = False
        self._ended = False
        self._keys: tuple[str, ...] = ()  # of a frame whose only news is in its candidates
        self._template = DeltaTemplate()  # of the text deltas
        self._template_owner: _ChoiceDecoder | None = None  # the part or choice that the template belongs to

    def feed(self, piece: bytes) -> list[Event]:
        frames = self._frames
        if frames is None:
            piece = self._head + piece
            first = piece.lstrip(SPACE)[:1]
            if not first:
                self._head = piece
                return []
            frames = ArrayDecoder(MAX_FRAME_BYTES) if first == b"[" else SseDecoder(MAX_FRAME_BYTES)
            self._frames = frames
        events: list[Event] = []
        if isinstance(frames, ArrayDecoder):
            for frame in frames.feed(piece):
                self._read(frame.data, events)
        else:
            if self.joins and self._template_owner is not None:  # fast path: gemini run
                piece = self._read_run(frames, piece, self._template_owner, events)
                if not piece:
                    return events
            for block in frames.split(piece):
                self._read_block(block, events)
        return events

    def _read_run(self, frames: SseDecoder, piece: bytes, choice: _ChoiceDecoder, events: list[Event]) -> bytes:
        """Read the deltas at the start of a piece as one event. Gives the rest."""
        data = frames.gather(piece)
        if data is None:
            return piece
        text, pieces, rest = self._template.read_run(data)
        if pieces:
            if choice.kind is Text:
                choice.texts[-1].append(text)
            events.append(TextRun(index=choice.index, text=text, pieces=pieces))
        return rest

    def learnt(self) -> LearntDelta | None:
        choice, frames = self._template_owner, self._frames
        if choice is None or not isinstance(frames, SseDecoder) or not frames.is_between():
            return None
        keep = choice.texts[-1].append if choice.kind is Text else None
        return LearntDelta(self._template, choice.index, keep)

    def _count_last(self) -> None:
        """Counts are cumulative: those of the last frame that the template has read are enough."""
        template = self._template
        if template.last:
            counts = zip(template.varying, template.last, strict=True)
            self._usage = {**(self._usage or {}), **{slot.key: int(value) for slot, value in counts}}
            template.last = []

    def _read_block(self, block: bytes, events: list[Event]) -> None:
        choice, self._template_owner = self._template_owner, None
        text = self._template.read(block) if choice is not None else None
        if choice is not None and text is not None:  # fast path: gemini delta
            self._template_owner = choice
            _grow(choice, text, events)
        elif (frame := read_frame(block)) is not None:
            self._count_last()
            if not block.startswith(b"data: {"):
                self.irregular = True  # Google's client reads nothing but `data:` lines with objects
            self._read(frame.data, events, block)
        elif block:
            self.irregular = True

    def close(self) -> list[Event]:
        events: list[Event] = []
        self._count_last()
        for frame in self._frames.close() if self._frames is not None else ():
            self._read(frame.data, events)
        if not self._ended:
            self._ended = True
            self._end(events)
        return events

    def _read(self, data: bytes, events: list[Event], block: bytes = b"") -> None:
        if self._ended or data == b"[DONE]":  # some servers add OpenAI's end mark
            return
        body = load_json(data)
        if type(body) is not dict:
            raise DecodeError(f"expected object, found {kind_of(body)}")
        if body.get("error") is not None:
            self._ended = True
            events.append(ReplyFailed(failure=decode_failure(WireReply(body=body))))
            return
        if not self._started:
            self._start(body, events)
        if tuple(body) == self._keys and self._read_text(body, events, block):  # fast path: gemini text
            return
        for place, candidate in enumerate(look_list(body, "candidates")):
            if type(candidate) is not dict:
                raise DecodeError(f"expected object, found {kind_of(candidate)}", "candidates", place)
            number = candidate.get("index")
            self._candidate(candidate, number if type(number) is int and 0 <= number < MAX_CHOICES else place, events)
        usage = body.get("usageMetadata")
        if type(usage) is dict:
            if self._usage is None:
                self._usage = usage
            else:
                self._usage.update(usage)  # counts are cumulative: the last frame has all of them
        self._keys = tuple(body)
        if not body.keys() <= TOP:
            self._keys = ()
            self._extras |= {key: value for key, value in body.items() if key not in TOP and value is not None}

    def _read_text(self, body: JsonObject, events: list[Event], block: bytes) -> bool:  # fast path: gemini text
        """Read a frame that only adds to the open text and the counts, as nearly every frame does. Else False."""
        candidates = body.get("candidates")
        candidate = candidates[0] if type(candidates) is list and len(candidates) == 1 else None
        if type(candidate) is not dict or len(candidate) != 2 or type(candidate.get("content")) is not dict:
            return False
        parts, number = candidate["content"].get("parts"), candidate.get("index")
        part = parts[0] if type(parts) is list and len(parts) == 1 else None
        if type(part) is not dict or type(number) is not int:
            return False
        text, choice = part.get("text"), self._choices.get(number)
        if type(text) is not str or choice is None or not choice.grows or choice.kind is not _plain_kind(part):
            return False
        _grow(choice, text, events)
        counts: JsonObject = {}
        if type(usage := body.get("usageMetadata")) is dict:
            self._usage, counts = {**self._usage, **usage} if self._usage is not None else usage, usage
        slots = [slot for slot in _COUNTS if type(counts.get(slot.key)) is int]
        if self._template.learn(block, b'"text"', text, slots, choice.index):
            self._template_owner = choice
        return True

    def _start(self, body: JsonObject, events: list[Event]) -> None:
        self._started = True
        own: JsonObject = {key: body[key] for key in ("responseId", "modelVersion", "createTime") if key in body}
        usage, tier = None, None
        counts = body.get("usageMetadata")
        if type(counts) is dict and "promptTokenCount" in counts:
            usage, tier = take_usage({"usageMetadata": dict(counts)})
        reply_id, model, created = take_word(own, "responseId"), take_word(own, "modelVersion"), take_created(own)
        self._calls = Fresh(reply_id)
        events.append(
            ReplyStart(
                id=reply_id, model=model, created=created, usage=usage, service_tier=tier, extras=leftovers(own, NAME)
            )
        )

    # ------------------------------------------------------------ candidates

    def _candidate(self, candidate: JsonObject, number: int, events: list[Event]) -> None:
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _ChoiceDecoder()
        content = candidate.get("content")
        first = True
        for part in look_list(content, "parts") if type(content) is dict else ():
            if type(part) is not dict:
                raise DecodeError(f"expected object, found {kind_of(part)}", "content", "parts")
            text = part.get("text")
            if (
                type(text) is str and text and choice.grows and first and len(part) == 1 and choice.kind is Text
            ):  # fast path: gemini text part
                choice.texts[-1].append(text)
                events.append(PartDelta(index=choice.index, text=text))
            else:
                self._part(choice, part, number, first, events)
            first = False
        if len(candidate) > 2 or "content" not in candidate or "index" not in candidate:
            self._beside(choice, candidate, events)

    def _beside(self, choice: _ChoiceDecoder, candidate: JsonObject, events: list[Event]) -> None:
        if "logprobsResult" in candidate and choice.kind is Text:
            logprobs = take_logprobs(candidate)
            if logprobs is not None:
                events.append(PartDelta(index=choice.index, logprobs=logprobs))
        for key, value in candidate.items():
            if key in ("content", "index") or value is None:
                continue
            before = choice.rest.get(key)
            if key == "citationMetadata" and type(before) is dict and type(value) is dict:
                _add_sources(before, value)
            elif key == "groundingMetadata" and type(before) is dict and type(value) is dict:
                before.update(value)
            else:
                choice.rest[key] = value

    # ------------------------------------------------------------ parts

    def _part(self, choice: _ChoiceDecoder, part: JsonObject, number: int, first: bool, events: list[Event]) -> None:
        text = part.get("text")
        if type(text) is str and len(part) == (1 if "thought" not in part else 2):
            if text:
                self._say(choice, Reasoning if part.get("thought") is True else Text, text, number, first, events)
            return  # an empty text is no part
        if "functionCall" in part or "function_call" in part:
            self._call(choice, part, number, events)
            return
        decoded = decode_part(part, self._calls)
        if isinstance(decoded, Text | Reasoning):
            self._say_signed(choice, decoded, number, events)
            return
        self._close(choice, events)
        events.extend(unfold_part(decoded, self._next(), number))

    def _say(
        self,
        choice: _ChoiceDecoder,
        kind: type[Text | Reasoning],
        text: str,
        number: int,
        first: bool,
        events: list[Event],
    ) -> None:
        if not (choice.grows and first and choice.kind is kind):
            self._open(choice, NEW_TEXT if kind is Text else NEW_THOUGHT, number, events)
        if kind is Text:
            choice.texts[-1].append(text)
        events.append(PartDelta(index=choice.index, text=text))

    def _say_signed(self, choice: _ChoiceDecoder, part: Text | Reasoning, number: int, events: list[Event]) -> None:
        """Read a part with a signature or with unknown keys. It is never joined with another part (docs: "don't merge a
        part that has a signature with one that has not"). A signature on an empty text belongs to the text before."""
        if part.seal is not None and not part.text and choice.grows and choice.kind is type(part):
            choice.seal, choice.grows = part.seal, False
            return
        if part.seal is None and not part.text:
            return
        self._open(choice, replace(part, text=""), number, events)
        choice.grows = False
        if part.text:
            if isinstance(part, Text):
                choice.texts[-1].append(part.text)
            events.append(PartDelta(index=choice.index, text=part.text))

    def _call(self, choice: _ChoiceDecoder, part: JsonObject, number: int, events: list[Event]) -> None:
        to_camel(part)
        if part.pop("~snake", None) is not None:
            self.irregular = True
        call: Any = part["functionCall"]
        if type(call) is not dict:
            raise DecodeError(f"expected object, found {kind_of(call)}", "functionCall")
        if choice.partial is None or "name" in call:
            self._finish_call(choice, number, events, whole=True)
            if not call.get("willContinue") and "partialArgs" not in call:
                self._whole_call(choice, decode_part(part, self._calls), number, events)
                return
            choice.partial = PartialCall(part)
        choice.partial.grow(call)
        if not call.get("willContinue"):
            self._finish_call(choice, number, events, whole=True)

    def _finish_call(self, choice: _ChoiceDecoder, number: int, events: list[Event], *, whole: bool) -> None:
        partial, choice.partial = choice.partial, None
        if partial is None:
            return
        decoded = decode_part(partial.complete(whole), self._calls)
        if isinstance(decoded, ToolCall) and not whole:
            decoded = replace(decoded, arguments=partial.cut_text())
        self._whole_call(choice, decoded, number, events)

    def _whole_call(self, choice: _ChoiceDecoder, part: Part, number: int, events: list[Event]) -> None:
        self._close(choice, events)
        choice.called = choice.called or type(part) is ToolCall
        events.extend(unfold_part(part, self._next(), number))

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _open(self, choice: _ChoiceDecoder, part: Text | Reasoning, number: int, events: list[Event]) -> None:
        self._close(choice, events)
        choice.kind, choice.index, choice.grows = type(part), self._next(), True
        if isinstance(part, Text):
            choice.texts.append([])
        events.append(PartStart(index=choice.index, part=part, choice=number))

    def _close(self, choice: _ChoiceDecoder, events: list[Event]) -> None:
        """End the open part. A text ends only when the next part begins, because its signature, citations and logprobs
        may come late."""
        if choice.kind is None:
            return
        if choice.kind is Text and any(key in choice.rest for key in METADATA):
            self._cite(choice, events)
        events.append(PartEnd(index=choice.index, seal=choice.seal))
        choice.kind, choice.seal, choice.grows = None, None, False

    def _cite(self, choice: _ChoiceDecoder, events: list[Event]) -> None:
        metadata = choice.rest.get("groundingMetadata")
        current = len(choice.texts) - 1
        found = take_citations(choice.rest, ["".join(pieces) for pieces in choice.texts])
        fresh = [item for item in found if item.text == current and item not in choice.cited]
        if metadata is not None and any(item.text != current and not _is_among(item, choice.cited) for item in found):
            choice.rest["groundingMetadata"] = metadata  # some of it is about other texts
        choice.cited.extend(fresh)
        if fresh and choice.kind is Text:
            events.append(PartDelta(index=choice.index, citations=tuple(item.citation for item in fresh)))

    # ------------------------------------------------------------ the end

    def _end(self, events: list[Event]) -> None:
        blocked = read_block(self._extras.get("promptFeedback"))
        finished = all("finishReason" in choice.rest for choice in self._choices.values())
        if not self._started or (blocked is None and not (finished and self._choices)):
            events.append(ReplyFailed(failure=CUT))
            return
        finishes: list[Finish | None] = [None] * (1 + max(self._choices, default=-1))
        extras: list[dict[str, JsonObject]] = [{} for _ in finishes]
        for number, choice in sorted(self._choices.items()):
            whole = choice.rest.get("finishReason") in ("STOP", 1)
            self._finish_call(choice, number, events, whole=whole)
            self._close(choice, events)
            finish = take_finish(choice.rest, choice.called)
            finishes[number] = finish if finish is not None or "~finishReason" in choice.rest else blocked
            extras[number] = leftovers(choice.rest, NAME)
        if not finishes:
            finishes, extras = [blocked], [BLOCKED]
        usage, tier = take_usage({"usageMetadata": self._usage})
        events.append(
            ReplyEnd(
                finishes=tuple(finishes),
                usage=usage,
                service_tier=tier,
                choice_extras=tuple(extras) if any(extras) else (),
                extras=leftovers(self._extras, NAME),
            )
        )


def _add_sources(before: JsonObject, value: JsonObject) -> None:
    """Add the sources of a new frame to those of earlier frames (seen on Vertex)."""
    for key, items in value.items():
        known = before.get(key)
        if type(known) is list and type(items) is list:
            known.extend(item for item in items if item not in known)
        else:
            before[key] = items


def _plain_kind(part: JsonObject) -> type[Part]:
    """Text or Reasoning, if the part says nothing else. Else a kind that does not grow."""
    if len(part) == 1:
        return Text
    return Reasoning if len(part) == 2 and part.get("thought") is True else Opaque


def _grow(choice: _ChoiceDecoder, text: str, events: list[Event]) -> None:
    if text:  # an empty text is no event
        if choice.kind is Text:
            choice.texts[-1].append(text)
        events.append(PartDelta(index=choice.index, text=text))


def _is_among(item: Cited, cited: list[Cited]) -> bool:
    """Whether a citation was sent before. It may have got a span when another text came."""
    plain = replace(item.citation, start=None, end=None)
    same = [other.citation for other in cited if other.text == item.text]
    return any(replace(other, start=None, end=None) == plain for other in same)
