"""Notes: loss as data, and the policy that refuses it."""

import pytest

from dragoman.errors import LossError
from dragoman.notes import ROOT, Note, Notes


def test_a_place_is_spelled_as_a_json_pointer() -> None:
    notes = Notes()
    notes.dropped((((ROOT, "messages"), 3), "a/b~c"), "why")
    notes.altered(ROOT, "everything")
    assert list(notes) == [Note("dropped", "/messages/3/a~1b~0c", "why"), Note("altered", "", "everything")]


def test_a_refused_kind_raises_at_once_and_others_are_kept() -> None:
    notes = Notes(refuse={"dropped"})
    notes.altered((ROOT, "temperature"), "clamped")
    with pytest.raises(LossError, match="/seed: the target has none"):
        notes.dropped((ROOT, "seed"), "the target has none")
    assert len(notes) == 1
