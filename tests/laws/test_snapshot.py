"""Recorded traffic is written as it was before, to the byte: what is sent to providers, what clients get, every note.

After a change on purpose: `python -m tests.laws.snapshot accept`, in a commit that says what changed and why.
All 1,750 exchanges are compared in every run: it takes some 15 s on one core.
"""

from collections.abc import Iterable

import pytest

from tests.laws.snapshot.report import describe
from tests.laws.snapshot.table import DIRECTIONS, WRITE, Direction, compare
from tests.laws.snapshot.ways import DIALECTS, Written, write_replies
from tests.recorded import Case, needs_corpus


@needs_corpus
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_recorded_traffic_is_written_as_it_was(direction: Direction, dialect: str) -> None:
    told = describe(direction, dialect, compare(direction, dialect))
    assert not told, told


@needs_corpus
@pytest.mark.parametrize(("sent", "notes"), [(b"{}", b""), (b"", b"dropped /x: gone\n")])
def test_a_change_names_its_target_and_tells_bytes_from_notes(
    sent: bytes, notes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(case: Case, targets: Iterable[str]) -> dict[str, Written]:
        written = write_replies(case, targets)
        old = written["gemini"]
        return written | {"gemini": Written(old.sent + sent, old.notes + notes)}

    monkeypatch.setitem(WRITE, "replies", changed)
    found = compare("replies", "ollama")
    assert {target for change in found.changes for target in change.sent} >= ({"gemini"} if sent else set())
    assert bool(sent) == any(change.sent for change in found.changes)
    assert bool(notes) == any(change.notes for change in found.changes)
    told = describe("replies", "ollama", found)
    assert ("BYTES" in told) == bool(sent)
    assert "--target gemini" in told
