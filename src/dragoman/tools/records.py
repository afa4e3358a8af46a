"""Classes with fields (dataclasses, TypedDicts, NamedTuples, msgspec Structs, attrs classes), looked at all alike."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from dragoman.errors import DragomanError
from dragoman.tools.docstrings import Doc, read_docstring

NOTHING: Any = object()  # no default
_MODULES = re.compile(r"\b\w+\.")
_NO_NAME = re.compile(r"\W+")
_WRAPPERS = ("Required", "NotRequired", "ReadOnly")


class Field(Struct, frozen=True):
    name: str  # in Python
    key: str  # in JSON
    hint: Any
    required: bool
    default: Any = NOTHING


class Shape(Struct, frozen=True, kw_only=True):
    """What a class is made of. `tag`: the key and value by which msgspec tells Structs apart."""

    title: str
    doc: Doc
    fields: tuple[Field, ...]
    make: Callable[..., Any]
    closed: bool = False  # keys nobody knows are refused
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
    """Also one of typing_extensions, which `typing.is_typeddict` does not know."""
    return type(kind).__name__ == "_TypedDictMeta"


def is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def read_shape(hint: Any) -> Shape:
    """DragomanError when a hint in it names what nobody knows."""
    kind = get_origin(hint) or hint
    return Shape(
        title=_title(hint, kind),
        doc=_doc(kind),
        fields=_fields(hint, kind),
        make=dict if is_typed_dict(kind) else kind,
        closed=_config(kind, "forbid_unknown_fields"),
        tag=_tag(kind),
    )


def _title(hint: Any, kind: Any) -> str:
    words = [kind.__name__, *(_MODULES.sub("", getattr(word, "__name__", str(word))) for word in get_args(hint))]
    return _NO_NAME.sub("_", "_".join(words))


def _doc(kind: Any) -> Doc:
    """What its writer said, not what dataclass and NamedTuple write themselves."""
    text = kind.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{kind.__name__}("):
        return Doc()
    return read_docstring(inspect.cleandoc(text))


def _fields(hint: Any, kind: Any) -> tuple[Field, ...]:
    if issubclass(kind, Struct):
        if _config(kind, "array_like"):
            raise DragomanError(f"{kind.__name__} is written as an array: leave array_like away")
        return tuple(
            Field(f.name, f.encode_name, f.type, f.required, _said(f.default, msgspec.NODEFAULT))
            for f in msgspec.structs.fields(hint)
        )
    hints = {name: _bind(one, _variables(hint)) for name, one in hints_of(kind).items()}
    if is_typed_dict(kind):
        return tuple(_key(name, one, name in kind.__required_keys__) for name, one in hints.items())
    return tuple(
        Field(name, name, hints.get(name, Any), default is NOTHING and required, default)
        for name, required, default in _members(kind)
    )


def _members(kind: Any) -> list[tuple[str, bool, Any]]:
    """Name, whether it must be said, and its default (NOTHING if there is none, or a factory makes it)."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return [
            (f.name, f.default_factory is missing, _said(f.default, missing))
            for f in dataclasses.fields(kind)
            if f.init
        ]
    if is_named_tuple(kind):
        return [(name, True, kind._field_defaults.get(name, NOTHING)) for name in kind._fields]
    found = []
    for one in kind.__attrs_attrs__:
        if one.init:
            made = hasattr(one.default, "factory")
            none = one.default is type(one.default).__dict__.get("NOTHING", None) or repr(one.default) == "NOTHING"
            found.append((one.alias or one.name, not made, NOTHING if none or made else one.default))
    return found


def _said(value: Any, missing: Any) -> Any:
    return NOTHING if value is missing else value


def _key(name: str, hint: Any, required: bool) -> Field:
    while (word := getattr(get_origin(hint), "_name", None)) in _WRAPPERS:
        required = required if word == "ReadOnly" else word == "Required"
        hint = get_args(hint)[0]
    return Field(name, name, hint, required)


def hints_of(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise DragomanError(f"{kind.__qualname__}: {error} in its type hints") from error


def _config(kind: Any, name: str) -> bool:
    return bool(getattr(getattr(kind, "__struct_config__", None), name, False))


def _tag(kind: Any) -> tuple[str, Any] | None:
    config = getattr(kind, "__struct_config__", None)
    return (config.tag_field, config.tag) if config is not None and config.tag is not None else None


# ---------------------------------------------------------------- generic classes


def _variables(hint: Any) -> dict[Any, Any]:
    """What its type variables stand for, in the class and in those it is made from."""
    kind = get_origin(hint) or hint
    known = dict(zip(getattr(kind, "__parameters__", ()), get_args(hint), strict=False))
    for base in getattr(kind, "__orig_bases__", ()):
        origin = get_origin(base)
        if origin is not None and origin is not typing.Generic:
            said = {key: _bind(value, known) for key, value in _variables(base).items()}
            known = {**said, **known}
    return known


def _bind(hint: Any, known: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return known.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(known.get(variable, variable) for variable in variables)]
