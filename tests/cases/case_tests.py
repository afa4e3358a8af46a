"""Which tests hold which number of FIELD-CASES and which row of the mission: two data files and the three tables."""

import ast
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.cases import test_replies, test_streams
from tests.cases.summary import CLIENTS
from tests.passes import test_cases
from tests.passes.test_prepare import TARGETS

HERE = Path(__file__).parent
TESTS = HERE.parent
RESULTS = HERE / "results.json"  # of the last real run: test -> how many of its cells passed and were skipped

# the tables: module, where it is, its test, and how many targets each row is tried on
REQUESTS = "passes/test_cases.py"
STREAMS = "cases/test_streams.py"
REPLIES = "cases/test_replies.py"
TABLE_TESTS = {
    REQUESTS: ("test_the_target_gets_exactly_this_and_takes_it", "test_every_case_is_taken_by_every_target"),
    STREAMS: ("test_the_stream_says", "test_every_client_hears_the_same"),
    REPLIES: ("test_the_answer_says", "test_every_client_hears_the_same"),
}


class Row(NamedTuple):
    """One row of one of the tables."""

    number: str
    name: str
    table: str
    source: str
    target: str  # "" for all clients


class Held(NamedTuple):
    """What is known about one number."""

    number: str
    name: str
    tests: tuple[str, ...]
    note: str


def table_rows() -> list[Row]:
    rows = [
        Row(*_split(case[0]), REQUESTS, case[1], f"{case[3]} {case[4]}" if case[4] != "m" else case[3])
        for case in test_cases.CASES
    ]
    rows += [Row(*_split(case[0]), STREAMS, case[1], "") for case in test_streams.CASES]
    rows += [Row(*_split(case[0]), REPLIES, case[1], "") for case in test_replies.CASES]
    return [row for row in rows if row.number.isdigit()]


def _split(title: str) -> tuple[str, str]:
    number, _, name = title.partition(" ")
    return number, name


@cache
def read_cases() -> tuple[Held, ...]:
    data = tomllib.loads((HERE / "cases.toml").read_text("utf-8"))
    found = [Held(n, row["name"], tuple(row.get("tests", ())), row.get("note", "")) for n, row in data.items()]
    return tuple(sorted(found, key=lambda held: int(held.number)))


@cache
def read_mission() -> tuple[Held, ...]:
    """In the order of the file."""
    data = tomllib.loads((HERE / "mission.toml").read_text("utf-8"))
    return tuple(Held(n, row["what"], tuple(row["tests"]), row.get("note", "")) for n, row in data.items())


def held_by(held: Held) -> list[str]:
    """Every test that holds it, those of the tables first."""
    tables = dict.fromkeys(row.table for row in table_rows() if row.number == held.number)
    return [*(f"{table}::{test}" for table in tables for test in TABLE_TESTS[table]), *held.tests]


def count_tried(held: Held) -> tuple[int, int]:
    """Rows in the tables, and how many conversions they are: each row meets every target, or every client."""
    rows = [row for row in table_rows() if row.number == held.number]
    met = {REQUESTS: 1 + len(TARGETS), STREAMS: 1 + len(CLIENTS), REPLIES: 1 + len(CLIENTS)}
    return len(rows), sum(met[row.table] for row in rows)


def all_tests() -> list[str]:
    """Every test that is named anywhere, once."""
    named = [test for held in (*read_cases(), *read_mission()) for test in held_by(held)]
    return list(dict.fromkeys(named))


@cache
def source_of(path: str) -> dict[str, str]:
    """The tests of a file -> their source, with what decorates them."""
    text = (TESTS / path).read_text("utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = text.splitlines()
    return {
        f.name: "\n".join(lines[min([f.lineno, *(d.lineno for d in f.decorator_list)]) - 1 : f.end_lineno])
        for f in functions
    }


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (TESTS / path).is_file() and name in source_of(path)


def read_results() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(RESULTS.read_text("utf-8"))["tests"]
    return found
