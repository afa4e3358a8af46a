"""Undoes in a reply what the passes changed in the request: names, stop sequences, emulated JSON and tools.

The same code handles whole replies and streams (FIELD-CASES 144): a whole reply is turned into events, restored, and
folded again. A loss that the caller refuses raises LossError.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.answers.json_answers import JsonText, judge
from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, TextRun
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Refusal, Text, ToolCall
from dragoman.model.reply import Finish, Reply
from dragoman.notes import ROOT, Notes
from dragoman.passes.emulate import INPUT, WORD, Undo
from dragoman.passes.rename import Renames, rename_keys, undo_call_names, undo_reply_names

Index: TypeAlias = int


def undo_reply(reply: Reply, undo: Undo, notes: Notes) -> Reply:
    """A whole reply, as the client asked for it; the same object if it is that already."""
    if undo.is_nothing():  # fast path: nothing to undo
        return reply
    if undo.is_only_names():  # fast path: only names to undo
        return undo_reply_names(reply, undo.renames)
    restorer = StreamUndo(undo, notes)
    restored = fold([out for event in unfold(reply) for out in restorer.feed(event)])
    return restored if isinstance(restored, Reply) and restored != reply else reply


class StreamRenamer:
    """Gives calls the client's names. Most conversations with tools need only this, so it is quick."""

    def __init__(self, renames: Renames) -> None:
        self._renames = renames
        self._seen: dict[int, set[str]] = {}  # choice -> ids of its calls

    def feed_all(self, events: list[Event]) -> list[Event]:
        for i, event in enumerate(events):
            if type(event) is PartStart and type(event.part) is ToolCall:
                seen = self._seen.setdefault(event.choice, set())
                call = undo_call_names(event.part, self._renames, seen)
                seen.add(call.id)
                if call is not event.part:
                    events[i] = replace(event, part=call)
        return events


def unwrap_input(arguments: str) -> str:
    """The free text in the arguments of an emulated freeform call. The arguments themselves if they have another
    form."""
    try:
        value = load_json(arguments)
    except DecodeError:
        return arguments
    if isinstance(value, dict) and isinstance(value.get(INPUT), str):
        found: str = value[INPUT]
        return found
    return arguments


def unwrap_word(answer: str) -> str:
    """The word in an answer that is JSON. The answer itself if it has another form."""
    try:
        value = load_json(answer)
    except DecodeError:
        return answer
    word = value.get(WORD) if isinstance(value, dict) else value
    return word if isinstance(word, str) else answer


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


def _renamer(names: dict[str, str] | None) -> Callable[[str], str] | None:
    return partial(rename_keys, names=names) if names else None


class _ChoiceUndo:
    """One answer as far as it has come."""

    __slots__ = ("answer", "around", "called", "cut", "ids", "refused", "text")

    def __init__(self) -> None:
        self.ids: set[str] = set()  # of its calls
        self.called = False  # it has a call that the client has to run
        self.refused = False
        self.cut: str | None = None  # the sequence it was cut at
        self.text: list[str] = []  # its text, if it must be checked at the end
        self.answer: list[str] | None = None  # its text, if it came as the arguments of a call
        self.around = False  # something around the JSON was left out


class _Part:
    """A part whose text has to be changed before it goes to the client."""

    __slots__ = ("choice", "cuts", "finish", "held", "kept", "reader", "silent", "whole")

    def __init__(self, choice: _ChoiceUndo) -> None:
        self.choice = choice
        self.silent = False  # after the end of its choice
        self.cuts = False  # text that ends at a stop sequence
        self.held = ""  # text that may begin a stop sequence
        self.finish: Callable[[str], str] | None = None  # of what can only be put right when it is whole
        self.whole: list[str] = []
        self.reader: JsonText | None = None
        self.kept: list[str] | None = None  # collects its text, if it must be checked at the end


