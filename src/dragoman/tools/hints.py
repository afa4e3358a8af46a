"""A type hint as JSON Schema, and values of it made from JSON. msgspec does both; what it lacks is added here.

Added: Path, pydantic models (if their package is there, it is their own code that runs), sets of abstract types, unions
msgspec refuses, text and constraints in Annotated in the forms people use, and a second, more lenient look at a value:
models write "5" for 5, 5.0 for 5, and JSON in a string where an object was asked for.
"""

import collections.abc
import datetime
import inspect
import pathlib
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from dragoman.errors import DragomanError
from dragoman.jsontypes import Json, JsonObject, load_json

REFERENCE = "#/$defs/{name}"
_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Container, collections.abc.Reversible)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_PATHS = (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath)
_UNIONS = (Union, types.UnionType)


class Misfit(DragomanError):
    """A value that is not what its hint says; the words are for the model."""


class Hint(Struct, frozen=True):
    """A hint, ready to describe and convert."""

    kind: Any
    members: "tuple[Hint, ...]" = ()  # of a union that is tried one by one

    def convert(self, value: Json) -> Any:
        """The value of this type; Misfit says what is wrong and where."""
        if not self.members:
            return _convert(value, self.kind)
        wrongs = []
        for strict in (True, False):
            for member in self.members:
                try:
                    return _convert(value, member.kind, (strict,)) if not member.members else member.convert(value)
                except Misfit as error:
                    wrongs.append(str(error))
        raise Misfit("; or ".join(dict.fromkeys(wrongs)))


def read_hint(hint: Any) -> Hint:
    """DragomanError when there is no JSON for such a type."""
    kind = plain(hint)
    try:
        describe([Hint(kind)])
        msgspec.json.Decoder(kind, dec_hook=_make)
    except TypeError as error:
        bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if get_origin(bare) in _UNIONS:
            return Hint(kind, tuple(read_hint(member) for member in get_args(bare)))
        words = str(error).splitlines()[-1]
        raise DragomanError(f"{name_of(hint)} cannot be described as JSON: {words}") from error
    return Hint(kind)


def describe(hints: Sequence[Hint]) -> tuple[list[JsonObject], JsonObject]:
    """A schema for each, and the definitions they share."""
    flat: list[Any] = []
    for hint in hints:
        flat.extend(_leaves(hint))
    made, shared = msgspec.json.schema_components(flat, schema_hook=_schema, ref_template=REFERENCE)
    schemas = iter(made)
    definitions: JsonObject = {}
    described = [_lift(_assemble(hint, schemas), definitions) for hint in hints]
    for name, schema in shared.items():
        definitions.setdefault(name, _lift(schema, definitions))
    return described, definitions


def _leaves(hint: Hint) -> list[Any]:
    if not hint.members:
        return [hint.kind]
    return [kind for member in hint.members for kind in _leaves(member)]


def _assemble(hint: Hint, schemas: Any) -> JsonObject:
    if not hint.members:
        return dict(next(schemas))
    schema: JsonObject = {"anyOf": [_assemble(member, schemas) for member in hint.members]}
    words = description_of(hint.kind)
    return {**schema, "description": words} if words else schema


def _lift(schema: Any, definitions: JsonObject) -> Any:
    """Definitions that a pydantic model brought along, up to where all of them are."""
    if isinstance(schema, dict):
        for name, inner in (schema.get("$defs") or {}).items():
            definitions.setdefault(name, _lift(inner, definitions))
        return {key: _lift(value, definitions) for key, value in schema.items() if key != "$defs"}
    if isinstance(schema, list | tuple):
        return [_lift(item, definitions) for item in schema]
    return schema


# ---------------------------------------------------------------- hints as msgspec knows them


