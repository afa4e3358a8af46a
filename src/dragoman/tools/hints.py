"""A type hint, ready to be described as JSON Schema (schemas.py) and to make values of (values.py).

msgspec does both for most types. What it does not take is put into words it does, and where there are none, a stand-in
takes its place: a type of ours that msgspec asks about, at any depth. So Path, pydantic models, unions of several
classes, enums of mixed values and classes that hold any of these work everywhere; what JSON has no form for at all is
refused when the tool is made, with words that say what to write instead.
"""

import collections.abc
import datetime
import enum
import inspect
import pathlib
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from dragoman.errors import DragomanError
from dragoman.tools.records import Field, Shape, is_named_tuple, is_record, read_shape

PATHS = (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath)
_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Container, collections.abc.Reversible)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_UNIONS = (Union, types.UnionType)
_CLOCKS = {datetime.datetime: "date-time", datetime.time: "time"}  # of which msgspec says only that they are text
_PLAIN = str | int | float | bool | None
S = TypeVar("S", bound="StandIn")
_MODULES = re.compile(r"\b\w+\.")
_INSTEAD = {
    collections.abc.Callable: "a model cannot write a function; take its name, as Literal['a', 'b']",
    type: "a model cannot write a type; take its name, as Literal['a', 'b']",
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
    """A type in words msgspec knows, stand-ins included."""

    kind: Any


def read_hint(hint: Any, names: Mapping[str, Any] | None = None) -> Hint:
    """DragomanError when there is no JSON for such a type. `names`: what words in quotes mean in it."""
    return Hint(Reading(names or {}).plain(hint))


# ---------------------------------------------------------------- stand-ins


class _Anything(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec looks whether a hook has made what it was asked for


class StandIn(metaclass=_Anything):
    """Never made: msgspec sees a type it does not know, and asks."""


class OneOf(StandIn):
    """A union that is tried member by member."""

    members: ClassVar[tuple[Any, ...]]


class Record(StandIn):
    """A class whose fields msgspec does not all take."""

    shape: ClassVar[Shape]


class Knot(StandIn):
    """A type that is in itself: `Json = str | list["Json"] | dict[str, "Json"]`."""

    kind: ClassVar[Any]
    tied: ClassVar[bool] = False


class Values(StandIn):
    """An enum of text and numbers together."""

    values: ClassVar[type[enum.Enum]]


def _stand_in(name: str, which: type[S], **holds: Any) -> type[S]:
    return cast(type[S], _Anything(name, (which,), holds))


def is_stand_in(kind: Any, which: type[StandIn] = StandIn) -> bool:
    return isinstance(kind, type) and issubclass(kind, which)


def is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


# ---------------------------------------------------------------- what msgspec takes


def is_native(hint: Any) -> bool:
    return not any(_is_odd(one) for one in _walk(hint, {})) and _accepts(hint)


def _accepts(hint: Any) -> bool:
    try:
        msgspec.json.Decoder(hint, dec_hook=lambda kind, value: value)
        msgspec.json.schema_components([hint], schema_hook=_known)
    except (TypeError, NameError, AttributeError, RecursionError):
        return False
    return True


def _known(kind: Any) -> dict[str, Any]:
    if kind in PATHS or is_pydantic(kind) or is_stand_in(kind):
        return {"type": "string"}  # whatever: it is only asked whether there is an answer
    raise TypeError(f"JSON has no word for {kind!r}")


def _is_odd(hint: Any) -> bool:
    """What msgspec refuses, or takes and describes worse than it could be."""
    if hint in (inspect.Parameter.empty, object, typing.LiteralString, *_CLOCKS):
        return True
    origin = get_origin(hint)
    if origin is Annotated:
        return not all(isinstance(item, Meta) for item in hint.__metadata__) or get_args(hint)[0] in (*_CLOCKS,)
    if origin in _SETS or hint in _SETS:
        return not get_args(hint) or get_args(hint)[0] in (Any, object) or _unhashable(get_args(hint)[0]) is not None
    if origin in _LISTS or hint in _LISTS or isinstance(hint, typing.TypeVar) or hasattr(hint, "__value__"):
        return True
    if is_record(hint):  # a NamedTuple as an array has no names; msgspec does not look for "Attributes:"
        kind = origin or hint
        return is_named_tuple(kind) or bool(read_shape(hint).doc.arguments)
    return isinstance(hint, type) and issubclass(hint, enum.Enum) and _is_mixed(hint)


def _unhashable(hint: Any) -> Any:
    """The first class in a hint whose values no set can hold."""
    for one in (hint, *get_args(hint)):
        kind: Any = get_origin(one) or one
        if getattr(kind, "__hash__", None) is None:
            return kind
    return None


def _is_mixed(kind: type[enum.Enum]) -> bool:
    kinds = {type(member.value) for member in kind}
    return len(kinds) > 1 or not kinds <= {str, int}


def _walk(hint: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """A hint and all that is in it, each once."""
    if id(hint) in seen:
        return
    seen[id(hint)] = hint  # kept, so that no other object gets its id
    yield hint
    if get_origin(hint) is Literal:
        return
    for one in get_args(hint):
        yield from _walk(one, seen)
    if is_record(hint):
        for field in read_shape(hint).fields:
            yield from _walk(field.hint, seen)


# ---------------------------------------------------------------- the rest in words it takes


class Reading:
    """One hint. Classes that refer to themselves are read once."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._records: list[tuple[Any, type[Record]]] = []
        self._open: list[tuple[Any, type[Knot]]] = []

    def plain(self, hint: Any) -> Any:
        if isinstance(hint, str | typing.ForwardRef):
            return self.plain(self._look_up(hint))
        if is_native(hint):
            return hint
        if hint in (inspect.Parameter.empty, object):
            return Any
        if hint in _CLOCKS:
            return Annotated[hint, Meta(extra_json_schema={"format": _CLOCKS[hint]})]
        if hint is typing.LiteralString:
            return str
        if get_origin(hint) in _SETS or hint in _SETS:
            return self._set(hint, get_origin(hint) or hint, get_args(hint))
        if hasattr(hint, "__value__") or get_origin(hint) in _UNIONS:
            return self._tie(hint)
        if isinstance(hint, typing.TypeVar):
            return self._variable(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _values(hint)
        return self._record(hint) if is_record(hint) else self._compound(hint, get_origin(hint), get_args(hint))

    def _look_up(self, hint: Any) -> Any:
        name = getattr(hint, "__forward_arg__", hint)
        if name in self._names:
            return self._names[name]
        bare = types.SimpleNamespace(__annotations__={"it": name})
        try:
            return typing.get_type_hints(bare, dict(self._names), include_extras=True)["it"]
        except (NameError, SyntaxError, TypeError) as error:
            raise DragomanError(f"{name!r} is only a name here: write the type itself") from error

    def _tie(self, hint: Any) -> Any:
        """A union, or a TypeAliasType, which may be in itself."""
        for known, knot in self._open:
            if known == hint:
                knot.tied = True
                return knot
        knot = _stand_in(self._name_of(hint), Knot)
        self._open.append((hint, knot))
        if hasattr(hint, "__value__"):
            kind = self.plain(hint.__value__)
        else:
            kind = _unite(tuple(self.plain(member) for member in get_args(hint)))
        self._open.pop()
        knot.kind = kind
        return knot if knot.tied else kind

    def _name_of(self, hint: Any) -> str:
        """What a union that has no name of its own is called where it was written."""
        if hasattr(hint, "__value__"):
            return str(hint.__name__)
        return next((name for name, value in self._names.items() if value is hint), "Value")

    def _variable(self, hint: Any) -> Any:
        if hint.__constraints__:
            return self.plain(Union[hint.__constraints__])  # noqa: UP007  # made at run time
        return Any if hint.__bound__ is None else self.plain(hint.__bound__)

    def _compound(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
        if origin is Annotated:
            return _annotated(self.plain(arguments[0]), arguments[1:])
        if origin in _LISTS or hint in _LISTS:
            return list[self.plain(arguments[0]) if arguments else Any]  # type: ignore[misc]  # made at run time
        if arguments and isinstance(origin, type) and origin not in _INSTEAD:
            changed = tuple(member if member is Ellipsis else self.plain(member) for member in arguments)
            rebuilt = origin[changed]  # type: ignore[index]  # made at run time
            if _accepts(rebuilt):
                return rebuilt
        raise _refuse(hint, origin or hint)

    def _set(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
        """What JSON can hold and a set too."""
        if not arguments or arguments[0] in (Any, object):
            return origin[_PLAIN]
        if (wrong := _unhashable(arguments[0])) is not None:
            raise DragomanError(f"{name_of(hint)}: {name_of(wrong)} cannot be in a set; write list[{name_of(wrong)}]")
        return origin[self.plain(arguments[0])]

    def _record(self, hint: Any) -> type[Record]:
        for known, made in self._records:
            if known == hint:
                return made
        shape = read_shape(hint)
        record = _stand_in(shape.title, Record)
        self._records.append((hint, record))
        fields = tuple(_with_hint(field, self._field(hint, field)) for field in shape.fields)
        record.shape = msgspec.structs.replace(shape, fields=fields)
        return record

    def _field(self, hint: Any, field: Field) -> Any:
        try:
            return self.plain(field.hint)
        except DragomanError as error:
            raise DragomanError(f"{name_of(hint)}.{field.name}: {error}") from error


def _with_hint(field: Field, kind: Any) -> Field:
    return Field(field.name, field.key, kind, field.required, field.default)


def _unite(members: tuple[Any, ...]) -> Any:
    union: Any = Union.__getitem__(members)
    return union if _accepts(union) else _stand_in("OneOf", OneOf, members=members)


def _values(kind: type[enum.Enum]) -> type[Values]:
    wrong = next((member for member in kind if not isinstance(member.value, _PLAIN)), None)
    if wrong is not None:
        words = "give its members text or numbers as values"
        raise DragomanError(f"{kind.__name__}.{wrong.name} cannot be described as JSON: {words}")
    return _stand_in(kind.__name__, Values, values=kind)


def _refuse(hint: Any, kind: Any) -> DragomanError:
    name = name_of(kind)
    words = _INSTEAD.get(kind, f"write str, or another type that JSON has, and make the {name} in the function")
    return DragomanError(f"{name_of(hint)} cannot be described as JSON: {words}")


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
    return _limited(kind, metas) if metas else kind


def _limited(kind: Any, metas: list[Meta]) -> Any:
    limited = Annotated[(kind, *metas)]
    if _accepts(limited):
        return limited
    if is_stand_in(kind, OneOf):  # to each member what can be said of it
        members = tuple(_narrowed(member, metas) for member in kind.members)
        kind = _stand_in("OneOf", OneOf, members=members)
        texts = [Meta(description=meta.description) for meta in metas if meta.description]
        return Annotated[(kind, *texts)] if texts else kind
    words = f"{metas[-1]!r} says nothing about {name_of(kind)}"
    raise DragomanError(words)


def _narrowed(kind: Any, metas: list[Meta]) -> Any:
    for meta in metas:
        limits = {name: getattr(meta, name) for name in _LIMITS if getattr(meta, name) is not None}
        narrowed = Annotated[kind, Meta(**limits)] if limits else kind
        kind = narrowed if _accepts(narrowed) else kind
    return kind


def description_of(kind: Any) -> str:
    """What Annotated says about a type."""
    for item in getattr(kind, "__metadata__", ()):
        if isinstance(item, Meta) and item.description:
            return item.description
    return ""


def name_of(hint: Any) -> str:
    if get_args(hint) and not isinstance(hint, type):
        return _MODULES.sub("", str(hint))
    return getattr(hint, "__name__", None) or str(hint).removeprefix("typing.")
