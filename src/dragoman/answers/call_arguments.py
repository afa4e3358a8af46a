"""Checks the arguments of new calls. They are one whole JSON object, or the client is told not to run the call.

Servers that read calls out of a model's text lose a closing brace, give the object twice, or wrap it in a string or a
code fence. Where only one reading is possible, the arguments are repaired. Where it is not, the answer ends as
`malformed`: every dialect then says that it was cut off, and clients do not run a call that was cut off.
A streamed answer and a whole one come out alike: the text goes on as it comes, as long as it may still be an object.
A letter that no JSON has there ends it.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_text, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, TextRun
from dragoman.model.fold import StartedParts
from dragoman.model.messages import RAW, ToolCall
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.notes import ROOT, At, Notes

CALLED = ("tool_call", "stop", "other")  # ends after which a client runs the calls

CLOSED = "its closing brackets were missing"
TWICE = "the same object was given twice"
WRAPPED = "an object inside a string"
FENCED = "an object inside a code fence"
NULL = "null for no arguments"
EMPTY = "no text at all for no arguments: most clients read it as JSON"
BROKEN = "not a JSON object: the answer ends as malformed, so that no client runs the call"
MORE = "more than one object: the first is kept, and the answer ends as malformed"
NOT_OBJECT = f"not a JSON object: kept under {RAW}, and the answer ends as malformed"

# Brackets, quotes, and any letter that JSON has only inside strings. Clients that read arguments while they come
# (Anthropic's SDK) raise at such a letter, so it is not handed on.
_MARK = re.compile(r'["{}\[\]]|[^\s,:0-9eE+\-.truefalsn]')
_IN_STRING = re.compile(r'["\\]')
_FENCE = re.compile(r"```[a-zA-Z]*\s*(\{.*\})\s*```", re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}
_BRACKETS = "{}[]"
# A number at the very end may go on: `{"n": 1` may have been 12.
_ENDS_WHOLE = ('"', "}", "]", "true", "false", "null")


class CallText:
    """The arguments of one call while they arrive. `feed` and `close` return the text for the client."""

    __slots__ = ("_ended", "_escaped", "_extra", "_held", "_in_string", "_open", "_pieces", "whole", "why", "wrong")

    def __init__(self) -> None:
        self.why: str | None = None  # what was wrong
        self.whole = True  # False: the call must not run
        self._pieces: list[str] = []  # handed on
        self._held: list[str] | None = []  # until it is clear that it begins as an object
        self._extra: list[str] = []  # what came after the object
        self._open: list[str] = []  # brackets that are still to be closed
        self._in_string = self._escaped = self._ended = False
        self.wrong = False  # a letter came that cannot stand there

    def feed(self, text: str) -> str:
        if self._held is not None:
            self._held.append(text)
            begun = "".join(self._held)
            if not begun.lstrip().startswith("{"):
                return ""
            self._held, text = None, begun
        if self._ended:
            self._extra.append(text)
            return ""
        end = self._scan(text)
        if end < len(text):
            self._extra.append(text[end:])
            text = text[:end]
        self._pieces.append(text)
        return text

    def take(self, text: str) -> bool:
        """The same for text that goes on as it is, and does not end the object. False: it is for `feed`."""
        if self._held is not None or self._ended:
            return False
        if not self._in_string or self._escaped or '"' in text or "\\" in text:
            before = list(self._open), self._in_string, self._escaped
            self._scan(text)
            if not self.is_cut():
                self._open, self._in_string, self._escaped = before
                self._ended = self.wrong = False
                return False
        self._pieces.append(text)
        return True

    def close(self) -> str:
        """The text that is still missing for the client, once no more arrives."""
        if self._held is not None:
            return self._read_other("".join(self._held))
        text, extra = "".join(self._pieces), "".join(self._extra)
        if self.wrong:
            self.why, self.whole = BROKEN, False
            return ""
        if not self._ended:
            return self._close_brackets(text)
        if not _is_object(text):
            self.why, self.whole = BROKEN, False
        elif extra.strip() and text.strip().startswith(extra.strip()):
            self.why = TWICE
        elif extra.strip():
            self.why, self.whole = MORE, False
        return extra if not extra.strip() else ""

    def is_cut(self) -> bool:
        """Whether `close` would add text, or find that the arguments are broken."""
        return not self._ended

    def _scan(self, text: str) -> int:
        """Follows the brackets. Returns where the object ends, or the length of the text."""
        place, size = 0, len(text)
        while place < size:
            if self._escaped:
                self._escaped, place = False, place + 1
                continue
            match = (_IN_STRING if self._in_string else _MARK).search(text, place)
            if match is None:
                return size
            mark, place = match[0], match.end()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark not in _BRACKETS and mark != "\\":
                self._ended = self.wrong = True
                return place - 1
            elif mark == "\\":
                self._escaped = True
            elif mark in _CLOSERS:
                self._open.append(_CLOSERS[mark])
            else:
                self._open.pop()
                if not self._open:
                    self._ended = True
                    return place
        return size

    def _close_brackets(self, text: str) -> str:
        missing = "".join(reversed(self._open))
        if not self._in_string and text.rstrip().endswith(_ENDS_WHOLE) and _is_object(text + missing):
            self.why = CLOSED
            return missing
        self.why, self.whole = BROKEN, False
        return ""

    def _read_other(self, text: str) -> str:
        """The arguments in a text that does not begin as an object. Many models write nothing for no arguments."""
        value = _load(text)
        if text.strip() in ("", "null"):
            self.why = NULL if text.strip() else EMPTY
            return "{}"
        inner = value if type(value) is str else None
        if inner is not None and _is_object(inner):
            self.why = WRAPPED
            return inner
        fenced = _FENCE.fullmatch((text if inner is None else inner).strip())
        if fenced is not None and _is_object(fenced[1]):
            self.why = FENCED
            return fenced[1]
        self.why, self.whole = NOT_OBJECT, False
        return dump_text({RAW: text})


def _load(text: str) -> object:
    try:
        return load_json(text)
    except DecodeError:
        return None


def _is_object(text: str) -> bool:
    return type(_load(text)) is dict


# ---------------------------------------------------------------------- whole answers


def has_calls(reply: Reply) -> bool:
    for choice in reply.choices:
        for part in choice.parts:
            if type(part) is ToolCall:
                return True
    return False


def mend_calls(reply: Reply, notes: Notes) -> Reply:
    """A whole answer with repaired arguments; the same object if nothing was broken."""
    if not has_calls(reply):
        return reply
    choices = [
        _mend_choice(choice, ((ROOT, "choices"), i), notes)
        if any(type(part) is ToolCall for part in choice.parts)
        else choice
        for i, choice in enumerate(reply.choices)
    ]
    same = all(a is b for a, b in zip(choices, reply.choices, strict=True))
    return reply if same else replace(reply, choices=tuple(choices))


def _mend_choice(choice: Choice, at: At, notes: Notes) -> Choice:
    changed: dict[int, ToolCall] = {}
    whole = True
    for j, part in enumerate(choice.parts):
        if type(part) is not ToolCall or part.freeform or _is_object(part.arguments):
            continue
        text = CallText()
        arguments = text.feed(part.arguments) + text.close()
        if text.why is not None:
            _note(text, ((at, "parts"), j), notes)
        if arguments != part.arguments:
            changed[j] = replace(part, arguments=arguments)
        whole = whole and text.whole
    if changed:
        choice = replace(choice, parts=tuple(changed.get(j, part) for j, part in enumerate(choice.parts)))
    finish = choice.finish if whole else _end_as_malformed(choice.finish, at, notes)
    return choice if finish is choice.finish else replace(choice, finish=finish)


def _note(text: CallText, at: At, notes: Notes) -> None:
    (notes.repaired if text.whole else notes.altered)((at, "arguments"), text.why or "")


def _end_as_malformed(finish: Finish | None, at: At, notes: Notes) -> Finish | None:
    if finish is None or finish.reason not in CALLED:
        return finish
    notes.altered((at, "finish"), "a tool call is incomplete, so the answer must not end as a complete one")
    return Finish(reason="malformed")


# ---------------------------------------------------------------------- streams


class _StreamedCall(NamedTuple):
    text: CallText
    choice: int
    number: int  # among the parts of its choice


class CallMender:
    """The same for the events of a stream, from its first call on. `started`: the parts before that call."""

    def __init__(self, notes: Notes, started: StartedParts) -> None:
        self._notes = notes
        self._calls: dict[int, _StreamedCall] = {}  # by the index of the part
        self._parts = {i: len(choice.parts) for i, choice in enumerate(started.choices)}  # how many each choice has
        self._broken: set[int] = set()  # choices with a call that must not run
        self.changed = False  # some text was not handed on as it came

    def feed(self, events: list[Event]) -> list[Event]:
        return [out for event in events for out in self._feed(event)]

    def find_check(self, index: int) -> Callable[[str], bool] | None:
        """Checks the next texts of a part, as long as it says True. None if its texts need no check."""
        call = self._calls.get(index)
        return None if call is None else call.text.take

    def takes(self, run: TextRun) -> bool:
        """Whether a run of deltas goes on as it is. If not, nothing has been done with it."""
        call = self._calls.get(run.index)
        return call is None or call.text.take(run.text)

    def _feed(self, event: Event) -> Iterable[Event]:
        match event:
            case TextRun():
                return (event,) if self.takes(event) else self.feed([*event.spread()])
            case PartDelta():
                call = self._calls.get(event.index)
                return (event,) if call is None else self._grow(event, call.text.feed(event.text))
            case PartStart():
                return (self._start(event),)
            case PartEnd() if event.index in self._calls:
                return self._end(event)
            case ReplyEnd() if self._broken:
                return (self._finish(event),)
            case _:
                return (event,)

    def is_cut(self) -> bool:
        """Whether an open call would be incomplete if no more text came."""
        return any(call.text.is_cut() for call in self._calls.values())

    def _grow(self, event: PartDelta, text: str) -> tuple[Event, ...]:
        """The delta with this text; no event if the text is empty."""
        if text == event.text:
            return (event,)
        self.changed = True
        if not text and event.logprobs is None and not event.citations:
            return ()
        return (replace(event, text=text),)

    def _start(self, event: PartStart) -> PartStart:
        number = self._parts.get(event.choice, 0)
        self._parts[event.choice] = number + 1
        part = event.part
        if type(part) is not ToolCall or part.freeform:
            return event
        text = CallText()
        self._calls[event.index] = _StreamedCall(text, event.choice, number)
        arguments = text.feed(part.arguments) if part.arguments else ""
        return event if arguments == part.arguments else replace(event, part=replace(part, arguments=arguments))

    def _end(self, event: PartEnd) -> tuple[Event, ...]:
        text, choice, number = self._calls.pop(event.index)
        rest = text.close()
        self.changed = self.changed or text.why is not None or bool(rest)
        if text.why is not None:
            _note(text, ((((ROOT, "choices"), choice), "parts"), number), self._notes)
        if not text.whole:
            self._broken.add(choice)
        return (PartDelta(index=event.index, text=rest), event) if rest else (event,)

    def _finish(self, event: ReplyEnd) -> ReplyEnd:
        finishes = list(event.finishes)
        for number in self._broken & set(range(len(finishes))):
            finishes[number] = _end_as_malformed(finishes[number], ((ROOT, "choices"), number), self._notes)
        return replace(event, finishes=tuple(finishes))
