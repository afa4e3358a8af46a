"""What a docstring says about a function and its arguments: Google, NumPy and reST styles."""

import inspect
import re
from collections.abc import Iterator

from msgspec import Struct

_GOOGLE = re.compile(
    r"(?P<title>args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes|returns?|"
    r"yields?|raises|examples?|notes?|warnings?|see also|references|todo)\s*:\s*",
    re.I,
)
_UNDERLINE = re.compile(r"\s*(-{3,}|={3,})\s*")
_REST = re.compile(r"\s*:(?P<field>[a-z]+)(?P<words>[^:]*):\s*(?P<text>.*)")
_REST_ARGUMENT = ("param", "parameter", "arg", "argument", "key", "keyword")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\((?P<type>.*?)\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_ARGUMENTS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters",
              "attributes"}  # fmt: skip
_RETURNS = {"return", "returns", "yield", "yields"}


class Doc(Struct, frozen=True, kw_only=True):
    description: str = ""
    arguments: dict[str, str] = {}
    returns: str = ""


def read_docstring(text: str | None) -> Doc:
    """The text before the first section, and what the sections say about arguments and the result."""
    if not text:
        return Doc()
    lines = inspect.cleandoc(text).splitlines()
    before: list[str] = []
    arguments: dict[str, str] = {}
    returns = ""
    for title, body in _sections(lines):
        if title == "":
            before = body
        elif title in _ARGUMENTS:
            arguments.update(_read_numpy(body) if _is_numpy(body) else _read_google(body))
        elif title in _RETURNS:
            returns = returns or _join(body)
    before, fields = _take_rest(before)
    arguments.update(fields.arguments)
    return Doc(description=_paragraphs(before), arguments=arguments, returns=returns or fields.returns)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) pairs; the text before the first title has the title ""."""
    title, body = "", list[str]()
    at = 0
    while at < len(lines):
        line = lines[at]
        found = _GOOGLE.fullmatch(line) if line[:1].strip() else None
        below = lines[at + 1] if at + 1 < len(lines) else ""
        if line.strip() and not found and _UNDERLINE.fullmatch(below) and _GOOGLE.fullmatch(f"{line.strip()}:"):
            yield title, body
            title, body = line.strip().lower(), ["~numpy"]
            at += 2
            continue
        if found:
            yield title, body
            title, body = found["title"].lower(), []
        else:
            body.append(line)
        at += 1
    yield title, body


def _is_numpy(body: list[str]) -> bool:
    return body[:1] == ["~numpy"]


def _read_google(body: list[str]) -> dict[str, str]:
    """`name (type): text`, with what is indented deeper belonging to it."""
    entries: dict[str, list[str]] = {}
    level, name = None, ""
    for line in body:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        level = depth if level is None else level
        found = _ENTRY.fullmatch(line.strip()) if depth <= level else None
        if found:
            name = found["name"]
            entries[name] = [found["text"]]
        elif name:
            entries[name].append(line.strip())
    return {name: " ".join(words).strip() for name, words in entries.items()}


def _read_numpy(body: list[str]) -> dict[str, str]:
    """`name : type`, the text indented below it; several names may share a text."""
    entries: dict[str, list[str]] = {}
    names: list[str] = []
    for line in body[1:]:
        found = _NUMPY_ENTRY.fullmatch(line.rstrip()) if line[:1].strip() else None
        if found:
            names = [name.strip().lstrip("*") for name in found["names"].split(",")]
            entries.update({name: [] for name in names})
        elif line.strip():
            for name in names:
                entries[name].append(line.strip())
    return {name: " ".join(words) for name, words in entries.items()}


def _take_rest(lines: list[str]) -> tuple[list[str], Doc]:
    """`:param name: text` lines, out of the text they stand in."""
    before: list[str] = []
    arguments: dict[str, str] = {}
    returns = ""
    field = ""
    for line in lines:
        found = _REST.fullmatch(line)
        if found and found["field"] in (*_REST_ARGUMENT, "return", "returns", "type", "rtype", "raises", "raise"):
            words = found["words"].split()
            field = ""
            if found["field"] in _REST_ARGUMENT and words:
                field = words[-1]  # `:param int x: text` says the type too
                arguments[field] = found["text"].strip()
            elif found["field"] in ("return", "returns"):
                returns, field = found["text"].strip(), ":"
            else:
                field = "~"
        elif field and line.strip() and line[:1].isspace():
            if field == ":":
                returns = f"{returns} {line.strip()}"
            elif field != "~":
                arguments[field] = f"{arguments[field]} {line.strip()}".strip()
        else:
            field = ""
            before.append(line)
    return before, Doc(arguments=arguments, returns=returns)


def _paragraphs(lines: list[str]) -> str:
    """Lines of one paragraph joined; blank lines stay, and so does what is indented (lists, examples)."""
    said: list[str] = []
    for line in lines:
        apart = not line.strip() or line[:1].isspace() or line.startswith(("-", "*"))
        if said and said[-1] and not apart:
            said[-1] = f"{said[-1]} {line.strip()}"
        else:
            said.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(said)).strip()


def _join(body: list[str]) -> str:
    return " ".join(line.strip() for line in body if line.strip() and line != "~numpy")
