"""DeltaTemplate: reads stream frames that differ in their text only, without parsing the rest of each frame.

Suppose a decoder parsed the frame `head "X" tail` and found a delta of the text X and nothing else. Then every frame
`head "Y" tail`, where "Y" is one JSON string, is a delta of the text Y, because all other bytes are the same. The
decoder gives the first such frame to `learn`. After that, `read` gives the text of the others.
"""

import re

from dragoman.jsontypes import load_string

LEARN_EVERY_MISSES = 16  # a stream whose frames change all the time pays for learning only this often
_STRING = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


def remove_between(block: bytes, start: bytes, end: bytes) -> bytes:
    """A frame without `start`, `end` and the bytes between them: padding or a counter, different in each frame."""
    start_at = block.find(start)
    end_at = block.find(end, start_at + len(start)) if start_at >= 0 else -1
    return block[:start_at] + block[end_at + len(end) :] if end_at >= 0 else block


class DeltaTemplate:
    __slots__ = ("_head", "_misses", "_tail", "_text_end", "_text_start")

    def __init__(self) -> None:
        self._head = b"\x00"  # no frame starts with it
        self._tail = b""
        self._text_start = self._text_end = 0
        self._misses = 0

    def read(self, block: bytes) -> str | None:
        """The text of the frame, if the frame is like the learnt one."""
        if block.startswith(self._head) and block.endswith(self._tail):
            return load_string(block[self._text_start : self._text_end])
        return None

    def learn(self, block: bytes, key: bytes, text: str) -> bool:
        """Learns a frame whose only content is `text` under `key` (with its quotes). True if `read` can read it now."""
        if self.read(block) is not None:
            return True
        self._misses += 1
        if self._misses % LEARN_EVERY_MISSES != 1 or block.count(key) != 1:
            return False
        found = _STRING.match(block, block.index(key) + len(key))
        if found is None or load_string(found[1]) != text:
            return False
        start, end = found.span(1)
        self._head, self._tail = block[: start + 1], block[end - 1 :]
        self._text_start, self._text_end = start, 1 - len(self._tail)  # both include the quotes
        return True
