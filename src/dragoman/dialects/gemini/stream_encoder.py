"""Gemini generateContent: encodes a stream. Text is sent as it comes. Every other part is sent when it is complete."""

from collections.abc import Iterable
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects._base import WritePieces
from dragoman.dialects._streams import CUT, OpenFrame, hold
from dragoman.dialects.gemini.failure import encode_error
from dragoman.dialects.gemini.grounding import Cited, has_metadata, write_citations, write_logprobs
from dragoman.dialects.gemini.parts import encode_part, write_signature
from dragoman.dialects.gemini.reply import encode_finish, encode_identity, encode_usage, is_blocked
from dragoman.dialects.gemini.request import wants_array
from dragoman.dialects.gemini.spelling import write_extras
from dragoman.dialects.gemini.words import NAME, UNFINISHED
from dragoman.fields import add_extras
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
from dragoman.model.fold import merge_extras
from dragoman.model.messages import Citation, Extras, Part, Reasoning, Refusal, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

OPEN = b'{"candidates":[{"content":{"parts":[{"text":'
# What Gemini itself sends in a chunk that says nothing. `chats` of google-genai and @google/genai leaves a turn out of
# its history if one chunk has no parts.
EMPTY_PART: JsonObject = {"text": ""}


class _Open:
    """The open part of a choice. It is live (its text is sent as it comes) or collected until it ends."""

    __slots__ = ("at", "base", "cited", "index", "kind", "part", "pieces", "scored", "scores", "wrote")

    def __init__(self, part: Part, index: int, at: At, kind: type[Text | Reasoning] | None) -> None:
        self.part, self.index, self.at = part, index, at
        self.kind = kind  # None: collected until it ends
        self.wrote = False
        self.base = 0  # length of the earlier text that the reader joins with this part
        self.pieces: list[str] = []
        self.cited: list[Citation] = []
        self.scores: list[TokenLogprob] | None = None  # logprobs not yet written
        self.scored = 0  # number of logprobs written


class _ChoiceEncoder:
    __slots__ = ("at", "called", "cited", "number", "open", "order", "speaks", "tails", "texts", "written")

    def __init__(self, number: int) -> None:
        self.number = number
        self.at: At = ((ROOT, "choices"), number)
        self.order = Sequencer()
        self.open: _Open | None = None
        self.speaks: type[Part] | None = None  # the kind of part that a reader would join the next text with
        self.texts: list[list[str]] = []  # texts as a reader joins them
        self.cited: list[Cited] = []  # not yet written
        self.written: list[Cited] = []
        self.called = False
        self.tails: dict[type[Part], bytes] = {}  # the bytes after the text of a frame, by kind of part


