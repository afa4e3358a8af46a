"""Reasoning state of turns whose clients bring nothing back (Ollama's, and most Chat programs): what a store keeps.

A turn is found again by what every client repeats: its calls, or else its text. Ids of calls are enough where a dialect
has them. The words that began the conversation, the place of the turn and the model tell equal turns apart.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_sorted, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import ReplyBuilder
from dragoman.model.messages import Message, Part, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.reasoning_state.carry import StateSource, has_state
from dragoman.reasoning_state.envelope import CarriedState
from dragoman.reasoning_state.take_back import place_thoughts

LONG = 100  # characters


class Conversation(Struct, frozen=True):
    """The facts that tell a conversation from others of the same client."""

    first: str  # the user's first text; a hash of it if it is long, because the key of each turn contains it
    turns: int  # of the assistant, so far
    by_id: bool  # the client repeats the ids of calls
    model: str  # that the client asks: it may ask two the same at once

    def key(self, parts: tuple[Part, ...], turn: int) -> str:
        """The key of one assistant turn in the store."""
        calls = [part for part in parts if type(part) is ToolCall]
        if calls and self.by_id:
            marks = ["id", calls[0].id]
        else:
            words = "".join(part.text for part in parts if type(part) is Text).strip()
            marks = [str(turn), *(_spell(call) for call in calls)] if calls else [str(turn), "text", words]
        return _digest("\0".join([self.model, self.first, *marks]))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _spell(call: ToolCall) -> str:
    """A call as text. Its arguments are spelled in one way, because clients parse and write them again."""
    try:
        return f"{call.name} {dump_sorted(load_json(call.arguments))}"
    except DecodeError:
        return f"{call.name} {call.arguments}"


def read_conversation(request: Request, model: str, *, by_id: bool) -> Conversation:
    first, turns = "", 0
    for message in request.messages:
        if message.role == "assistant":
            turns += 1
        elif message.role == "user" and not first:
            first = next((part.text for part in message.parts if type(part) is Text), "")
    return Conversation(_digest(first) if len(first) > LONG else first, turns, by_id, model)


# ---------------------------------------------------------------- in


def make_state(parts: tuple[Part, ...], source: StateSource) -> CarriedState | None:
    """The state that one turn needs when it comes back; None if it needs none."""
    if not has_state(parts):
        return None
    thoughts: list[tuple[int, Reasoning]] = []
    seals: list[tuple[int, Seal]] = []
    at = calls = 0
    last: type[Part] | None = None
    for part in parts:
        if type(part) is Reasoning:
            thoughts.append((at, replace(part, seal=part.seal and _stamp(part.seal, source))))
            continue
        if type(part) is ToolCall:
            if part.seal is not None:
                seals.append((calls, _stamp(part.seal, source)))
            calls += 1
        at += not (last is Text and type(part) is Text)
        last = type(part)
    return CarriedState(thoughts=tuple(thoughts), calls=tuple(seals))


def _stamp(seal: Seal, source: StateSource) -> Seal:
    return replace(seal, model=seal.model or source.model, upstream=seal.upstream or source.upstream)


class TurnKeeper:
    """Reads a streamed answer from its first thought or seal on. A stream without one costs nothing."""

    def __init__(self) -> None:
        self._builder: ReplyBuilder | None = None
        self._started: set[int] = set()
        self.reply: Reply | None = None  # once it has ended

    def find_keep(self, index: int) -> Callable[[str], object] | None:
        """Takes the next texts of an open part, instead of its deltas. None if it reads none."""
        return self._builder.find_keep(index) if self._builder is not None and index in self._started else None

    def feed(self, events: list[Event]) -> None:
        if self._builder is None and len(events) == 1 and isinstance(events[0], PartDelta):  # most pieces are a delta
            return
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        if type(event) is PartStart:
            if self._builder is None and has_state((event.part,)):
                self._builder = ReplyBuilder()
                self._builder.feed(ReplyStart(id="", model=""))
            if self._builder is not None and event.choice == 0:
                self._started.add(event.index)
                self._builder.feed(event)
        elif self._builder is None:
            return
        elif type(event) is ReplyEnd:
            self._builder.feed(event)
            reply = self._builder.reply()
            self.reply = reply if isinstance(reply, Reply) else None
        elif isinstance(event, PartDelta | PartEnd) and event.index in self._started:
            self._builder.feed(event)


# ---------------------------------------------------------------- out


def find_bare_turns(request: Request, conversation: Conversation) -> dict[int, str]:
    """The turns of the assistant that came back without any seal: place among the messages -> key in the store."""
    bare: dict[int, str] = {}
    turn = 0
    for i, message in enumerate(request.messages):
        if message.role != "assistant":
            continue
        if not any(getattr(part, "seal", None) is not None for part in message.parts):
            bare[i] = conversation.key(message.parts, turn)
        turn += 1
    return bare


def restore_turns(request: Request, states: Iterable[tuple[int, CarriedState]]) -> Request:
    """The request with the stored state of its turns; the same object if that changes nothing."""
    messages = list(request.messages)
    for i, state in states:
        messages[i] = _restore(messages[i], state)
    same = all(new is old for new, old in zip(messages, request.messages, strict=True))
    return request if same else replace(request, messages=tuple(messages))


def _restore(message: Message, state: CarriedState) -> Message:
    parts, thoughts = list(message.parts), [thought for _, thought in state.thoughts]
    shown = any(type(part) is Reasoning for part in parts)
    if thoughts and (not shown or any(thought.seal is not None for thought in thoughts)):
        parts = place_thoughts([part for part in parts if type(part) is not Reasoning], state.thoughts)
    seals, number = dict(state.calls), 0
    for i, part in enumerate(parts):
        if type(part) is ToolCall:
            if number in seals:
                parts[i] = replace(part, seal=seals[number])
            number += 1
    return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))
