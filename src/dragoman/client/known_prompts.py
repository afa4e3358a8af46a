"""Prompts that go on with an earlier one. A caller sends all turns of a conversation again, as objects of its own.

They are compared as bytes, because the caller may change them. Turns that came before are not read again: they are the
same values as before, so that what was written of them is known too (known_turns/sent.py). Values of our own never
change: they are compared by their identity.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dragoman.dialects._base import Dialect
from dragoman.jsontypes import pack_json
from dragoman.known_turns.history import History, Hit, KnownTurns
from dragoman.known_turns.read import begin_history, count_lead, may_follow
from dragoman.known_turns.sent import LEAST_TURNS, OWNER
from dragoman.model.messages import Message
from dragoman.model.request import AnyTool

MOST_LISTS = 16  # of tools
MOST_TOOL_BYTES = 200_000  # of one list


class ReadPrompt(NamedTuple):
    messages: Sequence[Message]
    hit: Hit | None = None  # those that came before
    history: History | None = None  # what the next prompt may begin with


ReadEach: TypeAlias = Callable[[Sequence[Any]], list[Message]]


class KnownPrompts:
    """Of one client, and never of another. Bounded in bytes and by age."""

    def __init__(self, most_bytes: int, clock: Callable[[], float]) -> None:
        self.turns = KnownTurns(most_bytes)
        self._tools: dict[bytes, tuple[AnyTool, ...]] = {}
        self._clock = clock

    def read_tools(
        self, tools: Sequence[Any], read: Callable[[Sequence[Any]], tuple[AnyTool, ...]]
    ) -> tuple[AnyTool, ...]:
        """Tools as a caller wrote them: the same object for the same tools, so that what was made of them for a server
        is found again, too."""
        packed = pack_json(tools) if self.turns.most_bytes else None
        if packed is None or len(packed) > MOST_TOOL_BYTES:
            return read(tools)
        known = self._tools.get(packed)
        if known is not None:  # fast path: tools of a prompt
            return known
        if len(self._tools) >= MOST_LISTS:
            self._tools.clear()
        self._tools[packed] = found = read(tools)
        return found

    def read(self, prompt: Sequence[Any], read: ReadEach, dialect: Dialect) -> ReadPrompt:
        """The turns of a prompt. `read` reads all of them, or only the last ones. `dialect`: the one they are in."""
        entries = [one if type(one) is dict else _name(one) for one in prompt]
        packed = None if len(entries) < LEAST_TURNS or None in entries else pack_json(entries)
        if packed is None or not self.turns.most_bytes:
            return ReadPrompt(read(prompt))
        raw, now = packed[_head_size(len(entries)) :], self._clock()
        hit = self.turns.find(self.turns.find_alike(OWNER, raw), raw, now)
        messages = None if hit is None else _read_new(prompt, hit, read, dialect)
        if messages is None:
            hit, messages = None, tuple(read(prompt))
        if len(messages) != len(prompt):
            return ReadPrompt(messages)
        first, start = count_lead(messages), 0
        if hit is not None:
            first, start = len(hit.history.first) + hit.count, hit.end
        history = begin_history(raw, messages, _find_ends(entries, first, start), dialect, hit)
        if history is not None:
            self.turns.keep(OWNER, history, now, instead=None if hit is None else hit.history)
        return ReadPrompt(messages, hit, history)


def _read_new(prompt: Sequence[Any], hit: Hit, read: ReadEach, dialect: Dialect) -> tuple[Message, ...] | None:
    """All turns, of which only the new ones are read. None if those cannot be read by themselves."""
    first = len(hit.history.first) + hit.count
    new = read(prompt[first:])
    if len(new) != len(prompt) - first or not may_follow(hit, new, dialect):
        return None
    return (*hit.history.first, *hit.history.turns[: hit.count], *new)


def _name(one: Any) -> Any:
    """What a turn is known by. None if it may change without being seen."""
    if isinstance(one, str):
        return one
    message = getattr(one, "message", one)  # of an answer
    if isinstance(message, Message):
        return id(message)
    return dict(one) if isinstance(one, Mapping) else None


def _head_size(count: int) -> int:
    """The bytes of MessagePack before the first entry of a list."""
    return 1 if count < 16 else 3 if count < 2**16 else 5


def _find_ends(entries: list[Any], first: int, start: int) -> list[int]:
    """Where the entries from `first` on end, if they begin at `start`; if that is 0, after those before them."""
    if not start:
        start = sum([len(pack_json(entry) or b"") for entry in entries[:first]])
    ends = []
    for entry in entries[first:]:
        start += len(pack_json(entry) or b"")
        ends.append(start)
    return ends
