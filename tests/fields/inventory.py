"""Every field path of a type of the vendors' packages, and the way to it.

The packages describe their wires as TypedDicts (what is sent) and pydantic models (what comes back). `walk` lists the
fields of such a type, nearest first, in a notation for people:

    a.b       member b of object a
    a[]       each element of array a
    a{}       each value of a map with free keys
    a<tag>    one kind of a: the word its `type` (or `role`, ...) always says, else the name of its class
    a=Class   an object whose fields are listed at a shorter path of the same walk (or at this very path: recursion)

An Entry keeps the way to its field as a chain of steps, so that `samples` can build a body that goes there.
"""

import collections.abc
import enum
import re
import sys
import types
import typing
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import typing_extensions

_BOTH = (typing, typing_extensions)
_WRAPPERS = {getattr(m, n) for m in _BOTH for n in ("Required", "NotRequired", "ReadOnly") if hasattr(m, n)}
_REQUIRED = {m.Required for m in _BOTH}
_NOT_REQUIRED = {m.NotRequired for m in _BOTH}
_SEQUENCES = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_TAGS = ("type", "role", "object")  # the keys whose constant names a kind


class Field(NamedTuple):
    name: str  # as the wire has it
    type: Any
    required: bool


class Step(NamedTuple):
    """One step into a type: a field by name, or "[]", "{}" or "<tag>"; `inside` is the type one is then in."""

    name: str
    inside: Any


class Entry(NamedTuple):
    path: str
    steps: tuple[Step, ...]

    @property
    def type(self) -> Any:
        return self.steps[-1].inside


class Walk(NamedTuple):
    """What to walk: types under their paths, and where the wire differs from the type."""

    roots: tuple[tuple[str, Any], ...]  # the fields of a class two of them share are listed under the first
    leave_out: Mapping[Any, frozenset[str]] = {}  # fields of a class that never reach the wire
    elsewhere: frozenset[Any] = frozenset()  # classes that another walk lists
    instead: Mapping[Any, Any] = {}  # a class the wire writes as something else
    add: tuple[str, ...] = ()  # paths that are on the wire and not in the package
    drop: tuple[str, ...] = ()  # and the other way round


# ---------------------------------------------------------------- types


def plain(tp: Any) -> Any:
    """The type inside Annotated, Required and aliases."""
    while True:
        if isinstance(tp, typing_extensions.TypeAliasType):
            tp = tp.__value__
        elif hasattr(tp, "__metadata__"):
            tp = tp.__origin__
        elif typing.get_origin(tp) in _WRAPPERS:
            tp = typing.get_args(tp)[0]
        elif isinstance(tp, typing.TypeVar):
            return Any
        else:
            return tp


def options(tp: Any) -> list[Any] | None:
    """The members of a union, flat and without doubles; None if it is none."""
    tp = plain(tp)
    if typing.get_origin(tp) not in (typing.Union, types.UnionType):
        return None
    found: list[Any] = []
    for member in typing.get_args(tp):
        for inner in options(member) or [plain(member)]:
            if inner not in found:
                found.append(inner)
    return found


def is_dict_type(tp: Any) -> bool:
    return typing.is_typeddict(tp) or typing_extensions.is_typeddict(tp)


def is_model(tp: Any) -> bool:
    return isinstance(tp, type) and hasattr(tp, "model_fields")


def is_object(tp: Any) -> bool:
    return is_dict_type(tp) or is_model(tp)


def item_of(tp: Any) -> Any | None:
    origin = typing.get_origin(tp)
    if origin in _SEQUENCES or getattr(origin, "__name__", "") == "SequenceNotStr":
        return (*typing.get_args(tp), Any)[0]
    return None


def value_of(tp: Any) -> Any | None:
    if typing.get_origin(tp) in _MAPPINGS:
        return (*typing.get_args(tp), Any, Any)[1]
    return None


def words_of(tp: Any) -> tuple[Any, ...]:
    """The values a literal or an enumeration allows; none if it is neither."""
    tp = plain(tp)
    if typing.get_origin(tp) in (typing.Literal, typing_extensions.Literal):
        return typing.get_args(tp)
    if isinstance(tp, type) and issubclass(tp, enum.Enum):
        return tuple(member.value for member in tp)
    return tuple(word for member in options(tp) or () for word in words_of(member))


@cache
def fields_of(cls: Any) -> tuple[Field, ...]:
    hints = _hints(cls)
    if is_dict_type(cls):
        always = cls.__required_keys__
        return tuple(Field(name, tp, _required(tp, name in always)) for name, tp in hints.items())
    found = []
    for name, info in cls.model_fields.items():
        wire = info.serialization_alias or info.alias or name
        found.append(Field(wire, hints.get(name, info.annotation), info.is_required()))
    return tuple(found)


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing_extensions.get_type_hints(cls, include_extras=True)
    except NameError:  # a name imported only for type checkers in the module of a base class
        names: dict[str, Any] = {}
        for base in getattr(cls, "__orig_bases__", ()) or cls.__mro__:
            names |= vars(sys.modules[base.__module__])
        return typing_extensions.get_type_hints(cls, {**names, **vars(sys.modules[cls.__module__])}, None, True)


def _required(tp: Any, default: bool) -> bool:
    """Required[...] says more than `__required_keys__`, which postponed annotations hide it from."""
    while True:
        origin = typing.get_origin(tp)
        if origin in _REQUIRED or origin in _NOT_REQUIRED:
            return origin in _REQUIRED
        if not hasattr(tp, "__metadata__"):
            return default
        tp = tp.__origin__


