"""A few seconds of what bench/fuzz.py does for ten minutes: no exception but ours, and no input that takes long."""

from random import Random

import pytest

from tests.fuzz.targets import make_targets, mutate, try_read

TARGETS = make_targets()
RUNS = 60


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_read_is_read_or_refused(name: str) -> None:
    read, seed = TARGETS[name]
    assert not try_read(read, seed)
    dice = Random(f"fuzz {name}")  # noqa: S311  # the same inputs in every run
    for _ in range(RUNS):
        data = mutate(seed, dice)
        assert not try_read(read, data), data
