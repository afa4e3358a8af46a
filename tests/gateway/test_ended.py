"""Ended: the line of the log is the same whichever way it is written, and a row has the columns of its table."""

from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from dragoman.accounts.prices import Cost
from dragoman.gateway.scope import Scope
from dragoman.gateway.telemetry.ended import Ended
from dragoman.gateway.telemetry.metrics import Metrics
from dragoman.gateway.telemetry.traffic_store import COLUMNS
from dragoman.log_line import write_line
from dragoman.model.reply import Usage
from dragoman.note_ranks import FoldedNote
from dragoman.notes import ROOT, At, Note, Notes
from dragoman.upstream.open_answer import OpenAnswer
from tests.laws.fast_paths import without

USUAL = Ended(
    at=1_794_700_800.25,
    seconds=0.0334,
    id="5f3a",
    door="chat",
    asked="fast",
    upstream="far",
    model="far-model",
    answered="far-model",
    status=200,
    failure="",
    first_s=None,
    usage=Usage(input=3, cache_read=4, output=5),
    cost=None,
    cost_text="",
    key="ada",
    team="web",
    agent="claude-cli/2.0",
    tries=1,
    outcomes=(),
    waited_s=0.0,
    kept=False,
    notes=(),
    more={},
)
LOST = FoldedNote("lost", Note("dropped", "/seed", "far has no seed"), 2)
CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"id": "a b", "asked": 'x" y=1\n', "key": "o'neill ä", "team": ""},
    {"asked": "m" * 3000},
    {"status": 0, "answered": None, "upstream": "", "model": "", "tries": 0, "usage": None, "cost": Cost(0, "")},
    {"first_s": 0.02, "waited_s": 1.5, "cost": Cost(1234, "USD")},
    {"first_s": 0.0001, "seconds": 0.0001, "cost": Cost(1234, "USD"), "cost_text": "0.001234 USD"},
    {"tries": 2, "outcomes": [("far", "timed_out"), ("near", "ok")], "failure": "overloaded", "status": 503},
    {"notes": [LOST], "more": {"notes": 2, "lost": "/seed and 1 more: far has no seed", "mended": ""}},
    {"usage": Usage(input=-(10**16), output=10**16)},
    {"usage": Usage(output=0, reasoning=7), "team": None, "key": ""},
)


def test_the_short_way_writes_the_same_line() -> None:
    for change in CHANGES:
        ended = replace(USUAL, **change)
        assert str(ended) == write_line("request", ended.fields)
    words = "id=5f3a door=chat status=200 model=fast upstream=far key=ada team=web input=7 output=5 ms=33"
    assert str(USUAL) == f"request {words}"


def test_requests_that_are_counted_together_count_as_one_by_one() -> None:
    together, apart = Metrics(), Metrics()
    for times in range(4):
        for change in CHANGES:
            ended = replace(USUAL, **{"seconds": 0.04 * 3**times, **change})
            together.put(ended)
            apart.put(ended)
            apart.settle()
    assert counts_of(together) == counts_of(apart)
    assert together.requests["chat", "far", 200] == 4 * (len(CHANGES) - 2)
    assert together.attempts == {("far", "ok"): 4 * (len(CHANGES) - 2), ("far", "timed_out"): 4, ("near", "ok"): 4}
    assert together.tokens["far", "far-model", "reasoning"] == 28
    assert together.costs["far", "far-model", "web", "USD"] == 8 * 1234
    assert together.keys == {("ada", "web"): 32, ("o'neill \u00e4", ""): 4}


def counts_of(metrics: Metrics) -> object:
    found = metrics.dump()
    seconds = [(door, counts, round(total, 9)) for door, counts, total in found.seconds]
    tables = {name: sorted(getattr(found, name)) for name in found.__struct_fields__ if name.endswith("s")}
    return {**tables, "seconds": seconds, "first": found.first, "left": found.left}


def test_a_row_has_the_columns_of_its_table() -> None:
    for change in CHANGES:
        ended = replace(USUAL, **change)
        row = ended.make_row()
        assert ended.values() == tuple(getattr(row, name) for name in COLUMNS)
    row = replace(USUAL, notes=[LOST], cost=Cost(1234, "USD"), kept=True).make_row()
    assert (row.lost, row.changed, row.cost, row.program, row.ms, row.input) == (
        2,
        0,
        "0.001234 USD",
        "claude-cli",
        33,
        7,
    )
    assert (row.key, row.time, row.kept) == ("ada", 1_794_700_800_250, True)


PLACES: tuple[At, ...] = (((ROOT, "messages"), 0), (((ROOT, "messages"), 0), "parts"), (ROOT, "tools"))


@pytest.mark.parametrize("count", range(4))
def test_folded_notes_tell_what_was_mended(count: int) -> None:
    found = set()
    for places, whys in product(product(PLACES, repeat=count), product("ab", repeat=count)):
        notes = Notes()
        for at, why in zip(places, whys, strict=True):
            (notes.dropped if why == "a" else notes.altered)(at, why)
        scope = Scope.__new__(Scope)
        scope.answer, scope._folded = cast("OpenAnswer", SimpleNamespace(notes=notes)), None
        words = scope._say_mended(scope.fold_notes())
        with without("one note of each kind"):
            assert scope._say_mended(scope.fold_notes()) == words
        found.add(words)
    assert len(found) >= count
