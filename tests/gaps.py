"""Known gaps: recorded cases that fail a test today, listed in `corpus/gaps.toml` with a reason."""

import tomllib
from functools import cache
from pathlib import Path

LIST = Path(__file__).parents[1] / "corpus" / "gaps.toml"
CLOSED = "this gap has closed: take its line out of corpus/gaps.toml"


@cache
def read_gaps() -> dict[str, dict[str, str]]:
    """Test id -> name of the case -> reason."""
    return tomllib.loads(LIST.read_text("utf-8"))


def check_problems(problems: dict[str, list[str]], gaps: dict[str, str]) -> None:
    """Fails for a problem that is no known gap, and for a known gap that is no problem any more."""
    left = {name: found for name, found in problems.items() if name not in gaps}
    left |= {name: [CLOSED] for name in gaps if name not in problems}
    assert not left, report(left)


def report(problems: dict[str, list[str]]) -> str:
    lines = [f"{name}\n    " + "\n    ".join(found[:6]) for name, found in list(problems.items())[:15]]
    return f"{len(problems)} cases:\n" + "\n".join(lines)
