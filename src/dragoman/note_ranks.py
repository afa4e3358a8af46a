"""What a note means to the person who reads it: its rank, and equal notes folded into one line.

`harmless`: the answer is the same to its reader. `changed`: it may differ. `lost`: a thing that was asked for is gone.
A rank follows from the kind of a note, the field that it is about, and for a few from its reason.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

if TYPE_CHECKING:
    from dragoman.notes import Note, NoteKind

NoteRank: TypeAlias = Literal["harmless", "changed", "lost"]
RANKS: tuple[NoteRank, ...] = ("lost", "changed", "harmless")  # the worst first
KINDS = ("dropped", "altered", "invented", "repaired")
KINDS_AND_RANKS = frozenset((*KINDS, *get_args(NoteRank)))

# Bookkeeping: caches, identifiers, accounting, and how a schema is spelled. The model's words do not depend on it.
_BOOKKEEPING = frozenset(
    (
        *("cache", "ttl", "cache_control", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
        *("user", "metadata", "labels", "safety_identifier", "service_tier", "tier", "store", "batch_metadata"),
        *("id", "index", "name", "title", "status", "phase", "role", "summary", "caller", "allowed_callers", "issuer"),
        *("created", "created_at", "time", "usage", "stream_options", "include", "context_management"),
        *("defer_loading", "eager_input_streaming", "header:anthropic-beta", "betas"),
        *("parameters", "schema", "additionalProperties", "$schema"),
    )
)
# A field that was invented or repaired changes the answer only here: a limit may cut it, a turn is read by the model.
_READ_BY_THE_MODEL = frozenset(
    ("max_output", "messages", "parts", "tools", "mode", "effort", "budget", "reasoning", "text")
)
# The model is guided less than was asked; nothing that was said is missing.
_GUIDANCE = frozenset(("seal", "strict", "show", "parallel_calls", "effort", "budget", "mode", "detail", "verbosity"))
# Some reasons decide. The whole reason must fit: a part of it may be a name that a client made up.
# Thoughts of earlier turns that only their own model can read; the conversation itself is whole.
_OLD_THOUGHTS = re.compile(
    r"\S+ takes back only .*|only (?!\S+ has ).* can read its .*|\S+ refuses reasoning in the history"
    r"|a thought without words|ollama's thinking is its text, and this has none"
)
_SAYS_NOTHING = re.compile(
    r"(?:anthropic has it in the tool choice, and )?there are no tools|only Anthropic reads this line|thinking is off"
    r"|at most \d+ cache marks|\S+ \S+ no cache marks?(?: on [a-z ]+)?"
)

# The model no longer sees which of several persons speaks in a turn.
_SPEAKERS = re.compile(
    r"joined with a turn (?:that has another name|without a name, which has this name now)|only \S+ has name"
)
_LEFT_OUT = ": a line of text takes its place"  # of a picture, a sound or a file


@lru_cache(4096)
def rank_note(kind: "NoteKind", field: str, why: str) -> NoteRank:
    """`field`: the last name in the place of the note."""
    if kind in ("invented", "repaired"):
        return "changed" if field in _READ_BY_THE_MODEL else "harmless"
    if field == "name" and _SPEAKERS.fullmatch(why):
        return "changed"
    if field in _BOOKKEEPING or _SAYS_NOTHING.fullmatch(why):
        return "harmless"
    if why.endswith(_LEFT_OUT):
        return "lost"
    if kind == "altered" or field in _GUIDANCE or _OLD_THOUGHTS.fullmatch(why):
        return "changed"
    return "lost"


def check_words(words: Iterable[str]) -> frozenset[str]:
    """The kinds and ranks that a caller refuses; a ValueError for a word that is neither."""
    found = frozenset([words] if isinstance(words, str) else words)
    if unknown := found - KINDS_AND_RANKS:
        known = ", ".join((*KINDS, *reversed(RANKS)))
        raise ValueError(f"refuse: expected some of {known}; found {', '.join(sorted(unknown))}")
    return found


class FoldedNote(Struct, frozen=True):
    """Notes that differ only in their place."""

    rank: NoteRank
    first: "Note"
    places: int = 1

    def __str__(self) -> str:
        more = f" and {self.places - 1} more" if self.places > 1 else ""
        return f"{self.first.where or '/'}{more}: {self.first.why}"


def fold_notes(notes: Iterable["Note"]) -> list[FoldedNote]:
    """The worst first; otherwise in the order in which they were made."""
    counts: dict[tuple[str, str, str, NoteRank], int] = {}
    firsts: dict[tuple[str, str, str, NoteRank], Note] = {}
    for note in notes:
        key = (note.kind, note.why, note.body, note.rank)
        counts[key] = counts.get(key, 0) + 1
        firsts.setdefault(key, note)
    return sort_folded([FoldedNote(key[3], firsts[key], count) for key, count in counts.items()])


def sort_folded(rows: list[FoldedNote]) -> list[FoldedNote]:
    """The worst first."""
    return sorted(rows, key=_find_badness) if len(rows) > 1 else rows


def _find_badness(row: FoldedNote) -> int:
    return RANKS.index(row.rank)
