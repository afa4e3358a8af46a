"""The list of known gaps: what is on it passes, what is not fails, and what has closed fails until its line is gone."""

import subprocess
import sys

import pytest

from tests.gaps import CLOSED, LIST, check_problems, read_gaps

GAPS = {"a-case": "A sentence about what goes wrong."}


def test_a_listed_gap_passes() -> None:
    check_problems({"a-case": ["/model: lost"]}, GAPS)


def test_a_problem_that_is_not_listed_fails() -> None:
    with pytest.raises(AssertionError, match=r"(?s)1 cases:.*other-case.*/model: lost"):
        check_problems({"a-case": ["/model: lost"], "other-case": ["/model: lost"]}, GAPS)


def test_a_gap_that_has_closed_fails() -> None:
    with pytest.raises(AssertionError, match=f"(?s)a-case.*{CLOSED}"):
        check_problems({}, GAPS)


def test_every_gap_has_a_reason_that_is_a_sentence() -> None:
    reasons = {f"{test} {case}": reason for test, gaps in read_gaps().items() for case, reason in gaps.items()}
    assert [place for place, reason in reasons.items() if not reason.endswith(".")] == []


def test_every_test_with_a_gap_exists() -> None:
    """A line under the id of no test would stay for ever: no test would miss it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", *read_gaps(), __file__]
    found = subprocess.run(command, cwd=LIST.parents[1], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
