"""The account of every field of a dialect: where its value goes.

Each dialect's folder holds a `fields.toml` with a table per section (request, reply, stream). A key is one of

    a.b, a[], a{}, a<kind>    the path of a field, in the notation of the vendor's types
    a=Class                   an object with its own table
    a.*                       the beginning of many paths; the longest one that fits counts
    *.name                    every field of this name

A value is one of

    carried: where      a canonical field holds it
    adapted: where      a canonical field holds it in another form
    extra               kept for its own dialect, noted elsewhere
    declared: why       not supported

The table `totals` counts the paths themselves. Tests measure each account.
"""

import tomllib
from importlib.resources import files
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

Word: TypeAlias = Literal["carried", "adapted", "extra", "declared"]
WORDS: tuple[Word, ...] = get_args(Word)


class FieldAccount(Struct, frozen=True):
    word: Word
    detail: str = ""  # where it goes, or why it does not


class Accounts(Struct, frozen=True):
    """All accounts of one dialect; `package` is what they were checked against."""

    dialect: str
    package: str
    totals: dict[str, dict[Word, int]]  # paths by section and word
    sections: dict[str, dict[str, FieldAccount]]


def read_accounts(dialect: str) -> Accounts:
    text = files("dragoman.dialects").joinpath(dialect, "fields.toml").read_text("utf-8")
    head, sections = read_rules(text)
    return Accounts(dialect=dialect, package=head["package"], totals=head["totals"], sections=sections)


def read_rules(text: str) -> tuple[dict[str, Any], dict[str, dict[str, FieldAccount]]]:
    """A `fields.toml`: its head, and its sections."""
    data = tomllib.loads(text)
    head: dict[str, Any] = {key: data.pop(key) for key in ("package", "totals") if key in data}
    sections = {
        section: {pattern: parse_account(rule) for pattern, rule in rules.items()} for section, rules in data.items()
    }
    return head, sections


def parse_account(text: str) -> FieldAccount:
    word, _, detail = text.partition(": ")
    if word not in WORDS:
        raise ValueError(f"expected one of {', '.join(WORDS)}, found {text!r}")
    return FieldAccount(word, detail)


def find_rule(rules: dict[str, FieldAccount], path: str) -> str | None:
    """The pattern that accounts for a path: itself, its last field's name, or the longest beginning of it."""
    if path in rules:
        return path
    name = "*." + path.rpartition(".")[2]
    if name in rules:
        return name
    for length in range(len(path), -1, -1):
        pattern = path[:length] + "*"
        if pattern in rules:
            return pattern
    return None
