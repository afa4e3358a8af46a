"""docs/clients.md: what real programs said through the gateway, written by the test that runs them.

make test-clients PAGE=docs/clients.md
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.dialects import find_dialect
from dragoman.gateway.telemetry.xray import Xray
from tests.clients.install import VERSIONS

HOME = "~"  # instead of a folder of this machine
LONGEST = 160
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|$)", re.DOTALL)
TITLES = {
    "claude": ("Claude Code", "@anthropic-ai/claude-code"),
    "codex": ("Codex", "@openai/codex"),
    "codex-5.5": ("Codex, its own provider", "@openai/codex"),
    "gemini": ("Gemini CLI", "@google/gemini-cli"),
}
OWN = {"claude": "anthropic", "codex": "openai_responses", "codex-5.5": "openai_responses", "gemini": "gemini"}
SHOWN = ("claude", "codex", "gemini")  # the others are in the table only
HEAD = """# Real programs through the gateway

<!-- Written by `make test-clients PAGE=docs/clients.md`. -->

Claude Code, Codex and Gemini CLI, as npm installs them, without a person: each reads a file and answers from it,
through a gateway in front of the demo model and of a strict scripted provider of each dialect. They run in an empty
environment with a home of their own, a key that is none, and a proxy that lets nobody out.
"""


@dataclass(frozen=True)
class Play:
    """One run, as the page needs it."""

    program: str
    behind: str  # what stood behind the gateway
    prompt: str
    folder: str  # of this machine; not on the page
    rows: Sequence[Xray]
    answer: str


def write_page(plays: Sequence[Play]) -> str:
    shown = [play for play in plays if play.program in SHOWN and play.behind not in ("demo", OWN[play.program])]
    return "\n".join([HEAD, *_table(plays), "", *(line for play in shown for line in _transcript(play))]) + "\n"


def _table(plays: Sequence[Play]) -> list[str]:
    behind = list(dict.fromkeys(play.behind for play in plays))
    found = {(play.program, play.behind): len(play.rows) for play in plays}
    lines = ["| requests until the answer | " + " | ".join(map(_name, behind)) + " |", "|---|" + "---:|" * len(behind)]
    for program in dict.fromkeys(play.program for play in plays):
        cells = [str(found.get((program, name), "-")) for name in behind]
        lines.append(f"| {_title(program)} | " + " | ".join(cells) + " |")
    return lines


def _title(program: str) -> str:
    title, package = TITLES[program]
    version = next(word.rpartition("@")[2] for word in VERSIONS.read_text().split() if word.startswith(f"{package}@"))
    return f"{title} {version}"


def _name(behind: str) -> str:
    return "demo" if behind == "demo" else find_dialect(behind).title


def _transcript(play: Play) -> list[str]:
    """What went over the wire, and the conversation as the last request tells it."""
    talk = [row for row in play.rows if isinstance(row.canonical, dict)]
    last = max(talk, key=lambda row: len(row.canonical["messages"]))
    lines = [f"## {_title(play.program)} in front of {_name(play.behind)}", "", "```text"]
    for row in play.rows:
        notes = f", {len(row.notes)} notes" if row.notes else ""
        lines.append(f"POST {row.path} -> {row.upstream}  {row.status}{notes}")
    lines.append("")
    told: list[int] = []  # instructions in a row
    for message in last.canonical["messages"]:
        for part in message["parts"]:
            if _instructs(message["role"], part):
                told.append(len(part["text"]))
                continue
            lines += _instructions(told) + _part(message["role"], part)
            told.clear()
    lines += [f"assistant: {_short(play.answer)}", "```", ""]
    return [line.replace(f"{play.folder}/work", HOME).replace(play.folder, HOME) for line in lines]


def _instructs(role: str, part: dict[str, Any]) -> bool:
    """What a program tells its model, besides what its user said."""
    if part["kind"] != "text":
        return False
    return role in ("system", "developer") or len(part["text"]) > 1000 or part["text"].startswith("<")


def _instructions(lengths: list[int]) -> list[str]:
    return [f"[instructions: {len(lengths)} texts, {sum(lengths):,} characters]"] if lengths else []


def _part(role: str, part: dict[str, Any]) -> list[str]:
    match part["kind"]:
        case "text":
            return [f"{role}: {_short(part['text'])}"]
        case "tool_call":
            return [f"{role} calls {part['name']} {_short(part['arguments'])}"]
        case "tool_result":
            words = " ".join(str(inner.get("text", "")) for inner in part["parts"])
            return [f"tool says: {_short(words)}"]
        case kind:
            return [f"{role}: [{kind}]"]


def _short(text: str) -> str:
    line = " ".join(_REMINDER.sub("", text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
