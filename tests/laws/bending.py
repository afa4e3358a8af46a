"""Real traffic with something bent: a value of another type, a key gone, an entry twice, a frame cut."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

ODD: tuple[str, ...] = (
    *("null", "true", "false", "0", "-1", "3.5", "100000000000000000000", '""', '"x"', '"\\u0000"', '"1"', "[]", "{}"),
    *("[null]", "[[]]", "[{}]", '["a",1]', '{"type":null}', '{"type":"text"}', '{"type":[]}', '{"a":{"b":[1]}}'),
    *('{"text":1}', '[{"type":"text","text":null}]', '"data:image/png;base64,xx"', '"{\\"a\\":"'),
)
KEYS = ("type", "content", "id", "role", "name", "parts", "text", "index", "nobody_knows_it")
Path = tuple[str | int, ...]


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
