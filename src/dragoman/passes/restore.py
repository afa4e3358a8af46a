"""The way back: a reply as the client asked for it, not as the target could be asked.

`Restorer` works on events and on whole replies, and both come out the same: fold(restored events) is the restored
reply of the folded events.
"""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd
from dragoman.model.messages import Part, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.passes.emulate import INPUT, Undo
from dragoman.passes.rename import restore_call

Index: TypeAlias = int


def unwrap_input(arguments: str) -> str:
    """The free text in the arguments of an emulated freeform call; as they are if the model did not follow."""
    try:
        value = load_json(arguments)
    except DecodeError:
        return arguments
    if isinstance(value, dict) and isinstance(value.get(INPUT), str):
        found: str = value[INPUT]
        return found
    return arguments


def find_stop(text: str, stops: tuple[str, ...]) -> tuple[int, str] | None:
    """Where the first stop sequence begins, and which."""
    found = [(place, stop) for stop in stops if (place := text.find(stop)) >= 0]
    return min(found, key=lambda pair: (pair[0], -len(pair[1]))) if found else None


def held_back(text: str, stops: tuple[str, ...]) -> int:
    """How many last characters may be the beginning of a stop sequence."""
    longest = max(len(stop) for stop in stops) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return size
    return 0


class Restorer:
    """Events in, events out; `stopped` tells that no more text is wanted from upstream."""

    def __init__(self, undo: Undo) -> None:
        self.undo = undo
        self.seen: dict[int, set[str]] = {}  # choice -> ids of its calls
        self.calls: dict[int, set[Index]] = {}  # choice -> real calls
        self.answers: set[int] = set()  # choices whose answer came as a call
        self.buffers: dict[Index, list[str]] = {}  # freeform calls on their way
        self.held: dict[Index, str] = {}  # text that may begin a stop sequence
        self.choice_of: dict[Index, int] = {}
        self.cut: dict[int, str] = {}  # choice -> the sequence it was cut at
        self.silent: set[Index] = set()

    @property
    def stopped(self) -> bool:
        return bool(self.cut)

    def feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartDelta():
                yield from self._delta(event)
            case PartStart():
                yield from self._start(event)
            case PartEnd():
                yield from self._end(event)
            case ReplyEnd():
                finishes = tuple(self._finish(f, i) for i, f in enumerate(event.finishes))
                yield event if finishes == event.finishes else replace(event, finishes=finishes)
            case _:
                yield event

    def _start(self, event: PartStart) -> Iterator[Event]:
        choice, part = event.choice, event.part
        self.choice_of[event.index] = choice
        if choice in self.cut:
            self.silent.add(event.index)
            return
        if isinstance(part, ToolCall):
            yield from self._start_call(event, part)
        elif isinstance(part, Text) and self.undo.stops:
            self.held[event.index] = ""
            yield replace(event, part=replace(part, text=""))
            yield from self._text(PartDelta(index=event.index, text=part.text))
        else:
            yield event

    def _start_call(self, event: PartStart, part: ToolCall) -> Iterator[Event]:
        choice = event.choice
        if part.name == self.undo.json_tool:
            self.answers.add(choice)
            yield replace(event, part=Text(text=part.arguments, seal=part.seal))
            return
        seen = self.seen.setdefault(choice, set())
        call = restore_call(part, self.undo.renames, seen)
        seen.add(call.id)
        self.calls.setdefault(choice, set()).add(event.index)
        if call.name in self.undo.custom:
            self.buffers[event.index] = [call.arguments]
            call = replace(call, freeform=True, arguments="")
        yield event if call is part else replace(event, part=call)

    def _delta(self, event: PartDelta) -> Iterator[Event]:
        if event.index in self.silent:
            return
        buffer = self.buffers.get(event.index)
        if buffer is not None:
            buffer.append(event.text)
        elif event.index in self.held:
            yield from self._text(event)
        else:
            yield event

    def _text(self, event: PartDelta) -> Iterator[Event]:
        stops = self.undo.stops
        text = self.held[event.index] + event.text
        found = find_stop(text, stops)
        if found is not None:
            place, stop = found
            self.cut[self.choice_of[event.index]] = stop
            self.silent.add(event.index)
            self.held[event.index] = ""
            if text[:place]:
                yield PartDelta(index=event.index, text=text[:place])
            yield PartEnd(index=event.index)
            return
        kept = held_back(text, stops)
        self.held[event.index] = text[len(text) - kept :]
        said = text[: len(text) - kept]
        if said or event.citations or event.logprobs is not None:
            yield replace(event, text=said)

    def _end(self, event: PartEnd) -> Iterator[Event]:
        if event.index in self.silent:
            return
        buffer = self.buffers.pop(event.index, None)
        if buffer is not None:
            text = unwrap_input("".join(buffer))
            if text:
                yield PartDelta(index=event.index, text=text)
        held = self.held.pop(event.index, "")
        if held:
            yield PartDelta(index=event.index, text=held)
        yield event

    def _finish(self, finish: Finish | None, choice: int) -> Finish | None:
        if choice in self.cut:
            return Finish(reason="sequence", sequence=self.cut[choice])
        if finish is not None and finish.reason == "tool_call" and choice in self.answers and choice not in self.calls:
            return Finish(reason="stop")
        return finish


def restore(reply: Reply, undo: Undo) -> Reply:
    """A whole reply, as the client asked for it."""
    if undo.is_nothing():
        return reply
    choices = tuple(_restore_choice(choice, undo) for choice in reply.choices)
    if all(a is b for a, b in zip(choices, reply.choices, strict=True)):
        return reply
    return replace(reply, choices=choices)


def _restore_choice(choice: Choice, undo: Undo) -> Choice:
    seen: set[str] = set()
    parts: list[Part] = []
    finish, answered, called = choice.finish, False, False
    for part in choice.parts:
        if isinstance(part, ToolCall) and part.name == undo.json_tool:
            answered = True
            parts.append(Text(text=part.arguments, seal=part.seal))
            continue
        if isinstance(part, ToolCall):
            called = True
            call = restore_call(part, undo.renames, seen)
            seen.add(call.id)
            if call.name in undo.custom:
                call = replace(call, freeform=True, arguments=unwrap_input(call.arguments))
            parts.append(call)
            continue
        found = find_stop(part.text, undo.stops) if undo.stops and isinstance(part, Text) else None
        if found is not None and isinstance(part, Text):
            parts.append(replace(part, text=part.text[: found[0]]))
            finish = Finish(reason="sequence", sequence=found[1])
            break
        parts.append(part)
    else:
        if finish is not None and finish.reason == "tool_call" and answered and not called:
            finish = Finish(reason="stop")
    same = len(parts) == len(choice.parts) and all(a is b for a, b in zip(parts, choice.parts, strict=True))
    return choice if same and finish is choice.finish else replace(choice, parts=tuple(parts), finish=finish)
