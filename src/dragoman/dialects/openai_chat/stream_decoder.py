"""OpenAI Chat Completions: a stream of chunks -> events.
https://platform.openai.com/docs/api-reference/chat/streaming (digest read 2026-11-15)

Any key of a chunk may be missing, and no chunk says where a part ends. A text or a thought ends when the next part
begins, so that we can pass it on at once. Later text becomes a new part, in the order of the stream. Calls stay open
to the end, because their fragments may interleave.
"""

from itertools import count
from typing import Any

from dragoman.dialects._streams import CUT, StreamMarks
from dragoman.dialects.openai_chat.calls import CallIds, ids_of_reply
from dragoman.dialects.openai_chat.failure import decode_failure
from dragoman.dialects.openai_chat.reply import file_message, take_created, take_finish, take_tier
from dragoman.dialects.openai_chat.stream_choice import StreamChoice
from dragoman.dialects.openai_chat.usage import decode_usage
from dragoman.dialects.openai_chat.words import NAME
from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.fields import leftovers
from dragoman.framing.sse import SseDecoder, SseFrame, read_frame
from dragoman.framing.templates import DeltaTemplate, LearntDelta, word_slot
from dragoman.jsontypes import JsonObject, copy_json, kind_of, load_json
from dragoman.model.events import Aside, Event, PartDelta, ReplyEnd, ReplyFailed, ReplyStart, TextRun
from dragoman.model.messages import Extras
from dragoman.model.reply import Finish, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply

MOST_CHOICES = 128  # OpenAI's limit for `n`
# Keys of a chunk that are about the whole reply. `obfuscation` and `p` are padding.
_KNOWN = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "obfuscation", "p"}
)
# Those of them that say nothing new once the reply has started.
_SILENT = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation", "p"})

_PADDING = (word_slot("obfuscation"), word_slot("p"))  # hides the length of words


