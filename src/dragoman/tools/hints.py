"""Reads type hints, for JSON Schema (schemas.py) and for making values (values.py).

msgspec does both for most types. Other hints are rewritten to types that msgspec accepts. Where that is not possible, a
HookedType takes the place of the type: msgspec does not know it, so it calls our hook for it, at any depth. That is how
Path, pydantic models, unions of several classes, enums of mixed values and classes that contain any of these work
everywhere. A type that JSON cannot express is refused when the tool is made, and the error says what to write instead.
"""

import collections.abc
import datetime
import enum
import inspect
import pathlib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from dragoman.errors import DragomanError
from dragoman.tools.records import MODULE_PREFIX, Field, RecordShape, is_named_tuple, is_record, read_record_shape

PATH_TYPES = (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath)
_LIST_TYPES = (
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.Container,
    collections.abc.Reversible,
)
_SET_TYPES = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_UNION_TYPES = (Union, types.UnionType)
_TIMES = {datetime.datetime: "date-time", datetime.time: "time"}  # msgspec describes them as text without a format
_JSON_SCALAR = str | int | float | bool | None
Hooked = TypeVar("Hooked", bound="HookedType")
_ALTERNATIVES = {
    collections.abc.Callable: "a model cannot write a function: take its name, as Literal['a', 'b']",
    type: "a model cannot write a type: take its name, as Literal['a', 'b']",
    collections.abc.Iterator: "write list[...]",
    collections.abc.Generator: "write list[...]",
    collections.abc.AsyncIterator: "write list[...]",
    collections.abc.AsyncIterable: "write list[...]",
    collections.deque: "write list[...]",
    collections.OrderedDict: "write dict[str, ...]",
    collections.defaultdict: "write dict[str, ...]",
    collections.Counter: "write dict[str, int]",
}


class Hint(Struct, frozen=True):
    """A type that msgspec accepts. It may contain hooked types."""

    kind: Any


def read_hint(hint: Any, names: Mapping[str, Any] | None = None) -> Hint:
    """DragomanError if JSON cannot express the type. `names` resolves hints that are written as strings."""
    return Hint(HintReader(names or {}).read(hint))


# ---------------------------------------------------------------- hooked types


