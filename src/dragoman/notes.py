"""Note, Notes: what a conversion could not carry, said as data."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.errors import LossError

NoteKind: TypeAlias = Literal["dropped", "altered", "invented", "repaired"]

# A place in a canonical value, built from the outside in: ((ROOT, "messages"), 3). A tuple costs
# a few nanoseconds and is only spelled out when there is something to say about it.
At: TypeAlias = "tuple[()] | tuple[At, str | int]"
ROOT: At = ()


class Note(Struct, frozen=True):
    """One thing lost, changed, made up or mended."""

    kind: NoteKind
    where: str  # a JSON pointer into the canonical value
    why: str  # one plain clause


class Notes:
    """Collects notes; raises LossError at once for the kinds the caller refuses."""

    __slots__ = ("_refuse", "items")

    def __init__(self, refuse: Iterable[NoteKind] = ()) -> None:
        self.items: list[Note] = []
        self._refuse = frozenset(refuse)

    def __iter__(self) -> Iterator[Note]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def dropped(self, at: At, why: str) -> None:
        """It is gone."""
        self._add("dropped", at, why)

    def altered(self, at: At, why: str) -> None:
        """It is there, but not as it was said."""
        self._add("altered", at, why)

    def invented(self, at: At, why: str) -> None:
        """Nobody said it; the target demands it."""
        self._add("invented", at, why)

    def repaired(self, at: At, why: str) -> None:
        """It was broken and is now legal."""
        self._add("repaired", at, why)

    def repeat(self, note: Note) -> None:
        """What was noted before, of something that is the same again."""
        if note.kind in self._refuse:
            raise LossError(note.where, note.why)
        self.items.append(note)

    def _add(self, kind: NoteKind, at: At, why: str) -> None:
        where = spell(at)
        if kind in self._refuse:
            raise LossError(where, why)
        self.items.append(Note(kind, where, why))


def spell(at: At) -> str:
    """The JSON pointer for a place: `errors.pointer` of its steps, in fewer steps of our own."""
    where = ""
    while at:
        at, step = at
        if type(step) is str and ("~" in step or "/" in step):
            step = step.replace("~", "~0").replace("/", "~1")
        where = f"/{step}{where}"
    return where
