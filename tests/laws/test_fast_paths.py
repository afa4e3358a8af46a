"""Every fast path gives what the slow path gives: the same bytes, the same values, the same notes.

`DRAGOMAN_ALL=1` compares all recorded exchanges; without it every fifth one.
"""

import os

import pytest

from tests.laws.fast_paths import without
from tests.laws.snapshot.table import DIRECTIONS, WRITE, Direction, targets_of
from tests.laws.snapshot.ways import DIALECTS, Written, talks
from tests.recorded import needs_corpus

EVERY = 1 if os.environ.get("DRAGOMAN_ALL") else 5


@needs_corpus
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_recorded_traffic_is_written_alike_with_and_without_the_fast_paths(direction: Direction, dialect: str) -> None:
    fast = write_all(direction, dialect)
    with without():
        slow = write_all(direction, dialect)
    assert slow.keys() == fast.keys()
    differing = {at: (fast[at], slow[at]) for at in fast if fast[at] != slow[at]}
    assert not differing, f"{len(differing)} differ, first the fast one: {next(iter(differing.items()))}"


def write_all(direction: Direction, dialect: str) -> dict[tuple[str, str], Written]:
    targets = targets_of(direction)
    return {
        (case.name, target): written
        for case in talks(dialect)[::EVERY]
        for target, written in WRITE[direction](case, targets).items()
    }
