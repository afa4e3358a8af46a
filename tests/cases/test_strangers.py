"""Each rule of docs/strangers.md names tests, scenarios and refusals that exist."""

import ast
from functools import cache

import pytest

from dragoman.conformance.scenario import load_scenarios
from tests.cases.strangers import PAGE, TESTS, Row, page, read_rows

ROWS = read_rows()
SOURCE = TESTS.parent / "src" / "dragoman" / "testing"


@pytest.mark.parametrize("row", ROWS, ids=[row.was[:50] for row in ROWS])
def test_a_rule_is_held_by_what_it_names(row: Row) -> None:
    assert row.tests
    for test in row.tests:
        path, _, name = test.partition("::")
        assert name in named_in(path), test
    assert set(row.verify) <= {scenario.name for scenario in load_scenarios()}
    for words in row.checker:
        assert words in refusals(), words
    assert bool(row.verify or row.checker) != bool(row.why_none)


@cache
def named_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def refusals() -> str:
    files = sorted(file for file in SOURCE.rglob("*") if file.suffix in (".py", ".toml"))
    return "\n".join(file.read_text("utf-8") for file in files)


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"
