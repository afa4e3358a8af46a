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
    "Faults": (FAULTS, "what happens", "what the gateway does"),
    "Threats": (THREATS, "threat", "what the gateway does"),
}
INTRO = """# When things go wrong

This page lists what the gateway promises, what it does when a provider, a client or a process fails, and what it does
about attacks. Each row names the tests that show it. They run with every change. The page is made from
`tests/gateway/faults.toml`; a test fails when a row has no test.

The limits and how to set them are in the [configuration](configuration-reference.md#limits-of-a-request).
"""
FIGURES = """## Figures

All on two busy cores, 16 November 2026.

**Chaos**: `bench/chaos.py --minutes 5 --seed 2`. Clients of five dialects ask upstreams of five dialects that answer,
refuse, stall, reset, cut a stream, and send bodies shorter or longer than they say; clients leave at random moments.
Meanwhile, twenty times each: a good and a bad configuration is loaded, a worker is killed with SIGKILL, the clock of
all processes jumps by an hour or back, the disk under the gateway's home (4 MB) is full and free again. 19,282
requests: every one ended in a way that its kind allows, or its connection was cut within three seconds of a kill
(216, of which 32 were whole answers and streams that would have gone well). The worker that lived through it had 45.3
MB at first, 48.9 after half the time and 49.4 at the end; its files and sockets came back. On 18 November 2026,
with a load of 20 to 25 on the two cores (seed 7): 10,754 requests, 49.5 MB at the end; 23 answers were a 504, which
these kinds do not allow: the bench gives an upstream two to four seconds, and did not tell yet how long they took. A
run of three minutes that tells it (seed 11, 5,929 requests): 7 answers late by the bench's own seconds, none wrong, and
47.3 MB at the end.

**Memory**: `bench/soak.py --requests 100000 --connections 32`, 18 November 2026: whole and streamed answers in five
dialects, each to each, clients that leave, 429 with hints, 500, resets, and requests that are none. From 49.4 MB to
58.5 MB in the first 50,000 requests, 0.2 MB more in the next 10,000 and 0.1 MB more in the last 40,000: warming up, not
a leak (0.42 MB in 100,000 requests through the second half; the goal is 1). Files and tasks came back, and nothing was
running.

**The loop**: `python -m tests.gateway.stalls` measures the longest step of the loop for the worst requests and
answers of each kind. 25 seconds for 50,000 stop sequences, 2 seconds for 180,000 unknown keys, 0.9 seconds for 5,000
streamed calls and 0.4 for 29,000 unanswered ones became 20 to 50 ms at most, and mostly below 10; a body of 30 MB
costs 20 to 30 ms when its pieces are joined. What runs in a thread gives way every millisecond, but for single calls
of the JSON reader, of which the longest is some 50 ms for 400,000 values.

**Foreign bytes**: `bench/fuzz.py --minutes 2`: 187,000 inputs to 21 readers, and nothing but answers and our own
errors. The run before found one error of ours (half a surrogate pair in a JSON-RPC batch), which is mended. On 18
November 2026, with that load: 46,000 inputs, nothing wrong.
`--atheris` (`pip install atheris` goes well here) hands the same readers to libFuzzer: 91,000 inputs to JSON-RPC in
seven seconds found nothing; the other readers had no long run of it yet.

**Proxies**: nginx, HAProxy and Caddy before or behind the gateway pass streams on as they come, and end an upstream
whose client has left; HAProxy needs `option abortonclose` for that. nginx before the gateway need not be told not to
buffer. Caddy 2.6 needs `buffer_requests` in `reverse_proxy`: without it one stream in five came out empty under status
200, before a plain asyncio server as well, when the answer began before Caddy had noticed the end of the request.
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
