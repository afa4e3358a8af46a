"""What is kept for its own dialect is noted in every other: an extra is never lost in silence."""

import pytest
from msgspec import to_builtins

from dragoman.dialects import find_dialect
from dragoman.notes import Notes
from tests.fields.accounts import measured
from tests.fields.doors import door
from tests.fields.measure import own_places
from tests.fields.surfaces import surface
from tests.fields.test_accounts import DIALECTS, PLACES

WHOLE = [(dialect, section) for dialect, section in PLACES if not section.endswith("stream")]


@pytest.mark.parametrize(("dialect", "section"), WHOLE)
def test_an_extra_is_noted_in_every_other_dialect(dialect: str, section: str) -> None:
    through, found = door(dialect, section), measured(dialect, section)
    silent = []
    for path, entry in surface(dialect).sections[section].items():
        if found[path].account != "extra":
            continue
        value, pointers = own_places(entry, through)
        pointers = [pointer for pointer in pointers if not is_hushed(value, pointer)]
        silent += [
            f"{path} to {target}: {pointers[:2]}"
            for target in DIALECTS
            if pointers and target != dialect and not noted(value, target, pointers)
        ]
    assert not silent, f"{len(silent)} extras lost in silence:\n" + "\n".join(silent[:20])


def is_hushed(value: object, pointer: str) -> bool:
    """Whether its own dialect says of an extra that it means nothing elsewhere (`~silent`)."""
    holder = to_builtins(value)
    for step in pointer.split("/")[1:]:
        if isinstance(holder, dict):
            if step in holder.get("~silent", ()):
                return True
            holder = holder.get(step)
        else:
            holder = holder[int(step)] if isinstance(holder, list | tuple) else None
    return False


def noted(value: object, target: str, pointers: list[str]) -> bool:
    return any(covers(where, pointer) for where in notes_of(value, target) for pointer in pointers)


def notes_of(value: object, target: str) -> list[str]:
    there, notes = find_dialect(target), Notes()
    if type(value).__name__ == "Request":
        there.encode_request(value, notes)  # type: ignore[arg-type]
    else:
        there.encode_reply(value, notes)  # type: ignore[arg-type]
    return [note.where for note in notes if note.kind in ("dropped", "altered", "repaired")]


def covers(where: str, pointer: str) -> bool:
    return pointer == where or pointer.startswith(where + "/") or where.startswith(pointer + "/")
