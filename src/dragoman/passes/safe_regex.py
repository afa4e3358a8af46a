"""Patterns of other people's schemas, tried on other people's text: only if it surely ends soon.

Python's `re` tries all ways to match, and a pattern such as `(a+)+$` has more of them than there is time. A gateway
that checks answers must not hang on one, so a pattern whose cost cannot be told, or is too high, is not tried.
"""

import re
from functools import lru_cache
from math import log

from msgspec import Struct

MOST_TRIES = 5_000_000
MOST_WAYS = 200  # repetitions and options of one pattern
LONGEST = 1_000  # characters of a pattern
LONGEST_TEXT = 100_000

_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}")
_EXACT = re.compile(r"\{(\d+)\}")


class _Cost(Struct):
    """How many ways there are to try a pattern, or a group of it."""

    repeats: int = 0  # repetitions that compete for the same text
    options: int = 0  # pieces that may or may not be there
    nested: bool = False  # repetitions or choices within a repetition: their ways multiply with each character

    def is_bearable(self, length: int) -> bool:
        tries = self.repeats * log(length + 2) + self.options * log(2) + (length * log(3) if self.nested else 0)
        return tries <= log(MOST_TRIES)

    def add(self, other: "_Cost", times: int = 1) -> None:
        self.repeats += other.repeats * times
        self.options += other.options * times
        self.nested = self.nested or other.nested


def search(pattern: object, text: str) -> bool | None:
    """Whether a pattern is found in a text; None if that cannot be told."""
    known = _read(pattern) if isinstance(pattern, str) and len(text) <= LONGEST_TEXT else None
    if known is None:
        return None
    compiled, cost = known
    return compiled.search(text) is not None if cost.is_bearable(len(text)) else None


@lru_cache(512)
def _read(pattern: str) -> tuple[re.Pattern[str], _Cost] | None:
    if len(pattern) > LONGEST:
        return None
    try:
        compiled = re.compile(_as_python(pattern))
    except (re.error, OverflowError, RecursionError):
        return None
    cost = _count(pattern)
    cost.repeats += not pattern.startswith("^")  # it may begin anywhere
    return (compiled, cost) if cost.repeats + cost.options <= MOST_WAYS else None


def _as_python(pattern: str) -> str:
    """ECMAScript's `$` is the very end; Python's is before a last newline too."""
    return re.sub(r"(?<!\\)((?:\\\\)*)\$$", r"\1\\Z", pattern)


def _count(pattern: str) -> _Cost:
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    plain = re.sub(r"\(\?(?:[:=!]|<[=!]|P?<\w+>)", "(", plain)
    groups = [_Cost()]
    i = 0
    while i < len(plain):
        repeat = _REPEAT.match(plain, i)
        if plain[i] == "(":
            groups.append(_Cost())
        elif plain[i] == ")" and len(groups) > 1:
            inner = groups.pop()
            exact = _EXACT.match(plain, i + 1)
            inner.nested = inner.nested or bool(_REPEAT.match(plain, i + 1) and (inner.repeats or inner.options))
            groups[-1].add(inner, int(exact[1]) if exact else 1)
        elif repeat is not None:
            groups[-1].repeats += 1
            i = repeat.end() - 1
            i += plain[i + 1 : i + 2] in ("?", "+")  # lazy or possessive
        elif plain[i] in "?|":
            groups[-1].options += 1
        i += 1
    while len(groups) > 1:
        groups[-2].add(groups.pop())
    return groups[0]
