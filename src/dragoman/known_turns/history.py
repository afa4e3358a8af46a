"""The turns of conversations that were seen before, and the cache that keeps them."""

from bisect import bisect_right
from collections import OrderedDict
from functools import cached_property

from msgspec import Struct

from dragoman.dialects._base import Dialect
from dragoman.model.messages import Message
from dragoman.model.request import Request

MOST_BYTES = 64 * 1024 * 1024
MOST_AGE_S = 1800.0
COST = 4  # bytes of memory for a byte of a body: its text, its values, and what it became
TURN_BYTES = 700  # and for each of its turns, however short: objects of Python
LEVELS = tuple(128 * 2**i for i in range(18))  # lengths at which the beginning of a body is compared
SAMPLE = 64  # bytes before such a length
MOST_ALIKE = 8  # conversations that begin alike


class Chunk(Struct, frozen=True):
    """Some turns as they are written for one server: entries of its list, as bytes."""

    end: int  # the number of turns behind the first one, up to the last of these
    body: bytes
    entries: int
    same: bool  # no pass has changed them


class History(Struct, eq=False):
    """The turns of one conversation behind the first one of the user."""

    raw: bytes  # the body they were in
    cut: int  # where the first turn of the user ends in it
    turns: tuple[Message, ...]
    ends: tuple[int, ...]  # where the body may be cut, each after a turn of the user that leaves no call open
    counts: tuple[int, ...]  # of the turns before each of them
    plain: int  # so many of the turns hold nothing that a pass might move or change
    ids: dict[str, int]  # of calls and results, with the number of the turn
    names: frozenset[str]  # of tools
    first: tuple[Message, ...] = ()  # the messages up to the first turn of the user
    request: Request | None = None  # all that was asked but the turns
    headers: dict[str, str] = {}  # those of the dialect
    tail: int = 0  # where the list of turns ends in the body
    values: int = 0  # in the body, at most
    parts: int = 0  # of all its turns, at most
    clean: bool = False  # nothing in the body is ours, so that no server may see it
    chunks: dict[int, tuple[object, tuple[Chunk, ...]]] = {}  # by the identity of a destination, which is kept alive
    later: "Later | None" = None  # it was not looked at yet
    more: int = 0  # bytes of texts that are kept and are not in `raw`

    @property
    def size(self) -> int:
        """About the bytes that it needs, also after its turns were read."""
        count = len(self.turns) if self.later is None else self.later.count
        return COST * (len(self.raw) + self.more) + TURN_BYTES * count


class Later(Struct, frozen=True):
    """A request that came for the first time. Most conversations never continue, so its turns are read once more when
    the next request comes, and the places where its body may be cut are found then. To keep them as values until then
    would cost every request more: the next one could not use the same memory again."""

    request: Request  # without its messages
    lead: tuple[Message, ...]  # instructions that the messages begin with
    count: int  # of the messages
    dialect: Dialect
    known: memoryview  # the beginning of the body, up to about the end of its last turn


class _Kept(Struct, eq=False):
    used: float
    history: History
    keys: list[tuple[object, ...]]
    size: int  # when it was kept


class Hit(Struct, frozen=True, dict=True):
    """A body whose beginning is known."""

    history: History
    raw: bytes
    end: int  # the last byte that is known
    count: int  # of the turns that are known

    @cached_property
    def short(self) -> bytes:
        """The body without the turns that are known."""
        return self.raw[: self.history.cut] + self.raw[self.end :]

    @cached_property
    def new(self) -> bytes | None:
        """The bytes of the new turns, if everything behind the list of turns is known too."""
        old = self.history
        tail = old.raw[old.tail :]
        if old.request is None or len(self.raw) - len(tail) < self.end or not self.raw.endswith(tail):
            return None
        return self.raw[self.end : len(self.raw) - len(tail)]

    def in_whole(self, start: int, end: int) -> tuple[int, int]:
        """A place in the short body as a place in the whole one."""
        left_out = self.end - self.history.cut if start >= self.history.cut else 0
        return start + left_out, end + left_out