class StreamUndo:
    """Restores the events of a stream. `stopped`: no more text is needed from the upstream."""

    def __init__(self, undo: Undo, notes: Notes) -> None:
        self.undo, self.notes = undo, notes
        self._choices: dict[int, _ChoiceUndo] = {}
        self._parts: dict[Index, _Part] = {}

    @property
    def stopped(self) -> bool:
        return any(choice.cut is not None for choice in self._choices.values())

    def leaves(self, index: int) -> bool:
        """Whether the texts of this part, which has begun, stay as they are."""
        return index not in self._parts

    def feed(self, event: Event) -> Iterator[Event]:
        match event:
            case PartDelta():
                part = self._parts.get(event.index)
                if part is None:
                    yield event
                    return
                for delta in event.spread() if isinstance(event, TextRun) else (event,):
                    yield from self._delta(part, delta)
            case PartStart():
                yield from self._start(event)
            case PartEnd():
                part = self._parts.pop(event.index, None)
                yield from (event,) if part is None else self._end(part, event)
            case ReplyEnd():
                yield self._finish_all(event)
            case _:
                yield event

    # ------------------------------------------------------------ parts

    def _start(self, event: PartStart) -> Iterator[Event]:
        choice = self._choices.setdefault(event.choice, _ChoiceUndo())
        part = event.part
        if choice.cut is not None:
            self._parts[event.index] = silent = _Part(choice)
            silent.silent = True
        elif isinstance(part, ToolCall):
            yield from self._start_call(event, part, choice)
        elif isinstance(part, Text) and not self.undo.is_only_names():
            yield from self._start_text(event, part, choice)
        else:
            choice.refused = choice.refused or isinstance(part, Refusal)
            yield event

    def _start_text(self, event: PartStart, part: Text, choice: _ChoiceUndo) -> Iterator[Event]:
        self._parts[event.index] = growing = _Part(choice)
        growing.cuts = bool(self.undo.stops)
        growing.finish = self._answer_finisher(self.undo.renames.answer)
        if self.undo.expected is not None:
            growing.kept = choice.text
            growing.reader = JsonText() if self.undo.expected.loose else None
        yield replace(event, part=replace(part, text=""))
        yield from self._delta(growing, PartDelta(index=event.index, text=part.text))

    def _start_call(self, event: PartStart, part: ToolCall, choice: _ChoiceUndo) -> Iterator[Event]:
        if part.name == self.undo.json_tool:
            self._parts[event.index] = growing = _Part(choice)
            choice.answer = growing.kept = []
            growing.finish = self._answer_finisher(self.undo.renames.properties.get(part.name))
            yield replace(event, part=Text(text="", seal=part.seal))
            yield from self._say(growing, PartDelta(index=event.index, text=part.arguments))
            return
        call = undo_call_names(part, self.undo.renames, choice.ids)
        choice.ids.add(call.id)
        choice.called = True
        finish = self._finisher(call)
        if finish is not None:
            self._parts[event.index] = growing = _Part(choice)
            growing.finish = finish
            growing.whole.append(call.arguments)
            call = replace(call, freeform=call.name in self.undo.custom, arguments="")
        yield event if call is part else replace(event, part=call)

    def _answer_finisher(self, names: dict[str, str] | None) -> Callable[[str], str] | None:
        """The function that corrects the whole text of an answer; None if none is needed."""
        renamer = _renamer(names)
        if not self.undo.word:
            return renamer
        return unwrap_word if renamer is None else lambda text: unwrap_word(renamer(text))

    def _finisher(self, call: ToolCall) -> Callable[[str], str] | None:
        """The function that corrects the whole arguments of a call; None if none is needed."""
        if call.name in self.undo.custom:
            return unwrap_input
        return _renamer(self.undo.renames.properties.get(call.name))

    def _delta(self, part: _Part, event: PartDelta) -> Iterator[Event]:
        if part.cuts and not part.silent:
            yield from self._cut(part, event)
        elif not part.silent:
            yield from self._say(part, event)

    def _cut(self, part: _Part, event: PartDelta) -> Iterator[Event]:
        """Text up to a stop sequence. The last characters are held back if they may begin one."""
        text = part.held + event.text
        found = find_stop(text, self.undo.stops)
        if found is None:
            kept = held_back(text, self.undo.stops)
            part.held = text[len(text) - kept :]
            safe = text[: len(text) - kept]
            if safe or event.citations or event.logprobs is not None:
                yield from self._say(part, replace(event, text=safe))
            return
        place, part.choice.cut = found
        part.held = ""
        if text[:place]:
            yield from self._say(part, PartDelta(index=event.index, text=text[:place]))
        yield from self._end(part, PartEnd(index=event.index))
        part.silent = True

    def _say(self, part: _Part, event: PartDelta) -> Iterator[Event]:
        """Text that is now known to belong to the answer."""
        text = event.text if part.reader is None else part.reader.feed(event.text)
        if part.finish is not None:
            part.whole.append(text)
            text = ""
        elif part.kept is not None:
            part.kept.append(text)
        if text or event.citations or event.logprobs is not None:
            yield event if text == event.text else replace(event, text=text)

    def _end(self, part: _Part, event: PartEnd) -> Iterator[Event]:
        if part.silent:
            return
        if part.held:
            held, part.held = part.held, ""
            yield from self._say(part, PartDelta(index=event.index, text=held))
        rest = ""
        if part.reader is not None:
            rest = part.reader.close()
            part.choice.around = part.choice.around or part.reader.around
        if part.finish is not None:
            rest = part.finish("".join(part.whole) + rest)
        if part.kept is not None:
            part.kept.append(rest)
        if rest:
            yield PartDelta(index=event.index, text=rest)
        yield event

    # ------------------------------------------------------------ the end

    def _finish_all(self, event: ReplyEnd) -> ReplyEnd:
        finishes = tuple(self._finish(finish, i) for i, finish in enumerate(event.finishes))
        if self.undo.expected is not None:
            for i in sorted(self._choices.keys() | set(range(len(finishes)))):
                self._judge(i, finishes[i] if i < len(finishes) else None)
        return event if finishes == event.finishes else replace(event, finishes=finishes)

    def _finish(self, finish: Finish | None, number: int) -> Finish | None:
        choice = self._choices.get(number)
        if choice is None:
            return finish
        if choice.cut is not None:
            return Finish(reason="sequence", sequence=choice.cut)
        if finish is not None and finish.reason == "tool_call" and choice.answer is not None and not choice.called:
            return Finish(reason="stop")
        return finish

    def _judge(self, number: int, finish: Finish | None) -> None:
        """Notes an answer that breaks its form. One that was cut off, refused, or wants tools first is not judged."""
        choice = self._choices.get(number, _ChoiceUndo())
        if choice.around:
            self.notes.altered(((ROOT, "choices"), number), "the text around the JSON is left out")
        if self.undo.expected is None or choice.called or choice.refused:
            return
        if finish is not None and finish.reason not in ("stop", "other"):
            return
        text = "".join(choice.text if choice.answer is None else choice.answer)
        why = judge(dump_text({WORD: text}) if self.undo.word else text, self.undo.expected)
        if why is not None:
            self.notes.dropped(((ROOT, "choices"), number), f"the answer is not in the form that was asked for: {why}")
