"""Kinds of servers and model families: rows of profiles.toml and of the user's file, as the Profile of one model.

    dialect's default  <-  kind  <-  kind for that dialect  <-  families, in order  <-  the provider's own fields

Tables are merged key by key, everything else is replaced. `rows=None` means the rows that come with dragoman.
"""

import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from dragoman.dialects import CANONICAL, NAMES, find_dialect
from dragoman.dialects._services import ListedModel
from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of, load_json
from dragoman.passes.profile import Profile
from dragoman.read_struct import read_struct, suggest
from dragoman.upstream.keys import Auth

FILE = "profiles.toml"
KNOWN_MODELS = "known_models.json"  # facts that servers do not publish; made by tools/known_models.py
ALL = ("*",)  # the pattern for all models
_WHOLE = ("tool_names", "call_ids", "thinking")  # these tables are replaced as a whole


class Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of server."""

    name: str
    title: str
    dialects: tuple[str, ...]
    base_url: str = ""  # "": each provider of this kind has its own in the configuration
    urls: dict[str, str] = {}  # of dialects that have another one
    auth: Auth = "bearer"
    keys: tuple[str, ...] = ()  # environment variables, the first that is set
    prefixes: tuple[str, ...] = ()
    default_model: str = ""  # for commands that are called without one
    lists: bool = True  # has a list of models by the names that requests use
    tokenize: str = ""  # the path at which it counts the tokens of a Chat request
    models_path: str = ""  # a list of models with more facts than the usual one
    seen: tuple[str, ...] = ()
    notes: str = ""
    profile: dict[str, Any] = {}
    by_dialect: dict[str, dict[str, Any]] = {}

    def url_of(self, dialect: str) -> str:
        return self.urls.get(dialect, self.base_url)


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules of some models, at every server or at some kinds of servers."""

    models: tuple[str, ...]
    kinds: tuple[str, ...] | None = None
    dialects: tuple[str, ...] | None = None
    dialect: str | None = None
    seen: tuple[str, ...] = ()
    profile: dict[str, Any] = {}

    def fits(self, kind: str, model: str) -> bool:
        return (self.kinds is None or kind in self.kinds) and any(fnmatchcase(model, p) for p in self.models)


class Rows(Struct, frozen=True, kw_only=True):
    """Kinds by name; of families, later ones win."""

    kinds: dict[str, Kind]
    families: tuple[Family, ...] = ()

    def only(self, kind: str) -> "Rows":
        """The rows that servers of one kind need. They are equal if two files differ in other rows only."""
        families = tuple(family for family in self.families if family.kinds is None or kind in family.kinds)
        return Rows(kinds={name: row for name, row in self.kinds.items() if name == kind}, families=families)


@cache
def load_rows() -> Rows:
    """The rows that come with dragoman."""
    text = Path(__file__).with_name(FILE).read_text("utf-8")
    return add_rows(Rows(kinds={}), tomllib.loads(text), FILE)


def add_rows(rows: Rows, data: Mapping[str, Any], file: str) -> Rows:
    """`rows` with those of a file, which win. A kind that is known already keeps what the file does not say."""
    kinds, families = data.get("kind", {}), data.get("family", [])
    if not isinstance(kinds, Mapping):
        raise ConfigError(file, "kind", f"expected tables [kind.NAME], found {kind_of(kinds)}")
    if not isinstance(families, list):
        raise ConfigError(file, "family", f"expected tables [[family]], found {kind_of(families)}")
    read = {name: _read_kind(name, row, file, rows.kinds.get(name)) for name, row in kinds.items()}
    rules = [rule for name in kinds if name in rows.kinds for rule in _rules_of_all_models(name, kinds[name])]
    more = [_read_family(row, file, f"family.{i}") for i, row in enumerate(families)]
    return Rows(kinds={**rows.kinds, **read}, families=(*rows.families, *rules, *more))


def _rules_of_all_models(name: str, row: Mapping[str, Any]) -> Iterator[Family]:
    """What a file says about a known kind. It comes after the families that are known, so that the file wins."""
    if "profile" in row:
        yield Family(models=ALL, kinds=(name,), profile=row["profile"])
    for dialect in NAMES:
        if dialect in row:
            yield Family(models=ALL, kinds=(name,), dialects=(dialect,), profile=row[dialect])


def own_kinds(rows: Rows) -> list[Kind]:
    """The kinds that a user's file adds or changes."""
    known = load_rows()
    changed = {
        name for family in rows.families[len(known.families) :] if family.models == ALL for name in family.kinds or ()
    }
    return [kind for name, kind in rows.kinds.items() if name in changed or kind != known.kinds.get(name)]


def own_families(rows: Rows) -> list[Family]:
    """The families that a user's file adds."""
    return [family for family in rows.families[len(load_rows().families) :] if family.models != ALL]


