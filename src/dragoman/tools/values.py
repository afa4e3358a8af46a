"""Makes values of a type hint from JSON. It is lenient, because models write "5" for 5, 5.0 for 5, and JSON in a string
where the schema has an object."""

import functools
import re
from typing import Any

import msgspec

from dragoman.errors import DragomanError
from dragoman.jsontypes import Json, kind_of, load_json
from dragoman.tools.hints import (
    PATH_TYPES,
    Hint,
    MixedEnum,
    OneOf,
    Record,
    RecursiveType,
    get_type_name,
    is_hooked,
    is_pydantic,
)
from dragoman.tools.records import RecordShape, is_named_tuple, is_record, read_record_shape

_PATH_NOTE = re.compile(r" - at `\$([^`]*)`")


class WrongValueError(DragomanError):
    """A value does not fit its type hint. The message is for the model."""


def make_value(value: Json, hint: Hint, name: str = "") -> Any:
    """A value of this type. WrongValueError says what is wrong, and where in the argument `name`."""
    try:
        return _make_leniently(value, hint.kind)
    except ValueError as error:
        raise WrongValueError(_describe_error(error, name)) from error


def _make_leniently(value: Json, kind: Any) -> Any:
    """Tries the value as it is, then leniently, then with JSON taken out of strings and whole floats as integers."""
    try:
        return _make_once(value, kind, strict=True)
    except ValueError as error:
        first = error
    try:
        return _make_once(value, kind, strict=False)
    except ValueError:
        pass
    relaxed = _relax(value)
    if relaxed is not value:
        try:
            return _make_once(relaxed, kind, strict=False)
        except ValueError:
            pass
    raise first


def _make_once(value: Json, kind: Any, *, strict: bool) -> Any:
    """ValueError if the value does not fit; the error of msgspec is one."""
    hook = functools.partial(_make_hooked, strict=strict)
    try:
        return msgspec.convert(value, kind, strict=strict, str_keys=True, dec_hook=hook)
    except TypeError as error:  # a set with values that cannot be in a set
        raise ValueError(str(error)) from error


def _make_hooked(kind: Any, value: Any, *, strict: bool) -> Any:
    """The hook of msgspec: makes values of types that it does not know."""
    if is_hooked(kind, OneOf):
        return _make_union_member(kind, value, strict=strict)
    if is_hooked(kind, Record):
        return _make_record(kind.shape, value, strict=strict)
    if is_hooked(kind, RecursiveType):
        return _make_once(value, kind.kind, strict=strict)
    if is_hooked(kind, MixedEnum):
        return _make_enum_member(kind, value)
    if kind in PATH_TYPES and isinstance(value, str):
        return kind(value)
    if is_pydantic(kind):
        try:
            return kind.model_validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ValueError(_describe_pydantic_error(error)) from error
    raise ValueError(f"Expected `{get_type_name(kind)}`, got `{kind_of(value)}`")


def _make_union_member(kind: type[OneOf], value: Any, *, strict: bool) -> Any:
    """Makes the member that fits best: strictly before leniently, and for an object the class that knows most keys."""
    problems: list[str] = []
    members = sorted(kind.members, key=lambda member: _unknown_keys(member, value))
    for strictly in (True,) if strict else (True, False):
        for member in members:
            try:
                return _make_once(value, member, strict=True) if strictly else _make_leniently(value, member)
            except ValueError as error:
                problems.append(_describe_error(error))
    raise ValueError("; or ".join(dict.fromkeys(problems)))


def _unknown_keys(member: Any, value: Any) -> int:
    if not isinstance(value, dict):
        return 0
    if is_hooked(member, Record):
        shape: RecordShape = member.shape
    elif is_record(member):
        shape = read_record_shape(member)
    elif is_pydantic(member):
        known = set(member.model_fields)
        return len(set(value) - known - {info.alias for info in member.model_fields.values()})
    else:
        return 0
    return len(set(value) - {field.key for field in shape.fields} - ({shape.tag[0]} if shape.tag else set()))


def _make_record(shape: RecordShape, value: Any, *, strict: bool) -> Any:
    if is_named_tuple(shape.make) and isinstance(value, list):  # msgspec and pydantic write NamedTuples as lists
        value = {field.key: item for field, item in zip(shape.fields, value, strict=False)}
    if not isinstance(value, dict):
        raise ValueError(f"Expected `object`, got `{kind_of(value)}`")  # noqa: TRY004  # msgspec takes ValueError
    if shape.tag is not None and value.get(shape.tag[0], shape.tag[1]) != shape.tag[1]:
        raise ValueError(f"Expected `{shape.tag[1]}` - at `$.{shape.tag[0]}`")
    fields: dict[str, Any] = {}
    for field in shape.fields:
        if field.key in value:
            try:
                fields[field.name] = _make_once(value[field.key], field.hint, strict=strict)
            except ValueError as error:
                raise ValueError(_prefix_path(error, f".{field.key}")) from error
        elif field.required:
            raise ValueError(f"Object missing required field `{field.key}`")
    unknown = set(value) - {field.key for field in shape.fields}
    if shape.closed and unknown - {shape.tag[0] if shape.tag else ""}:
        raise ValueError(f"Object contains unknown field `{min(unknown)}`")
    try:
        return shape.make(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _make_enum_member(kind: type[MixedEnum], value: Any) -> Any:
    for member in kind.values:
        if member.value == value and isinstance(member.value, bool) == isinstance(value, bool):
            return member
    known = ", ".join(repr(member.value) for member in kind.values)
    raise ValueError(f"Expected one of {known}")


# ---------------------------------------------------------------- error messages


def _prefix_path(error: ValueError, step: str) -> str:
    """The message of an inner error, with the step to it put in front of its path."""
    message = str(error)
    paths = _PATH_NOTE.findall(message)
    path = "".join(reversed(paths))  # msgspec adds the outer steps last
    return f"{_PATH_NOTE.sub('', message)} - at `${step}{path}`"


def _describe_error(error: ValueError, name: str = "") -> str:
    """`Expected int, got str (in point.x)`."""
    message = str(error)
    path = "".join(reversed(_PATH_NOTE.findall(message)))
    suffix = f" (in {(name + path).lstrip('.')})" if path else ""
    return _PATH_NOTE.sub("", message).replace("`", "") + suffix


def _describe_pydantic_error(error: ValueError) -> str:
    try:
        problems = error.errors(include_url=False)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return str(error)
    return "; ".join(f"{'.'.join(str(step) for step in w['loc']) or 'value'}: {w['msg']}" for w in problems[:5])


def _relax(value: Json) -> Json:
    """The value with JSON taken out of strings, and with 5.0 as 5."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            return load_json(value)
        except DragomanError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _relax(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_relax(item) for item in value]
    return value
