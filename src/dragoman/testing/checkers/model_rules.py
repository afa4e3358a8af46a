"""Rules of single models and servers, as data: which values each takes, and its words when it refuses.

model_rules.toml holds them. They are written from what providers said, not from upstream/profiles.toml, so that the two
files check each other.
"""

import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from msgspec import Struct, convert

FILE = "model_rules.toml"


class ModelRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. `at` is a name in `places` or a path, in which `[]` stands for every item. Without a demand (`only` and
    those behind it) the field itself is refused."""

    rows: tuple[str, ...]  # the rows of docs/provider-rules.md that it comes from
    at: str
    says: str  # {at}, {value}, {size}, {only}, {most}, {least} and {model} are filled in
    source: str = ""
    sure: Literal["documented", "seen", "assumed"]
    kinds: tuple[str, ...] = ()  # kinds of servers; (): all
    dialects: tuple[str, ...] = ()
    models: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    when: dict[str, Any] = {}  # path -> true (it is there), false (it is not there), or its possible values
    only: tuple[Any, ...] | None = None
    least: float | None = None
    most: float | None = None
    longest: int | None = None  # characters of a text
    count: int | None = None  # items of a list
    status: int = 400
    code: str | None = None

    def holds_for(self, kind: str, dialect: str, model: str) -> bool:
        if (self.kinds and kind not in self.kinds) or (self.dialects and dialect not in self.dialects):
            return False
        fits = any(fnmatchcase(model, pattern) for pattern in self.models)
        return fits and not any(fnmatchcase(model, pattern) for pattern in self.but)

    def is_broken_by(self, value: object) -> bool:
        demands = (self.only, self.least, self.most, self.longest, self.count)
        if all(demand is None for demand in demands):
            return True
        if self.only is not None and value not in self.only:
            return True
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (self.least is not None and value < self.least) or (self.most is not None and value > self.most)
        if isinstance(value, str) and self.longest is not None:
            return len(value) > self.longest
        return isinstance(value, list) and self.count is not None and len(value) > self.count


class Breach(Struct, frozen=True):
    message: str
    rule: ModelRule
    at: str


class ModelRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    places: dict[str, dict[str, tuple[str, ...]]]  # name of a place -> dialect -> paths
    rule: tuple[ModelRule, ...]


@cache
def _load_file() -> ModelRules:
    text = files("dragoman.testing.checkers").joinpath(FILE).read_text("utf-8")
    return convert(tomllib.loads(text), ModelRules)


def load_model_rules() -> tuple[ModelRule, ...]:
    return _load_file().rule


@lru_cache(1_000)
def _rules_for(kind: str, dialect: str, model: str) -> tuple[ModelRule, ...]:
    return tuple(rule for rule in load_model_rules() if rule.holds_for(kind, dialect, model))


def find_breaches(kind: str, dialect: str, body: dict[str, Any], model: str = "") -> list[Breach]:
    """The rules that a body breaks at one server."""
    name = str(body.get("model") or model).rpartition("/")[2].removesuffix(":latest").lower()
    found = []
    for rule in _rules_for(kind, dialect, name):
        if not all(_is_so(body, dialect, path, wanted) for path, wanted in rule.when.items()):
            continue
        for path in _paths(rule.at, dialect):
            for at, value in find_values(body, path):
                if value is not None and rule.is_broken_by(value):
                    found.append(Breach(_say(rule, at, value, name), rule, at))
    return found


def check_models(kind: str, dialect: str, body: dict[str, Any], model: str = "") -> list[str]:
    return [breach.message for breach in find_breaches(kind, dialect, body, model)]


def _paths(at: str, dialect: str) -> tuple[str, ...]:
    places = _load_file().places
    return places[at].get(dialect, ()) if at in places else (at,)


def _is_so(body: dict[str, Any], dialect: str, path: str, wanted: object) -> bool:
    values = [value for p in _paths(path, dialect) for _, value in find_values(body, p) if value not in (None, [])]
    if isinstance(wanted, bool):
        return bool(values) == wanted
    if isinstance(wanted, str):  # "not none": any other value, or no value
        return wanted.removeprefix("not ") not in values
    return any(value in wanted for value in values)  # type: ignore[operator]


def find_values(value: object, path: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a path, each with its own place."""
    head, _, rest = path.partition(".")
    key, each = head.removesuffix("[]"), head.endswith("[]")
    if not isinstance(value, dict) or key not in value:
        return
    place = f"{at}.{key}" if at else key
    found = [(place, value[key])]
    if each:
        items = value[key] if isinstance(value[key], list) else []
        found = [(f"{place}[{i}]", item) for i, item in enumerate(items)]
    for where, item in found:
        if rest:
            yield from find_values(item, rest, where)
        else:
            yield where, item


def _say(rule: ModelRule, at: str, value: Any, model: str) -> str:
    known = [f"'{word}'" for word in rule.only or ()]
    listed = known[0] if len(known) == 1 else ", ".join(known[:-1]) + f", and {known[-1]}" if known else ""
    size = len(value) if isinstance(value, str | list) else value
    most = next((limit for limit in (rule.most, rule.longest, rule.count) if limit is not None), None)
    words = {"at": at, "value": value, "size": size, "only": listed, "model": model}
    for key, limit in (("most", most), ("least", rule.least)):
        words[key] = f"{limit:.15g}" if limit is not None else ""
    return rule.says.format(**words)
