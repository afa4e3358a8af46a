"""Reads docstrings in Google, NumPy and reST style: the description, the arguments and the result."""

import inspect
import re
from collections.abc import Iterator

from msgspec import Struct

_SECTION_TITLE = re.compile(
    r"(?P<title>args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes|returns?|"
    r"yields?|raises|examples?|notes?|warnings?|see also|references|todo)\s*:\s*",
    re.I,
)
_UNDERLINE = re.compile(r"\s*(-{3,}|={3,})\s*")
_RST_FIELD = re.compile(r"\s*:(?P<field>[a-z]+)(?P<words>[^:]*):\s*(?P<text>.*)")
_RST_ARGUMENT_FIELDS = ("param", "parameter", "arg", "argument", "key", "keyword")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\((?P<type>.*?)\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_ARGUMENT_TITLES = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
    "attributes",
}
_RETURN_TITLES = {"return", "returns", "yield", "yields"}


class Docstring(Struct, frozen=True, kw_only=True):
    description: str = ""
    arguments: dict[str, str] = {}
    returns: str = ""


def read_docstring(text: str | None) -> Docstring:
    """The text before the first section is the description. The sections describe the arguments and the result."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).splitlines()
    leading: list[str] = []
    arguments: dict[str, str] = {}
    returns = ""
    for title, body in _split_sections(lines):
        if title == "":
            leading = body
        elif title in _ARGUMENT_TITLES:
            arguments.update(_read_numpy(body) if _is_numpy(body) else _read_google(body))
        elif title in _RETURN_TITLES:
            returns = returns or _join_lines(body)
    leading, rst = _take_rst_fields(leading)
    arguments.update(rst.arguments)
    return Docstring(description=_join_paragraphs(leading), arguments=arguments, returns=returns or rst.returns)


def _split_sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) pairs; the text before the first title has the title ""."""
    title, body = "", list[str]()
    position = 0
    while position < len(lines):
        line = lines[position]
        found = _SECTION_TITLE.fullmatch(line) if line[:1].strip() else None
        next_line = lines[position + 1] if position + 1 < len(lines) else ""
        is_numpy_title = _UNDERLINE.fullmatch(next_line) and _SECTION_TITLE.fullmatch(f"{line.strip()}:")
        if line.strip() and not found and is_numpy_title:
            yield title, body
            title, body = line.strip().lower(), ["~numpy"]
            position += 2
            continue
        if found:
            yield title, body
            title, body = found["title"].lower(), []
        else:
            body.append(line)
        position += 1
    yield title, body


def _is_numpy(body: list[str]) -> bool:
    return body[:1] == ["~numpy"]


def _read_google(body: list[str]) -> dict[str, str]:
    """Entries `name (type): text`. Lines that are indented deeper continue the text."""
    entries: dict[str, list[str]] = {}
    entry_indent, name = None, ""
    for line in body:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        entry_indent = indent if entry_indent is None else entry_indent
        found = _GOOGLE_ENTRY.fullmatch(line.strip()) if indent <= entry_indent else None
        if found:
            name = found["name"]
            entries[name] = [found["text"]]
        elif name:
            entries[name].append(line.strip())
    return {name: " ".join(words).strip() for name, words in entries.items()}


def _read_numpy(body: list[str]) -> dict[str, str]:
    """Entries `name : type` with the text indented below. Several names may share a text."""
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


def _take_rst_fields(lines: list[str]) -> tuple[list[str], Docstring]:
    """Separates `:param name: text` fields from the other lines."""
    others: list[str] = []
    arguments: dict[str, str] = {}
    returns = ""
    field = ""
    for line in lines:
        match = _RST_FIELD.fullmatch(line)
        if match and match["field"] in (*_RST_ARGUMENT_FIELDS, "return", "returns", "type", "rtype", "raises", "raise"):
            words = match["words"].split()
            field = ""
            if match["field"] in _RST_ARGUMENT_FIELDS and words:
                field = words[-1]  # `:param int x: text` has the type before the name
                arguments[field] = match["text"].strip()
            elif match["field"] in ("return", "returns"):
                returns, field = match["text"].strip(), ":"
            else:
                field = "~"
        elif field and line.strip() and line[:1].isspace():
            if field == ":":
                returns = f"{returns} {line.strip()}"
            elif field != "~":
                arguments[field] = f"{arguments[field]} {line.strip()}".strip()
        else:
            field = ""
            others.append(line)
    return others, Docstring(arguments=arguments, returns=returns)


def _join_paragraphs(lines: list[str]) -> str:
    """Joins the lines of each paragraph. Blank lines and indented lines (lists, examples) stay as they are."""
    paragraphs: list[str] = []
    for line in lines:
        separate = not line.strip() or line[:1].isspace() or line.startswith(("-", "*"))
        if paragraphs and paragraphs[-1] and not separate:
            paragraphs[-1] = f"{paragraphs[-1]} {line.strip()}"
        else:
            paragraphs.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(paragraphs)).strip()


def _join_lines(body: list[str]) -> str:
    return " ".join(line.strip() for line in body if line.strip() and line != "~numpy")