def _read_kind(name: str, row: Any, file: str, known: Kind | None) -> Kind:
    at = f"kind.{name}"
    if not isinstance(row, Mapping):
        raise ConfigError(file, at, f"expected a table, found {kind_of(row)}")
    by_dialect = {key: value for key, value in row.items() if key in NAMES}
    own_keys = {key: value for key, value in row.items() if key not in NAMES}
    for key in ("name", "by_dialect"):  # fields of ours, no keys of the file
        if key in own_keys:
            raise ConfigError(file, f"{at}.{key}", "no such key")
    for key, fields in (("profile", own_keys.get("profile", {})), *by_dialect.items()):
        _build(fields, file, f"{at}.{key}")  # a mistake shows when the file is read, not when a request comes
    if known is None:
        kind = read_struct({"title": name, **own_keys, "name": name, "by_dialect": by_dialect}, Kind, file, at)
    else:
        fields = {field: getattr(known, field) for field in Kind.__struct_fields__}
        kind = read_struct({**fields, **own_keys, "profile": known.profile}, Kind, file, at)
    for dialect in kind.dialects:
        if dialect not in NAMES:
            raise ConfigError(file, f"{at}.dialects", f"no such dialect: {dialect}")
    if not kind.dialects:
        raise ConfigError(file, f"{at}.dialects", "names no dialect")
    return kind


def _read_family(row: Any, file: str, at: str) -> Family:
    family = read_struct(row, Family, file, at)
    _build(family.profile, file, f"{at}.profile")
    return family


def _build(fields: Any, file: str, at: str) -> Profile:
    return read_struct(fields, Profile, file, at)


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping) and key not in _WHOLE
        merged[key] = merge(old, value) if both and old is not None else value
    return merged


# ---------------------------------------------------------------- one model at one server


def find_kind(name: str, rows: Rows | None = None) -> Kind:
    known = (rows or load_rows()).kinds
    if name not in known:
        raise ConfigError(FILE, f"kind.{name}", f"there is no kind of server {name!r}; {suggest(name, known)}")
    return known[name]


def plain_model(model: str) -> str:
    """The family's name in a model's: without a vendor or a path in front, in small letters."""
    return model.rpartition("/")[2].removesuffix(":latest").lower()


def choose_dialect(kind: str, model: str, rows: Rows | None = None) -> str:
    """The API path follows the model (mission B6), else it is the kind's first."""
    rows = rows or load_rows()
    row = find_kind(kind, rows)
    chosen = row.dialects[0]
    name = plain_model(model)
    for family in rows.families:
        if family.dialect is not None and family.dialect in row.dialects and family.fits(kind, name):
            chosen = family.dialect
    return chosen


def profile_for(
    kind: str,
    model: str,
    dialect: str | None = None,
    overrides: Mapping[str, object] | None = None,
    rows: Rows | None = None,
) -> Profile:
    """What one model at one kind of server takes."""
    if overrides or rows is not None:
        return _profile_for(kind, model, dialect, overrides or {}, rows or load_rows())
    return _remembered(kind, model, dialect)


_profiles: dict[tuple[str, str, str | None], Profile] = {}


def _remembered(kind: str, model: str, dialect: str | None) -> Profile:
    key = (kind, model, dialect)
    found = _profiles.get(key)  # fast path: known profile
    if found is None:
        found = _profile_for(kind, model, dialect, {}, load_rows())
        if len(_profiles) >= 1_000:  # model names come from clients
            _profiles.clear()
        _profiles[key] = found
    return found


def _profile_for(kind: str, model: str, dialect: str | None, overrides: Mapping[str, object], rows: Rows) -> Profile:
    row = find_kind(kind, rows)
    chosen = dialect or choose_dialect(kind, model, rows)
    fields = _merge_kind(row, chosen)
    name = plain_model(model)
    for family in () if chosen == CANONICAL else rows.families:  # a gateway of ours follows the rules of models itself
        if (family.dialects is None or chosen in family.dialects) and family.fits(kind, name):
            fields = merge(fields, family.profile)
    return _build(merge(fields, overrides), FILE, f"kind.{kind}")


def _merge_kind(kind: Kind, dialect: str) -> dict[str, Any]:
    fields = merge(to_builtins(find_dialect(dialect).profile), kind.profile)
    return merge(merge(fields, kind.by_dialect.get(dialect, {})), {"kind": kind.name, "dialect": dialect})


def kind_of_model(model: str, rows: Rows | None = None) -> str | None:
    """The kind a bare model name means by its beginning (mission D5)."""
    return next(iter(kinds_of_model(model, rows)), None)


def kinds_of_model(model: str, rows: Rows | None = None) -> list[str]:
    """Every kind whose models begin like this one, the longest prefix first, then in the order of the rows."""
    name = model.removeprefix("models/").lower()
    bare = plain_model(model)
    lengths = {
        kind.name: max(len(p) for p in kind.prefixes if name.startswith(p) or bare.startswith(p))
        for kind in (rows or load_rows()).kinds.values()
        if kind.prefixes and (name.startswith(kind.prefixes) or bare.startswith(kind.prefixes))
    }
    return sorted(lengths, key=lambda kind: -lengths[kind])


# ---------------------------------------------------------------- models


@cache
def load_known() -> dict[str, dict[str, dict[str, Any]]]:
    """Facts of public catalogues, by kind of server and model."""
    text = Path(__file__).with_name(KNOWN_MODELS).read_bytes()
    found: dict[str, dict[str, dict[str, Any]]] = load_json(text)["models"]
    return found


def find_known(kind: str, model: str, known: Rows | None = None) -> ListedModel | None:
    """By the table of its server, else of the vendor whose models have such names."""
    for name in (kind, *kinds_of_model(model, known)):
        rows = load_known().get(name, {})
        facts = rows.get(model) or rows.get(plain_model(model))
        if facts is not None:
            return ListedModel(name=model, **facts)
    return None
