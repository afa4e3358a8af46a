"""Writes `fields.toml` anew from what is measured: `python -m tests.fields.accounts [dialect ...]`.

What people wrote stays: the reasons of declared fields and the remarks on extras. A field that is newly lost is written
as `declared: ?`, and the test does not take that for a reason.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from dragoman.conformance.accounts import WORDS, FieldAccount, Word, read_rules
from tests.fields.doors import door
from tests.fields.measure import Measured, measure
from tests.fields.samples import field_name, is_constant
from tests.fields.surfaces import WALKS, surface

SOURCE = Path(__file__).parents[2] / "src" / "dragoman" / "dialects"
WIDE = 6  # so many groups of extras under one beginning are written as one
_CUT = re.compile(r"(?=[.<\[{=])")


@cache
def measured(dialect: str, section: str) -> dict[str, Measured]:
    through = door(dialect, section)
    return {path: measure(entry, through) for path, entry in surface(dialect).sections[section].items()}


def account_of(found: Measured) -> FieldAccount:
    match found.account:
        case "carried" | "adapted":
            return FieldAccount(found.account, ", ".join(found.to))
        case "extra":
            return FieldAccount("extra")
        case _:
            return FieldAccount("declared", "?")


def totals(dialect: str, section: str) -> dict[str, int]:
    counts = Counter(account_of(found).word for found in measured(dialect, section).values())
    return {word: counts[word] for word in WORDS}


def propose(dialect: str, section: str) -> dict[str, FieldAccount]:
    """The fewest rules; what always says one word comes with its object and needs none."""
    settings = door(dialect, section).settings
    entries = surface(dialect).sections[section]
    accounts = {
        path: account_of(found)
        for path, found in measured(dialect, section).items()
        if found.account not in ("carried", "extra") or not is_constant(entries[path], settings)
    }
    rules: dict[str, FieldAccount] = {}
    for path, account in accounts.items():
        name = field_name(entries[path].steps)
        if name in settings.anew:
            rules[f"*.{name}"] = account
        elif account.word in ("carried", "adapted"):
            rules[path] = account
    spread: tuple[tuple[Word, int], ...] = (("declared", sys.maxsize), ("extra", WIDE))
    for word, most in spread:
        inside = [
            p for p, a in accounts.items() if a.word == word and field_name(entries[p].steps) not in settings.anew
        ]
        outside = [p for p, a in accounts.items() if a.word != word]
        for pattern in group(inside, outside, most=most):
            rules[pattern] = FieldAccount(word, "?" if word == "declared" else "")
    return {pattern: rules[pattern] for pattern in sorted(rules, key=_order)}


def _order(pattern: str) -> tuple[list[str], bool]:
    return _CUT.split(pattern.removesuffix("*")), not pattern.endswith("*")


def group(paths: Iterable[str], others: Iterable[str], prefix: str = "", most: int = WIDE) -> list[str]:
    """The fewest beginnings that cover some paths and none of the others; more than `most` in one place become one."""
    paths, others = list(paths), list(others)
    if not others:
        return paths if len(paths) == 1 else [prefix + "*"]
    groups: list[str] = []
    for head in _heads(paths, prefix):
        inside = [path for path in paths if _below(path, head)]
        outside = [path for path in others if _below(path, head)]
        if not [path for path in inside if path != head]:
            groups.append(head)
        else:
            groups.extend(group(inside, outside, head, most))
    return [prefix + "*"] if prefix and len(groups) > most else groups


def _heads(paths: list[str], prefix: str) -> list[str]:
    """Each path one step beyond the prefix."""
    found = {}
    for path in paths:
        rest = path[len(prefix) :]
        cut = re.search(r"[.<\[{=]", rest[1:])
        found[prefix + (rest[: cut.start() + 1] if cut else rest)] = True
    return sorted(found)


def _below(path: str, head: str) -> bool:
    return path == head or (path.startswith(head) and (path[len(head)] in ".<[{=" or head[-1:] in "]}>" or not head))


def write(dialect: str) -> None:
    file = SOURCE / dialect / "fields.toml"
    old = read_rules(file.read_text("utf-8"))[1] if file.exists() else {}
    here = surface(dialect)
    lines = [*HEAD, "", f'package = "{here.package}"', "", "[totals]"]
    for section in here.sections:
        counts = ", ".join(f"{word} = {count}" for word, count in totals(dialect, section).items())
        lines.append(f"{_key(section)} = {{ {counts} }}")
    for section in here.sections:
        lines += ["", f"[{_key(section)}]"]
        for pattern, account in propose(dialect, section).items():
            before = old.get(section, {}).get(pattern)
            if before is not None and before.word == account.word and account.word in ("declared", "extra"):
                account = before
            said = f"{account.word}: {account.detail}" if account.detail else account.word
            lines.append(f'"{pattern}" = "{said}"')
    file.write_text("\n".join(lines) + "\n", "utf-8")


def _key(section: str) -> str:
    return section if section.isalpha() else f'"{section}"'


HEAD = (
    "# Where every field goes: dragoman/conformance/accounts.py explains the words, tests/fields measures each of them",
    "# and writes this file anew (python -m tests.fields.accounts). A field with one possible word, like `type`, is",
    "# not listed: it comes and goes with its object.",
)


if __name__ == "__main__":
    for name in sys.argv[1:] or WALKS:
        write(name)
