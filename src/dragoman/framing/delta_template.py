"""DeltaTemplate: reads the deltas of a stream that differ in nothing but their text without parsing the rest of each.

If `head "X" tail` was read as a delta of the text X and nothing else, then so is every `head "Y" tail` where "Y" is one
JSON string: no other byte is another. Who finds such a frame by parsing it shows it to `learn`; `read` does the rest.
"""

import re

from dragoman.jsontypes import load_string

EVERY = 16  # frames that did not fit, until the next is learnt: a stream that changes all the time pays little
_STRING = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


def without(block: bytes, start: bytes, end: bytes) -> bytes:
    """A frame without what stands between these: something that is another in each and says nothing."""
    at = block.find(start)
    to = block.find(end, at + len(start)) if at >= 0 else -1
    return block[:at] + block[to + len(end) :] if to >= 0 else block


class DeltaTemplate:
    __slots__ = ("_cut", "_from", "_head", "_misses", "_tail")

    def __init__(self) -> None:
        self._head = b"\x00"  # fits nothing
        self._tail = b""
        self._from = self._cut = 0
        self._misses = 0

    def read(self, block: bytes) -> str | None:
        """Its text, if the frame is like the one that was learnt."""
        if block.startswith(self._head) and block.endswith(self._tail):
            return load_string(block[self._from : self._cut])
        return None

    def learn(self, block: bytes, key: bytes, text: str) -> bool:
        """A frame that was read as `text`, which it says under `key` (with its quotes). True if `read` knows it now."""
        if self.read(block) is not None:
            return True
        self._misses += 1
        if self._misses % EVERY != 1 or block.count(key) != 1:
            return False
        found = _STRING.match(block, block.index(key) + len(key))
        if found is None or load_string(found[1]) != text:
            return False
        start, end = found.span(1)
        self._head, self._tail = block[: start + 1], block[end - 1 :]
        self._from, self._cut = start, 1 - len(self._tail)  # the quotes are the string's and the mould's
        return True
