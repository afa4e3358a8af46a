"""Tables that fit the terminal: long words are cut, and columns that matter less are left out."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from msgspec import Struct

from dragoman.log_line import plain

EASY, NARROWEST = 16, 6  # least width of a column that is cut: before other columns are left out, and after
REST = 24  # columns that are needed beside a line for its last words; with less they go below
GAP = "  "


class TableColumn(Struct, frozen=True):
    title: str
    right: bool = False
    drop: int = 0  # columns with the highest number are left out first; 0 stays
    cut: bool = False  # its words may be cut


def find_width() -> int | None:
    """The width of the terminal; None for a file or a pipe, which take lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """One line for the titles and one for each row."""
    cells = [[column.title for column in columns], *[[plain(word) for word in row] for row in rows]]
    widths = {i: max(len(row[i]) for row in cells) for i in range(len(columns))}
    if width is not None:
        _narrow(widths, columns, width, EASY)
        while _total(widths) > width and columns[least := max(widths, key=lambda i: columns[i].drop)].drop:
            del widths[least]
        _narrow(widths, columns, width, NARROWEST)
    return [_line(row, widths, columns) for row in cells]


def _narrow(widths: dict[int, int], columns: Sequence[TableColumn], width: int, least: int) -> None:
    while _total(widths) > width:
        widest = max((i for i in widths if columns[i].cut), key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= least:
            return
        widths[widest] -= 1


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _line(row: Sequence[str], widths: dict[int, int], columns: Sequence[TableColumn]) -> str:
    words = [
        cut(row[i], size).rjust(size) if columns[i].right else cut(row[i], size).ljust(size)
        for i, size in widths.items()
    ]
    return GAP.join(words).rstrip()


def cut(word: str, width: int) -> str:
    return word if len(word) <= width else word[: width - 1] + "…"


def hang(line: str, words: Sequence[str], width: int | None) -> list[str]:
    """A line with further words behind it, or below it if there is no room. Words are not split."""
    text = GAP.join(words)
    if width is None or len(line) + len(GAP) + len(text) <= width:
        return [GAP.join(part for part in (line, text) if part)]
    beside = width - len(line) - len(GAP) >= REST
    indent = len(line) + len(GAP) if beside else 4
    lines, last = [], ""
    for word in words:
        if last and indent + len(last) + len(GAP) + len(word) > width:
            lines.append(last)
            last = ""
        last = f"{last}{GAP}{word}" if last else word
    whole = [piece for one in [*lines, last] for piece in textwrap.wrap(one, max(width - indent, 8)) or [""]]
    below = [" " * indent + one for one in whole]
    return [line + below[0][len(line) :], *below[1:]] if beside else [line, *below]
