"""Colours, on a terminal only, and not when NO_COLOR is set (https://no-color.org)."""

import os
from typing import Literal, TextIO

Style = Literal["bold", "dim", "red", "green", "yellow", "blue"]

CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}


def shows_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style, stream: TextIO) -> str:
    """`text` with a style, if `stream` shows styles."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if shows_colour(stream) else text
