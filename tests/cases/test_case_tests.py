"""Every number of FIELD-CASES and every row of the mission is held by a test that exists, and the pages say so."""

import inspect
import re
from pathlib import Path

import pytest

from dragoman.passes import prepare
from tests.cases import pages
from tests.cases.case_tests import (
    TESTS,
    Held,
    all_tests,
    exists,
    held_by,
    read_cases,
    read_mission,
    read_results,
    source_of,
    table_rows,
)
from tests.passes.test_without_one_pass import WITHOUT

SHARED = TESTS.parent.parent / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="no list of cases to compare with: put the documents of shared/ beside the project"
)
BY_ID = ("A7", "B1", "B5", "B6", "D5", "D7", "E1", "E2", "E3", "E4", "E5")


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"{case.number} {case.name[:40]}")
def test_every_number_is_held_by_a_test(case: Held) -> None:
    assert held_by(case), "no test would fail if we had this bug"


@pytest.mark.parametrize("row", read_mission(), ids=lambda row: f"{row.number} {row.name[:40]}")
def test_every_row_of_the_mission_is_proven_by_a_test(row: Held) -> None:
    assert row.tests


def test_every_named_test_exists() -> None:
    assert [test for test in all_tests() if not exists(test)] == []


@pytest.mark.parametrize("number", BY_ID)
def test_a_test_names_the_row_it_proves(number: str) -> None:
    row = next(row for row in read_mission() if row.number == number)
    sources = [source_of(path)[name] for path, _, name in (test.partition("::") for test in row.tests)]
    assert any(re.search(rf"(?<![a-zA-Z0-9]){number}(?![0-9])", text.replace("_", " "), re.I) for text in sources)


@needs_shared
def test_no_number_of_the_list_is_missing() -> None:
    listed = re.findall(r"^### (\d+)\. ", (SHARED / "FIELD-CASES.md").read_text("utf-8"), re.MULTILINE)
    assert set(listed) <= {case.number for case in read_cases()}


@needs_shared
def test_no_row_of_the_mission_is_missing() -> None:
    text = (SHARED / "MISSION.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-E]\d+) \|", text, re.MULTILINE)
    wishes = re.findall(r"^(\d+)\. ", text.rpartition("## ")[2], re.MULTILINE)
    assert [row.number for row in read_mission()] == [*rows, *(f"W{wish}" for wish in wishes)]


def test_every_number_of_a_table_has_a_name() -> None:
    assert {row.number for row in table_rows()} <= {case.number for case in read_cases()}


def test_every_pass_is_taken_out_once() -> None:
    functions = {name: value for name, value in vars(prepare).items() if inspect.isfunction(value)}
    passes = [
        name
        for name, value in functions.items()
        if value.__module__ != prepare.__name__ and "Request" in str(inspect.signature(value).return_annotation)
    ]
    assert passes
    assert [name for name in passes if name not in WITHOUT] == []


def test_every_named_test_was_run_and_none_failed() -> None:
    results = read_results()
    unknown = [test for test in all_tests() if not results.get(test)]
    assert unknown == [], "run `python -m tests.cases.pages --again`"
    assert [test for test, counts in results.items() if counts.get("failed")] == []


@pytest.mark.parametrize("path", [pages.CASES_PAGE, pages.MISSION_PAGE], ids=lambda path: path.name)
def test_the_pages_are_fresh(path: Path) -> None:
    assert path.read_text("utf-8") == pages.pages()[path], "run `python -m tests.cases.pages --quick`"
