"""A Struct from the tables of a file. A mistake is a ConfigError: the key, what fits there, and what was found.

Types alone say what fits: bounds and an example stand in `Meta`, or a `title` where words are better. `name_type` puts
a type into words, for messages and for the documentation.
"""

from collections.abc import Collection, Iterable
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.json import schema
from msgspec.structs import fields

from dragoman.errors import ConfigError
from dragoman.jsontypes import JsonObject, kind_of

T = TypeVar("T")
MOST = 10**12
Texts: TypeAlias = str | tuple[str, ...]  # a single text may stand without a list around it
OneOrMore: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
ZeroOrMore: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0.01, le=float(MOST))]


def about(text: str) -> Meta:
    """One line on a key, for the documentation and for editors."""
    return Meta(description=text)


def texts(value: Texts | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


def read_struct(data: Any, kind: type[T], file: str, at: str = "") -> T:
    """`at` is the key of the table."""
    try:
        return convert(data, kind)
    except ValidationError as error:
        path, why = _find_mistake(data, kind, (at,) if at else ())
        raise ConfigError(file, ".".join(path), why) from error


# ---------------------------------------------------------------- what is wrong, and where

_Path: TypeAlias = tuple[str, ...]
_Mistake: TypeAlias = tuple[_Path, str]


def _find_mistake(value: Any, kind: Any, path: _Path) -> _Mistake:
    """The first mistake in a value that does not fit."""
    for one in _options(kind):
        base, parts = get_origin(one) or one, get_args(one)
        if isinstance(value, dict) and issubclass(base, Struct):
            return _find_in_table(value, base, path)
        if isinstance(value, dict) and base is dict:
            return _find_in_items(((name, item, parts[1]) for name, item in value.items()), path)
        if isinstance(value, list) and base in (tuple, list):
            return _find_in_items(((str(i), item, parts[0]) for i, item in enumerate(value)), path)
    wanted = schema(kind)
    words = name_type(wanted).replace("a list of tables", f"tables [[{'.'.join(path)}]]")
    return path, f"expected {words}, found {_name_value(value, wanted)}"


def _options(kind: Any) -> list[Any]:
    """The classes that a value of this type may have."""
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if isinstance(kind, type) or get_origin(kind) in (dict, list, tuple):
        return [kind]
    return [one for part in get_args(kind) for one in _options(part)]


def _find_in_table(table: dict[str, Any], kind: type[Struct], path: _Path) -> _Mistake:
    known = {field.name: field for field in fields(kind)}
    for name in table:
        if name not in known and kind.__struct_config__.forbid_unknown_fields:
            home = _find_home(name, kind)
            return (*path, name), f"no such key; {f'it is a key of {home}' if home else suggest(name, known)}"
    for name, field in known.items():
        if field.required and name not in table:
            described = schema(field.type).get("description", "")
            return path, f"{name} is needed{f': {described}' if described else ''}"
    return _find_in_items(((name, item, known[name].type) for name, item in table.items() if name in known), path)


def _find_home(name: str, kind: type[Struct]) -> str:
    """The table below this one that has a key of this name, or an empty text."""
    for field in fields(kind):
        for one in _options(field.type):
            named = get_origin(one) is dict  # tables with names, such as [providers.NAME]
            for table in _options(get_args(one)[1]) if named else [one]:
                if isinstance(table, type) and issubclass(table, Struct) and name in table.__struct_fields__:
                    return f"{field.name}.NAME" if named else field.name
    return ""


def _find_in_items(items: Iterable[tuple[str, Any, Any]], path: _Path) -> _Mistake:
    for name, item, kind in items:
        try:
            convert(item, kind)
        except ValidationError:
            return _find_mistake(item, kind, (*path, name))
    return path, "does not fit"


def suggest(name: str, known: Collection[str], otherwise: str = "") -> str:
    """The nearest name. If none is near: `otherwise`, or all names."""
    from difflib import get_close_matches  # after a mistake only

    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else otherwise or f"expected one of {', '.join(sorted(known))}"


# ---------------------------------------------------------------- types in words

_NAMES = {"string": "text", "boolean": "true or false", "object": "a table"}
_MANY = {"text": "texts", "a table": "tables", "a whole number": "whole numbers"}


def name_type(row: JsonObject) -> str:
    """The words for a JSON Schema of one key."""
    if "title" in row:
        return str(row["title"])
    if "anyOf" in row:
        return join_or(dict.fromkeys(name_type(one) for one in row["anyOf"] if one != {"type": "null"}))
    if "enum" in row:
        return join_or(row["enum"])
    kind = row.get("type", "object" if "$ref" in row else "")
    if kind in ("integer", "number"):
        return _name_number("a whole number" if kind == "integer" else "a number", row)
    if kind == "array":
        one = name_type(row.get("items", {}))
        return f"a list of {_MANY.get(one, 'values')}"
    example = f" like {row['examples'][0]}" if "examples" in row else ""
    return f"{_NAMES.get(kind, 'any value')}{example}"


def _name_number(words: str, row: JsonObject) -> str:
    least, more, most = row.get("minimum"), row.get("exclusiveMinimum"), row.get("maximum", MOST)
    if least is not None and most < MOST:
        return f"{words} from {least:g} to {most:.15g}"
    words += f" of at least {least:g}" if least is not None else f" above {more:g}" if more is not None else ""
    return f"{words}, at most {most:.15g}" if most < MOST else words


def join_or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _name_value(value: Any, wanted: JsonObject) -> str:
    """A number or a word is quoted where one was expected. Elsewhere it may be a secret."""
    kinds = {one.get("type", "word" if "enum" in one else "") for one in wanted.get("anyOf", [wanted])}
    match value:
        case int() | float() if not isinstance(value, bool) and kinds & {"integer", "number"}:
            return f"{value}, which is too large" if value > MOST else str(value)
        case str() if "word" in kinds:
            return repr(value)
        case str() if "string" in kinds:
            return "another text" if value else "an empty text"
        case _:
            return kind_of(value)
