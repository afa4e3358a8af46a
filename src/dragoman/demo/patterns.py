"""Text for a regular expression or a named format: the shortest usual thing it allows."""

import re

LONGEST = 4096
_LONGEST_SEARCHED = 64  # patterns are strangers' text: what could take for ever is not tried
_MOST_REPEATS = 4

FORMATS = {
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

_GUESSES = ("a", "A", "1", "abc", "ABC", "Abc1", "12345", "a-1", "a_b", "a.b", "/a", *FORMATS.values())


def finds(pattern: str, text: str, *, unsure: bool = True) -> bool:
    """Whether the pattern finds something in the text; `unsure` where we cannot or would rather not tell."""
    if len(text) > _LONGEST_SEARCHED or _is_risky(pattern):
        return unsure
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return unsure  # regular expressions of another kind than ours


def _is_risky(pattern: str) -> bool:
    """Repeats inside repeats, or many of them in a row, may take for ever on the wrong text."""
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "a", pattern)  # without escapes and classes
    groups, repeats = [False], 0
    for i, sign in enumerate(plain):
        if sign == "(":
            groups.append(False)
        elif sign in "*+{":
            groups[-1] = True
            repeats += 1
        elif sign == "|":
            groups[-1] = True
        elif sign == ")" and len(groups) > 1:
            busy = groups.pop()
            if busy and plain[i + 1 : i + 2] in ("*", "+", "{"):
                return True
            groups[-1] = groups[-1] or busy
    return repeats > _MOST_REPEATS


def sample_pattern(pattern: str) -> str:
    """A text that the pattern finds; a guess where it uses what we do not read (look-around, back-references)."""
    try:
        text = _Pattern(pattern).text()
    except (IndexError, ValueError, RecursionError, StopIteration):
        text = ""
    if finds(pattern, text):
        return text
    return next((guess for guess in _GUESSES if finds(pattern, guess)), text)


_CLASSES = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = "a1A_- .:/@#" + "".join(map(chr, range(33, 127))) + "\t\n é가"


class _Pattern:
    """Reads a regular expression and says the shortest usual thing it allows."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def text(self) -> str:
        return self._alternatives()

    def _peek(self) -> str:
        return self._source[self._at] if self._at < len(self._source) else ""

    def _next(self) -> str:
        self._at += 1
        return self._source[self._at - 1]

    def _alternatives(self) -> str:
        ways = [self._sequence()]
        while self._peek() == "|":
            self._next()
            ways.append(self._sequence())
        return ways[0]

    def _sequence(self) -> str:
        made: list[str] = []
        while self._peek() not in ("", "|", ")"):
            atom = self._atom()
            count = self._count()
            if len(atom) * count > LONGEST:
                raise ValueError("too long")
            made.append(atom * count)
        return "".join(made)

    def _atom(self) -> str:
        sign = self._next()
        match sign:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "(":
                return self._group()
            case "[":
                return self._one_of()
            case "\\":
                return self._escape()
            case _:
                return sign

    def _group(self) -> str:
        silent = False
        if self._peek() == "?":
            head = re.compile(r"\?(?::|P?<\w+>|<?[=!]|[a-z]+:)").match(self._source, self._at)
            if head is None:
                raise ValueError("an unknown group")
            self._at = head.end()
            silent = head.group() in ("?=", "?!", "?<=", "?<!")
        text = self._alternatives()
        self._next()  # the closing bracket
        return "" if silent else text

    def _escape(self) -> str:
        sign = self._next()
        if sign in "bBAZz":
            return ""
        if sign in "xu":
            code = re.compile(r"\{?([0-9a-fA-F]{2,6})\}?").match(self._source, self._at)
            if code is None:
                raise ValueError("an escape without its code")
            width = 2 if sign == "x" else len(code.group(1)[:4])
            self._at += width
            return chr(int(code.group(1)[:width], 16))
        if sign.isdigit() or sign in "pPk":
            raise ValueError("a reference or a property")
        return _CLASSES.get(sign, sign)

    def _one_of(self) -> str:
        start = self._at - 1
        if self._peek() == "^":
            self._next()
        if self._peek() == "]":
            self._next()
        while self._peek() != "]":
            if self._next() == "\\":
                self._next()
        self._next()
        found = re.compile(self._source[start : self._at].replace("[[", "[\\["))
        return next(sign for sign in _PRINTABLE if found.match(sign))

    def _count(self) -> int:
        sign = self._peek()
        least = 1
        if sign in ("*", "?"):
            self._next()
            least = 0 if sign == "?" else 1
        elif sign == "+":
            self._next()
        elif sign == "{":
            bounds = re.compile(r"\{(\d*)(,?)(\d*)\}").match(self._source, self._at)
            if bounds is None:
                return 1
            self._at = bounds.end()
            least = int(bounds.group(1) or 0)
            if least == 0 and bounds.group(3) != "0":
                least = 1
        else:
            return 1
        if self._peek() in ("?", "+"):  # lazy or possessive: the same text
            self._next()
        return least
