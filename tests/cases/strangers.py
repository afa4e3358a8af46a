"""docs/strangers.md: what official SDKs, agent programs and real servers taught us, from strangers.toml."""

import tomllib
from pathlib import Path

from msgspec import Struct, convert

TESTS = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "strangers.toml"
PAGE = TESTS.parent / "docs" / "strangers.md"
INTRO = """# True to strangers

dragoman was tried with clients and servers that its authors had not used: official SDKs, agent programs such as
Claude Code, Codex and Gemini CLI, and real servers such as vLLM and llama.cpp. This page lists what was wrong, the rule
since then, and how the rule is held:

- **tests** fail if it is broken. They run with every change.
- **verify** names scenarios that `dragoman verify` plays against any server or gateway ([the list](verification.md)).
- **checker** quotes the words with which a [scripted provider](testing.md) refuses a request that breaks the rule, as
  the real server does.

If a rule has neither a scenario nor a refusal, the row says why. The page is made from `tests/cases/strangers.toml`; a
test looks whether each test, scenario and refusal exists.
"""


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule."""

    part: str
    was: str
    rule: str
    tests: tuple[str, ...]
    verify: tuple[str, ...] = ()
    checker: tuple[str, ...] = ()
    why_none: str = ""  # why there is neither a scenario nor a refusal


def read_rows() -> list[Row]:
    return convert(tomllib.loads(TABLE.read_text("utf-8"))["row"], list[Row])


def page() -> str:
    rows = read_rows()
    lines = [INTRO]
    for part in dict.fromkeys(row.part for row in rows):
        lines += [f"## {part}", "", "| was wrong | the rule now | tests | verify, checker |", "|---|---|---|---|"]
        lines += [_line(row) for row in rows if row.part == part]
        lines.append("")
    return "\n".join(lines)


def _line(row: Row) -> str:
    tests = "<br>".join(f"[{_words(test)}](../tests/{test.partition('::')[0]})" for test in row.tests)
    held = [f"`{name}`" for name in row.verify] + [f"“{words}”" for words in row.checker]
    return f"| {row.was} | {row.rule} | {tests} | {'<br>'.join(held) or row.why_none} |"


def _words(test: str) -> str:
    return test.partition("::test_")[2].replace("_", " ")
