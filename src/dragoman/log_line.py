"""LogLine: one event of a log with its fields. It becomes text only when it is written."""

import re
from collections.abc import Mapping

from msgspec import Struct

LONGEST_FIELD = 2048
_PACKAGE = __file__.removesuffix("log_line.py")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
KEY_LIKE = re.compile(r"\b(?:sk|dk|dka|AIza|xai|gsk|pplx|r8)[-_A-Za-z0-9]{12,}")  # how the keys of vendors begin


class LogLine(Struct, frozen=True, gc=False):
    """What a module gives its logger: `log.info(LogLine("key_rests", {"upstream": name}))`."""

    event: str
    fields: Mapping[str, object] = {}

    def __str__(self) -> str:
        return write_line(self.event, self.fields)


def write_line(event: str, fields: Mapping[str, object]) -> str:
    words = [event]
    for name, value in fields.items():
        if value:
            kind = type(value)
            plainly = kind is int or (kind is str and value.isalnum() and len(value) <= LONGEST_FIELD)  # type: ignore[attr-defined, arg-type]
            words.append(f"{name}={value}" if plainly else f"{name}={quoted(value)}")
    return " ".join(words)


def own_error(event: str, request_id: str, error: Exception) -> LogLine:
    """The line for a bug of ours: which exception, and where in our code. Its words stay out: they may quote a body."""
    return LogLine(event, {"id": request_id, "error": type(error).__name__, "at": code_place(error)})


def code_place(error: Exception) -> str:
    """The file and line of ours where an exception was raised, or from where it was called."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            found = f"{file.removeprefix(_PACKAGE)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def plain(value: object) -> str:
    """A value on one line: control characters are shown, not obeyed (T40)."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if len(text) <= LONGEST_FIELD else text[:LONGEST_FIELD] + "..."


def quoted(value: object) -> str:
    """A value for a line of fields. A text with spaces or an equals sign gets quotes, so that its end is clear."""
    if type(value) is int or type(value) is float:
        return str(value)
    text = plain(value)
    if " " in text or "=" in text or '"' in text:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def hide_secrets(text: str) -> str:
    return KEY_LIKE.sub("[redacted]", text)
