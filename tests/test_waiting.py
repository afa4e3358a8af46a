"""No test depends on how busy the machine is: what a test needs is waited for, never slept for."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import NEVER_S

TESTS = Path(__file__).parent
SILENCE_S = 60.0  # a sleep that long is a program that hangs, on purpose: no test waits for its end
SLEEPS = ("time.sleep", "asyncio.sleep", "sleep")
INSTEAD = (
    "{place} sleeps. How long something takes depends on how busy the machine is. Wait until it is so with "
    "`wait_until(fact)`, `until(fact)` or `until_said(ask, fits)` of tests/waiting.py; `turns(n)` is work that takes a "
    "while; a threading.Event in `stream(...)` of tests/gateway/house.py holds an answer as long as the test wants. "
    "If the pause itself is what the test is about, raise its file's number in ALLOWED and say why."
)
# file -> how many sleeps, and what they are
ALLOWED: dict[str, tuple[int, str]] = {
    "agent/test_driver.py": (1, "a model that is as slow as its script says"),
    "engines/provider.py": (1, "a provider that streams slowly"),
    "engines/replicas.py": (3, "clients that rest between requests; a health page that is asked again"),
    "engines/test_valkey_limits.py": (3, "moments of Valkey's clock, and a wait in which nothing may be asked"),
    "gateway/skipped_pauses.py": (1, "polls whether the test lets a pause end"),
    "gateway/house.py": (1, "a scripted answer's pauses"),
    "gateway/test_abuse.py": (1, "an upstream that drips"),
    "gateway/test_client_connection.py": (1, "a client that reads slowly"),
    "gateway/test_faults.py": (2, "an upstream that resets after its head, and one whose head trickles"),
    "gateway/test_unreachable.py": (1, "an upstream that works for a while"),
    "mcp/test_faults.py": (1, "samples the memory in use"),
    "mcp/test_stdio.py": (1, "processes are killed at moments of a fixed dice"),
    "real/llama.py": (1, "polls a program that may not be installed"),
    "waiting.py": (3, "the one place that polls"),
}


def sleeps(file: Path) -> Iterator[str]:
    """Each sleep that is a guess of how long something takes: not 0, which yields, and not for ever."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and node.args:
            seconds = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if not isinstance(seconds, int | float) or 0 < seconds < SILENCE_S:
                yield f"tests/{file.relative_to(TESTS).as_posix()}:{node.lineno}"


def test_no_test_sleeps_instead_of_waiting_for_what_it_needs() -> None:
    for file in sorted(TESTS.rglob("*.py")):
        found = list(sleeps(file))
        allowed, _ = ALLOWED.get(file.relative_to(TESTS).as_posix(), (0, ""))
        assert len(found) <= allowed, INSTEAD.format(place=", ".join(found))
        assert len(found) == allowed, f"{file.name} sleeps less often now: lower its number in ALLOWED"


def short_waits(file: Path) -> Iterator[str]:
    """Each `timeout=3`, `.wait(2)`, `.join(5)`, `.result(1)`, `wait_for(x, 1)`: an end that a busy machine reaches."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        ends = [word.value for word in node.keywords if word.arg == "timeout"]
        ends += node.args[:1] if called in ("wait", "join", "result", "communicate") else []
        ends += node.args[1:2] if called == "wait_for" else []
        for end in ends:
            if isinstance(end, ast.Constant) and isinstance(end.value, int | float) and 0 < end.value < NEVER_S:
                yield f"tests/{file.relative_to(TESTS).as_posix()}:{node.lineno}"


def test_an_end_that_must_not_come_is_far_away() -> None:
    short = [place for file in sorted(TESTS.rglob("*.py")) for place in short_waits(file)]
    assert short == [], "these give up after seconds that a busy machine may need: use NEVER_S of tests/waiting.py"


def ports_given_back(file: Path) -> Iterator[str]:
    """Each place that asks the system for a free port, closes the socket, and names that port to a program."""
    for function in ast.walk(ast.parse(file.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for block in ast.walk(function):
            if not isinstance(block, ast.With) or "socket.socket()" not in ast.unparse(block.items[0]):
                continue
            for step in block.body:
                names = {name.id for name in ast.walk(step) if isinstance(name, ast.Name)}
                asks = isinstance(step, ast.Assign | ast.Return) and "getsockname()" in ast.unparse(step)
                later = {
                    name.id for name in ast.walk(function) if isinstance(name, ast.Name) and _is_after(name, block)
                }
                if asks and (isinstance(step, ast.Return) or names & later):
                    yield f"tests/{file.relative_to(TESTS).as_posix()}:{step.lineno}"


def _is_after(name: ast.Name, block: ast.With) -> bool:
    return isinstance(name.ctx, ast.Load) and name.lineno > (block.end_lineno or block.lineno)


def test_a_port_is_not_given_back_before_its_program_takes_it() -> None:
    found = [place for file in sorted(TESTS.rglob("*.py")) for place in ports_given_back(file)]
    assert found == [], "another connection may take the port first: use free_port() of tests/ports.py"
