"""Reasoning state on its way out: it goes with an answer to the client, which keeps it for the next request.

A client keeps the opaque values of its own dialect and nothing else. `StateCarrier` puts what a foreign model needs
back into those values; take_back.py restores it from the next request. Dialects differ in what they keep:

- thoughts: each thought has a value (Anthropic's `signature`, Responses' `encrypted_content`). The seal of a call
  travels in a thought without words in front of it.
- parts: calls and texts have a value, and clients may drop thoughts (Gemini's `thoughtSignature`). Thoughts travel in
  the value of the next call, or at the end of the answer.
- details: thoughts without words may stand beside the turn (`reasoning_details` of Chat dialects), calls have a value.

An answer in the client's own dialect needs none of this. State that has no place here can be kept in a store, see
stored.py.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd
from dragoman.model.fold import StartedParts, fold, merge_extras, unfold
from dragoman.model.messages import Extras, Image, Part, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.notes import ROOT, Notes
from dragoman.reasoning_state.envelope import CarriedState, StateKey, wrap_state


class StateSlots(Struct, frozen=True, kw_only=True):
    """Where the clients of a dialect keep opaque values."""

    dialect: str
    kind: Literal["thoughts", "parts", "details"]
    form: str  # of the seal of a thought
    wordless_form: str = ""  # of the seal of a thought without words, if that is another
    call_form: str = ""  # of the seal of a call, if that is another


class StateSource(Struct, frozen=True, kw_only=True):
    """The model and server that issued the state, if we know them."""

    model: str | None = None
    upstream: str | None = None


class _Thought:
    """A thought while its events come."""

    __slots__ = ("choice", "held", "part", "texts")

    def __init__(self, start: PartStart, part: Reasoning) -> None:
        self.choice = start.choice
        self.part = part
        self.texts = [part.text]
        self.held = not part.text  # its start was not sent yet: it may have no words at all


class _Open(Struct):
    """A text or a call while its events come."""

    part: Part
    choice: int
    seal: Seal | None


class TurnProgress:
    """One answer (choice) as far as it has come."""

    __slots__ = ("at", "details", "in_text", "waiting")

    def __init__(self) -> None:
        self.at = 0  # parts so far, as CarriedState counts them
        self.in_text = False
        self.waiting: list[tuple[int, Reasoning]] = []  # thoughts that are not carried yet
        self.details = 0

    def count(self, part: Part) -> None:
        if not (self.in_text and type(part) is Text):
            self.at += 1
        self.in_text = type(part) is Text


# The parts whose seals a client can keep for us. Other seals are taken off with a note: Gemini signs texts and does not
# demand the signature back. Claude Code takes the last block for the answer, so no block may stand behind the text.
_SEALED: dict[str, tuple[type[Part], ...]] = {
    "thoughts": (ToolCall,),
    "parts": (ToolCall, Text, Image),
    "details": (ToolCall, Text),
}
_NOTHING = CarriedState()


class SealDropper:
    """Takes all seals off an answer, for a client whose turns the gateway keeps: its dialect has no place for them."""

    def __init__(self) -> None:
        self._held: dict[int, PartStart] = {}  # thoughts without words so far

    def stage(self, notes: Notes) -> None:
        """Does nothing: the parts keep their places, so notes need no new form of the answer."""

    def note_in(self, notes: Notes) -> None:
        """Nothing is lost: the gateway keeps the seals."""

    def passes(self, index: int) -> bool:
        """Whether pieces of this part stay as they are, from here to its end."""
        return index not in self._held

    def find_keep(self, index: int) -> None:
        """It reads no texts."""

    def feed(self, events: list[Event]) -> list[Event]:
        return [bare for event in events for bare in self._feed(event)]

    def _feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartStart(part=Reasoning() as part):
                start = replace(event, part=replace(part, seal=None)) if part.seal is not None else event
                if part.text:
                    yield start
                else:
                    self._held[event.index] = start
            case PartStart() if getattr(event.part, "seal", None) is not None:
                yield replace(event, part=replace(event.part, seal=None))
            case PartDelta(index=index) if index in self._held:
                yield self._held.pop(index)
                yield event
            case PartEnd(index=index) if index in self._held:
                del self._held[index]
            case PartEnd() if event.seal is not None:
                yield replace(event, seal=None)
            case _:
                yield event


class StateCarrier:
    """Puts the state of a foreign answer into opaque values of the client's dialect: events in, events out."""

    def __init__(self, slots: StateSlots, source: StateSource, key: StateKey) -> None:
        self._slots, self._source, self._key = slots, source, key
        self._started: StartedParts | None = None
        self._turns: dict[int, TurnProgress] = {}
        self._thoughts: dict[int, _Thought] = {}  # those that are open
        self._open: dict[int, _Open] = {}  # texts and calls that may have a seal
        self._silent: dict[int, PartStart] = {}  # texts that had a seal and no words so far
        self._notes: Notes | None = None
        self._numbers: dict[int, int] = {}  # index of a part -> its index in what goes out
        self._next = 0
        self._same = True  # no index has changed yet

    def stage(self, notes: Notes) -> None:
        """Notes from here on are about the stream as it goes to the client."""
        self.note_in(notes)
        self._started = notes.stage(StartedParts())

    def note_in(self, notes: Notes) -> None:
        self._notes = notes

    def passes(self, index: int) -> bool:
        """Whether pieces of this part stay as they are, from here to its end."""
        thought = self._thoughts.get(index)
        return self._same and (thought is None or not thought.held)

    def find_keep(self, index: int) -> Callable[[str], object] | None:
        """Takes the next texts of a part that passes, instead of its deltas. None if it reads none."""
        thought = self._thoughts.get(index)
        return None if thought is None else thought.texts.append

    def feed(self, events: list[Event]) -> list[Event]:
        carried: list[Event] = []
        others: list[Event] = []  # than text as it comes
        for event in events:
            if (
                self._same and isinstance(event, PartDelta) and event.index not in self._thoughts
            ):  # fast path: plain text
                carried.append(event)
            else:
                fed = list(self._feed(event))
                carried += fed
                others += fed
        if self._started is not None and others:
            self._started.feed(others)
        return carried

    def _feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartDelta():
                yield from self._delta(event)
            case PartStart():
                yield from self._start(event)
            case PartEnd(index=index) if index in self._thoughts:
                yield from self._end_thought(event, self._thoughts.pop(index))
            case PartEnd(index=index) if index in self._silent:
                del self._silent[index]
            case PartEnd():
                yield from self._end_part(event)
            case ReplyEnd():
                yield from self._end_turns()
                yield event
            case _:
                yield event

    def _number(self, index: int) -> int:
        """A new index for a part that starts now."""
        number = self._numbers[index] = self._next
        self._next += 1
        self._same = self._same and number == index
        return number

    def _delta(self, event: PartDelta) -> Iterator[Event]:
        thought = self._thoughts.get(event.index)
        if thought is not None:
            thought.texts.append(event.text)
            if thought.held and event.text:
                thought.held = False
                yield self._start_thought(event.index, thought)
            if thought.held:
                return
        silent = self._silent.pop(event.index, None)
        if silent is not None:
            yield replace(silent, index=self._number(event.index))
        number = self._numbers.get(event.index, event.index)
        yield event if number == event.index else replace(event, index=number)

    def _start(self, event: PartStart) -> Iterator[Event]:
        part, turn = event.part, self._turns.setdefault(event.choice, TurnProgress())
        if type(part) is Reasoning and not self._is_native(part.seal):
            thought = self._thoughts[event.index] = _Thought(event, part)
            if not thought.held:
                yield self._start_thought(event.index, thought)
            return
        if type(part) is not Reasoning:
            turn.count(part)
            seal: Seal | None = getattr(part, "seal", None)
            if seal is not None and type(part) not in _SEALED[self._slots.kind] and not self._is_native(seal):
                self._note_loss(seal, event)
                event = replace(event, part=replace(part, seal=None))
                if type(part) is Text and not part.text:
                    self._silent[event.index], self._same = event, False
                    return
                part = event.part
        if type(part) in _SEALED[self._slots.kind] and not self._is_native(getattr(part, "seal", None)):
            seal = getattr(part, "seal", None)
            if seal is not None:
                part = replace(part, seal=None)
            if seal is not None and type(part) is ToolCall and self._slots.kind == "thoughts":
                yield from self._carry(event.choice, CarriedState(seal=self._stamp(seal), call=part.id))
                seal = None
            elif seal is not None and type(part) is ToolCall and self._slots.kind == "details":
                part = replace(part, seal=self._wrap(CarriedState(seal=self._stamp(seal)), self._slots.call_form))
                seal = None
            self._open[event.index] = _Open(part, event.choice, seal)
        yield PartStart(index=self._number(event.index), choice=event.choice, part=part)

    def _start_thought(self, index: int, thought: _Thought) -> PartStart:
        part = replace(thought.part, seal=None, extras=self._own(thought.part.extras))
        return PartStart(index=self._number(index), choice=thought.choice, part=part)

    def _end_thought(self, event: PartEnd, thought: _Thought) -> Iterator[Event]:
        if self._is_native(event.seal):
            if thought.held:
                yield self._start_thought(event.index, thought)
            yield replace(event, index=self._numbers[event.index])
            return
        turn = self._turns[thought.choice]
        whole = self._whole(thought, event)
        seal: Seal | None = None
        carried: Iterable[Event] = ()
        if self._slots.kind == "thoughts":
            state = CarriedState(thoughts=((turn.at, whole),))
            if thought.held:
                yield from self._carry(thought.choice, state)
                return
            seal = self._wrap(state)
        else:
            turn.waiting.append((turn.at, whole))
            if self._slots.kind == "details" and (whole.seal is not None or turn.at):
                carried = self._carry(thought.choice, CarriedState(thoughts=tuple(turn.waiting)))
                turn.waiting.clear()
        if not thought.held:
            yield PartEnd(index=self._numbers[event.index], seal=seal)
        yield from carried

    def _end_part(self, event: PartEnd) -> Iterator[Event]:
        number, opened = self._numbers.get(event.index, event.index), self._open.pop(event.index, None)
        if opened is None and event.seal is not None and not self._is_native(event.seal):
            self._note_loss(event.seal, event)
            event = replace(event, seal=None)
        if opened is None or self._is_native(event.seal):
            yield event if number == event.index else replace(event, index=number)
            return
        seal = event.seal or opened.seal
        state = CarriedState(seal=seal and self._stamp(seal))
        call = opened.part.id if type(opened.part) is ToolCall else None
        if self._slots.kind == "parts":
            turn = self._turns[opened.choice]
            if turn.waiting and (seal is not None or call is not None):
                state = replace(state, thoughts=tuple(turn.waiting))
                turn.waiting.clear()
        if state == _NOTHING:
            yield PartEnd(index=number, extras=event.extras)
        elif self._slots.kind == "parts" or (self._slots.kind == "details" and call is not None):
            yield PartEnd(index=number, seal=self._wrap(state, self._slots.call_form), extras=event.extras)
        else:
            yield PartEnd(index=number, extras=event.extras)
            yield from self._carry(opened.choice, replace(state, call=call))

    def _end_turns(self) -> Iterator[Event]:
        """Carries thoughts that no call follows at the end. Gemini itself ends an answer with a signed empty text."""
        for choice, turn in self._turns.items():
            if self._slots.kind == "parts" and turn.waiting:
                seal = self._wrap(CarriedState(thoughts=tuple(turn.waiting)))
                yield from self._add(choice, Text(text="", seal=seal))

    def _carry(self, choice: int, state: CarriedState) -> Iterator[Event]:
        """A thought without words that has a value."""
        slots, extras = self._slots, {}
        if slots.kind == "details":
            turn = self._turns[choice]
            extras = {slots.dialect: {"~index": turn.details, "format": "unknown"}}
            turn.details += 1
        seal = self._wrap(state, slots.wordless_form)
        yield from self._add(choice, Reasoning(text="", seal=seal, extras=extras))

    def _add(self, choice: int, part: Part) -> Iterator[Event]:
        index, self._next, self._same = self._next, self._next + 1, False
        yield PartStart(index=index, choice=choice, part=part)
        yield PartEnd(index=index)

    def _wrap(self, state: CarriedState, form: str = "") -> Seal:
        return Seal(origin=self._slots.dialect, value=wrap_state(state, self._key), form=form or self._slots.form)

    def _note_loss(self, seal: Seal, event: PartStart | PartEnd) -> None:
        if self._notes is not None:
            choice = event.choice if isinstance(event, PartStart) else 0
            part = (((((ROOT, "choices"), choice), "parts"), self._numbers.get(event.index, event.index)), "seal")
            self._notes.dropped(part, f"only {seal.origin} can read its {seal.form}, and does not demand it here")

    def _is_native(self, seal: Seal | None) -> bool:
        return seal is not None and seal.origin == self._slots.dialect

    def _own(self, extras: Extras) -> Extras:
        own = self._slots.dialect
        return {own: extras[own]} if own in extras else {}

    def _whole(self, thought: _Thought, end: PartEnd) -> Reasoning:
        part, extras = thought.part, merge_extras(thought.part.extras, end.extras)
        seal = end.seal or part.seal
        theirs = {name: keys for name, keys in extras.items() if name != self._slots.dialect}
        return replace(part, text="".join(thought.texts), seal=seal and self._stamp(seal), extras=theirs)

    def _stamp(self, seal: Seal) -> Seal:
        return replace(seal, model=seal.model or self._source.model, upstream=seal.upstream or self._source.upstream)


def has_state(parts: Iterable[Part]) -> bool:
    """Whether there is a thought or a seal."""
    return any(type(part) is Reasoning or getattr(part, "seal", None) is not None for part in parts)


def carries_state(reply: Reply) -> bool:
    """Whether a whole answer has state that a client could keep."""
    for choice in reply.choices:
        for part in choice.parts:  # the code of `has_state`, repeated here to save a call
            if type(part) is Reasoning or getattr(part, "seal", None) is not None:
                return True
    return False


def carry_reply(reply: Reply, carrier: StateCarrier | SealDropper, notes: Notes) -> Reply:
    """A whole answer, with its state where the client keeps it."""
    if not carries_state(reply):  # fast path: no thoughts
        return reply
    carrier.note_in(notes)
    carried = fold(carrier.feed(list(unfold(reply))))
    return notes.stage(carried) if isinstance(carried, Reply) else reply
