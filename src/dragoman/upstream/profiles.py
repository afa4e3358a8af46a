"""Kinds of servers and model families: the rows of profiles.toml, merged into the Profile of one model at one server.

    dialect's default  <-  kind  <-  kind for that dialect  <-  families, in order  <-  the user's own fields

Tables are merged key by key, everything else is replaced. Users bring rows of the same form (`add_rows`).
"""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import ConfigError
from dragoman.passes.profile import Profile
from dragoman.upstream.spec import Auth

FILE = "profiles.toml"
_WHOLE = ("tool_names", "call_ids", "thinking")  # records said anew, not key by key


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of server."""

    name: str
    title: str
    dialects: tuple[str, ...]
    base_url: str
    urls: dict[str, str] = {}  # of dialects that have another one
    auth: Auth = "bearer"
    keys: tuple[str, ...] = ()  # environment variables, the first that is set
    prefixes: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    notes: str = ""
    profile: dict[str, Any] = {}
    by_dialect: dict[str, dict[str, Any]] = {}

    def url_of(self, dialect: str) -> str:
        return self.urls.get(dialect, self.base_url)


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is the model's rule, whoever serves it."""

    models: tuple[str, ...]
    kinds: tuple[str, ...] | None = None
    dialects: tuple[str, ...] | None = None
    dialect: str | None = None
    seen: tuple[str, ...] = ()
    profile: dict[str, Any] = {}

    def fits(self, kind: str, model: str) -> bool:
        return (self.kinds is None or kind in self.kinds) and any(fnmatchcase(model, p) for p in self.models)


class Rows(Struct, frozen=True, kw_only=True):
    kinds: dict[str, Kind]
    families: tuple[Family, ...]


def read_rows(data: Mapping[str, Any], file: str = FILE) -> Rows:
    kinds = {name: _read_kind(name, row, file) for name, row in data.get("kind", {}).items()}
    families: list[Family] = []
    for i, row in enumerate(data.get("family", [])):
        try:
            families.append(convert(row, Family))
        except ValidationError as error:
            raise ConfigError(file, f"family.{i}", str(error)) from error
    rows = Rows(kinds=kinds, families=tuple(families))
    _check(rows, file)
    return rows


def _read_kind(name: str, row: Mapping[str, Any], file: str) -> Kind:
    fields = {key: value for key, value in row.items() if key not in NAMES}
    by_dialect = {key: value for key, value in row.items() if key in NAMES}
    fields.setdefault("title", name)
    try:
        kind = convert({**fields, "name": name, "by_dialect": by_dialect}, Kind)
    except ValidationError as error:
        raise ConfigError(file, f"kind.{name}", str(error)) from error
    unknown = set(fields) - set(Kind.__struct_fields__)
    if unknown:
        raise ConfigError(file, f"kind.{name}", f"no such key: {', '.join(sorted(unknown))}")
    for dialect in kind.dialects:
        if dialect not in NAMES:
            raise ConfigError(file, f"kind.{name}.dialects", f"no such dialect: {dialect}")
    return kind


def _check(rows: Rows, file: str) -> None:
    """Every row makes a Profile: a typing mistake shows when it is read, not when a request comes. No dialect is loaded
    for it: what a row says is right or wrong whatever it is merged into."""
    for kind in rows.kinds.values():
        for dialect in kind.dialects:
            fields = merge(kind.profile, kind.by_dialect.get(dialect, {}))
            _build(fields, file, f"kind.{kind.name}")
    for family in rows.families:
        _build(family.profile, file, f"family {family.models[0]}")


@cache
def load_rows() -> Rows:
    """The rows that come with dragoman."""
    return read_rows(tomllib.loads(files("dragoman.upstream").joinpath(FILE).read_text("utf-8")))


def add_rows(rows: Rows, more: Rows) -> Rows:
    """A user's rows: kinds of the same name are merged, families come last and win."""
    kinds = dict(rows.kinds)
    for name, kind in more.kinds.items():
        known = kinds.get(name)
        kinds[name] = kind if known is None else _merge_rows(known, kind)
    return Rows(kinds=kinds, families=(*rows.families, *more.families))


def _merge_rows(known: Kind, kind: Kind) -> Kind:
    default = Kind(name=kind.name, title=kind.name, dialects=(), base_url="")
    said = {f: getattr(kind, f) for f in Kind.__struct_fields__ if getattr(kind, f) != getattr(default, f)}
    said["profile"] = merge(known.profile, kind.profile)
    said["by_dialect"] = merge(known.by_dialect, kind.by_dialect)
    return convert({**{f: getattr(known, f) for f in Kind.__struct_fields__}, **said}, Kind)


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
        raise ConfigError(FILE, f"kind.{name}", f"no such kind of server; there are {', '.join(known)}")
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
    for family in rows.families:
        if (family.dialects is None or chosen in family.dialects) and family.fits(kind, name):
            fields = merge(fields, family.profile)
    return _build(merge(fields, overrides), FILE, f"kind.{kind}")


def _merge_kind(kind: Kind, dialect: str) -> dict[str, Any]:
    fields = merge(to_builtins(find_dialect(dialect).profile), kind.profile)
    return merge(merge(fields, kind.by_dialect.get(dialect, {})), {"kind": kind.name, "dialect": dialect})


def _build(fields: dict[str, Any], file: str, key: str) -> Profile:
    try:
        return convert(fields, Profile)
    except ValidationError as error:
        raise ConfigError(file, key, str(error)) from error


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
