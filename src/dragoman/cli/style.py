"""Colours, on a terminal only, and not when NO_COLOR is set (https://no-color.org)."""

import os
from typing import Literal, TextIO

from dragoman.log_line import plain

Style = Literal["bold", "dim", "red", "green", "yellow", "blue"]

CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}


def shows_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tame(text: str, stream: TextIO) -> str:
    """A text from elsewhere. On a terminal its control characters are shown, not obeyed: a model may write some that
    move the cursor, change the title or fill the clipboard. Files and pipes get it as it is."""
    if not stream.isatty() or text.isprintable():
        return text
    return "".join(char if char in "\n\t" else plain(char) for char in text)


def paint(text: str, style: Style, stream: TextIO) -> str:
    """`text` with a style, if `stream` shows styles."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if shows_colour(stream) else text