class StreamDecoder(StreamMarks):
    def __init__(self, notes: Notes) -> None:
        self._frames = SseDecoder()
        self._turns: dict[int, StreamChoice] = {}
        self._parts = count()  # part indexes, shared by all choices
        self._extras: JsonObject = {}  # of the whole reply
        self._told: JsonObject = {}  # those that the start had
        self._usage: JsonObject | None = None
        self._tier: str | None = None
        self._ids = CallIds()
        self._seen = False  # at least one chunk came, even an empty one
        self._keys: tuple[str, ...] = ()  # of the last chunk that was read in full, if all of them are known
        self._labels: tuple[object, ...] = ()  # of that chunk
        self._started = False
        self._ended = False
        self._template = DeltaTemplate()  # of chunks that add to one part
        self._growing = -1  # index of that part

    def feed(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        if self.joins and self._growing >= 0:  # fast path: chat run
            piece = self._read_run(piece, events)
            if not piece:
                return events
        for block in self._frames.split(piece):
            if self._growing >= 0 and (text := self._template.read(block)) is not None:  # fast path: chat delta
                if text:
                    events.append(PartDelta(index=self._growing, text=text))
            elif (frame := read_frame(block)) is not None:
                self._read(frame, events, block)
        return events

    def _read_run(self, piece: bytes, events: list[Event]) -> bytes:
        """Read the deltas at the start of a piece as one event. Gives the rest."""
        data = self._frames.gather(piece)
        if data is None:
            return piece
        text, pieces, rest = self._template.read_run(data)
        if pieces:
            events.append(TextRun(index=self._growing, text=text, pieces=pieces))
        return rest

    def learnt(self) -> LearntDelta | None:
        return LearntDelta(self._template, self._growing) if self._growing >= 0 and self._frames.is_between() else None

    def close(self) -> list[Event]:
        events: list[Event] = []
        for frame in self._frames.close():
            self._read(frame, events)
        if not self._ended:
            # Several servers leave out [DONE]. A finish reason is enough for a complete stream.
            if any(turn.finished for turn in self._turns.values()):
                self._end(events)
            else:
                self._fail(CUT, events)
        return events

    def _read(self, frame: SseFrame, events: list[Event], block: bytes = b"") -> None:
        if self._ended:
            return
        data = frame.data
        if data[:6] == b"[DONE]":
            if self._seen:
                self._end(events)
            else:
                self._fail(CUT, events)
            return
        body = load_json(data)
        if type(body) is not dict or "choices" not in body or body.get("error"):
            self._read_other(frame, body, events)
            return
        usage = body.get("usage")
        if (
            tuple(body) == self._keys
            and (usage is None or type(usage) is dict)
            and _read_labels(body) == self._labels
            and self._read_text(body, events, block)
        ):  # fast path: chat text
            if usage is not None:
                self._usage = {**(self._usage or {}), **usage}
            return
        self._read_chunk(body, events)

    def _read_text(self, body: JsonObject, events: list[Event], block: bytes) -> bool:  # fast path: chat text
        """Read a chunk that only adds to one part, or begins a text. False for any other chunk: there are few."""
        choices = body["choices"]
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return False
        choice: JsonObject = choices[0]
        delta, number = choice.get("delta"), choice.get("index")
        if type(delta) is not dict or type(number) is not int:
            return False
        if len(choice) != 2 + ("finish_reason" in choice) + ("logprobs" in choice):
            return False
        if choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
            return False
        turn = self._turns.get(number)
        grown = turn.find_grown(delta, events) if turn is not None else None
        if grown is None:
            return False
        index, key, text = grown
        if text:
            events.append(PartDelta(index=index, text=text))
        slots = [slot for slot in _PADDING if slot.key in body]
        self._growing = index if self._template.learn(block, b'"%b"' % key.encode(), text, slots, index) else -1
        return True

    def _read_chunk(self, body: JsonObject, events: list[Event]) -> None:
        self._growing = -1  # a template learned from this chunk would repeat its other news
        self._keys = tuple(body) if body.keys() <= _KNOWN else ()
        if not self._started and not (
            body.get("id") and body.get("model") and body.get("object") and type(body.get("created")) is int
        ):
            self.irregular = True  # OpenAI's clients need them in every chunk
        self._labels = _read_labels(body)
        self._read_head(body)
        choices = body["choices"]
        if not self._started:
            # A first chunk without choices may lack id and model (Azure, Copilot).
            self._seen = True
            if choices or (body.get("id") and body.get("model")):
                self._start(body, events)
        for choice in choices if type(choices) is list else ():
            if type(choice) is dict:
                self._read_choice(choice, events)

    def _read_other(self, frame: SseFrame, body: Any, events: list[Event]) -> None:
        """Read errors (`event: error`, inside a chunk, a bare `error:` line), a lone usage, and unknown frames."""
        wrapped = type(body) is list
        if wrapped or frame.event == "error" or (type(body) is dict and body.get("error")):
            self._fail(decode_failure(WireReply(body=body)), events)
        elif type(body) is not dict:
            raise DecodeError(f"expected object, found {kind_of(body)}")
        elif "usage" in body:
            body["choices"] = []
            self._read_chunk(body, events)
        elif body and frame.event != "ping":  # clients that expect chunks fail on a ping
            events.append(Aside(dialect=NAME, body=body))

    def _read_choice(self, choice: JsonObject, events: list[Event]) -> None:
        number = choice.get("index")
        if type(number) is not int or not 0 <= number < MOST_CHOICES:
            number, self.irregular = 0, True
        turn = self._turns.get(number)
        if turn is None:
            turn = self._turns[number] = StreamChoice(self._parts, number, self._ids)
        turn.read(choice, events)
        self.finishing = self.finishing or turn.finished
        self.irregular = self.irregular or turn.irregular

    # ------------------------------------------------------------ the reply as a whole

    def _start(self, body: JsonObject, events: list[Event]) -> None:
        self._started = True
        reply_id, model = body.get("id"), body.get("model")
        reply_id = reply_id if type(reply_id) is str else ""
        self._ids = ids_of_reply(reply_id)
        created = take_created(body)
        if "~created" in body:
            self._extras["~created"] = body["~created"]
        events.append(
            ReplyStart(
                id=reply_id,
                model=model if type(model) is str else "",
                created=created,
                usage=None if self._usage is None else decode_usage(copy_json(self._usage)),  # vLLM, if asked
                service_tier=self._tier,
                extras=leftovers(self._extras, NAME),
            )
        )
        self._told, self._extras = self._extras, {}

    def _read_head(self, body: JsonObject) -> None:
        usage = body.get("usage")
        if type(usage) is dict:
            self._usage = {**(self._usage or {}), **usage}
        self._tier = take_tier(body) or self._tier
        for key, value in body.items():
            if key not in _SILENT and value is not None and key[:1] != "~" and value != "":
                self._extras[key] = value

    def _fail(self, failure: Failure, events: list[Event]) -> None:
        self._ended, self._growing = True, -1
        events.append(ReplyFailed(failure=failure))

    def _end(self, events: list[Event]) -> None:
        if not self._started:
            self._start({}, events)
        self._ended, self._growing = True, -1
        turns = 1 + max(self._turns, default=-1)
        finishes: list[Finish | None] = [None] * turns
        extras: list[Extras] = [{}] * turns
        for number, turn in sorted(self._turns.items()):
            self.irregular = self.irregular or not turn.finished
            turn.end(events)
            if self._usage is None and type(turn.choice.get("usage")) is dict:  # Moonshot
                self._usage = turn.choice.pop("usage")
            finishes[number] = take_finish(turn.choice, has_call=turn.called, refused=turn.refused, whole=True)
            file_message(turn.choice, turn.message)
            extras[number] = leftovers(turn.choice, NAME)
        events.append(
            ReplyEnd(
                finishes=tuple(finishes),
                usage=self._take_usage(),
                service_tier=self._tier,
                choice_extras=tuple(extras) if any(extras) else (),
                extras=leftovers(
                    {key: value for key, value in self._extras.items() if self._told.get(key) != value}, NAME
                ),
            )
        )

    def _take_usage(self) -> Usage | None:
        if self._usage is None:
            groq = self._extras.get("x_groq")
            usage = groq.get("usage") if type(groq) is dict else None
            return decode_usage(dict(usage)) if type(usage) is dict else None
        return decode_usage(self._usage)


def _read_labels(body: JsonObject) -> tuple[object, ...]:
    """The keys of a chunk that are about the whole reply, and that may differ from chunk to chunk."""
    return body.get("system_fingerprint"), body.get("service_tier")