def plain(hint: Any) -> Any:
    """The same type in words msgspec knows."""
    if hint is inspect.Parameter.empty or hint is object:
        return Any
    if isinstance(hint, typing.TypeVar):
        return plain(hint.__bound__) if hint.__bound__ is not None else Any
    if hint is datetime.datetime:
        return Annotated[hint, Meta(extra_json_schema={"format": "date-time"})]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(plain(arguments[0]), arguments[1:])
    if origin in _LISTS or hint in _LISTS:
        return list[plain(arguments[0]) if arguments else Any]  # type: ignore[misc]  # a type made at run time
    if origin is typing.Literal or not arguments:
        return hint
    if origin in _UNIONS:
        return Union[tuple(plain(member) for member in arguments)]  # noqa: UP007  # made at run time
    if origin in (list, set, frozenset, tuple, dict) or isinstance(origin, type):
        return _rebuild(hint, origin, arguments)
    return hint


def _rebuild(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    changed = tuple(member if member is Ellipsis else plain(member) for member in arguments)
    if changed == arguments:
        return hint
    try:
        return origin[changed]
    except TypeError:
        return hint


def _annotated(kind: Any, metadata: tuple[Any, ...]) -> Any:
    """Text and constraints as msgspec's Meta: strings, pydantic's Field, annotated-types, Doc."""
    said: dict[str, Any] = {}
    kept: list[Any] = []
    for item in metadata:
        for piece in (item, *getattr(item, "metadata", ())):
            if isinstance(piece, Meta):
                kept.append(piece)
                continue
            if isinstance(piece, str):
                said.setdefault("description", piece)
            for name in ("description", "documentation"):
                if isinstance(text := getattr(piece, name, None), str):
                    said.setdefault("description", text)
            for name in _LIMITS:
                value = getattr(piece, name, None)
                if value is not None and not callable(value):
                    said.setdefault(name, value)
    metas = [*kept, *([Meta(**said)] if said else [])]
    return Annotated[(kind, *metas)] if metas else kind


def description_of(kind: Any) -> str:
    """What Annotated says about a type."""
    for item in getattr(kind, "__metadata__", ()):
        if isinstance(item, Meta) and item.description:
            return item.description
    return ""


def name_of(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint).removeprefix("typing.")


def is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _schema(kind: Any) -> JsonObject:
    if kind in _PATHS:
        return {"type": "string", "format": "path"}
    if is_pydantic(kind):
        schema: JsonObject = kind.model_json_schema(ref_template="#/$defs/{model}")
        return schema
    raise NotImplementedError  # how a hook tells msgspec that the type is not one of its own


def _make(kind: Any, value: Any) -> Any:
    if kind in _PATHS and isinstance(value, str):
        return kind(value)
    if is_pydantic(kind):
        try:
            return kind.model_validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ValueError(_first_line_of(error)) from error
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise ValueError(f"Expected `{name_of(kind)}`, got `{type(value).__name__}`")


def _first_line_of(error: ValueError) -> str:
    try:
        wrongs = error.errors(include_url=False)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return str(error)
    return "; ".join(f"{'.'.join(str(step) for step in w['loc']) or 'value'}: {w['msg']}" for w in wrongs[:5])


# ---------------------------------------------------------------- values


def _convert(value: Json, kind: Any, looks: tuple[bool, ...] = (True, False)) -> Any:
    """As it is, then leniently, then with JSON taken out of strings and whole floats as integers."""
    wrong: Exception | None = None
    for strict in looks:
        try:
            return msgspec.convert(value, kind, strict=strict, str_keys=True, dec_hook=_make)
        except (msgspec.ValidationError, ValueError) as error:
            wrong = wrong or error
    eased = _ease(value)
    if False in looks and eased is not value:
        try:
            return msgspec.convert(eased, kind, strict=False, str_keys=True, dec_hook=_make)
        except (msgspec.ValidationError, ValueError):
            pass
    raise Misfit(str(wrong).replace("`", "")) from wrong


def _ease(value: Json) -> Json:
    """What a model meant, where it wrote JSON into a string or 5.0 for 5."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            return load_json(value)
        except DragomanError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _ease(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_ease(item) for item in value]
    return value
