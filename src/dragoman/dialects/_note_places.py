"""Places: from a place in a canonical value to the place in the wire body that it was read from.

Each dialect has a `note_places.py` that knows where its decoder found things. Most of that is tables: our field and its
key on the wire, such as `"max_output": "max_tokens"`. `#` is a number, the same on both sides. `*` at the end says that
everything inside has the same names on both sides. A field that no table has is where its holder is.

Notes use it, so that a caller reads the place in its own body. Nothing here runs unless there is a note.
"""

from collections.abc import Mapping
from typing import TypeAlias

from dragoman.model.messages import Part
from dragoman.note_places import Place

PlaceNames: TypeAlias = Mapping[str, str]

# The tokens of a text, with the names most dialects have for them.
LOGPROBS: dict[str, str] = {
    "": "*",
    "top": "top_logprobs",
    "top/#": "top_logprobs/#/*",
}


def same_place(value: object, place: Place) -> Place:
    """For a body that is the canonical value itself."""
    return place


def look_up(table: PlaceNames, place: Place, name: str) -> Place:
    """Where a field is, as seen from its holder. The holder's own place is `()`."""
    if len(place) > MOST_STEPS or "extras" in place:  # these have names that clients choose
        return _look_up(table, place, name)
    known = _known.get((id(table), place))
    if known is None or known[0] is not table:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[id(table), place] = (table, _look_up(table, place, name))
    return known[1]


MOST_STEPS = 3
MOST_KNOWN = 4096
_known: dict[tuple[int, Place], tuple[PlaceNames, Place]] = {}  # by the identity of the table, which is kept


def _look_up(table: PlaceNames, place: Place, name: str) -> Place:
    own: Place = ()
    if "extras" in place:
        place, own = split_extras(place, name)
    names = ["#" if type(step) is int else str(step) for step in place]
    for length in range(len(place), -1, -1):
        found = table.get("/".join(names[:length]))
        if found is not None:
            return (*fill(found, place[:length], place[length:]), *own)
    return own


def fill(found: str, known: Place, rest: Place) -> Place:
    """An entry of a table with the numbers of the place."""
    numbers = iter([step for step in known if type(step) is int])
    steps = [next(numbers) if step == "#" else step for step in found.split("/") if step]
    return (*steps[:-1], *rest) if steps and steps[-1] == "*" else tuple(steps)


def split_extras(place: Place, name: str) -> tuple[Place, Place]:
    """The place of a holder, and the keys inside it that only this dialect knows."""
    for i, step in enumerate(place[:-1]):
        if step == "extras" and place[i + 1] == name:
            key = place[i + 2 : i + 3]
            return place[:i], () if key and str(key[0])[:1] == "~" else place[i + 2 :]
    return place, ()


def under(prefix: str, table: PlaceNames) -> dict[str, str]:
    """A table of fields, as those of a field of the holder: `under("cache=cache_control", {"ttl": "ttl"})`."""
    ours, _, theirs = prefix.partition("=")
    return {"/".join(filter(None, (ours, key))): "/".join(filter(None, (theirs, word))) for key, word in table.items()}


def in_part(tables: Mapping[type[Part], PlaceNames], part: Part, rest: Place, name: str) -> Place:
    return look_up(tables.get(type(part), {}), rest, name)
