"""The configuration file as text: where it is, what it says, and the line of a key."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of

FILES = ("dragoman.toml", "config.json")
MAX_BYTES = 1024 * 1024
_TABLE = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)|: line (\d+) column \d+ \(char \d+\)")


def find_file(folder: Path, env: Mapping[str, str]) -> Path | None:
    path = env.get("DRAGOMAN_CONFIG")
    if path:
        return Path(path)
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def state_folder(env: Mapping[str, str]) -> Path:
    """Where keys and stored responses live."""
    if folder := env.get("DRAGOMAN_HOME"):
        return Path(folder)
    home = str(Path(os.path.expanduser("~")) / ".local" / "state")
    base = env.get("XDG_STATE_HOME") or env.get("LOCALAPPDATA") or home  # the second one is Windows'
    return Path(base) / "dragoman"


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
        raise ConfigError(str(path), "", "is nested too deeply") from error
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
    match = _LINE.search(str(error))
    if match is None:
        return None
    return int(match[1]) if match[1] else text.rstrip().count("\n") + 1


def find_line(text: str, key: str) -> int | None:
    """The line of `providers.openai.rpm` or `family.0.models`; None if the file does not have it."""
    if not key:
        return None
    lines = text.splitlines()
    words = [word for word in key.split(".") if not word.isdigit()]
    number = next((int(word) for word in key.split(".") if word.isdigit()), 0)  # of an entry like [[family]]
    at, known = _find_table(lines, words, number)
    found = at + 1 if known == len(words) else None
    for word in words[known:]:
        name = re.compile(rf"""(?:^|[\[.{{,\s])["']?{re.escape(word)}["']?\s*(?:[=:.\]]|$)""")
        here = next((i for i in range(at, len(lines)) if _says(lines[i], name)), None)
        if here is None:
            return None
        at, found = here, here + 1
    return found


def _find_table(lines: list[str], words: list[str], number: int) -> tuple[int, int]:
    """The line of the innermost table of TOML that a key stands in, and how many words of the key it says."""
    at, known, entries = 0, 0, 0
    for i, line in enumerate(lines):
        match = _TABLE.match(line)
        names = [name.strip(" \t\"'") for name in match[2].split(".")] if match else []
        if match is None or names != words[: len(names)] or len(names) < known:
            continue
        if match[1] == "[[":
            entries += 1
            if entries != number + 1:
                continue
        elif entries and entries != number + 1:
            continue
        at, known = i, len(names)
    return at, known


def _says(line: str, name: re.Pattern[str]) -> bool:
    return not line.lstrip().startswith("#") and name.search(line) is not None
