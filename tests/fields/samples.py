"""Bodies with one field filled: as little as the vendor's types demand, plus the field under test.

`bodies(entry, ...)` gives the same body several times over, each time with another value at the entry's place, so that
whoever decodes them can see what that place is for.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, NamedTuple

from dragoman.jsontypes import JsonObject, copy_json
from tests.fields.inventory import (
    Entry,
    Step,
    constant_of,
    fields_of,
    is_object,
    item_of,
    options,
    plain,
    value_of,
    words_of,
)

KEY = "key"  # in maps with free keys
MOST_WORDS = 12
ABSENT = object()


class Settings(NamedTuple):
    """What a dialect's types do not say and its bodies need."""

    base: Mapping[str, Any] = {}  # every body has it
    fill: Mapping[str, JsonObject] = {}  # by class: fields beside those its type requires
    example: Mapping[str, JsonObject] = {}  # by class: what an object that is told elsewhere says here
    beside: Mapping[str, JsonObject] = {}  # by class and field: what must stand beside it to make sense
    whole: Mapping[str, tuple[Any, ...]] = {}  # by path: values of a field whose pieces make no sense by themselves
    values: Mapping[str, tuple[Any, ...]] = {}  # by field name: values to try, where not every text or number will do
    anew: tuple[str, ...] = ()  # keys of frames that every encoder counts for itself


class Sample(NamedTuple):
    value: Any  # at the place under test; ABSENT where the body goes without
    body: Any


def bodies(entry: Entry, settings: Settings) -> Iterator[list[Sample]]:
    """Sets of bodies that differ in one value; the first set that can be read is the one to judge by."""
    steps = entry.steps
    if entry.path in settings.whole:
        steps = steps[: 1 + max(i for i, step in enumerate(steps) if step.name and step.name[0] not in "<[{")]
        yield [Sample(value, build(steps, value, settings)) for value in settings.whole[entry.path]]
        return
    if is_object(plain(entry.type)) and fields_of(plain(entry.type)):  # told in full elsewhere: there it is, or not
        example = settings.example.get(plain(entry.type).__name__, {})
        whole = {**_least_object(plain(entry.type), settings), **copy_json(example)}
        yield [Sample({}, build(steps, whole, settings)), _without(steps, settings)]
        inner = _first_leaf(entry)
        if inner is None:
            return
        steps = (*steps, *inner)
    for values in _values(steps, settings):
        if is_constant(entry, settings):
            yield [Sample(values[0], build(steps, values[0], settings))]
            continue
        samples = [Sample(value, build(steps, value, settings)) for value in values]
        # a word among others may mean something by being there at all
        yield [*samples, _without(steps, settings)] if len(samples) == 1 or words_of(steps[-1].inside) else samples


def is_constant(entry: Entry, settings: Settings) -> bool:
    """Whether the vendor's type allows one word only."""
    return len(words_of(entry.type)) == 1 and not _named(entry.steps, settings.values)


def field_name(steps: tuple[Step, ...]) -> str:
    """The last field on the way, whatever union or array it holds."""
    return next((step.name for step in reversed(steps) if step.name and step.name[0] not in "<[{"), "")


def _named(steps: tuple[Step, ...], values: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """The values to try for a field by its name, or by its name and the one before."""
    names = [n for step in steps if step.name and step.name[0] not in "<[{" for n in step.name.split(".")]
    return values.get(".".join(names[-2:])) or values.get(names[-1] if names else "")


def build(steps: tuple[Step, ...], value: Any, settings: Settings) -> Any:
    """The least body that has this value at the end of these steps."""
    for outer, step in zip(reversed(steps[:-1]), reversed(steps[1:]), strict=True):
        if step.name == "[]":
            value = [value]
        elif step.name == "{}":
            value = {KEY: value}
        elif step.name and step.name[0] != "<":
            body = _least_object(outer.inside, settings) if is_object(outer.inside) else {}
            beside = settings.beside.get(f"{getattr(outer.inside, '__name__', '')}.{step.name}", {})
            value = {**body, **copy_json(beside), step.name: value}
    root = steps[0].name
    if not root:
        return {**copy_json(settings.base), **value}
    body = copy_json(settings.base)
    *way, last = root.split(".")
    holder = body
    for key in way:
        holder = holder.setdefault(key, {})
    holder[last] = value
    return body


def _without(steps: tuple[Step, ...], settings: Settings) -> Sample:
    """The body without the field, or the element, under test."""
    body = build(steps, ABSENT, settings)
    _remove(body)
    return Sample(ABSENT, body)


def _remove(value: Any) -> None:
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is ABSENT]:
            del value[key]
        for item in value.values():
            _remove(item)
    elif isinstance(value, list):
        value[:] = [item for item in value if item is not ABSENT]
        for item in value:
            _remove(item)


def _values(steps: tuple[Step, ...], settings: Settings) -> Iterator[tuple[Any, ...]]:
    """Values to try at a leaf, best guess first."""
    named = _named(steps, settings.values)
    if named is not None:
        yield named
        return
    tp = plain(steps[-1].inside)
    words = words_of(tp)
    if words:
        yield words[:MOST_WORDS]
    elif tp is bool:
        yield (True, False)
    elif tp is int:
        yield (1001, 1002)
    elif tp is float:
        yield (0.25, 0.5)
    elif tp is str:
        yield ("one", "two")
    elif is_object(tp):
        yield ({},)
    else:
        yield from (("one", "two"), ({"k": "one"}, {"k": "two"}), (1001, 1002), (True, False))


def _first_leaf(entry: Entry) -> tuple[Step, ...] | None:
    """The nearest field inside an object that may say more than one thing; a required one first."""
    waiting: deque[tuple[Step, ...]] = deque([(entry.steps[-1],)])
    seen: set[Any] = set()
    while waiting:
        steps = waiting.popleft()
        tp = plain(steps[-1].inside)
        if (members := options(tp)) is not None:
            waiting.extend((*steps, Step("", member)) for member in members if member is not NoneType)
        elif (item := item_of(tp)) is not None:
            waiting.append((*steps, Step("[]", item)))
        elif (value := value_of(tp)) is not None:
            waiting.append((*steps, Step("{}", value)))
        elif is_object(tp):
            if tp not in seen:
                seen.add(tp)
                fields = sorted(fields_of(tp), key=lambda field: not field.required)
                waiting.extend((*steps[:-1], Step(steps[-1].name, tp), Step(f.name, f.type)) for f in fields)
        elif len(words_of(tp)) != 1:
            return steps[1:]
    return None


def _least_object(cls: Any, settings: Settings) -> JsonObject:
    body: JsonObject = {}
    constant = constant_of(cls)
    for field in fields_of(cls):
        if field.required or (constant and field.name == constant[0] and len(words_of(field.type)) == 1):
            body[field.name] = _least(field.name, field.type, settings)
    return {**body, **copy_json(settings.fill.get(cls.__name__.removeprefix("Beta"), {}))}


def _least(name: str, tp: Any, settings: Settings) -> Any:
    """The least a required field may say."""
    tp = plain(tp)
    if name in settings.values:
        return copy_json(settings.values[name][0])
    words = words_of(tp)
    if words:
        return words[0]
    members = options(tp)
    if members is not None:
        return None if NoneType in members else _least(name, members[0], settings)
    if item_of(tp) is not None:
        return []
    if is_object(tp):
        return _least_object(tp, settings)
    leaves: dict[Any, Any] = {str: "x", int: 1, float: 0.5, bool: True}
    return leaves.get(tp, {})
