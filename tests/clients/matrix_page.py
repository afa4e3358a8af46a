"""docs/sdk-matrix.md: which client passes what, and why the rest does not. `make matrix` writes it."""

import re
from collections.abc import Iterator

from tests.clients.matrix import BROKEN, CLIENTS, HERE, ROOT, SCENARIOS, Cell, load_rows
from tests.clients.matrix_providers import ODD, UPSTREAMS

HEAD = """# SDKs and frameworks through the gateway

<!-- Written by `make matrix`. -->

Each client below, as its makers publish it, talks through one gateway to strict scripted providers of five dialects
(`dragoman.testing`), which refuse what the real ones refuse. Scenarios: an answer, a call and its result, two calls
at once, a schema, a picture, a limit; three tool turns of a model that thinks, where the client itself brings the state
back (asked for thoughts or not), and whether it shows the thoughts; errors with their status and words; a cut stream;
{odd} odd upstream streams; {broken} broken histories. Whole and streamed. A cell is *passed / played*.
"""


def versions() -> dict[tuple[str, str], str]:
    """The version of each client, from the files that pin them."""
    pinned: dict[tuple[str, str], str] = {}
    for group, file in (("official", "dev.txt"), ("frameworks", "frameworks.txt")):
        lines = (ROOT / "requirements" / file).read_text().splitlines()
        found = dict(line.split(" ")[0].split("==") for line in lines if re.match("[a-z].*==", line))
        pinned |= {(name, package): found[package] for name, package in CLIENTS[group].items()}
    npm = dict(line.rsplit("@", 1) for line in (HERE / "sdks.txt").read_text().split())
    return pinned | {(name, package): npm[package] for name, package in CLIENTS["npm"].items()}


def write_page(cells: list[Cell]) -> str:
    odd, broken = sum(map(len, ODD.values())), len(BROKEN)
    passed = sum(not cell.why for cell in cells)
    lines = [HEAD.format(odd=odd, broken=broken), f"**{passed:,} of {len(cells):,} cells pass.**", ""]
    lines += _table(cells, "upstream", list(UPSTREAMS))
    lines += ["", "## By scenario", ""]
    lines += _table(cells, "scenario", list(SCENARIOS))
    lines += ["", "## What does not pass, and why", "", "| client | upstream | scenario | cells | limit of | why |"]
    lines += ["|---|---|---|---:|---|---|", *_reasons(cells)]
    return "\n".join(lines) + "\n"


def _table(cells: list[Cell], by: str, columns: list[str]) -> list[str]:
    known = versions()
    lines = ["| client | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name, package in (pair for group in CLIENTS.values() for pair in group.items()):
        own = [cell for cell in cells if cell.client == name]
        texts = []
        for column in columns:
            there = [cell for cell in own if _belongs(str(getattr(cell, by)), column)]
            texts.append(f"{sum(not cell.why for cell in there)} / {len(there)}")
        lines.append(f"| {name} {known[name, package]} | " + " | ".join(texts) + " |")
    return lines


def _belongs(name: str, column: str) -> bool:
    bare = name.partition(" ")[0]
    return bare == column or (column in ("odd", "broken") and bare.startswith(f"{column}_"))


def _reasons(cells: list[Cell]) -> Iterator[str]:
    failed = [cell for cell in cells if cell.why and not cell.own]
    for row in load_rows():
        fitting = [cell for cell in failed if row.fits(cell)]
        if fitting:
            yield f"| `{row.client}` | `{row.upstream}` | `{row.scenario}` | {len(fitting)} | {row.whose} | {row.why} |"
    refused: dict[tuple[str, str, str], int] = {}
    for cell in cells:
        if cell.own:
            at = (cell.client, cell.scenario, " ".join(cell.why.split())[:120])
            refused[at] = refused.get(at, 0) + 1
    for (client, scenario, why), number in refused.items():
        yield f"| `{client}` | `*` | `{scenario}` | {number} | client | asks nothing: `{why}` |"
