"""A configuration file as text: read within bounds, parsed, and searched for the line a person has to change."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of

MAX_BYTES = 1024 * 1024
_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)|: line (\d+) column \d+ \(char \d+\)")


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(str(path), "", "is not UTF-8 text", line) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(str(path), "", f"is larger than {MAX_BYTES} bytes")
    return text


def parse(text: str, path: Path) -> dict[str, Any]:
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    if not text.strip():
        raise ConfigError(str(path), "", "is empty")
    try:
        data = tomllib.loads(text) if kind == "TOML" else json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ConfigError(str(path), "", f"is not {kind} we read: nested too deeply") from error
    except ValueError as error:
        words = f"is not {kind}: {_LINE.sub('', str(error)).strip()}"
        raise ConfigError(str(path), "", words, _line_of(error, text)) from error
    if not isinstance(data, dict):
        raise ConfigError(str(path), "", f"expected an object, found {kind_of(data)}")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"{twice!r} stands there twice")
    return made


def _line_of(error: ValueError, text: str) -> int | None:
    if isinstance(error, json.JSONDecodeError):
        return error.lineno
    found = _LINE.search(str(error))
    if found is None:
        return None
    return int(found[1]) if found[1] else text.rstrip().count("\n") + 1


def find_line(text: str, key: str) -> int | None:
    """The line where `providers.openai.rpm` stands: each word of it as a key, after the one before; None if it does
    not stand there."""
    if not key:
        return None
    lines = text.splitlines()
    at, found = 0, None
    for word in key.split("."):
        name = re.compile(rf"""(?:^|[\[.{{,\s])["']?{re.escape(word)}["']?\s*(?:[=:.\]]|$)""")
        here = next((i for i in range(at, len(lines)) if _says(lines[i], name)), None)
        if here is None:
            return None
        at, found = here, here + 1
    return found


def _says(line: str, name: re.Pattern[str]) -> bool:
    return not line.lstrip().startswith("#") and name.search(line) is not None
