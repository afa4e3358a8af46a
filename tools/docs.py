"""Writes the generated pages under docs/; `--check` says which are stale instead.

python tools/docs.py            writes them all; pairs-recorded.md only where recorded traffic is there
python tools/docs.py --check    exit code 1 and the names of the stale ones
"""

import argparse
import asyncio
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from dragoman.conformance.pages import console_tables, dialect_page, pairs_page, recorded_page
from dragoman.conformance.pairs import DIALECTS, measure_pairs
from dragoman.conformance.recorded import is_corpus, tally_pairs
from dragoman.conformance.verification import verification_page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
VERIFICATION = DOCS / "verification.md"  # its own test looks whether it is fresh: it takes a while
RECORDED = DOCS / "pairs-recorded.md"
DATE = re.compile(r"Counted on (\d{4}-\d\d-\d\d)")


def steady_pages() -> dict[Path, str]:
    """What the code says the pages are that depend on nothing else."""
    pages = {DOCS / "dialects" / f"{name}.md": dialect_page(name) for name in DIALECTS}
    sys.path.insert(0, str(ROOT))
    from tests.cases import provider_rules, strangers
    from tests.gateway.fault_table import PAGE, faults_page
    from tools import reference
    from tools.console_types import console_types

    rules = {provider_rules.PAGE: provider_rules.page(), strangers.PAGE: strangers.page()}
    rows = measure_pairs()
    console = ROOT / "src" / "dragoman" / "console"
    tables = {console / "tables.json": console_tables(rows), console / "types.js": console_types()}
    return {**pages, DOCS / "pairs.md": pairs_page(rows), **tables, PAGE: faults_page(), **rules, **reference.pages()}


def generated_pages() -> dict[Path, str]:
    """All of them; the one over recorded traffic only where there is some."""
    root = corpus_root()
    verified = {VERIFICATION: asyncio.run(verification_page())}
    return {
        **steady_pages(),
        **held_pages(),
        **verified,
        **({} if root is None else {RECORDED: fresh_recorded_page(root)}),
    }


def held_pages() -> dict[Path, str]:
    """cases.md and mission.md, with what `python -m tests.cases.pages` found when it last ran every test they name."""
    sys.path.insert(0, str(ROOT))
    from tests.cases.pages import pages

    return pages()


def corpus_root() -> Path | None:
    given = os.environ.get("DRAGOMAN_CORPUS")
    root = Path(given) if given else ROOT.parent / "shared" / "corpus"
    return root if is_corpus(root) else None


def fresh_recorded_page(root: Path) -> str:
    """With the date it has, as long as nothing else in it changes."""
    tallies = tally_pairs(root)
    old = RECORDED.read_text("utf-8") if RECORDED.exists() else ""
    date = DATE.search(old)
    if date is not None:
        same = recorded_page(tallies, date[1])
        if same == old:
            return same
    return recorded_page(tallies, datetime.now(UTC).date().isoformat())


def is_stale(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text("utf-8") != text


def main() -> int:
    parser = argparse.ArgumentParser(description="write the generated pages under docs/")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    if parser.parse_args().check:
        stale = [path for path, text in generated_pages().items() if is_stale(path, text)]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in generated_pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
