"""DeltaTemplate: reads stream frames that differ in a few values only, without parsing the rest of each frame.

Suppose a decoder parsed the frame `head "X" tail` and found a delta of the text X and nothing else. Then every frame
`head "Y" tail`, where "Y" is one JSON string, is a delta of the text Y, because all other bytes are the same. Some
servers put a counter, a time or padding into each frame: these are slots. A slot holds another value in each frame, as
plain as a number or a word, so that the frame stays the JSON that it was.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from dragoman.jsontypes import load_string, load_strings

LEARN_EVERY_MISSES = 16  # a stream whose frames change all the time pays for learning only this often
QUOTE, BACKSLASH, ZERO = 34, 92, 48
MOST_DIGITS = 15
LONG_RUN = 2000  # bytes
MARK_BYTES = 8  # of the end of a frame: what a long run is split at
_NUMBERS = re.compile(rb"(?:0|[1-9][0-9]{0,%d})(?:,(?:0|[1-9][0-9]{0,%d}))*+" % (MOST_DIGITS - 1, MOST_DIGITS - 1))
_WORD = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_:.+-"
# The inside of a JSON string that is spelled as msgspec spells it. `++`: nothing is tried twice, however long it is.
_PLAIN = rb'(?:[^"\\\x00-\x1f\x7f]++|\\["\\bfnrt])++'
_PLAIN_LINES = re.compile(rb"%b(?:\n%b)*+" % (_PLAIN, _PLAIN))
_STRING = re.compile(rb'\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Slot(NamedTuple):
    """A value that differs in each frame and says nothing about the text."""

    key: str
    find: re.Pattern[bytes]  # its only group is the value
    counts: bool  # a number, else a word

    def takes(self, value: bytes) -> bool:
        if not self.counts:
            return not value.translate(None, _WORD)
        return value.isdigit() and len(value) <= MOST_DIGITS and (value[0] != ZERO or len(value) == 1)

    def takes_all(self, values: Sequence[bytes]) -> bool:
        if not self.counts:
            return not b"".join(values).translate(None, _WORD)
        joined = b",".join(values)
        return _NUMBERS.fullmatch(joined) is not None and joined.count(b",") == len(values) - 1


def number_slot(key: str) -> Slot:
    return Slot(key, re.compile(rb'"%b"[ ]?:[ ]?(0|[1-9][0-9]{0,%d}+)' % (key.encode(), MOST_DIGITS - 1)), True)


def word_slot(key: str) -> Slot:
    """A string of letters, digits and what a time is written with."""
    return Slot(key, re.compile(rb'"%b"[ ]?:[ ]?"([%b]*+)"' % (key.encode(), re.escape(_WORD))), False)


class LearntDelta(Struct, frozen=True, gc=False):
    """A part that grows by frames which are like a template."""

    template: "DeltaTemplate"
    index: int  # of the part
    keep: Callable[[str], object] | None = None  # must get each text that is read without the decoder
    check: Callable[[str], bool] | None = None  # asked before: False if the text must go the long way


class DeltaTemplate:
    """A decoder gives a frame that is nothing but a delta to `learn`. After that, `read` gives the text of others like
    it, and `read_run` that of many."""

    __slots__ = (
        *("_between", "_frame_end", "_least", "_middle", "_misses", "_newest", "_tail", "_text", "_values"),
        *("end", "head", "last", "varying"),
    )

    def __init__(self, frame_end: bytes = b"\n\n") -> None:
        self._frame_end = frame_end
        self.head = b"\x00"  # before the first value; no frame starts with this
        self._tail = b""
        self._least = 1
        self._middle: list[bytes] = []  # the bytes between one value and the next
        self._text = 0  # which of the values is the text
        self.end = b""  # behind the last value of a frame, to the end of the frame
        self._between = b""  # the same, and the head of the next one
        self._misses = 0
        self._newest = 0  # the last part that began
        self.varying: list[Slot] = []  # of the learnt frame
        self._values: list[bytes] = []  # of the frame that is looked at
        self.last: list[bytes] = []  # their values in the frame that was read last

    def read(self, block: bytes) -> str | None:
        """The text of the frame, if the frame is like the learnt one."""
        if not block.startswith(self.head) or not block.endswith(self._tail) or len(block) < self._least:
            return None
        text = self._take_text(block[len(self.head) : len(block) - len(self._tail)])
        loaded = None if text is None else load_string(b'"%b"' % text)
        if loaded is not None:
            self.last = self._values
        return loaded

    def read_one(self, data: bytes) -> str:
        """The text of one frame that is like the learnt one, with its end, if it is plain ASCII. Else ""."""
        if not (data.startswith(self.head) and data.endswith(self.end)) or len(data) < self._least:
            return ""
        inside = self._take_text(data[len(self.head) : -len(self.end)])
        if inside is None or QUOTE in inside or BACKSLASH in inside or not inside.isascii():
            return ""
        text = inside.decode()
        if not text.isprintable():
            return ""
        self.last = self._values
        return text

    def _take_text(self, inside: bytes) -> bytes | None:
        """The text of a frame without its head and tail; None if another value is not what its slot takes."""
        if not self._middle:
            return inside
        values = inside.split(self._middle[0]) if len(self._middle) == 1 else self._split(inside)
        if len(values) != len(self._middle) + 1:
            return None
        text = values.pop(self._text)
        if not all(map(Slot.takes, self.varying, values)):
            return None
        self._values = values
        return text

    def _split(self, inside: bytes) -> list[bytes]:
        values: list[bytes] = []
        for between in self._middle:
            value, found, inside = inside.partition(between)
            if not found:
                return []
            values.append(value)
        return [*values, inside]

    def read_run(self, data: bytes) -> tuple[str, list[bytes], bytes]:
        """The text of the frames at the start of the data that are like the learnt one, the pieces of it, and the rest
        of the data. Each piece is the inside of a JSON string, spelled as we spell it. No piece if one is not."""
        if not data.startswith(self.head):
            return "", [], data
        if len(data) > LONG_RUN:  # fast path: long run
            pieces, rest = self._split_long(data)
        else:
            pieces = data[len(self.head) :].split(self._between)
            pieces[-1], found, rest = pieces[-1].partition(self.end)
            if not found:
                rest = self.head + pieces.pop()
        texts = self._take_texts(pieces) if self._middle else pieces
        if not texts or b"" in texts:
            return "", [], data
        joined = b"".join(texts)
        if joined.isascii() and QUOTE not in joined and BACKSLASH not in joined:  # fast path: plain run
            text = joined.decode()
            if not text.isprintable():
                return "", [], data
            self.last = self._values
            return text, texts, rest
        lines = b"\n".join(texts)
        if _PLAIN_LINES.fullmatch(lines) is None or lines.count(b"\n") != len(texts) - 1:
            return "", [], data
        loaded = load_strings(b'["%b"]' % b'","'.join(texts))
        if loaded is None:
            return "", [], data
        self.last = self._values
        return "".join(loaded), texts, rest

    def _split_long(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The insides of the frames at the start of the data that are like the learnt one, and the rest of the data.

        Python looks at all of a separator each time it searches for the next one, so a short one costs less."""
        mark = self.end[-MARK_BYTES:]
        inside, tail = slice(len(self.head), len(mark) - len(self.end) or None), self.end[: -len(mark)]
        blocks = data.split(mark)
        rest = blocks.pop()
        pieces = [block[inside] for block in blocks]
        if data.startswith(self.head + self._between.join(pieces) + self.end):
            return pieces, rest
        others = (i for i, block in enumerate(blocks) if not (block.startswith(self.head) and block.endswith(tail)))
        pieces = pieces[: next(others, 0)]
        return pieces, data[len(self.head + self._between.join(pieces) + self.end) :] if pieces else data

    def _take_texts(self, pieces: list[bytes]) -> list[bytes] | None:
        """The same of many frames."""
        if not pieces:
            return None
        columns: list[list[bytes]] = []
        rests = pieces
        for between in self._middle:
            values: list[bytes] = []
            after: list[bytes] = []
            for piece in rests:
                value, found, rest = piece.partition(between)
                if not found:
                    return None
                values.append(value)
                after.append(rest)
            columns.append(values)
            rests = after
        columns.append(rests)
        texts = columns.pop(self._text)
        if not all(map(Slot.takes_all, self.varying, columns)):
            return None
        self._values = [column[-1] for column in columns]
        return texts

    def learn(self, block: bytes, key: bytes, text: str, slots: Iterable[Slot] = (), part: int = 0) -> bool:
        """Learns a frame whose only content is `text` under `key` (with its quotes) and what these slots hold. True if
        `read` can read it now. `part`: the number of the part it adds to; a new one is learnt at once."""
        if self.read(block) is not None:
            return True
        if part > self._newest:
            self._newest, self._misses = part, 0
        self._misses += 1
        if self._misses % LEARN_EVERY_MISSES != 1 or block.count(key) != 1:
            return False
        match = _STRING.match(block, block.index(key) + len(key))
        if match is None or load_string(b'"%b"' % match[1]) != text:
            return False
        spans: list[tuple[int, int, Slot | None]] = [(*match.span(1), None)]
        for slot in slots:
            places = list(slot.find.finditer(block))
            if len(places) == 1:
                spans.append((*places[0].span(1), slot))
        spans.sort(key=lambda span: span[0])
        starts, ends = [start for start, _, _ in spans], [end for _, end, _ in spans]
        self.head, self._tail = block[: starts[0]], block[ends[-1] :]
        self._middle = [block[end:start] for end, start in zip(ends, starts[1:], strict=False)]
        kinds = [slot for _, _, slot in spans]
        self._values = self.last = []
        self._text, self.varying = kinds.index(None), [slot for slot in kinds if slot is not None]
        self._least = len(self.head) + sum(map(len, self._middle)) + len(self._tail)
        self.end = self._tail + self._frame_end
        self._between = self.end + self.head
        return self.read(block) is not None


def write_frames(head: bytes, pieces: list[bytes], tail: bytes) -> bytes:
    """A frame for each piece, which is the inside of a JSON string: `head` and `tail` stand around the string."""
    if len(pieces) == 1:
        return b'%b"%b"%b' % (head, pieces[0], tail)
    return b'%b"%b"%b' % (head, (b'"%b%b"' % (tail, head)).join(pieces), tail)
