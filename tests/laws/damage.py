"""Real traffic with something bent: a value of another type, a key gone, an entry twice, a frame cut."""

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

ODD: tuple[str, ...] = (
    *("null", "true", "false", "0", "-1", "3.5", "100000000000000000000", '""', '"x"', '"\\u0000"', '"1"', "[]", "{}"),
    *("[null]", "[[]]", "[{}]", '["a",1]', '{"type":null}', '{"type":"text"}', '{"type":[]}', '{"a":{"b":[1]}}'),
    *('{"text":1}', '[{"type":"text","text":null}]', '"data:image/png;base64,xx"', '"{\\"a\\":"'),
)
KEYS = ("type", "content", "id", "role", "name", "parts", "text", "index", "nobody_knows_it")
Path = tuple[str | int, ...]
DEEPEST = 10  # below it are schemas and arguments, which no decoder reads


def bend(value: Any, dice: Random) -> Any:
    """A copy with one to three things wrong."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.randint(1, 3)):
        places = [path for path in _paths(value) if path]
        if places:
            _bend_at(value, dice.choice(places), dice)
    return value


def bend_stream(data: bytes, dice: Random) -> bytes:
    """The same for some of the frames; now and then a few bytes are lost, doubled or exchanged."""
    lines = data.split(b"\n")
    spots = [i for i, line in enumerate(lines) if b"{" in line]
    for i in dice.sample(spots, min(len(spots), dice.randint(1, 3))):
        head, brace, rest = lines[i].partition(b"{")
        try:
            lines[i] = head + json.dumps(bend(json.loads(brace + rest), dice)).encode()
        except ValueError:
            continue  # one line of several that make a document
    data = b"\n".join(lines)
    if dice.random() < 0.3:
        start = dice.randrange(len(data) + 1)
        data = data[:start] + dice.choice((b"", b"\xff\x00", b"\n\n", data[start : start + 40])) + data[start + 9 :]
    return data


def every_bend(bodies: Iterable[Any]) -> list[tuple[Any, Path, str]]:
    """Every kind of place that the bodies have, with everything that may stand there instead; "" is: nothing.

    A kind of place is its path without the numbers, but with the types and roles on the way.
    """
    places: dict[Path, tuple[Any, Path]] = {}
    for body in bodies:
        for shape, path in _shapes(body):
            if path and len(path) < DEEPEST:
                places.setdefault(shape, (body, path))
    return [(body, path, odd) for body, path in places.values() for odd in (*ODD, "")]


def every_stream_bend(streams: Iterable[bytes]) -> list[tuple[bytes, int, Path, str]]:
    """The same for the frames of streams: which stream, which of its lines, which place in it, and what instead."""
    places: dict[Path, tuple[bytes, int, Path]] = {}
    for data in streams:
        for i, frame in _frames(data.split(b"\n")):
            for shape, path in _shapes(frame):
                if path and len(path) < DEEPEST:
                    places.setdefault(shape, (data, i, path))
    return [(data, i, path, odd) for data, i, path in places.values() for odd in (*ODD, "")]


def bend_at(value: Any, path: Path, odd: str) -> Any:
    """A copy with something else at one place, or nothing."""
    value = json.loads(json.dumps(value))
    *above, last = path
    inner = value
    for key in above:
        inner = inner[key]
    if odd:
        inner[last] = json.loads(odd)
    else:
        del inner[last]
    return value


def bend_line(data: bytes, number: int, path: Path, odd: str) -> bytes:
    """A stream with one line bent."""
    lines = data.split(b"\n")
    head, brace, rest = lines[number].partition(b"{")
    lines[number] = head + json.dumps(bend_at(json.loads(brace + rest), path, odd)).encode()
    return b"\n".join(lines)


def _frames(lines: list[bytes]) -> Iterator[tuple[int, Any]]:
    for i, line in enumerate(lines):
        _, brace, rest = line.partition(b"{")
        try:
            yield i, json.loads(brace + rest)
        except ValueError:
            continue  # no frame, or one line of several that make a document


def _shapes(value: Any, shape: Path = (), path: Path = ()) -> Iterator[tuple[Path, Path]]:
    yield shape, path
    if isinstance(value, dict):
        kind = next((value[key] for key in ("type", "role", "object") if isinstance(value.get(key), str)), "")
        for key, item in value.items():
            yield from _shapes(item, (*shape, kind, key), (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value[:30]):
            yield from _shapes(item, (*shape, "*"), (*path, i))


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value[:30]) if isinstance(value, list) else ()
    for key, item in entries:
        yield from _paths(item, (*path, key))


def _bend_at(value: Any, path: Path, dice: Random) -> None:
    *above, last = path
    for key in above:
        value = value[key]
    what = dice.random()
    if what < 0.6:
        value[last] = json.loads(dice.choice(ODD))
    elif what < 0.8:
        del value[last]
    elif isinstance(value, list):
        value.append(json.loads(json.dumps(value[last])))  # type: ignore[index]  # a list's key is a number
    else:
        value[dice.choice(KEYS)] = json.loads(dice.choice(ODD))