@cache
def constant_of(cls: Any) -> tuple[str, str] | None:
    """The key and the word by which a kind of object is told from the others."""
    by_name = {field.name: field.type for field in fields_of(cls)}
    for name in _TAGS:
        words = [word for word in words_of(by_name[name]) if word is not None] if name in by_name else []
        if words:
            return name, "|".join(map(str, words[:3])) + ("|..." if len(words) > 3 else "")
    return None


def class_name(cls: Any) -> str:
    return cls.__name__.removeprefix("Beta")


# ---------------------------------------------------------------- walk


def walk(what: Walk) -> dict[str, Entry]:
    """Every field path. Each class is opened once, at its shortest path."""
    found: dict[str, Entry] = {}
    opened: set[Any] = set()
    for root, tp in what.roots:
        waiting: deque[tuple[str, tuple[Step, ...]]] = deque([(root, (Step(root, tp),))])
        while waiting:
            path, steps = waiting.popleft()
            for entry in _forms(path, steps, what):
                cls = entry.type
                if not is_object(cls) or not fields_of(cls):
                    found.setdefault(entry.path, entry)
                elif cls in opened or (entry.path and cls in what.elsewhere):
                    found.setdefault(f"{entry.path}={class_name(cls)}", entry)
                else:
                    opened.add(cls)
                    waiting.extend(_fields_in(entry, what))
    for path in what.add:
        found.setdefault(path, Entry(path, tuple(_follow(path, what))))
    return {path: entry._replace(path=path) for path, entry in found.items() if path not in what.drop}


def _fields_in(entry: Entry, what: Walk) -> Iterator[tuple[str, tuple[Step, ...]]]:
    hidden = what.leave_out.get(entry.type, ())
    for field in fields_of(entry.type):
        if field.name not in hidden:
            path = f"{entry.path}.{field.name}" if entry.path else field.name
            yield path, (*entry.steps, Step(field.name, field.type))


def _forms(path: str, steps: tuple[Step, ...], what: Walk) -> Iterator[Entry]:
    """The forms a value may have: the kinds of a union, and inside arrays and maps, down to objects and leaves."""
    tp = plain(steps[-1].inside)
    if isinstance(tp, type) and tp in what.instead:
        tp = what.instead[tp]
    steps = (*steps[:-1], Step(steps[-1].name, tp))
    members = options(tp)
    if members is not None:
        for mark, member in _kinds([what.instead.get(m, m) if isinstance(m, type) else m for m in members]):
            yield from _forms(path + mark, (*steps, Step(mark, member)), what)
    elif (item := item_of(tp)) is not None:
        yield from _forms(path + "[]", (*steps, Step("[]", item)), what)
    elif (value := value_of(tp)) is not None:
        yield from _forms(path + "{}", (*steps, Step("{}", value)), what)
    else:
        yield Entry(path, steps)


def _kinds(members: Iterable[Any]) -> list[tuple[str, Any]]:
    """The members of a union with their marks. A mark is only needed where two of them are objects."""
    members = [member for member in members if member is not types.NoneType]
    if any(is_dict_type(member) for member in members):
        # beside what is sent the packages offer what came back: the same object, read from a reply
        members = [member for member in members if not is_model(member)]
    objects = [member for member in members if is_object(member)]
    if objects:  # a free mapping beside a typed object adds no field
        members = [m for m in members if value_of(m) is None or is_object(plain(value_of(m)))]
    if len(objects) < 2:
        return [("", member) for member in members]
    seen: Counter[str] = Counter()
    marked = []
    for member in members:
        mark = ""
        if is_object(member):
            constant = constant_of(member)
            word = constant[1] if constant else class_name(member)
            seen[word] += 1
            mark = f"<{word}>" if seen[word] == 1 else f"<{word}:{class_name(member)}>"
        marked.append((mark, member))
    return marked


_STEP = re.compile(r"<[^>]*>|\[\]|\{\}|[^.<>\[\]{}]+")


def _follow(path: str, what: Walk) -> Iterator[Step]:
    """The way to a path the package does not know: in its types as far as they go, then without."""
    fits = [root for root in what.roots if root[0] == "" or path.startswith((root[0] + ".", root[0] + "["))]
    start, tp = max(fits, key=lambda root: len(root[0]), default=("", Any))
    yield Step(start, plain(tp))
    for name in [path] if path.startswith("header:") else _STEP.findall(path[len(start) :]):
        for mark, member in _kinds(options(tp) or ()):
            if mark == name or (mark == "" and _inside(member, name) is not None):
                tp = member
                yield Step(mark, tp)
                break
        else:
            objects = [member for member in options(tp) or () if is_object(member)]
            if name[0] == "<":
                tp = _tagged(name[1:-1])
                yield Step(name, tp)
            elif len(objects) == 1:
                tp = objects[0]
                yield Step("", tp)
        if name[0] != "<":
            inner = _inside(tp, name)
            tp = Any if inner is None else plain(inner)
            yield Step(name, tp)


def _tagged(word: str) -> Any:
    """A kind of object the package does not know: all that is known is the word it says."""
    make: Any = typing_extensions.TypedDict
    return make(word, {"type": typing.Literal[word]})


def _inside(tp: Any, name: str) -> Any | None:
    if name == "[]":
        return item_of(tp)
    if name == "{}":
        return value_of(tp)
    fields = fields_of(tp) if is_object(tp) else ()
    return next((field.type for field in fields if field.name == name), None)
