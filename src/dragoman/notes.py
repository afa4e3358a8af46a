"""Note, Notes: what a conversion could not carry, said as data.

Passes and encoders name a place in the canonical value as they see it. The caller has never seen that value, and passes
move things in it. So `Notes` is told which body is being converted (`begin`) and each form that its value takes
(`stage`); when the notes are read, they name the place in the caller's own body.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.errors import LossError, pointer
from dragoman.note_places import Place, Stages, find_present
from dragoman.note_ranks import FoldedNote, NoteRank, check_words, rank_note, sort_folded

T = TypeVar("T")
NoteKind: TypeAlias = Literal["dropped", "altered", "invented", "repaired"]
Refusable: TypeAlias = NoteKind | NoteRank
BodyKind: TypeAlias = Literal["request", "reply"]

# A place in a canonical value, built from the outside in: ((ROOT, "messages"), 3). A tuple costs
# a few nanoseconds and is only spelled out when there is something to say about it.
At: TypeAlias = "tuple[()] | tuple[At, str | int]"
ROOT: At = ()

# From a canonical value and a place in it to the place in the body that it was read from.
Locate: TypeAlias = Callable[[Any, Place], Place]


LONGEST_STEP = 1000  # characters of a key: a client may make one up that has millions
MENDED: tuple[NoteKind, ...] = ("dropped", "repaired")  # nothing was added, and nothing said in another way
MOST_PLACES = 50  # notes of one request whose places a gateway looks for


def _show(place: Place) -> str:
    shown = pointer(place)
    if len(shown) <= LONGEST_STEP:  # no step can be longer
        return shown
    return pointer(tuple([step[:LONGEST_STEP] if type(step) is str else step for step in place]))


class Note(Struct, frozen=True):
    """One thing lost, changed, made up or mended."""

    kind: NoteKind
    where: str  # a JSON pointer into the body that was converted, as its sender wrote it
    why: str  # one plain clause
    canonical: str = ""  # the same place in the canonical value, as `convert --to canonical` prints it
    body: BodyKind = "request"  # which body `where` points into: the caller's request, or the reply to it
    target: str = ""  # the place in the request that was written, if something is there and `read` was asked for it

    @property
    def rank(self) -> NoteRank:
        """How much it matters to the reader of the answer."""
        return rank_note(self.kind, _last_name(unspell(self.canonical)), self.why)


class RepeatedNote(Struct, frozen=True):
    """A note about tools that come again and again, as `Notes.repeat` adds it."""

    kind: NoteKind
    at: At
    why: str
    rank: NoteRank  # where the tools stand as they came


def make_repeated(notes: Iterable[Note]) -> tuple[RepeatedNote, ...]:
    return tuple([RepeatedNote(note.kind, unspell(note.canonical), note.why, note.rank) for note in notes])


class _Source(Stages, eq=False):
    """The body that is being converted: which one, how to find a place in it, and the forms that its value had."""

    body: BodyKind = "request"
    locate: Locate | None = None
    target: Locate | None = None  # how to find a place of the last form in the body that was written

    def spell(self, kind: NoteKind, place: Place, why: str) -> Note:
        canonical = where = _show(place)
        if self.locate is not None and self.forms:
            value = self.forms[0]
            unknown = kind == "invented" or getattr(value, "partial", False)
            found = self.locate(value, find_present(value, place, invented=unknown))
            where = canonical if found == place else _show(found)
        return Note(kind, where, why, canonical, self.body)

    def find_place(self, at: At, number: int) -> Place:
        """The place in the first form of the canonical value. `number`: the form that `at` is a place of."""
        return self.trace(number, flatten(at))

    def find_target(self, kind: NoteKind, at: At, number: int) -> str:
        """The place in the body that was written; "" if the value is not there."""
        if self.target is None or kind == "dropped":
            return ""
        value, place = self.forms[-1], self.follow(number, flatten(at))
        return pointer(self.target(value, find_present(value, place, invented=kind == "invented")))


class _Unread(Struct):
    """A note whose place is looked up when it is read."""

    kind: NoteKind
    at: At
    why: str
    source: _Source
    number: int  # of the form that the place is in
    rank: NoteRank | None = None  # once it is known: perhaps without a look for its place
    note: Note | None = None  # once it was read
    place: Place | None = None  # in the canonical value, once it was looked for

    def read(self, *, places: bool, targets: bool) -> Note:
        if self.note is None and places:
            self.note = self.source.spell(self.kind, self._find_place(), self.why)
        if self.note is None:
            return Note(self.kind, "", self.why, "", self.source.body)
        if targets and not self.note.target:
            self.note = replace(self.note, target=self.source.find_target(self.kind, self.at, self.number))
        return self.note

    def find_rank(self, *, places: bool) -> NoteRank:
        """The rank of the note, without a look for its place in the caller's body."""
        if self.note is not None:
            return self.note.rank
        if not places:
            return rank_note(self.kind, "", self.why)
        if self.rank is None:
            self.rank = rank_note(self.kind, _last_word(self._find_place())[:LONGEST_STEP], self.why)
        return self.rank

    def _find_place(self) -> Place:
        if self.place is None:
            self.place = self.source.trace(self.number, flatten(self.at))
        return self.place

    def is_mended_turn(self) -> bool:
        if self.note is not None:
            return is_mended_turn(self.note)
        place = self._find_place()
        return len(place) > 1 and place[0] == "messages" and "extras" not in place[:-1]


