"""No pattern of a client or a provider runs on an engine that backtracks: inline flags and blanks hide nothing."""

import ast
import time
from pathlib import Path

import pytest

import dragoman
from dragoman.accounts.grants import matches
from dragoman.demo.patterns import matches_pattern, sample_pattern
from dragoman.json_schema.check import find_violation

SOURCE = Path(dragoman.__file__).parent
EVIL = (
    "(?x) ( a + ) + $",
    "(?xi)( a | a ) * $",
    "(?s:(a+)+$)",
    "(?#x)(a+)+$",
    "(a|aa)+$",
    "(.*a){20}$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
)
# Places that make a pattern of something other than a literal of ours, and whose it is.
OURS = {
    "gateway/routes/table.py": "paths of doors",
    "passes/rename.py": "letters of a profile",
    "learner_rules.py": "rules of ours",
    "learner.py": "rules of ours",
    "mcp/react.py": "tags of ours",
    "accounts/grants.py": "models and tools that an admin allows, as words with * and ?",
    "testing/checkers/shared.py": "rules of the strict checkers",
    "testing/provider.py": "paths of doors",
    "conformance/scenario.py": "scenarios that the user runs",
    "conformance/record.py": "words that a recording hides",
    "conformance/scenario_checks.py": "scenarios that the user runs",
    "gateway/config/source.py": "names of keys, escaped",
    "testing/rules.py": "rules of the strict checkers",
    "demo/tool_calls.py": "names of tools, escaped",
    "framing/templates.py": "keys of frames that vary, named by a dialect",
}


@pytest.mark.parametrize("pattern", EVIL)
def test_a_slow_pattern_is_not_slow_wherever_it_is_tried(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    began = time.process_time()
    find_violation(text, {"type": "string", "pattern": pattern})
    find_violation({text: 1}, {"type": "object", "patternProperties": {pattern: {"type": "integer"}}})
    matches_pattern(pattern, text)
    sample_pattern(pattern)
    assert time.process_time() - began < 2.0


def test_every_pattern_is_a_literal_or_ours() -> None:
    """A new place that compiles what it was given is seen here, and asked whose it is."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if _calls_re(node) and not _is_literal(node.args[0]):  # type: ignore[attr-defined]
                found.add(str(path.relative_to(SOURCE)))
    assert found <= OURS.keys(), found - OURS.keys()


def _calls_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in ("compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer")
    )


def _is_literal(node: ast.AST) -> bool:
    names = [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    return not any(name.islower() for name in names)  # constants of ours are in capitals


def test_a_glob_is_not_slow() -> None:
    """Globs of a key become one regular expression, which is tried with the name of a model that a client chose."""
    patterns = ("*a" * 99, "*?" * 99, *(f"*{i}*a*b*c*" for i in range(100)))
    began = time.process_time()
    assert matches(patterns, "a" * 20_000 + "!")
    assert not matches(("*a" * 99,), "a" * 20_000 + "!")
    assert time.process_time() - began < 2.0
