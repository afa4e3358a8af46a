"""Where a place in a conversation was before the passes changed it, and where it is after them.

Passes join, drop, move and add turns and parts, so `/messages/3/parts/0` after a pass is rarely that before it. Values
are frozen, and a pass keeps the objects it does not change. So an object is found again by its identity; an object that
a pass replaced stands between the same neighbours as the one it replaced.

Only two lists have places that move: the turns (`messages` of a request, `choices` of a reply) with their parts, and
the tools. Everything else keeps its place.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

Place: TypeAlias = tuple[str | int, ...]
TURNS = ("messages", "choices")


class Stages(Struct, eq=False):
    """The forms a value had, first to last. It is empty while the value is still being read."""

    forms: list[Any]
    steps: dict[tuple[int, int], "_Step"] = {}  # from one form to its neighbour, once it was needed
    moves: dict[tuple[int, str], tuple["_Step", ...]] = {}  # the steps back from a form that changed a list

    def trace(self, number: int, place: Place) -> Place:
        """A place in the form with this number, as a place in the first one."""
        if not number or len(place) < 2 or not isinstance(place[0], str):
            return place
        for step in self.find_moves(number, place[0]):
            place = step.back(place)
        return place

    def find_moves(self, number: int, key: str) -> tuple["_Step", ...]:
        """The steps from a form back to the first that changed this list."""
        if not number:
            return ()
        known = self.moves.get((number, key))
        if known is None:
            known = self.moves[number, key] = self._find_moves(number, key)
        return known

    def _find_moves(self, number: int, key: str) -> tuple["_Step", ...]:
        last = min(number, len(self.forms) - 1)
        if last < 1 or getattr(self.forms[last], key, None) is getattr(self.forms[0], key, None):
            return ()
        lists = [getattr(form, key, None) for form in self.forms[: last + 1]]
        return tuple(self._step(i, i - 1) for i in range(last, 0, -1) if lists[i] is not lists[i - 1])

    def follow(self, number: int, place: Place) -> Place:
        """A place in the form with this number, as a place in the last one. For a value that is gone: its list."""
        for i in range(max(number, 0), len(self.forms) - 1):
            place = self._step(i, i + 1).back(place)
        return place

    def _step(self, start: int, end: int) -> "_Step":
        step = self.steps.get((start, end))
        if step is None:
            step = self.steps[start, end] = _Step(self.forms[end], self.forms[start])
        return step


class _Step:
    """One form and the one that a pass made of it."""

    __slots__ = ("_after", "_before", "_known")

    def __init__(self, before: Any, after: Any) -> None:
        self._before, self._after = before, after
        self._known: dict[str, dict[int, Place]] = {}  # the places of all turns and parts before, by identity

    def back(self, place: Place) -> Place:
        if len(place) < 2 or not isinstance(place[0], str) or not isinstance(place[1], int):
            return place
        key, number, rest = place[0], place[1], place[2:]
        before, after = getattr(self._before, key, None) or (), getattr(self._after, key, None) or ()
        if before is after or number >= len(after) or (number < len(before) and before[number] is after[number]):
            return place
        if key in TURNS:
            return (key, *self._turn_back(key, number, rest))
        found = find_back(before, after, number)
        return (key,) if found is None else (key, found, *rest)

    def _turn_back(self, key: str, number: int, rest: Place) -> Place:
        before, after, known = getattr(self._before, key), getattr(self._after, key), self._places(key)
        turn = after[number]
        for part, used in reversed(_parts_on(turn, rest)):
            if id(part) in known:
                return (*known[id(part)], *rest[used:])
        found = _teller(before, turn, known, rest) if rest[:1] == ("extras",) else None
        if found is None:
            found = _home(turn, known)
        if found is None:
            found = _between([_home(turn, known) for turn in after], len(before), number)
        if found is None:
            return ()
        return (found, *_part_back(before[found], turn, rest))

    def _places(self, key: str) -> dict[int, Place]:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {}
            for i, turn in enumerate(getattr(self._before, key)):
                known[id(turn)] = (i,)
                for j, part in enumerate(turn.parts):
                    known[id(part)] = (i, "parts", j)
                    for k, inner in enumerate(getattr(part, "parts", ())):  # of a tool's result
                        known[id(inner)] = (i, "parts", j, "parts", k)
        return known


def _parts_on(turn: Any, rest: Place) -> list[tuple[Any, int]]:
    """The parts on the way to a place in a turn, outermost first, each with how many steps lead to it."""
    found: list[tuple[Any, int]] = []
    while rest[:1] == ("parts",) and len(rest) > 1 and isinstance(rest[1], int):
        parts = getattr(turn, "parts", ())
        if rest[1] >= len(parts):
            break
        turn, rest = parts[rest[1]], rest[2:]
        found.append((turn, 2 * len(found) + 2))
    return found


def _home(turn: Any, known: dict[int, Place]) -> int | None:
    """The number of the turn before the pass: the same object, or the turn that its first known part was in. A pass may
    have joined or emptied turns."""
    for item in (turn, *turn.parts):
        if id(item) in known:
            return int(known[id(item)][0])
    return None


def _teller(before: Sequence[Any], turn: Any, known: dict[int, Place], rest: Place) -> int | None:
    """The turn whose extras these are: the same object, or the last of several joined turns that has this key."""
    if id(turn) in known or len(rest) < 3:
        return None
    for i, turn_before in enumerate(before):
        if turn_before.extras is turn.extras:
            return i
    homes = {int(known[id(part)][0]) for part in turn.parts if id(part) in known}
    holders = [i for i in homes if rest[2] in before[i].extras.get(rest[1], {})]
    return max(holders, default=None)


def find_present(value: Any, place: Place, *, invented: bool) -> Place:
    """The longest beginning of a place that exists in the value. An invented field has a place, though nothing is
    there."""
    for i, step in enumerate(place):
        if isinstance(step, int):
            listed = isinstance(value, (list, tuple))
            if listed and step >= len(value):
                return place[:i]
            value = value[step] if listed else None
        else:
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if value is None or (step == "citations" and not value):
            return place if invented else place[:i]
    return place


def _part_back(before: Any, after: Any, rest: Place) -> Place:
    """A place in a turn or a result that a pass replaced, as a place in the one before."""
    if rest[:1] != ("parts",) or len(rest) < 2 or not hasattr(before, "parts") or not hasattr(after, "parts"):
        return rest
    number = rest[1]
    if not isinstance(number, int) or number >= len(after.parts):
        return rest[:1]
    found = find_back(before.parts, after.parts, number)
    if found is None:
        return ("parts",)
    return ("parts", found, *_part_back(before.parts[found], after.parts[number], rest[2:]))


def find_back(before: Sequence[Any], after: Sequence[Any], number: int) -> int | None:
    """Where an item of one list was in the list before it; None for one that is new."""
    places = {id(item): i for i, item in enumerate(before)}
    homes = [places.get(id(item)) for item in after]
    kind = type(after[number])
    alike = [i for i, item in enumerate(before) if type(item) is kind]
    return _between(homes, len(before), number, alike, [type(item) is kind for item in after])


def _between(
    homes: list[int | None],
    count: int,
    number: int,
    alike: Sequence[int] = (),
    same: Sequence[bool] = (),
) -> int | None:
    """Where an item was before: its own earlier place if it is known, else a place between those of its neighbours.
    `alike`: places of items of the same kind, which are tried first. `same`: whether each item is of that kind."""
    if homes[number] is not None:
        return homes[number]
    taken = {home for home in homes if home is not None}
    low = max((home for home in homes[:number] if home is not None), default=-1)
    high = min((home for home in homes[number + 1 :] if home is not None and home > low), default=count)
    free = [i for i in range(low + 1, high) if i not in taken]
    if not free:
        return None
    first = number
    while first > 0 and homes[first - 1] is None:
        first -= 1
    kept = [i for i in free if i in alike]
    if kept:
        return kept[min(sum(same[first:number]), len(kept) - 1)]
    return free[min(number - first, len(free) - 1)]
