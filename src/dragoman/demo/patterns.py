"""A short text that matches a regular expression, and a text for each format that JSON Schema names."""

import re

from dragoman.json_schema.check import find_violation
from dragoman.json_schema.clean import is_pattern

_MAX_CHARS = 4096

FORMAT_SAMPLES = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "/path",
    "iri": "https://example.com/",
    "iri-reference": "/path",
    "uri-template": "/path/{id}",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "^a$",
    "byte": "aGVsbG8=",
    "binary": "hello",
    "password": "secret",
}

_GUESSES = ("a", "A", "1", "abc", "ABC", "Abc1", "12345", "a-1", "a_b", "a.b", "/a", *FORMAT_SAMPLES.values())


def matches_pattern(pattern: str, text: str, *, if_unsure: bool = True) -> bool:
    """Whether the pattern matches somewhere in the text; `if_unsure` if only an engine that backtracks can tell."""
    if not is_pattern(pattern):
        return if_unsure
    return find_violation(text, {"pattern": pattern}) is None


def sample_pattern(pattern: str) -> str:
    """A text that the pattern matches; a guess if it uses look-around, back-references or other unknown syntax."""
    try:
        text = _PatternReader(pattern).read()
    except (IndexError, ValueError, RecursionError, StopIteration):
        text = ""
    if matches_pattern(pattern, text):
        return text
    return next((guess for guess in _GUESSES if matches_pattern(pattern, guess)), text)


_ESCAPES = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = "a1A_- .:/@#" + "".join(map(chr, range(33, 127))) + "\t\n é가"


class _PatternReader:
    """Reads a regular expression and writes a short text that it matches."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0

    def read(self) -> str:
        return self._read_alternatives()

    def _peek(self) -> str:
        return self._source[self._position] if self._position < len(self._source) else ""

    def _next(self) -> str:
        self._position += 1
        return self._source[self._position - 1]

    def _read_alternatives(self) -> str:
        alternatives = [self._read_sequence()]
        while self._peek() == "|":
            self._next()
            alternatives.append(self._read_sequence())
        return alternatives[0]

    def _read_sequence(self) -> str:
        pieces: list[str] = []
        while self._peek() not in ("", "|", ")"):
            atom = self._read_atom()
            count = self._read_count()
            if len(atom) * count > _MAX_CHARS:
                raise ValueError("too long")
            pieces.append(atom * count)
        return "".join(pieces)

    def _read_atom(self) -> str:
        char = self._next()
        match char:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "(":
                return self._read_group()
            case "[":
                return self._read_class()
            case "\\":
                return self._read_escape()
            case _:
                return char

    def _read_group(self) -> str:
        is_lookaround = False
        if self._peek() == "?":
            head = re.compile(r"\?(?::|P?<\w+>|<?[=!]|[a-z]+:)").match(self._source, self._position)
            if head is None:
                raise ValueError("an unknown group")
            self._position = head.end()
            is_lookaround = head.group() in ("?!", "?<=", "?<!")  # what `(?=.*\d)` looks for is added to the text
        text = self._read_alternatives()
        self._next()  # the closing bracket
        return "" if is_lookaround else text

    def _read_escape(self) -> str:
        char = self._next()
        if char in "bBAZz":
            return ""
        if char in "xu":
            code = re.compile(r"\{?([0-9a-fA-F]{2,6})\}?").match(self._source, self._position)
            if code is None:
                raise ValueError("an escape without its code")
            width = 2 if char == "x" else len(code.group(1)[:4])
            self._position += width
            return chr(int(code.group(1)[:width], 16))
        if char.isdigit() or char in "pPk":
            raise ValueError("a reference or a property")
        return _ESCAPES.get(char, char)

    def _read_class(self) -> str:
        start = self._position - 1
        if self._peek() == "^":
            self._next()
        if self._peek() == "]":
            self._next()
        while self._peek() != "]":
            if self._next() == "\\":
                self._next()
        self._next()
        letters = self._source[start : self._position]
        return next(char for char in _PRINTABLE if matches_pattern(f"^{letters}$", char, if_unsure=False))

    def _read_count(self) -> int:
        char = self._peek()
        count = 1
        if char in ("*", "?"):
            self._next()
            count = 0 if char == "?" else 1
        elif char == "+":
            self._next()
        elif char == "{":
            bounds = re.compile(r"\{(\d*)(,?)(\d*)\}").match(self._source, self._position)
            if bounds is None:
                return 1
            self._position = bounds.end()
            count = int(bounds.group(1) or 0)
            if count == 0 and bounds.group(3) != "0":
                count = 1
        else:
            return 1
        if self._peek() in ("?", "+"):  # lazy or possessive: the same text
            self._next()
        return count
