"""The head of an HTTP message, as bytes."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def write_head(start: str, fields: dict[str, str]) -> bytes:
    """A ValueError when a field would end its line: nothing anybody says becomes a header of its own (T30)."""
    lines = [start, *[f"{name}: {value}" for name, value in fields.items()], "", ""]
    text = "\r\n".join(lines)
    ends = len(lines) - 1
    if text.count("\n") != ends or text.count("\r") != ends or _CONTROL.search(text) is not None:
        raise ValueError("a header holds a control character")
    return text.encode()
