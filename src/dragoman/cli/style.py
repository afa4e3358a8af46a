"""Colours, on a terminal only, and not when NO_COLOR is set (https://no-color.org)."""

import os
from typing import Literal, TextIO

Look = Literal["bold", "dim", "red", "green", "yellow", "blue"]

CODES: dict[Look, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}


def colourful(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, look: Look, stream: TextIO) -> str:
    """`text` as it should be written to `stream`."""
    return f"\x1b[{CODES[look]}m{text}\x1b[0m" if colourful(stream) else text
