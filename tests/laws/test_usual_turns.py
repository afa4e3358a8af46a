"""Turns that are read in one step are read as block by block: the same values, and no note."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.errors import DecodeError
from dragoman.exchange import read_request
from dragoman.jsontypes import copy_json, dump_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import bent_requests, doubled_bodies
from tests.recorded import cases, needs_corpus

READERS = [name for name in NAMES if find_dialect(name).read_turns is not None]
MARK = {"cache_control": {"type": "ephemeral"}}
LONG_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1, 2.5, None, {"y": "\u00e9"}], "": 10**30}}
CHAT_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TURNS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "system", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "and"}]},
        {"role": "assistant", "content": "so"},
        {"role": "assistant", "content": "so", "tool_calls": [CHAT_CALL]},
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL, {**CHAT_CALL, "id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ],
    "anthropic": [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "", **LONG_MARK}]},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, CALL]},
        {"role": "assistant", "content": [{**CALL, "input": {}}, {**CALL, **MARK}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, CALL]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": ""}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": ""}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r", "is_error": True}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r", **MARK}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": []}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "r"}]},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "r", **MARK}]},
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}] * 2},
                {"type": "text", "text": "go on"},
            ],
        },
    ],
}


def read(name: str, turns: object) -> Request | str:
    dialect, notes = find_dialect(name), Notes()
    try:
        request = read_request(dialect, WireRequest(body={"model": "m", dialect.messages_key: turns}), notes)
    except DecodeError as error:
        return str(error)
    assert not len(notes)
    return request


def check(name: str, data: bytes) -> bool:
    """Whether turns are read in one step; then the long way must agree."""
    dialect = find_dialect(name)
    assert dialect.read_turns is not None
    found = dialect.read_turns(data)
    if found is None:
        return False
    assert read(name, found) == read(name, json.loads(data))
    return True


@pytest.mark.parametrize("name", READERS)
def test_what_agents_send_is_read_in_one_step(name: str) -> None:
    for turn in TURNS[name]:
        assert check(name, dump_json([turn])), turn
        assert check(name, json.dumps([turn], indent=1, ensure_ascii=False).encode())
    assert check(name, dump_json(TURNS[name]))
    assert check(name, b"[]")


def near_misses(name: str) -> Iterator[bytes]:
    key = find_dialect(name).messages_key
    for raw in (*bent_requests(name), *doubled_bodies()):
        try:
            body = json.loads(raw)
        except ValueError:
            continue
        if isinstance(body, dict) and key in body:
            yield dump_json(body[key])
    for body, path, odd in every_bend([{"turns": copy_json(TURNS[name])}]):
        bent = bend_at(body, path, odd)
        if isinstance(bent, dict):
            yield json.dumps(bent.get("turns")).encode()


@pytest.mark.parametrize("name", READERS)
def test_near_misses_are_read_in_one_step_only_if_the_long_way_agrees(name: str) -> None:
    found = [check(name, data) for data in near_misses(name)]
    assert sum(found) > 20
    assert not all(found)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"null",
        b"{}",
        b'[{"role":"user","content":"\\ud83d"}]',
        b'[{"role":"user","content":"\xff"}]',
        b"[" * 10_000,
        b'[{"role":"user","content":"a"}]]',
    ],
)
def test_what_is_no_list_of_turns_is_left_to_the_long_way(name: str, odd: bytes) -> None:
    assert not check(name, odd)


@needs_corpus
@pytest.mark.parametrize("name", READERS)
def test_recorded_turns_are_read_in_one_step_only_if_the_long_way_agrees(name: str) -> None:
    key = find_dialect(name).messages_key
    bodies = [json.loads(raw) for case in cases(name) if (raw := case.read("request.json")) is not None]
    found = [check(name, dump_json(body[key])) for body in bodies if isinstance(body, dict) and key in body]
    assert sum(found) > 20
