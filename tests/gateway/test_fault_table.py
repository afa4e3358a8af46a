"""Every row of the fault table has its tests, and every test it names is there."""

import ast
from functools import cache

import pytest

from tests.gateway.fault_table import FAULTS, PAGE, PROMISES, TESTS, THREATS, faults_page, read_rows


def test_every_row_is_there_and_shows_something_or_says_why_not() -> None:
    rows = read_rows()
    assert set(rows) == {*FAULTS, *THREATS, *PROMISES}
    assert [name for name, row in rows.items() if bool(row.tests) == bool(row.not_here)] == []
    assert [name for name, row in rows.items() if row.tests and not row.then] == []


@pytest.mark.parametrize("name", [*FAULTS, *THREATS, *PROMISES])
def test_the_named_in_a_row_exist(name: str) -> None:
    for test in read_rows()[name].tests:
        path, _, function = test.partition("::")
        plain, _, cell = function.partition("[")
        assert plain in named_in(path), test
        assert cell.removesuffix("]") in (TESTS / path).read_text("utf-8"), test


@cache
def named_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == faults_page(), "run `make docs`"
