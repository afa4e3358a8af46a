"""Finds and checks JSON in the answers of targets that do not guarantee JSON and were only asked for it.

Models put text around it ("Here you are: ```json ..."). `JsonText` finds the JSON while the text arrives, so that a
streamed answer and a whole one are read alike.
"""

import re

from msgspec.structs import replace

from dragoman.errors import DecodeError
from dragoman.json_schema.check import find_violation
from dragoman.jsontypes import load_json
from dragoman.model.messages import Message, Text
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.passes.emulate import Expected

MOST_PLACES = 50  # where the JSON in a text may begin, tried in turn

_BEGINS = re.compile(r"\s*(```[ \t]*[\w+-]*\s*)?(?=\{|\[\s*[\[{\"\-0-9tfn\]])")  # "[Note]" is prose
_MARKS = re.compile(r'["\\{}\[\]]')
_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)
_OPEN = re.compile(r"[\[{]")


def judge(text: str, expected: Expected) -> str | None:
    """Why a text is not the JSON that was expected; None if it is."""
    try:
        value = load_json(text)
    except DecodeError:
        return "it is not JSON"
    violation = find_violation(value, expected.schema) if expected.schema is not None else None
    return None if violation is None else str(violation)


def ask_again(request: Request, reply: Reply, why: str) -> Request | None:
    """The request with the wrong answer and our complaint as new turns; None if that cannot be asked."""
    if not request.messages or request.messages[-1].role != "user" or len(reply.choices) != 1:
        return None
    text = "".join(part.text for part in reply.choices[0].parts if isinstance(part, Text))
    if not text.strip():
        return request
    answer = Message(role="assistant", parts=(Text(text=text.rstrip()),))
    correction = f"{why[:1].upper()}{why[1:]}. Give the whole answer again, right this time."
    return replace(request, messages=(*request.messages, answer, Message(role="user", parts=(Text(text=correction),))))


class _Nesting:
    """Where a JSON object or list ends, in a text that comes in pieces."""

    def __init__(self) -> None:
        self.depth, self.inside, self.escaped = 0, False, False

    def find_end(self, text: str) -> int | None:
        """The position behind its last character; None while that has not arrived."""
        start = 1 if self.escaped and text else 0
        self.escaped = self.escaped and not text
        for mark in _MARKS.finditer(text, start):
            if mark.start() < start:
                continue
            char = mark.group()
            if char == "\\":
                start = mark.start() + 2  # what follows is escaped
                self.escaped = start > len(text)
            elif char == '"':
                self.inside = not self.inside
            elif not self.inside:
                self.depth += 1 if char in "{[" else -1
                if self.depth <= 0:
                    return mark.end()
        return None


class JsonText:
    """The JSON in a text that comes in pieces; all of the text if there is none. `around`: something was left out."""

    def __init__(self) -> None:
        self.around = False
        self._held = ""  # not known yet to be JSON
        self._nesting: _Nesting | None = None
        self._ended = False

    def feed(self, text: str) -> str:
        """The text that is now known to belong to the JSON."""
        if self._ended:
            self.around = self.around or bool(text.strip())
            return ""
        if self._nesting is None:
            self._held += text
            begin = _BEGINS.match(self._held)
            if begin is None:
                return ""
            self.around = begin[1] is not None
            text, self._held = self._held[begin.end() :], ""
            self._nesting = _Nesting()
        end = self._nesting.find_end(text)
        if end is None:
            return text
        self._ended = True
        self.around = self.around or bool(text[end:].strip())
        return text[:end]

    def close(self) -> str:
        """The rest of the JSON; the whole text if there is no JSON in it."""
        held, self._held = self._held, ""
        if not held:
            return ""
        found = _find_json(held)
        self.around = found is not None and found != held.strip()
        return held if found is None else found


def _find_json(text: str) -> str | None:
    """The JSON in a text that does not begin with an object: alone, in a fence, or among prose."""
    whole = text.strip()
    if _is_json(whole):
        return whole
    for fence in _FENCE.finditer(text):
        if _is_json(inner := fence.group(1).strip()):
            return inner
    for count, place in enumerate(_OPEN.finditer(text)):
        end = _Nesting().find_end(text[place.start() :]) if count < MOST_PLACES else None
        if end is not None and _is_json(found := text[place.start() : place.start() + end]):
            return found
    return None


def _is_json(text: str) -> bool:
    try:
        load_json(text)
    except DecodeError:
        return False
    return True
