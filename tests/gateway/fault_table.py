"""The table of faults, threats and promises: faults.toml as values, and docs/faults.md made of it."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, convert

from tests.gateway.test_error_table import BROKEN_CELLS, CELLS

TABLE = Path(__file__).parent / "faults.toml"
TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "faults.md"

# Every fault, threat and promise of RELIABILITY.md.
FAULTS = tuple(f"F{n:02}" for n in range(1, 69))
THREATS = tuple(f"T{n:02}" for n in range(1, 49))
PROMISES = tuple(f"P{n}" for n in range(1, 11))
PARTS = {
    "Promises": (PROMISES, "what", "then"),
    "Faults": (FAULTS, "what happens", "and then"),
    "Threats": (THREATS, "who does what", "and then"),
}
INTRO = """# When things go wrong

What the gateway promises, what it does when an upstream, a client or a process fails, and what it does about those who
mean harm: row by row, each with the tests that show it. They run with every change; the page is made of
`tests/gateway/faults.toml`, and a test fails when a row has none.

The limits and how to set them are in the [configuration](configuration.md#limits).
"""
FIGURES = """## Figures

`bench/soak.py --requests 6000 --connections 16` on two busy cores (2026-11-16): whole and streamed answers in five
dialects, each to each, clients that leave at random moments, 429 with hints, 500, resets, and requests that are none.
All 6,000 ended in an allowed way: 4,810 answers (200), 605 left by their clients, 295 limited, 117 failed, 61 reset
(502), 112 wrong (400). At the end nothing was running, and files and tasks were back where they began. Memory went from
45.6 to 47.8 MB and still rose at the end, 26 MB in 100,000 requests if it went on: so short a run does not tell whether
that is warming up. Reloads, killed workers and clocks that jump are not part of the run.

`bench/fuzz.py --minutes 2`: 187,000 inputs to 21 readers of foreign bytes, and nothing but answers and our own errors.
The run before found one error of ours (half a surrogate pair in a JSON-RPC batch), which is mended.
"""
ERRORS = """## Errors

What a client hears of each kind of failure, at its own door: the status, and the words its programs act on. Rate
limits and overload come with `Retry-After` (Gemini's clients find it in `RetryInfo` too, JSON-RPC's in
`data.retry_after_s`), what is no use to try again with `x-should-retry: false`. JSON-RPC says its errors under status
200, except those of HTTP itself.
"""
IN_STREAM = """In a stream that has begun, the same words come as its last frame, and nothing after them:
`data: {"error": ...}` without `[DONE]` (Chat, Gemini), `event: error` (Anthropic), `response.failed` (Responses), a
line `{"error": ...}` (Ollama, JSON-RPC).
"""


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fault: str
    then: str = ""
    tests: tuple[str, ...] = ()
    note: str = ""
    not_here: str = ""


def read_rows() -> dict[str, Row]:
    return convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, Row])


def faults_page() -> str:
    rows = read_rows()
    lines = [INTRO]
    for title, (names, first, second) in PARTS.items():
        lines += [f"## {title}", "", f"| | {first} | {second} | shown by |", "|---|---|---|---|"]
        lines += [_line(name, rows[name]) for name in names]
        lines.append("")
    return "\n".join([*lines, FIGURES, ERRORS, *_errors(CELLS), "", IN_STREAM, *_errors(BROKEN_CELLS), ""])


def _errors(cells: Mapping[str, Mapping[str, object]]) -> list[str]:
    doors = list(next(iter(cells.values())))
    lines = [f"| | {' | '.join(doors)} |", "|---" * (len(doors) + 1) + "|"]
    return lines + [f"| {kind} | {' | '.join(_cell(row[door]) for door in doors)} |" for kind, row in cells.items()]


def _cell(value: object) -> str:
    """A status and words, or the words alone."""
    if isinstance(value, tuple):
        return " ".join(part for part in map(_cell, value) if part)
    return "" if value is None else f"`{value}`" if isinstance(value, str) else str(value)


def _line(name: str, row: Row) -> str:
    then = row.then if not row.not_here else f"not here: {row.not_here}"
    then += f" ({row.note})" if row.note else ""
    return f"| {name} | {row.fault} | {then} | {'<br>'.join(_link(test) for test in row.tests) or '-'} |"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    plain, _, cell = name.partition("[")
    words = plain.removeprefix("test_").replace("_", " ")
    words = re.sub(r"^((?:[fpt]\d+ )+)", "", words) + (f": {cell.removesuffix(']')}" if cell else "")
    return f"[{words}](../tests/{path})"
