"""The README's table is the generated one, in short."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def scores(text: str) -> list[str]:
    """The percentages of the first table that has five of them in a row, row by row."""
    rows = [re.findall(r"(\d+) ?%", line) for line in text.splitlines() if line.startswith("|")]
    return [number for row in rows if len(row) == 5 for number in row][:25]


def test_the_scores_are_those_of_the_pairs_page() -> None:
    shown = scores((ROOT / "README.md").read_text())
    assert len(shown) == 25
    assert shown == scores((ROOT / "docs" / "pairs.md").read_text())
