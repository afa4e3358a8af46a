"""Our own keys begin with ~. A client can send such keys, too, with any value: that must not break an encoder."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.fields import OMIT
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.messages import SILENT
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.fuzz.targets import ASKED, PATHS, WIRES

SOURCE = Path(dragoman.__file__).parent
NAME = re.compile(r"""["'](~\w+)["']|note_(?:spelling|silent)\([^,]+, "(\w+)\"""")
VALUES: list[Any] = [3, [], [{}], {}, "x", True, [1], {"a": 1}, ["a.b", "role", "content", "parts", "text"]]


def names_of(dialect: str) -> set[str]:
    """All keys of ours that the code of a dialect mentions."""
    files = [*(SOURCE / "dialects" / dialect).glob("*.py"), *(SOURCE / "dialects").glob("_*.py"), SOURCE / "fields.py"]
    return {"~" + found.strip("~") for file in files for found in map("".join, NAME.findall(file.read_text()))}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


@pytest.mark.parametrize("door", WIRES)
def test_a_clients_key_with_our_mark_breaks_no_encoder(door: str) -> None:
    dialect = find_dialect(door)
    body: Any = load_json(dump_json(dialect.encode_request(ASKED, Notes()).body))
    names = sorted({*names_of(door), OMIT, SILENT})
    assert len(names) > 3
    for place in range(1, len(list(objects(body)))):  # the outermost object's are refused
        for name in names:
            for value in VALUES:
                odd = deepcopy(body)
                list(objects(odd))[place].update({name: value, "unknown": 1})
                try:
                    request = dialect.decode_request(WireRequest(body=odd, path=PATHS.get(door, "/")), Notes())
                except DragomanError:
                    continue
                for target in WIRES:
                    find_dialect(target).encode_request(request, Notes())