class StreamEncoder:
    def __init__(self, notes: Notes, request: Request | None = None) -> None:
        self._notes = notes
        self._array = wants_array(request)
        self._out: list[bytes] = []
        self._choices: dict[int, _ChoiceEncoder] = {}
        self._parts: dict[int, tuple[_ChoiceEncoder, int]] = {}  # event index -> choice, place in it
        self._places = PartPlaces()
        self._identity: JsonObject = {}
        self._extras: Extras = {}
        self._tier: str | None = None
        self._begun = False
        self._done = False

    def feed(self, events: Iterable[Event]) -> bytes:
        for event in events:
            if self._done:
                break
            if isinstance(event, PartDelta):
                choice = self._parts[event.index][0]
                part = choice.open
                if (
                    part is not None and part.index == event.index and part.wrote and not _is_rich(event)
                ):  # fast path: gemini delta, written
                    self._say(choice, part, event.text, event.pieces if type(event) is TextRun else None)
                elif (
                    part is not None and part.index == event.index and part.kind is None and not _is_rich(event)
                ):  # fast path: gemini delta, held
                    part.pieces.append(event.text)
                else:
                    for delta in event.spread() if type(event) is TextRun else (event,):
                        self._pass(choice, delta)
            elif isinstance(event, PartStart):
                self._pass(self._enter(event), event)
            elif isinstance(event, PartEnd):
                self._pass(self._parts[event.index][0], event)
            else:
                self._other(event)
        out, self._out = b"".join(self._out), []
        return out

    def open_text(self, index: int) -> WritePieces | None:
        choice = self._parts[index][0] if index in self._parts else None
        part = choice.open if choice is not None else None
        if self._done or choice is None or part is None or part.index != index:
            return None
        if part.kind is None:
            return partial(hold, part.pieces)
        if not part.wrote:
            return None
        kind = part.kind or Text
        head, end = (b",\r\n", b"") if self._array else (b"data: ", b"\r\n\r\n")
        keep = choice.texts[-1].append if kind is Text else None
        return OpenFrame(head + OPEN, self._tail(choice, kind) + end, keep).write

    def close(self) -> bytes:
        """A stream without its end event is a failure, never a success."""
        return b"" if self._done else self.feed([ReplyFailed(failure=CUT)])

    def _other(self, event: ReplyStart | ReplyEnd | ReplyFailed | Aside) -> None:
        match event:
            case ReplyStart():
                self._identity = encode_identity(event.id, event.model, event.created, event.extras)
                self._extras, self._tier = event.extras, event.service_tier
            case ReplyEnd():
                self._end(event)
            case ReplyFailed():
                self._send({"error": encode_error(event.failure)}, last=True)
            case Aside():
                pass  # Gemini's streams have no frames beside the answer
            case _:
                assert_never(event)

    def _enter(self, event: PartStart) -> _ChoiceEncoder:
        choice = self._choice(event.choice)
        self._parts[event.index] = (choice, self._places.add(event))
        return choice

    def _choice(self, number: int) -> _ChoiceEncoder:
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _ChoiceEncoder(number)
        return choice

    def _pass(self, choice: _ChoiceEncoder, event: PartStart | PartDelta | PartEnd) -> None:
        for ordered in choice.order.feed(event):
            if isinstance(ordered, PartDelta) and choice.open is not None:
                self._grow(choice, choice.open, ordered)
            elif isinstance(ordered, PartStart):
                self._start(choice, ordered)
            elif isinstance(ordered, PartEnd) and choice.open is not None:
                self._stop(choice, choice.open, ordered)

    # ------------------------------------------------------------ frames

    def _send(self, body: JsonObject, *, last: bool = False) -> None:
        self._frame(dump_json(body))
        if last:
            self._done = True
            if self._array:
                self._out.append(b"]")

    def _frame(self, data: bytes) -> None:
        if self._array:
            self._out.append((b",\r\n" if self._begun else b"[") + data)
        else:
            self._out.append(b"data: %b\r\n\r\n" % data)
        self._begun = True

    def _send_parts(self, choice: _ChoiceEncoder, parts: list[JsonObject], beside: JsonObject) -> None:
        content: JsonObject = {"parts": parts or [EMPTY_PART], "role": "model"}
        self._send({"candidates": [{"content": content, "index": choice.number} | beside], **self._identity})

    def _say(self, choice: _ChoiceEncoder, part: _Open, text: str, run: list[bytes] | None = None) -> None:
        """Send a piece of a live text, or several (`run`: see TextRun)."""
        if not text:
            return
        kind = part.kind or Text
        tail = self._tail(choice, kind)
        if kind is Text:
            choice.texts[-1].append(text)
        if run is None:
            self._frame(OPEN + dump_json(text) + tail)
        else:
            for piece in run:
                self._frame(b'%b"%b"%b' % (OPEN, piece, tail))

    def _tail(self, choice: _ChoiceEncoder, kind: type[Part]) -> bytes:
        tail = choice.tails.get(kind)
        if tail is None:
            tail = choice.tails[kind] = self._make_tail(choice, kind)
        return tail

    def _make_tail(self, choice: _ChoiceEncoder, kind: type[Part]) -> bytes:
        whole: JsonObject = {"candidates": [{"content": {"parts": [], "role": "model"}, "index": choice.number}]}
        rest = dump_json(whole | self._identity).partition(b'"parts":[')[2]
        return (b',"thought":true}' if kind is Reasoning else b"}") + rest

    # ------------------------------------------------------------ parts

    def _start(self, choice: _ChoiceEncoder, event: PartStart) -> None:
        self._flush_citations(choice)
        part = event.part
        at: At = ((choice.at, "parts"), self._parts[event.index][1])
        choice.called = choice.called or isinstance(part, ToolCall)
        choice.open = _Open(part, event.index, at, _live_kind(part))
        if choice.open.kind is not None:
            self._note_lost(part, at)
        if isinstance(part, Text | Refusal | Reasoning):
            first = PartDelta(
                index=event.index,
                text=part.text,
                citations=part.citations if isinstance(part, Text) else (),
                logprobs=None if isinstance(part, Reasoning) else part.logprobs,
            )
            self._grow(choice, choice.open, first)

    def _note_lost(self, part: Part, at: At) -> None:
        match part:
            case Refusal():
                self._notes.altered(at, "gemini has no refusal part: said as text")
            case Reasoning(summary=False):
                self._notes.altered((at, "summary"), "gemini does not distinguish a summary from the thought")
            case Text(cache=cache) if cache is not None:
                self._notes.dropped((at, "cache"), "gemini has no cache marks")
        if isinstance(part, Text | Refusal | Reasoning) and part.extras:
            write_extras({}, part.extras, at, self._notes)

    def _grow(self, choice: _ChoiceEncoder, part: _Open, event: PartDelta) -> None:
        part.cited.extend(event.citations)
        if event.logprobs is not None:
            part.scores = [*(part.scores or ()), *event.logprobs]
        if part.kind is None:
            part.pieces.append(event.text)
            return
        if event.text and not part.wrote:
            self._begin(choice, part, part.kind)
        if part.wrote and part.scores is not None:
            block = [{"text": event.text} | _thought(part.kind)] if event.text else []
            if event.text and part.kind is Text:
                choice.texts[-1].append(event.text)
            self._send_parts(choice, block, self._take_scores(part))
        elif part.wrote:
            self._say(choice, part, event.text)

    def _begin(self, choice: _ChoiceEncoder, part: _Open, kind: type[Text | Reasoning]) -> None:
        """Begin a live text. Frames do not mark where a text begins, so a reader joins two texts of one kind."""
        part.wrote = True
        if choice.speaks is kind:
            self._notes.altered((choice.at, "parts"), "gemini's streams join a text with the one before it")
            part.base = sum(map(len, choice.texts[-1])) if kind is Text else 0
            return
        choice.speaks = kind
        if kind is Text:
            choice.texts.append([])

    def _take_scores(self, part: _Open) -> JsonObject:
        if part.scores is None:
            return {}
        scores, part.scores = part.scores, None
        result = write_logprobs(scores, (part.at, "logprobs"), self._notes, part.scored)
        part.scored += len(scores)
        return {"logprobsResult": result}

    def _stop(self, choice: _ChoiceEncoder, part: _Open, event: PartEnd) -> None:
        choice.open = None
        if part.kind is None:
            self._send_held(choice, part, event)
        else:
            if event.extras:
                self._note_late(event.extras, part.at)
            if event.seal is not None:
                self._sign(choice, part, part.kind, event.seal)
            elif not part.wrote:
                self._notes.dropped(part.at, "gemini takes no empty text")
                return
        number = len(choice.texts) - 1
        for i, citation in enumerate(part.cited):
            if part.base and citation.start is not None and citation.end is not None:
                citation = replace(citation, start=citation.start + part.base, end=citation.end + part.base)
            choice.cited.append(Cited(citation, number, ((part.at, "citations"), i)))

    def _note_late(self, extras: Extras, at: At) -> None:
        """Note extras that come at the end of a part: its text was already sent."""
        write_extras({}, extras, at, self._notes)
        for key, value in extras.get(NAME, {}).items():
            if value is not None and key[:1] != "~":
                self._notes.dropped((((at, "extras"), NAME), key), "the text it belongs to had been sent")

    def _sign(self, choice: _ChoiceEncoder, part: _Open, kind: type[Text | Reasoning], seal: Seal) -> None:
        """Send a signature that comes after its text. Like Google, we put it on an empty text."""
        if not part.wrote:
            self._begin(choice, part, kind)
        block: JsonObject = {"text": ""} | _thought(kind)
        write_signature(block, seal, part.at, self._notes, to_client=True)
        self._send_parts(choice, [block], self._take_scores(part))
        choice.speaks = None

    def _send_held(self, choice: _ChoiceEncoder, held: _Open, event: PartEnd) -> None:
        part = _complete(held, event)
        block = encode_part(part, held.at, self._notes, to_client=True)
        if block is None:
            held.cited = []
            return
        kind = _wire_kind(part)
        if kind is not None and choice.speaks is kind and not block.get("text"):
            self._notes.altered((choice.at, "parts"), "gemini's streams join a text with the one before it")
        elif kind is Text:
            choice.texts.append([block.get("text", "")])
        self._send_parts(choice, [block], self._take_scores(held))
        choice.speaks = None

    # ------------------------------------------------------------ the end

    def _flush_citations(self, choice: _ChoiceEncoder) -> None:
        """Send the citations before the next part, because a reader cannot cite a text that has ended."""
        metadata = self._take_citations(choice)
        if metadata is not None:
            self._send_parts(choice, [], {"groundingMetadata": metadata})

    def _take_citations(self, choice: _ChoiceEncoder) -> JsonObject | None:
        """The metadata with all citations so far: readers keep the last one they get."""
        if not choice.cited:
            return None
        texts = ["".join(pieces) for pieces in choice.texts]
        cited, choice.cited = choice.cited, []
        metadata = write_citations(cited, texts, self._notes)
        if metadata is None or not choice.written:
            choice.written += cited
            return metadata
        choice.written += cited
        return write_citations(choice.written, texts, Notes())

    def _end(self, event: ReplyEnd) -> None:
        count = max(len(event.finishes), 1 + max(self._choices, default=-1))
        if not count:
            self._notes.altered((ROOT, "choices"), "no answer at all: said as an empty one")
        candidates: list[JsonObject] = []
        blocked = False
        for number in range(max(count, 1)):
            extras = event.choice_extras[number] if number < len(event.choice_extras) else {}
            if is_blocked(extras):
                blocked = True
                continue
            candidates.append(self._last_candidate(self._choice(number), event, extras))
        body: JsonObject = {"candidates": candidates} if candidates or not blocked else {}
        usage = encode_usage(event.usage, event.service_tier or self._tier, self._notes)
        if usage is not None:
            body["usageMetadata"] = usage
        body |= self._identity
        extras = merge_extras(self._extras, event.extras)
        if extras:
            add_extras(body, extras, NAME, ROOT, self._notes)
        self._send(body, last=True)

    def _last_candidate(self, choice: _ChoiceEncoder, event: ReplyEnd, extras: Extras) -> JsonObject:
        number = choice.number
        finish = event.finishes[number] if number < len(event.finishes) else None
        candidate: JsonObject = {"content": {"parts": [EMPTY_PART], "role": "model"}}
        candidate["finishReason"] = extras.get(NAME, {}).get("~finishReason", UNFINISHED)
        candidate |= encode_finish(finish, choice.called, (choice.at, "finish"), self._notes)
        candidate["index"] = number
        metadata = None if has_metadata(extras) else self._take_citations(choice)
        if metadata is not None:
            candidate["groundingMetadata"] = metadata
        if extras:
            write_extras(candidate, extras, choice.at, self._notes, "content", "logprobsResult")
            candidate["index"] = number  # always written, even if an unstreamed candidate had no index
        return candidate


