"""Reads classes with fields in one way: dataclasses, TypedDicts, NamedTuples, msgspec Structs, attrs classes."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from dragoman.errors import DragomanError
from dragoman.tools.docstrings import Docstring, read_docstring

NO_DEFAULT: Any = object()
MODULE_PREFIX = re.compile(r"\b\w+\.")
_NON_WORD = re.compile(r"\W+")
_KEY_WRAPPERS = ("Required", "NotRequired", "ReadOnly")


class Field(Struct, frozen=True):
    name: str  # in Python
    key: str  # in JSON
    hint: Any
    required: bool
    default: Any = NO_DEFAULT


class RecordShape(Struct, frozen=True, kw_only=True):
    """The fields of a class. `tag` is the key and the value by which msgspec distinguishes Structs."""

    title: str
    doc: Docstring
    fields: tuple[Field, ...]
    make: Callable[..., Any]
    closed: bool = False  # unknown keys are refused
    tag: tuple[str, Any] | None = None


def is_record(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    if not isinstance(kind, type):
        return False
    return (
        dataclasses.is_dataclass(kind)
        or is_typed_dict(kind)
        or is_named_tuple(kind)
        or (issubclass(kind, Struct) and kind is not Struct)
        or hasattr(kind, "__attrs_attrs__")
    )


def is_typed_dict(kind: Any) -> bool:
    """Also true for typing_extensions, which `typing.is_typeddict` does not know."""
    return type(kind).__name__ == "_TypedDictMeta"


def is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def read_record_shape(hint: Any) -> RecordShape:
    """DragomanError if a type hint in the class names an unknown type."""
    kind = get_origin(hint) or hint
    return RecordShape(
        title=_make_title(hint, kind),
        doc=_read_doc(kind),
        fields=_read_fields(hint, kind),
        make=dict if is_typed_dict(kind) else kind,
        closed=_has_struct_flag(kind, "forbid_unknown_fields"),
        tag=_get_tag(kind),
    )


def _make_title(hint: Any, kind: Any) -> str:
    words = [kind.__name__, *(MODULE_PREFIX.sub("", getattr(word, "__name__", str(word))) for word in get_args(hint))]
    return _NON_WORD.sub("_", "_".join(words))


def _read_doc(kind: Any) -> Docstring:
    """The docstring of the class, but not the one that dataclass and NamedTuple generate."""
    text = kind.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{kind.__name__}("):
        return Docstring()
    return read_docstring(inspect.cleandoc(text))


def _read_fields(hint: Any, kind: Any) -> tuple[Field, ...]:
    if issubclass(kind, Struct):
        if _has_struct_flag(kind, "array_like"):
            raise DragomanError(f"{kind.__name__} is written as an array: remove array_like")
        return tuple(
            Field(f.name, f.encode_name, f.type, f.required, _read_default(f.default, msgspec.NODEFAULT))
            for f in msgspec.structs.fields(hint)
        )
    variables = _read_type_variables(hint)
    hints = {name: _bind_type_variables(field_hint, variables) for name, field_hint in get_hints(kind).items()}
    if is_typed_dict(kind):
        required_keys = kind.__required_keys__
        return tuple(
            _read_typed_dict_key(name, field_hint, name in required_keys) for name, field_hint in hints.items()
        )
    return tuple(
        Field(name, name, hints.get(name, Any), default is NO_DEFAULT and required, default)
        for name, required, default in _list_members(kind)
    )


def _list_members(kind: Any) -> list[tuple[str, bool, Any]]:
    """Name, whether it is required, and its default (NO_DEFAULT if there is none, or if a factory makes it)."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return [
            (f.name, f.default_factory is missing, _read_default(f.default, missing))
            for f in dataclasses.fields(kind)
            if f.init
        ]
    if is_named_tuple(kind):
        return [(name, True, kind._field_defaults.get(name, NO_DEFAULT)) for name in kind._fields]
    found = []
    for attribute in kind.__attrs_attrs__:
        if attribute.init:
            has_factory = hasattr(attribute.default, "factory")
            default = attribute.default
            has_no_default = default is type(default).__dict__.get("NOTHING", None) or repr(default) == "NOTHING"
            default = NO_DEFAULT if has_no_default or has_factory else default
            found.append((attribute.alias or attribute.name, not has_factory, default))
    return found


def _read_default(value: Any, missing: Any) -> Any:
    return NO_DEFAULT if value is missing else value


def _read_typed_dict_key(name: str, hint: Any, required: bool) -> Field:
    while (wrapper := getattr(get_origin(hint), "_name", None)) in _KEY_WRAPPERS:
        required = required if wrapper == "ReadOnly" else wrapper == "Required"
        hint = get_args(hint)[0]
    return Field(name, name, hint, required)


def get_hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise DragomanError(f"{kind.__qualname__}: {error} in its type hints") from error


def _has_struct_flag(kind: Any, name: str) -> bool:
    return bool(getattr(getattr(kind, "__struct_config__", None), name, False))


def _get_tag(kind: Any) -> tuple[str, Any] | None:
    config = getattr(kind, "__struct_config__", None)
    return (config.tag_field, config.tag) if config is not None and config.tag is not None else None


# ---------------------------------------------------------------- generic classes


def _read_type_variables(hint: Any) -> dict[Any, Any]:
    """The types that the type variables stand for, in the class and in its base classes."""
    kind = get_origin(hint) or hint
    known = dict(zip(getattr(kind, "__parameters__", ()), get_args(hint), strict=False))
    for base in getattr(kind, "__orig_bases__", ()):
        origin = get_origin(base)
        if origin is not None and origin is not typing.Generic:
            inherited = {key: _bind_type_variables(value, known) for key, value in _read_type_variables(base).items()}
            known = {**inherited, **known}
    return known


def _bind_type_variables(hint: Any, known: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return known.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(known.get(variable, variable) for variable in variables)]
