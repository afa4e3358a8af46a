"""Tools that are sent again are written as they were the first time: as objects, then as the JSON that they became."""

import pytest

from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request, Tool
from dragoman.notes import Notes
from tests.laws.snapshot.ways import DIALECTS

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = tuple(Tool(name=f"look_{i}", description="looks \u00e9", parameters=SCHEMA) for i in range(3))


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_tools_are_written_alike_each_time(name: str, older: bool) -> None:
    dialect = find_dialect(name)
    extras = {"openai_chat": {"~tools": "functions"}} if older else {}
    request = Request(
        model="m", messages=(Message(role="user", parts=(Text(text="hi"),)),), tools=TOOLS, extras=extras, max_output=5
    )
    written = []
    for _ in range(4):
        notes = Notes()
        notes.sends = True
        written.append(dump_json(dialect.encode_request(request, notes).body))
    assert len(set(written)) == 1
    assert b"look_2" in written[0]


@pytest.mark.parametrize("name", DIALECTS)
def test_half_a_surrogate_pair_beside_tools_that_are_sent_again_becomes_a_mark(name: str) -> None:
    dialect, tools = find_dialect(name), (*TOOLS, Tool(name="other", parameters=SCHEMA))
    written = []
    for _ in range(3):
        notes = Notes()
        notes.sends = True
        request = Request(
            model="m",
            messages=(Message(role="user", parts=(Text(text="a\ud83d"),)),),
            tools=tools,
            max_output=5,
        )
        written.append(dump_json(dialect.encode_request(request, notes).body))
    assert len(set(written)) == 1
    assert "a\ufffd".encode() in written[0]
