"""Where a place in a conversation was before the passes changed it.

Passes join, drop, move and add turns and parts, so `/messages/3/parts/0` after a pass is rarely that before it. Values
are frozen, and a pass keeps the objects it does not change. So an object is found again by its identity; an object that
a pass replaced stands between the same neighbours as the one it replaced.

Only two lists have places that move: the turns (`messages` of a request, `choices` of a reply) with their parts, and
the tools. Everything else keeps its place.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str | int, ...]
TURNS = ("messages", "choices")


class Stages:
    """The forms a value had, first to last. It is empty while the value is still being read."""

    __slots__ = ("_steps", "forms")

    def __init__(self, *forms: Any) -> None:
        self.forms: list[Any] = list(forms)
        self._steps: dict[int, _Step] = {}

    def add(self, form: Any) -> None:
        if not self.forms or self.forms[-1] is not form:
            self.forms.append(form)

    def trace(self, number: int, place: Place) -> Place:
        """A place in the form with this number, as a place in the first one."""
        if len(place) < 2:
            return place
        for i in range(min(number, len(self.forms) - 1), 0, -1):
            step = self._steps.get(i)
            if step is None:
                step = self._steps[i] = _Step(self.forms[i - 1], self.forms[i])
            place = step.back(place)
        return place


class _Step:
    """One form and the one that a pass made of it."""

    __slots__ = ("_after", "_before", "_parts")

    def __init__(self, before: Any, after: Any) -> None:
        self._before, self._after = before, after
        self._parts: dict[str, dict[int, tuple[int, int]]] = {}  # id of a part before -> its turn and its place in it

    def back(self, place: Place) -> Place:
        if len(place) < 2 or not isinstance(place[0], str) or not isinstance(place[1], int):
            return place
        key, number, rest = place[0], place[1], place[2:]
        before, after = getattr(self._before, key, None) or (), getattr(self._after, key, None) or ()
        if before is after or number >= len(after):
            return place
        if key in TURNS:
            return (key, *self._turn_back(key, before, after, number, rest))
        found = find_back(before, after, number)
        return (key,) if found is None else (key, found, *rest)

    def _turn_back(self, key: str, before: Sequence[Any], after: Sequence[Any], number: int, rest: Place) -> Place:
        turn = after[number]
        in_part = len(rest) > 1 and rest[0] == "parts" and isinstance(rest[1], int) and rest[1] < len(turn.parts)
        if in_part:
            known = self._known(key, before).get(id(turn.parts[rest[1]]))
            if known is not None:
                return (known[0], "parts", known[1], *rest[2:])
        found = self._find_turn(key, before, after, number)
        if found is None:
            return ()
        if in_part:
            return (found, *_part_back(before[found], turn, rest))
        return (found, *rest)

    def _find_turn(self, key: str, before: Sequence[Any], after: Sequence[Any], number: int) -> int | None:
        """By what is in it first: a turn that was joined or emptied is still where its parts were."""
        known = self._known(key, before)
        for i, turn in enumerate(before):
            if turn is after[number]:
                return i
        for part in after[number].parts:
            if id(part) in known:
                return known[id(part)][0]
        homes = [self._home(known, before, turn) for turn in after]
        return _between(homes, len(before), number)

    def _home(self, known: dict[int, tuple[int, int]], before: Sequence[Any], turn: Any) -> int | None:
        found = next((known[id(part)][0] for part in turn.parts if id(part) in known), None)
        return found if found is not None else next((i for i, old in enumerate(before) if old is turn), None)

    def _known(self, key: str, before: Sequence[Any]) -> dict[int, tuple[int, int]]:
        known = self._parts.get(key)
        if known is None:
            known = self._parts[key] = {
                id(part): (i, j) for i, turn in enumerate(before) for j, part in enumerate(turn.parts)
            }
        return known


def _part_back(before: Any, after: Any, rest: Place) -> Place:
    """The place of a part that a pass replaced, or of something in it: `rest` begins with `parts` and a number."""
    number = rest[1]
    if not isinstance(number, int) or number >= len(after.parts):
        return rest[:1]
    found = find_back(before.parts, after.parts, number)
    if found is None:
        return ("parts",)
    old, new, inner = before.parts[found], after.parts[number], rest[2:]
    if len(inner) > 1 and inner[0] == "parts" and hasattr(old, "parts") and hasattr(new, "parts"):
        return ("parts", found, *_part_back(old, new, inner))
    return ("parts", found, *inner)


def find_back(before: Sequence[Any], after: Sequence[Any], number: int) -> int | None:
    """Where an item of one list was in the list before it; None for one that is new."""
    places = {id(item): i for i, item in enumerate(before)}
    return _between([places.get(id(item)) for item in after], len(before), number)


def _between(homes: list[int | None], count: int, number: int) -> int | None:
    """The home of an item: its own, else that of what stood there between its neighbours, in the same order."""
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
    return free[min(number - first, len(free) - 1)]