class _Anything(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks the type of the value that our hook returns


class HookedType(metaclass=_Anything):
    """A type that msgspec does not know, so it calls our hook. It never has instances."""


class OneOf(HookedType):
    """A union whose members are tried one by one."""

    members: ClassVar[tuple[Any, ...]]


class Record(HookedType):
    """A class with a field that msgspec does not accept."""

    shape: ClassVar[RecordShape]


class RecursiveType(HookedType):
    """A type that contains itself: `Json = str | list["Json"] | dict[str, "Json"]`."""

    kind: ClassVar[Any]
    recursive: ClassVar[bool] = False


class MixedEnum(HookedType):
    """An enum with both text and numbers as values."""

    values: ClassVar[type[enum.Enum]]


def _make_hooked_type(name: str, base: type[Hooked], **attributes: Any) -> type[Hooked]:
    return cast(type[Hooked], _Anything(name, (base,), attributes))


def is_hooked(kind: Any, base: type[HookedType] = HookedType) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


# ---------------------------------------------------------------- hints that msgspec accepts


def is_native(hint: Any) -> bool:
    return not any(_needs_rewrite(part) for part in _walk(hint, {})) and _is_accepted(hint)


def _is_accepted(hint: Any) -> bool:
    try:
        msgspec.json.Decoder(hint, dec_hook=lambda kind, value: value)
        msgspec.json.schema_components([hint], schema_hook=_hook_schema)
    except (TypeError, NameError, AttributeError, RecursionError):
        return False
    return True


def _hook_schema(kind: Any) -> dict[str, Any]:
    if kind in PATH_TYPES or is_pydantic(kind) or is_hooked(kind):
        return {"type": "string"}  # any schema: this only checks that there is one
    raise TypeError(f"there is no JSON Schema for {kind!r}")


def _needs_rewrite(hint: Any) -> bool:
    """Whether msgspec refuses the type, or describes it worse than we can."""
    if hint in (inspect.Parameter.empty, object, typing.LiteralString, *_TIMES):
        return True
    origin = get_origin(hint)
    if origin is Annotated:
        return not all(isinstance(item, Meta) for item in hint.__metadata__) or get_args(hint)[0] in (*_TIMES,)
    if origin in _SET_TYPES or hint in _SET_TYPES:
        item = get_args(hint)[0] if get_args(hint) else Any
        return item in (Any, object) or _find_unhashable(item) is not None
    if origin in _LIST_TYPES or hint in _LIST_TYPES or isinstance(hint, typing.TypeVar) or hasattr(hint, "__value__"):
        return True
    if is_record(hint):  # msgspec writes a NamedTuple as an array without names, and ignores "Attributes:"
        kind = origin or hint
        return is_named_tuple(kind) or bool(read_record_shape(hint).doc.arguments)
    return isinstance(hint, type) and issubclass(hint, enum.Enum) and _is_mixed(hint)


def _find_unhashable(hint: Any) -> Any:
    """The first class in a hint whose values cannot be in a set."""
    for part in (hint, *get_args(hint)):
        kind: Any = get_origin(part) or part
        if getattr(kind, "__hash__", None) is None:
            return kind
    return None


def _is_mixed(kind: type[enum.Enum]) -> bool:
    kinds = {type(member.value) for member in kind}
    return len(kinds) > 1 or not kinds <= {str, int}


def _walk(hint: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """A hint and all hints inside it, each once."""
    if id(hint) in seen:
        return
    seen[id(hint)] = hint  # kept alive, so that no other object gets its id
    yield hint
    if get_origin(hint) is Literal:
        return
    for part in get_args(hint):
        yield from _walk(part, seen)
    if is_record(hint):
        for field in read_record_shape(hint).fields:
            yield from _walk(field.hint, seen)


# ---------------------------------------------------------------- other hints, rewritten


class HintReader:
    """Reads one hint. A class that refers to itself is read once."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._records: list[tuple[Any, type[Record]]] = []
        self._open_unions: list[tuple[Any, type[RecursiveType]]] = []

    def read(self, hint: Any) -> Any:
        if isinstance(hint, str | typing.ForwardRef):
            return self.read(self._resolve_name(hint))
        if is_native(hint):
            return hint
        if hint in (inspect.Parameter.empty, object):
            return Any
        if hint in _TIMES:
            return Annotated[hint, Meta(extra_json_schema={"format": _TIMES[hint]})]
        if hint is typing.LiteralString:
            return str
        if get_origin(hint) in _SET_TYPES or hint in _SET_TYPES:
            return self._read_set(hint, get_origin(hint) or hint, get_args(hint))
        if hasattr(hint, "__value__") or get_origin(hint) in _UNION_TYPES:
            return self._read_union(hint)
        if isinstance(hint, typing.TypeVar):
            return self._read_type_variable(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _make_mixed_enum(hint)
        if is_record(hint):
            return self._read_record(hint)
        return self._read_generic(hint, get_origin(hint), get_args(hint))

    def _resolve_name(self, hint: Any) -> Any:
        name = getattr(hint, "__forward_arg__", hint)
        if name in self._names:
            return self._names[name]
        namespace = types.SimpleNamespace(__annotations__={"it": name})
        try:
            return typing.get_type_hints(namespace, dict(self._names), include_extras=True)["it"]
        except (NameError, SyntaxError, TypeError) as error:
            raise DragomanError(f"the type {name!r} is not defined here: write the type itself") from error

    def _read_union(self, hint: Any) -> Any:
        """Reads a union or a type alias. Both may contain themselves."""
        for known, union in self._open_unions:
            if known == hint:
                union.recursive = True
                return union
        union = _make_hooked_type(self._find_union_name(hint), RecursiveType)
        self._open_unions.append((hint, union))
        if hasattr(hint, "__value__"):
            kind = self.read(hint.__value__)
        else:
            kind = _make_union(tuple(self.read(member) for member in get_args(hint)))
        self._open_unions.pop()
        union.kind = kind
        return union if union.recursive else kind

    def _find_union_name(self, hint: Any) -> str:
        """The name of a type alias, or of the variable that a union is assigned to."""
        if hasattr(hint, "__value__"):
            return str(hint.__name__)
        return next((name for name, value in self._names.items() if value is hint), "Value")

    def _read_type_variable(self, hint: Any) -> Any:
        if hint.__constraints__:
            return self.read(Union[hint.__constraints__])  # noqa: UP007  # made at run time
        return Any if hint.__bound__ is None else self.read(hint.__bound__)

    def _read_generic(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
        if origin is Annotated:
            return _read_metadata(self.read(arguments[0]), arguments[1:])
        if origin in _LIST_TYPES or hint in _LIST_TYPES:
            return list[self.read(arguments[0]) if arguments else Any]  # type: ignore[misc]  # made at run time
        if arguments and isinstance(origin, type) and origin not in _ALTERNATIVES:
            members = tuple(member if member is Ellipsis else self.read(member) for member in arguments)
            rebuilt = origin[members]  # type: ignore[index]  # made at run time
            if _is_accepted(rebuilt):
                return rebuilt
        raise _make_refusal(hint, origin or hint)

    def _read_set(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
        """A set of values that are hashable and that JSON can express."""
        if not arguments or arguments[0] in (Any, object):
            return origin[_JSON_SCALAR]
        if (unhashable := _find_unhashable(arguments[0])) is not None:
            name = get_type_name(unhashable)
            raise DragomanError(f"{get_type_name(hint)}: {name} cannot be in a set: write list[{name}]")
        return origin[self.read(arguments[0])]

    def _read_record(self, hint: Any) -> type[Record]:
        for known, record in self._records:
            if known == hint:
                return record
        shape = read_record_shape(hint)
        record = _make_hooked_type(shape.title, Record)
        self._records.append((hint, record))
        fields = tuple(_replace_hint(field, self._read_field(hint, field)) for field in shape.fields)
        record.shape = msgspec.structs.replace(shape, fields=fields)
        return record

    def _read_field(self, hint: Any, field: Field) -> Any:
        try:
            return self.read(field.hint)
        except DragomanError as error:
            raise DragomanError(f"{get_type_name(hint)}.{field.name}: {error}") from error


def _replace_hint(field: Field, kind: Any) -> Field:
    return Field(field.name, field.key, kind, field.required, field.default)


def _make_union(members: tuple[Any, ...]) -> Any:
    union: Any = Union.__getitem__(members)
    return union if _is_accepted(union) else _make_hooked_type("OneOf", OneOf, members=members)


def _make_mixed_enum(kind: type[enum.Enum]) -> type[MixedEnum]:
    unsuitable = next((member for member in kind if not isinstance(member.value, _JSON_SCALAR)), None)
    if unsuitable is not None:
        advice = "use text or numbers as the values of its members"
        raise DragomanError(f"{kind.__name__}.{unsuitable.name} cannot be described as JSON: {advice}")
    return _make_hooked_type(kind.__name__, MixedEnum, values=kind)


def _make_refusal(hint: Any, kind: Any) -> DragomanError:
    name = get_type_name(kind)
    advice = _ALTERNATIVES.get(kind, f"use str, or another type that JSON has, and make the {name} in the function")
    return DragomanError(f"{get_type_name(hint)} cannot be described as JSON: {advice}")


def _read_metadata(kind: Any, metadata: tuple[Any, ...]) -> Any:
    """Descriptions and constraints as msgspec's Meta, from strings, pydantic's Field, annotated-types or Doc."""
    constraints: dict[str, Any] = {}
    given_metas: list[Any] = []
    for item in metadata:
        for entry in (item, *getattr(item, "metadata", ())):
            if isinstance(entry, Meta):
                given_metas.append(entry)
                continue
            if isinstance(entry, str):
                constraints.setdefault("description", entry)
            for name in ("description", "documentation"):
                if isinstance(text := getattr(entry, name, None), str):
                    constraints.setdefault("description", text)
            for name in _CONSTRAINTS:
                value = getattr(entry, name, None)
                if value is not None and not callable(value):
                    constraints.setdefault(name, value)
    metas = [*given_metas, *([Meta(**constraints)] if constraints else [])]
    return _add_constraints(kind, metas) if metas else kind


def _add_constraints(kind: Any, metas: list[Meta]) -> Any:
    limited = Annotated[(kind, *metas)]
    if _is_accepted(limited):
        return limited
    if is_hooked(kind, OneOf):  # each member gets the constraints that fit it
        members = tuple(_add_fitting_constraints(member, metas) for member in kind.members)
        kind = _make_hooked_type("OneOf", OneOf, members=members)
        texts = [Meta(description=meta.description) for meta in metas if meta.description]
        return Annotated[(kind, *texts)] if texts else kind
    message = f"{metas[-1]!r} does not apply to {get_type_name(kind)}"
    raise DragomanError(message)


def _add_fitting_constraints(kind: Any, metas: list[Meta]) -> Any:
    for meta in metas:
        constraints = {name: getattr(meta, name) for name in _CONSTRAINTS if getattr(meta, name) is not None}
        narrowed = Annotated[kind, Meta(**constraints)] if constraints else kind
        kind = narrowed if _is_accepted(narrowed) else kind
    return kind


def get_description(kind: Any) -> str:
    """The description in Annotated."""
    for item in getattr(kind, "__metadata__", ()):
        if isinstance(item, Meta) and item.description:
            return item.description
    return ""


def get_type_name(hint: Any) -> str:
    if get_args(hint) and not isinstance(hint, type):
        return MODULE_PREFIX.sub("", str(hint))
    return getattr(hint, "__name__", None) or str(hint).removeprefix("typing.")
