"""Reasoning state on its way back: the next request of a client has it in opaque values, where carry.py put it."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from dragoman.model.messages import Message, Part, Reasoning, Seal, Text, ToolCall
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes
from dragoman.reasoning_state.carry import StateSlots, TurnProgress
from dragoman.reasoning_state.envelope import CarriedState, StateKey, is_wrapped, unwrap_state


def take_back_state(request: Request, slots: StateSlots, key: StateKey, notes: Notes) -> Request:
    """The request with the state that its client brought back; the same object if there is none."""
    if not _any_carrier(request.messages):  # fast path: no state brought back
        return request
    messages = list(request.messages)
    changed = False
    for first, last in _assistant_runs(request.messages):
        if any(_is_carrier(part) for message in messages[first:last] for part in message.parts):
            messages[first:last] = _restore_run(messages[first:last], first, slots, key, notes)
            changed = True
    return replace(request, messages=tuple(m for m in messages if m is not _GONE)) if changed else request


_GONE = Message(role="assistant", parts=())  # stands for a message that only carried state


def _assistant_runs(messages: tuple[Message, ...]) -> Iterator[tuple[int, int]]:
    """Neighbouring messages of the assistant are one turn."""
    first = 0
    for i in range(len(messages) + 1):
        if i == len(messages) or messages[i].role != "assistant":
            if i > first:
                yield first, i
            first = i + 1


def _any_carrier(messages: tuple[Message, ...]) -> bool:
    for message in messages:
        if message.role == "assistant":
            for part in message.parts:
                if getattr(part, "seal", None) is not None and _is_carrier(part):
                    return True
    return False


def _is_carrier(part: Part) -> bool:
    seal = getattr(part, "seal", None)
    return seal is not None and is_wrapped(seal.value)


def _restore_run(run: list[Message], first: int, slots: StateSlots, key: StateKey, notes: Notes) -> list[Message]:
    """The messages of one turn, restored."""
    calls: dict[str, Seal] = {}
    restored = []
    for i, message in enumerate(run, first):
        at: At = (((ROOT, "messages"), i), "parts")
        turn = _Restored(slots, key, at, notes, calls)
        for j, part in enumerate(message.parts):
            turn.take(part, j)
        parts = turn.finish()
        restored.append(replace(message, parts=parts) if parts or not message.parts else _GONE)
    if calls:
        restored = [_seal_calls(message, calls) for message in restored]
    return restored


def _seal_calls(message: Message, calls: dict[str, Seal]) -> Message:
    parts = tuple(
        replace(part, seal=calls[part.id]) if type(part) is ToolCall and part.id in calls else part
        for part in message.parts
    )
    return replace(message, parts=parts) if parts != message.parts else message


class _Restored:
    """The parts of one message, restored."""

    def __init__(self, slots: StateSlots, key: StateKey, at: At, notes: Notes, calls: dict[str, Seal]) -> None:
        self._in_place = slots.kind == "thoughts"
        self._key, self._at, self._notes = key, at, notes
        self._calls = calls  # id -> seal, for the whole turn
        self._parts: list[Part] = []
        self._placed: list[tuple[int, Reasoning]] = []
        self._shown: set[int] = set()  # thoughts that the client brought back as it was shown them
        self._text: Seal | None = None

    def take(self, part: Part, number: int) -> None:
        seal = getattr(part, "seal", None)
        if seal is None or not is_wrapped(seal.value):
            if type(part) is Reasoning and seal is None:
                self._shown.add(len(self._parts))
            self._parts.append(part)
            return
        state = unwrap_state(seal.value, self._key)
        if state is None:
            why = "reasoning state that is damaged, or was made for another key"
            self._notes.dropped(((self._at, number), "seal"), why)
            if type(part) is not Reasoning or part.text:
                self._parts.append(replace(part, seal=None))
        elif type(part) is Reasoning:
            self._take_thought(state)
        else:
            self._placed += state.thoughts
            if not (type(part) is Text and not part.text and state.seal is None):  # it only carried thoughts
                self._parts.append(replace(part, seal=state.seal))

    def _take_thought(self, state: CarriedState) -> None:
        if self._in_place:
            self._parts += [thought for _, thought in state.thoughts]
        else:
            self._placed += state.thoughts
        if state.call is not None and state.seal is not None:
            self._calls[state.call] = state.seal
        elif state.seal is not None:
            self._text = state.seal

    def finish(self) -> tuple[Part, ...]:
        parts = self._parts
        if self._placed:
            parts = place_thoughts([p for i, p in enumerate(parts) if i not in self._shown], self._placed)
        if self._text is not None:
            parts = _seal_text(parts, self._text)
        return tuple(parts)


def place_thoughts(parts: list[Part], thoughts: Iterable[tuple[int, Reasoning]]) -> list[Part]:
    """The thoughts of a turn in their places among its parts."""
    waiting = sorted(thoughts, key=lambda placed: placed[0])
    turn = TurnProgress()
    done: list[Part] = []
    for part in parts:
        if type(part) is not Reasoning:
            before = turn.at
            turn.count(part)
            while waiting and waiting[0][0] <= before < turn.at:
                done.append(waiting.pop(0)[1])
        done.append(part)
    return done + [thought for _, thought in waiting]


def _seal_text(parts: list[Part], seal: Seal) -> list[Part]:
    place = next((i for i, part in enumerate(parts) if type(part) is Text), None)
    if place is None:
        return [*parts, Text(text="", seal=seal)]
    return [replace(part, seal=seal) if i == place else part for i, part in enumerate(parts)]