def _is_rich(event: PartDelta) -> bool:
    return bool(event.citations) or event.logprobs is not None


def _wire_kind(part: Part) -> type[Text | Reasoning] | None:
    if isinstance(part, Text | Refusal):
        return Text
    return Reasoning if isinstance(part, Reasoning) else None


def _live_kind(part: Part) -> type[Text | Reasoning] | None:
    """Text is sent as it comes, unless it has a seal or extras of Gemini's: these must be on the same part."""
    if not isinstance(part, Text | Refusal | Reasoning):
        return None
    if not isinstance(part, Refusal) and part.seal is not None:
        return None
    if any(key[:1] != "~" for key in part.extras.get(NAME, ())):
        return None
    return _wire_kind(part)


def _thought(kind: type[Text | Reasoning]) -> JsonObject:
    return {"thought": True} if kind is Reasoning else {}


def _complete(held: _Open, event: PartEnd) -> Part:
    part, text = held.part, "".join(held.pieces)
    match part:
        case Text():  # its citations and logprobs are written beside the content
            part = replace(part, text=text, citations=(), logprobs=None, seal=event.seal or part.seal)
        case Refusal():
            part = replace(part, text=text, logprobs=None)
        case Reasoning():
            part = replace(part, text=text, seal=event.seal or part.seal)
        case ToolCall():
            part = replace(part, arguments=part.arguments + text, seal=event.seal or part.seal)
        case _:
            return part
    return replace(part, extras=merge_extras(part.extras, event.extras)) if event.extras else part