def is_mended_turn(note: Note) -> bool:
    """Whether the note is about something that was removed from the conversation or repaired in it."""
    if note.kind not in MENDED:
        return False
    return note.canonical.startswith("/messages/") and "/extras/" not in note.canonical


class Notes:
    """Collects notes; raises LossError at once for the kinds and ranks that the caller refuses."""

    __slots__ = ("_all", "_forms", "_refuse", "_request", "_source", "copies_tools", "sends")

    def __init__(self, refuse: Iterable[Refusable] = ()) -> None:
        self._all: list[Note | _Unread] = []
        self._refuse = check_words(refuse) if refuse else None
        self.sends = False  # what is written is sent at once: it may share values with what was written before
        self.copies_tools = False  # what is written for tools is for a caller, who may change it
        self._forms: list[Any] = []  # of the source, at hand
        self._source = self._request = _Source(self._forms)

    def __iter__(self) -> Iterator[Note]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notes) and self.items == other.items

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"Notes({self.items!r})"

    @property
    def items(self) -> list[Note]:
        """The notes so far, with their places in the caller's body and in what was written."""
        return self.read(targets=True)

    def read(
        self, most_places: int | None = None, *, targets: bool = False, most_notes: int | None = None
    ) -> list[Note]:
        """The notes so far, at most `most_notes`. Only the first `most_places` have a place: a request may have a
        hundred thousand faults, and in a long request it takes long to find a place. `targets`: also find each place in
        the request that was written."""
        if not self._all:
            return []
        most = len(self._all) if most_places is None else most_places
        return [
            note if isinstance(note, Note) else note.read(places=i < most, targets=targets and i < most)
            for i, note in enumerate(self._all[:most_notes])
        ]

    def fold(self, most_places: int, most_notes: int | None = None) -> list[FoldedNote]:
        """The notes as `fold_notes` folds them. The place is looked up only for the first of equal notes: to find a
        place takes longer than everything else here."""
        if not self._all:
            return []
        firsts: dict[tuple[str, str, str, NoteRank], tuple[int, Note | _Unread]] = {}
        counts: dict[tuple[str, str, str, NoteRank], int] = {}
        for i, note in enumerate(self._all[:most_notes]):
            if isinstance(note, Note):
                key = (note.kind, note.why, note.body, note.rank)
            else:
                rank = note.rank if i < most_places else None
                key = (note.kind, note.why, note.source.body, rank or note.find_rank(places=i < most_places))
            if key in counts:
                counts[key] += 1
            else:
                counts[key], firsts[key] = 1, (i, note)
        rows = [
            FoldedNote(
                key[3],
                first if isinstance(first, Note) else first.read(places=i < most_places, targets=False),
                counts[key],
            )
            for key, (i, first) in firsts.items()
        ]
        return sort_folded(rows)

    def read_mended_turns(self, most_places: int, most: int) -> tuple[list[Note], int]:
        """The first few things that were removed from a conversation or repaired in it, and how many there are."""
        found = [
            note
            for note in self._all[:most_places]
            if note.kind in MENDED and (is_mended_turn(note) if isinstance(note, Note) else note.is_mended_turn())
        ]
        read = [note if isinstance(note, Note) else note.read(places=True, targets=False) for note in found[:most]]
        return read, len(found)

    def begin(self, body: BodyKind, locate: Locate | None, *forms: Any) -> None:
        """Notes from here on are about another body. `forms`: its value, if it has been read already."""
        self._forms = list(forms)
        self._source = _Source(self._forms, {}, {}, body, locate)
        if body == "request":
            self._request = self._source

    def resume_request(self) -> None:
        """Notes from here on are about the request again."""
        self._source, self._forms = self._request, self._request.forms

    def write_for(self, locate: Locate) -> None:
        """The last form of the value is now written as a body. `locate` finds a place in that body."""
        self._source.target = locate

    def stage(self, value: T) -> T:
        """The value has this form now: notes from here on name places in it. Returns the value."""
        forms = self._forms
        if not forms or forms[-1] is not value:
            forms.append(value)
        return value

    def settle(self, most_places: int, *, each: bool) -> None:
        """Looks up all places now, so that the request need not be kept. Notes about the reply can still be added.
        Without `each`, notes that fold into one become the first of them: only that one is shown."""
        self._all[:] = self.read(most_places) if each else self._fold_in_place(most_places)
        settled, self._request = self._request, _Source([])
        if self._source is settled:
            self.resume_request()

    def _fold_in_place(self, most_places: int) -> list[Note]:
        """All notes, equal ones as often as before. What was done to turns is told one by one."""
        firsts: dict[tuple[str, str, str, NoteRank], Note] = {}
        read: list[Note] = []
        for i, note in enumerate(self._all):
            places = i < most_places
            if isinstance(note, Note):
                read.append(note)
                continue
            key = (note.kind, note.why, note.source.body, note.find_rank(places=places))
            first = firsts.get(key)
            if first is None or (places and note.kind in MENDED and note.is_mended_turn()):
                first = note.read(places=places, targets=False)
                firsts.setdefault(key, first)
            read.append(first)
        return read

    def dropped(self, at: At, why: str) -> None:
        """The value at this place is lost."""
        self._add("dropped", at, why)

    def altered(self, at: At, why: str) -> None:
        """The value at this place was changed."""
        self._add("altered", at, why)

    def invented(self, at: At, why: str) -> None:
        """The request has no such value, but the target demands one, so we added it."""
        self._add("invented", at, why)

    def repaired(self, at: At, why: str) -> None:
        """The value was broken and is now legal."""
        self._add("repaired", at, why)

    def repeat(self, notes: Iterable[RepeatedNote]) -> None:
        """Adds notes about tools that an earlier request had. The same tools are at the same places again."""
        if self._refuse:
            for note in notes:
                self._add(note.kind, note.at, note.why)
            return
        source, number = self._source, len(self._forms) - 1
        if source.find_moves(number, "tools"):  # a place may be gone, and with it what the rank depends on
            self._all += [_Unread(note.kind, note.at, note.why, source, number) for note in notes]
        else:
            self._all += [_Unread(note.kind, note.at, note.why, source, number, note.rank) for note in notes]

    def is_about(self, field: str) -> bool:
        """Whether a note whose place was not looked up yet is about this field of the value."""
        return any(type(note) is _Unread and flatten(note.at)[:1] == (field,) for note in self._all)

    def extend(self, notes: Iterable[Note]) -> None:
        """Adds finished notes unchanged."""
        self._all.extend(notes)

    def forget(self, start: int, end: int) -> None:
        """Removes notes about a form of the request that was not used in the end."""
        del self._all[start:end]

    def share(self, other: "Notes") -> None:
        """Adds notes to the list of `other` from here on."""
        self._all = other._all

    def refuse(self, at: At, why: str, kind: NoteKind = "dropped") -> LossError:
        """The error for something that we always refuse, whatever losses the caller accepts."""
        note = self._source.spell(kind, self._source.find_place(at, len(self._forms) - 1), why)
        return LossError(note.where, note.why, note.canonical)

    def _add(self, kind: NoteKind, at: At, why: str) -> None:
        why = why[:LONGEST_STEP]  # it may name a key
        if self._refuse and (kind in self._refuse or rank_note(kind, _last_name(at), why) in self._refuse):
            raise self.refuse(at, why, kind)
        self._all.append(_Unread(kind, at, why, self._source, len(self._forms) - 1))


def _last_word(place: Place) -> str:
    """The last field name in a place."""
    for step in reversed(place):
        if isinstance(step, str) and not step.isdecimal():
            return step
    return ""


def _last_name(at: At) -> str:
    """The field that a place is in: `parts` for the third part of a message."""
    while at:
        at, step = at
        if isinstance(step, str):
            return step
    return ""


def flatten(at: At) -> Place:
    """The steps of a place, from the outside in."""
    steps: list[str | int] = []
    while at:
        at, step = at
        steps.append(step)
    return tuple(reversed(steps))


@lru_cache(4096)
def unspell(where: str) -> At:
    """The place that a JSON pointer names."""
    at: At = ROOT
    for step in where.split("/")[1:]:
        at = (at, int(step) if step.isdecimal() else step.replace("~1", "/").replace("~0", "~"))
    return at
