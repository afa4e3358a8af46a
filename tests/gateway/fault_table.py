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

All on two busy cores, 16 to 19 November 2026.

**Chaos**: `bench/chaos.py --minutes 5 --seed 3`, 18 November 2026, with a load of 19 on the two cores. Clients of five
dialects ask upstreams of five dialects that answer, refuse, stall, reset, cut a stream, and send bodies shorter or
longer than they say; clients leave at random moments. Meanwhile, twenty times each: a good and a bad configuration is
loaded, a worker is killed with SIGKILL, the clock of all processes jumps by an hour or back, the disk under the
gateway's home (4 MB) is full and free again. 16,637 requests: every one ended in a way that its kind allows, or its
connection was cut by a kill that happened while it ran (185, of which 47 were whole answers and streams that would have
gone well). The worker that lived through it had 45.9 MB at first, 47.4 after half the time and 47.5 at the end; its
files and sockets came back. An earlier referee allowed an answer that was late: the 504 of those runs were the bench's
own deadline of four seconds for whole answers, which a busy machine reaches. Now only streams that are to meet silence
have short times, and any other timeout is a fault. Again the same day with `--seed 11` and a load of 3 to 6: every
request ended in an allowed way, 42.9 MB at first, 44.2 after half the time, 44.9 at the end, and no file more.
With `--seed 12` on 19 November 2026, beside six engineers' test runs (a load of about 10): 32,874 requests, every one
ended in an allowed way, 209 were cut by a kill; 43.0 MB at first, 45.4 after half the time, 46.0 at the end.

**Memory**: `bench/soak.py --requests 100000 --connections 32`, 18 November 2026: whole and streamed answers in five
dialects, each to each, clients that leave, 429 with hints, 500, resets, and requests that are none. From 49.4 MB to
58.5 MB in the first 50,000 requests, 0.2 MB more in the next 10,000 and 0.1 MB more in the last 40,000: warming up,
not a leak (0.42 MB in 100,000 requests through the second half; the goal is 1). Files and tasks came back, and nothing
was running. Again the same day, with a load of 7 to 10: 0.64 MB in 100,000 requests through the second half, to 56.2
MB. On 19 November 2026 (`--seed 29`, a load of 25) 32 of 100,000 requests were still running at the end, with 34
sockets and 3.8 MB: a client that left in the turn in which its stream began. Mended; with `--seed 31` nothing was
running and 2 files were more, but memory grew by 1.5 MB from 50,000 to 100,000 requests (56.2 to 57.7 MB), ever more
slowly: the packs of traffic fill.

**The loop**: `python -m tests.gateway.stalls` measures the longest step of the loop for the worst requests and
answers of each kind. 25 seconds for 50,000 stop sequences, 2 seconds for 180,000 unknown keys, 0.9 seconds for 5,000
streamed calls and 0.4 for 29,000 unanswered ones became 20 to 50 ms at most, and mostly below 10; a body of 30 MB
costs 20 to 30 ms when its pieces are joined. Lone surrogates, escapes, results of 20 MB, arguments of
300,000 values, an enum of 100,000 words and a schema of 50,000 properties, sent twice at each door: 37 ms at most, all
others below 30 (18 November 2026, with a load of 20). What runs in a thread gives way every millisecond, but for single
calls of the JSON reader, of which the longest is some 50 ms for 400,000 values.

Bodies that stay just below the size from which a thread is used (images, cache marks, calls with results out of order,
escapes, integers of 400 digits, a deep schema; at each door to each dialect): 47 ms for 10,000 pictures at Ollama's
door, 35 for a schema of 1,500 properties, all others below 22 (19 November 2026). What an MCP server sends held the
loop for up to ten seconds (a hundred pages of tools of 7 MB each); the worst of 16 kinds is 40 ms now.

**Foreign bytes**: `bench/fuzz.py` changes inputs at random, `--atheris` hands the same readers to libFuzzer
(`pip install atheris` goes well here). On 18 November 2026, some 17 minutes of libFuzzer at low priority beside
a load of 20: 4.2 million inputs to 21 readers, in the end nothing but answers and our own errors.
It found two faults, which are mended: keys that begin with `~` were taken for the gateway's own, in requests and
in answers, and a block of an Anthropic stream that begins twice had no end. Before, without coverage: 187,000 inputs in
two minutes, and half a surrogate pair in a JSON-RPC batch.

Without libFuzzer, the same day, beside eight busy processes: 2.7 million inputs to 21 readers in five minutes, and 6.6
million in ten, none wrong. What these runs could not find, because each input is short: a frame of a provider in
thousands of pieces (3 MB took 46 seconds) and a body in chunks of two bytes (10 MB took 280 MB). Both are read
in one pass now, and have tests of their own.

Again on 19 November 2026, ten minutes of libFuzzer: 12.4 million inputs to 21 readers, and two faults, which are
mended: an odd value under a key of ours inside a turn, and a part of a Responses stream that began after its item was
done. Events of each dialect's stream that are shuffled, repeated and left out (6,000 times each) break no grammar.

The same evening, ten minutes of libFuzzer at low priority beside a load of 22: 4.3 million inputs to 21 readers, none
wrong. X-ray's frames, 137,000 streams; what may be sent or passed on unread, 3 million bodies: none wrong, but a
stream without a frame, which is mended.

**Fast paths**: compared with the long way, 18 November 2026. On real sockets, known heads: 3,872 connections whose
requests differ by a few bytes, lengths or pieces; and the plain way: 24 kinds of answers, most of them hostile, three
times each. In one process, runs of deltas: 25,060 ways to split streams of five dialects. None differed. On 19
November 2026 at random: 1,478 connections of two to six requests, bent bodies and heads, answers that are bent, cut or
followed by others at any byte, and between them a key revoked, limited or restricted, a reload, a lesson, other
prices, an alias that moves, a client that leaves; 1,760 of the requests went without a task. None differed but in ids,
times and the choice among idle connections. Streams of all 25 pairs, 1,185, with odd texts and frames: the same bytes
with and without splices but for the number of one error in a Responses stream, read by the official packages' types.
Two tenants who ask alike on shared connections (8,335 requests) and ask for each other's stored responses (2,551
times) got nothing of each other.

**Planted faults**: each fifth row of these tables from F03 on, and F01, had its defence taken out of the code, and its
tests were run. Of 24 (F43, which needs a Valkey server, was not tried), 19 turned red at once. F13 and T29
have two defences and turned red when the one that acts was taken, F65 has three and stayed green with one fewer. The
tests of F28 and F50 were too weak, and are new.

**A busy machine**: the folders whose tests touch clock, process or socket (tests/gateway, upstream, mcp, agent,
engines, cli, client, accounts, testing) beside eight busy processes on two cores, 18 November 2026: four runs of ten
to fifteen minutes. Two were green. One failed by a test that looked at the threads of other tests, and one by a fault
that was an hour old; both are mended. Ten runs in a row were not tried: they take two hours.
The whole suite (two processes, beside seven other programs that tested): of the first five runs four were green, with
loads of 2.5, 4.8, 11.8 and 10.9 on average (16.1 at most). In the fifth and sixth (9.6 and 11.5), four and seven tests
failed at commits of the same hour that had changed messages or answers without them; none failed because of time.

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
