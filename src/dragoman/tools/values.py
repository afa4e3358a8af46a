"""Values of a hint, made from JSON; twice looked at: models write "5" for 5, 5.0 for 5, and JSON in a string where an
object was asked for."""

import functools
import re
from typing import Any

import msgspec

from dragoman.errors import DragomanError
from dragoman.jsontypes import Json, kind_of, load_json
from dragoman.tools.hints import PATHS, Hint, Knot, OneOf, Record, Values, is_pydantic, is_stand_in, name_of
from dragoman.tools.records import Shape, is_named_tuple, is_record, read_shape

_PLACE = re.compile(r" - at `\$([^`]*)`")


class WrongValue(DragomanError):
    """A value that is not what its hint says; the words are for the model."""


def convert(value: Json, hint: Hint, name: str = "") -> Any:
    """The value of this type; WrongValue says what is wrong and where in what is called `name`."""
    try:
        return _look_twice(value, hint.kind)
    except ValueError as error:
        raise WrongValue(_say(error, name)) from error


def _look_twice(value: Json, kind: Any) -> Any:
    """As it is, then leniently, then with JSON taken out of strings and whole floats as integers."""
    try:
        return _look(value, kind, strict=True)
    except ValueError as error:
        first = error
    try:
        return _look(value, kind, strict=False)
    except ValueError:
        pass
    eased = _ease(value)
    if eased is not value:
        try:
            return _look(eased, kind, strict=False)
        except ValueError:
            pass
    raise first


def _look(value: Json, kind: Any, *, strict: bool) -> Any:
    """ValueError, of which msgspec's own is one, when it does not fit."""
    hook = functools.partial(_make, strict=strict)
    try:
        return msgspec.convert(value, kind, strict=strict, str_keys=True, dec_hook=hook)
    except TypeError as error:  # a set of what cannot be in one
        raise ValueError(str(error)) from error


def _make(kind: Any, value: Any, *, strict: bool) -> Any:
    """What msgspec asks about."""
    if is_stand_in(kind, OneOf):
        return _choose(kind, value, strict=strict)
    if is_stand_in(kind, Record):
        return _fill(kind.shape, value, strict=strict)
    if is_stand_in(kind, Knot):
        return _look(value, kind.kind, strict=strict)
    if is_stand_in(kind, Values):
        return _pick(kind, value)
    if kind in PATHS and isinstance(value, str):
        return kind(value)
    if is_pydantic(kind):
        try:
            return kind.model_validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ValueError(_say_pydantic(error)) from error
    raise ValueError(f"Expected `{name_of(kind)}`, got `{kind_of(value)}`")


def _choose(kind: type[OneOf], value: Any, *, strict: bool) -> Any:
    """The member that fits best: strictly before leniently, and among objects the one that knows most of the keys."""
    wrongs: list[str] = []
    members = sorted(kind.members, key=lambda member: _unknown_keys(member, value))
    for strictly in (True,) if strict else (True, False):
        for member in members:
            try:
                return _look(value, member, strict=True) if strictly else _look_twice(value, member)
            except ValueError as error:
                wrongs.append(_say(error))
    raise ValueError("; or ".join(dict.fromkeys(wrongs)))


def _unknown_keys(member: Any, value: Any) -> int:
    if not isinstance(value, dict):
        return 0
    if is_stand_in(member, Record):
        shape: Shape = member.shape
    elif is_record(member):
        shape = read_shape(member)
    elif is_pydantic(member):
        known = set(member.model_fields)
        return len(set(value) - known - {info.alias for info in member.model_fields.values()})
    else:
        return 0
    return len(set(value) - {field.key for field in shape.fields} - ({shape.tag[0]} if shape.tag else set()))


def _fill(shape: Shape, value: Any, *, strict: bool) -> Any:
    if is_named_tuple(shape.make) and isinstance(value, list):  # as msgspec and pydantic write one
        value = {field.key: item for field, item in zip(shape.fields, value, strict=False)}
    if not isinstance(value, dict):
        raise ValueError(f"Expected `object`, got `{kind_of(value)}`")  # noqa: TRY004  # msgspec takes ValueError
    if shape.tag is not None and value.get(shape.tag[0], shape.tag[1]) != shape.tag[1]:
        raise ValueError(f"Expected `{shape.tag[1]}` - at `$.{shape.tag[0]}`")
    made: dict[str, Any] = {}
    for field in shape.fields:
        if field.key in value:
            try:
                made[field.name] = _look(value[field.key], field.hint, strict=strict)
            except ValueError as error:
                raise ValueError(_at(error, f".{field.key}")) from error
        elif field.required:
            raise ValueError(f"Object missing required field `{field.key}`")
    unknown = set(value) - {field.key for field in shape.fields}
    if shape.closed and unknown - {shape.tag[0] if shape.tag else ""}:
        raise ValueError(f"Object contains unknown field `{min(unknown)}`")
    try:
        return shape.make(**made)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _pick(kind: type[Values], value: Any) -> Any:
    for member in kind.values:
        if member.value == value and isinstance(member.value, bool) == isinstance(value, bool):
            return member
    known = ", ".join(repr(member.value) for member in kind.values)
    raise ValueError(f"Expected one of {known}")


# ---------------------------------------------------------------- words


def _at(error: ValueError, step: str) -> str:
    """The words of an error inside, with the step that leads there put in front of its place."""
    words = str(error)
    places = _PLACE.findall(words)
    inside = "".join(reversed(places))  # what is further out was added last
    return f"{_PLACE.sub('', words)} - at `${step}{inside}`"


def _say(error: ValueError, name: str = "") -> str:
    """`Expected int, got str (in point.x)`."""
    words = str(error)
    where = "".join(reversed(_PLACE.findall(words)))
    inside = f" (in {(name + where).lstrip('.')})" if where else ""
    return _PLACE.sub("", words).replace("`", "") + inside


def _say_pydantic(error: ValueError) -> str:
    try:
        wrongs = error.errors(include_url=False)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return str(error)
    return "; ".join(f"{'.'.join(str(step) for step in w['loc']) or 'value'}: {w['msg']}" for w in wrongs[:5])


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
