"""A run as text for programs and people: JSON, JUnit XML, the plain table. Nothing in it holds a key."""

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from msgspec import to_builtins

from dragoman.conformance.runner import VerifyCell, VerifyRun
from dragoman.conformance.runner_play import Try
from dragoman.conformance.runner_wire import WireExchange
from dragoman.errors import DecodeError
from dragoman.gateway.telemetry.xray import show
from dragoman.jsontypes import dump_text, format_json, load_json

GLYPHS = {"PASS": "✓", "FAIL": "✗", "SKIP": "·"}
LONGEST = 4000  # characters of a body that are shown


def as_json(run: VerifyRun) -> bytes:
    totals = {word.lower(): run.count(word) for word in ("PASS", "FAIL", "SKIP")}
    whole = {
        "totals": {**totals, "seconds": round(run.seconds, 3)},
        "targets": [
            {"name": t.name, "dialect": t.dialect, "model": t.model, "kind": t.kind, "gateway": t.gateway}
            for t in run.targets
        ],
        "scenarios": [{"name": s.name, "title": s.title, "group": s.group} for s in run.scenarios],
        "cells": [_cell(cell) for cell in run.cells.values()],
    }
    return format_json(whole)


def _cell(cell: VerifyCell) -> dict[str, Any]:
    return {
        "target": cell.target,
        "scenario": cell.scenario,
        "outcome": cell.outcome,
        "words": cell.words,
        "seconds": round(cell.seconds, 4),
        "tries": [_try(one) for one in cell.tries],
    }


def _try(one: Try) -> dict[str, Any]:
    return {
        "mode": one.mode,
        "outcome": one.outcome,
        "words": one.words,
        "seconds": round(one.seconds, 4),
        "notes": [to_builtins(note) for note in one.notes],
        "exchanges": [
            {
                "method": ex.method,
                "path": ex.path,
                "status": ex.status,
                "seconds": round(ex.seconds, 4),
                "request": show_body(ex.request),
                "reply": show_body(ex.reply),
                "failure": ex.failure.message if ex.failure is not None else "",
                "remark": ex.remark,
            }
            for ex in one.exchanges
        ],
    }


def show_body(data: bytes, longest: int = LONGEST) -> str:
    """A body for people: JSON in lines, keys masked, base64 and the end of long ones cut."""
    if not data:
        return ""
    shown = show(data)
    text = shown if isinstance(shown, str) else format_json(shown).decode()
    return text if len(text) <= longest else f"{text[:longest]}\n… {len(text) - longest} more characters"


def read_baseline(data: bytes) -> dict[tuple[str, str], str]:
    """The outcomes of an earlier run, from its --json."""
    whole = load_json(data)
    cells = whole.get("cells") if isinstance(whole, dict) else None
    if not isinstance(cells, list):
        raise DecodeError("this is not the output of `dragoman verify --json`")
    return {(cell["target"], cell["scenario"]): cell["outcome"] for cell in cells}


def as_badge(run: VerifyRun) -> str:
    """A picture for a README: how many scenarios pass. Skipped ones do not count."""
    passed, failed = run.count("PASS"), run.count("FAIL")
    words = f"{passed} of {passed + failed}"
    colour = "#c03" if failed else "#2a2" if passed else "#777"
    left, right = 118, 20 + 7 * len(words)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>dragoman verify: {words}</title>
<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left / 2:g}" y="14">dragoman verify</text><text x="{left + right / 2:g}" y="14">{words}</text></g></svg>
"""


def as_junit(run: VerifyRun) -> str:
    """One suite a target, one case a scenario, as CI systems read it."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{_counts(run, None)}>"]
    for target in run.targets:
        lines.append(f"  <testsuite name={quoteattr(target.name)}{_counts(run, target.name)}>")
        for scenario in run.scenarios:
            cell = run.cells[target.name, scenario.name]
            head = f"<testcase classname={quoteattr(target.name)} name={quoteattr(scenario.name)}"
            lines.append(f'    {head} time="{cell.seconds:.3f}">{_verdict(cell)}</testcase>')
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _counts(run: VerifyRun, target: str | None) -> str:
    cells = [cell for cell in run.cells.values() if target in (None, cell.target)]
    failed, skipped = run.count("FAIL", target), run.count("SKIP", target)
    seconds = sum(cell.seconds for cell in cells)
    return f' tests="{len(cells)}" failures="{failed}" skipped="{skipped}" errors="0" time="{seconds:.3f}"'


def _verdict(cell: VerifyCell) -> str:
    words = quoteattr(printable(cell.words))
    if cell.outcome == "SKIP":
        return f"<skipped message={words}/>"
    if cell.outcome == "PASS":
        return ""
    exchange = last_exchange(cell)
    body = show_body(exchange.request) if exchange is not None else ""
    return f"<failure message={words}>{escape(printable(body))}</failure>"


def printable(text: str) -> str:
    """Without control characters: XML forbids them, and a terminal executes them."""
    return "".join(
        char if char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160) else "\ufffd" for char in text
    )


def last_exchange(cell: VerifyCell) -> WireExchange | None:
    """The exchange at which a cell failed."""
    failed = [one for one in cell.tries if one.outcome == "FAIL"] or cell.tries
    return failed[0].exchanges[-1] if failed and failed[0].exchanges else None


def explain(cell: VerifyCell) -> list[str]:
    """A failed cell in words: the error, and the request that caused it."""
    lines = [f"{cell.target} · {cell.scenario}: {cell.words}"]
    exchange = last_exchange(cell)
    if exchange is not None:
        body = dump_text(show(exchange.request)) if exchange.request else ""
        lines.append(f"  {exchange.method} {exchange.path} {body[:600]}{'…' if len(body) > 600 else ''}")
        if exchange.status >= 400:
            reply = dump_text(show(exchange.reply))
            lines.append(f"  {exchange.status} {reply[:400]}")
    return [printable(line) for line in lines]


def table_blocks(run: VerifyRun, width: int) -> list[list[list[str]]]:
    """The table as blocks of columns that fit: rows are scenarios, columns are targets, cells are words."""
    first = max([len(s.name) for s in run.scenarios] + [8])
    blocks: list[list[list[str]]] = []
    names = [target.name for target in run.targets]
    while names:
        taken: list[str] = []
        used = first
        while names and (not taken or used + 2 + max(4, len(names[0])) <= width):
            used += 2 + max(4, len(names[0]))
            taken.append(names.pop(0))
        rows = [["scenario", *taken]]
        rows += [[s.name, *(run.cells[name, s.name].outcome for name in taken)] for s in run.scenarios]
        blocks.append(rows)
    return blocks