class KnownTurns:
    """Bounded in bytes and by age. An owner is a client key at one door: nothing is shared between owners."""

    def __init__(self, most_bytes: int = MOST_BYTES, levels: tuple[int, ...] = LEVELS, sample: int = SAMPLE) -> None:
        """`levels`, `sample`: where the beginnings of bodies are compared, and how many bytes before."""
        self.most_bytes = most_bytes
        self._levels, self._sample = levels, sample
        self.bytes = self.hits = self.misses = 0
        self._all: OrderedDict[int, _Kept] = OrderedDict()  # oldest use first
        self._alike: dict[tuple[object, ...], list[History]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def find_alike(self, owner: tuple[str, str], raw: bytes) -> list[History]:
        """Conversations that may begin as a body does. The longest and newest come first."""
        found: list[History] = []
        for level in self._levels[: bisect_right(self._levels, len(raw))]:
            found += self._alike.get((owner, level, raw[level - self._sample : level]), ())
        return list(dict.fromkeys(reversed(found)))  # each is kept at two levels

    def find(self, alike: list[History], raw: bytes, now: float) -> Hit | None:
        """The known beginning of a body. `alike`: what `find_alike` found for it."""
        for history in alike:
            hit = _match(history, raw) if history.later is None else None
            if hit is not None:
                self.hits += 1
                self._touch(history, now)
                return hit
        self.misses += 1
        return None

    def keep(self, owner: tuple[str, str], history: History, now: float, instead: History | None = None) -> None:
        """`instead`: the history that this one continues."""
        if instead is not None and instead.ends[-1] <= history.ends[-1]:
            self._forget(id(instead))
        size = history.size
        if not self.most_bytes or size > self.most_bytes:
            return
        known = history.ends[-1]
        keys: list[tuple[object, ...]] = [
            (owner, level, history.raw[level - self._sample : level])
            for level in self._levels[: bisect_right(self._levels, known)][-2:]
        ]
        for key in keys:
            alike = self._alike.setdefault(key, [])
            if len(alike) >= MOST_ALIKE:
                self._forget(id(alike[0]))
                alike = self._alike.setdefault(key, [])
            alike.append(history)
        self._all[id(history)] = _Kept(now, history, keys, size)
        self.bytes += size
        self._shrink(now)

    def _touch(self, history: History, now: float) -> None:
        entry = self._all.get(id(history))
        if entry is not None:
            entry.used = now
            self._all.move_to_end(id(history))

    def _shrink(self, now: float) -> None:
        while self._all:
            number, entry = next(iter(self._all.items()))
            if self.bytes <= self.most_bytes and entry.used > now - MOST_AGE_S:
                return
            self._forget(number)

    def _forget(self, number: int) -> None:
        entry = self._all.pop(number, None)
        if entry is None:
            return
        self.bytes -= entry.size
        for key in entry.keys:
            alike = self._alike[key]
            alike.remove(entry.history)
            if not alike:
                del self._alike[key]


def find_later(alike: list[History], raw: bytes) -> History | None:
    """A body that this one continues and that was not looked at yet: `find_cuts` must look at it first. `alike`: what
    `find_alike` found for it."""
    for history in alike:
        if history.later is not None and raw.startswith(history.later.known):
            return history
    return None


def _match(history: History, raw: bytes) -> Hit | None:
    """The longest beginning that both have, up to a place where the body may be cut."""
    ends, number = history.ends, len(history.ends)
    if not ends:
        return None
    old = memoryview(history.raw)  # it may be long: nothing is copied
    if len(raw) <= ends[-1] or not raw.startswith(old[: ends[-1]]):
        low, number = 0, len(ends) - 1  # the first `low` are the same; those after `number` are not
        while low < number:
            middle = (low + number + 1) // 2
            if raw.startswith(old[: ends[middle - 1]]) and len(raw) > ends[middle - 1]:
                low = middle
            else:
                number = middle - 1
    if (
        number and raw[ends[number - 1] : ends[number - 1] + SAMPLE].lstrip()[:1] == b"]"
    ):  # the same body again: its last turn is new
        number -= 1
    if not number:
        return None
    end = ends[number - 1]
    return Hit(history, raw, end, history.counts[number - 1])
