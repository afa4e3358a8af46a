"""Plain paths into JSON: what stands where, without any knowledge of a dialect."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

Place: TypeAlias = tuple[str | int, ...]

STEP = re.compile(r"/([^/\[]*)((?:\[[^\]]*\])*)")
CONDITION = re.compile(r"\[([^\]]*)\]")


class Step(NamedTuple):
    keys: tuple[str, ...]  # `*` alone is any place in a list
    conditions: tuple[tuple[str, tuple[str, ...] | None], ...]  # key, and the values it may have; None is any value


class Found(NamedTuple):
    place: Place
    value: Any
    known: dict[str, Any]  # what the keys in brackets said
    read: tuple[Place, ...]  # where those keys stand


@cache
def parse(path: str) -> tuple[tuple[Step, ...], str | None]:
    """The steps of a path, and the value that it demands at its end (`/a/b=x`)."""
    wanted = ""
    if re.search(r"=[^\]/]*$", path):
        path, _, wanted = path.rpartition("=")
    steps = [
        Step(tuple(keys.split("|")), tuple(_condition(words) for words in CONDITION.findall(brackets)))
        for keys, brackets in STEP.findall(path)
    ]
    return tuple(steps), wanted or None


def _condition(words: str) -> tuple[str, tuple[str, ...] | None]:
    key, equals, values = words.partition("=")
    return key, tuple(values.split("|")) if equals else None


def find(body: Any, path: str) -> Iterator[Found]:
    steps, wanted = parse(path)
    for found in _walk(body, steps, (), {}, ()):
        if wanted is None or plain(found.value) in wanted.split("|"):
            yield found


def _walk(
    value: Any, steps: tuple[Step, ...], place: Place, known: dict[str, Any], read: tuple[Place, ...]
) -> Iterator[Found]:
    if not steps:
        yield Found(place, value, known, read)
        return
    step, rest = steps[0], steps[1:]
    for key, inner in _children(value, step.keys):
        held = _meets(inner, step.conditions)
        if held is not None:
            here = (*place, key)
            keys = tuple((*here, name) for name in held)
            yield from _walk(inner, rest, here, {**known, **held}, (*read, *keys))


def _children(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[str | int, Any]]:
    if keys == ("*",):
        yield from enumerate(value) if isinstance(value, list) else ()
    elif isinstance(value, dict):
        yield from ((key, value[key]) for key in keys if key in value)


def _meets(value: Any, conditions: tuple[tuple[str, tuple[str, ...] | None], ...]) -> dict[str, Any] | None:
    held: dict[str, Any] = {}
    for key, values in conditions:
        if key == "":
            if plain(value) not in (values or ()):
                return None
        elif key.startswith("!"):
            if isinstance(value, dict) and value.get(key[1:]):
                return None
        elif isinstance(value, dict) and key in value and (values is None or plain(value[key]) in values):
            held[key] = value[key]
        else:
            return None
    return held


def plain(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is no list and no object."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, (*place, i))
    else:
        yield place, value


def pointer(place: Place) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)
