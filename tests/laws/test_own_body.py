"""A body that is given as an object or as bytes is converted as it was before some of it was read in one step: the same
body, the same notes, the same errors. The caller's object stays as it is, and what a caller gets is shared with nobody.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from enum import StrEnum
from math import nan
from typing import Any

import pytest

from dragoman import own_body
from dragoman.convert import convert
from dragoman.errors import DragomanError
from dragoman.jsontypes import dump_json
from tests.laws.damage import bend_at, every_bend
from tests.laws.fast_paths import without
from tests.laws.near_misses import DIALECTS, bent_requests, usual_request
from tests.recorded import cases, needs_corpus

TIMES = 4  # tools are known from the third time on, and what is written from them from the fourth
LONG = "what it does " * 60  # so that the list is worth to be known
SOURCES = ("anthropic", "openai_chat")


def with_tools(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": ["b"]}}, "required": ["a"]}
    anthropic = {"name": "f", "description": LONG, "input_schema": schema}
    chat = {"type": "function", "function": {"name": "f", "description": LONG, "parameters": schema}}
    return {**usual_request(name), "model": "m", "max_tokens": 5, "tools": [anthropic if name == "anthropic" else chat]}


def outcome(body: Any, source: str, to: str) -> Any:
    try:
        made = convert(body, source=source, to=to)
    except (DragomanError, ValueError, TypeError, RecursionError) as error:
        return type(error), str(error)
    return made.body, made.path, made.headers, repr(list(made.notes))


def check(body: Any, source: str, to: str) -> None:
    before = deepcopy(body)
    with without():
        slow = outcome(body, source, to)
    for _ in range(TIMES):
        found = outcome(body, source, to)
        assert repr(found) == repr(slow), (source, to)
        spoil(found[0])
    assert repr(body) == repr(before)


def spoil(value: Any) -> None:
    """What a caller may do with a body that was made for it."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoiled"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoiled")


@pytest.mark.parametrize("to", [*DIALECTS, "canonical"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_request_with_tools_is_converted_alike_each_time(source: str, to: str) -> None:
    check(with_tools(source), source, to)
    check(dump_json(with_tools(source)), source, to)


def test_tools_are_known_from_the_third_time_on() -> None:
    own_body._known.clear()
    own_body._seen.clear()
    body = with_tools("anthropic")
    for count in (0, 1, 1):
        convert(body, source="anthropic", to="openai_chat")
        assert len(own_body._known) == count


@pytest.mark.parametrize("source", SOURCES)
def test_near_misses_are_converted_alike(source: str) -> None:
    for raw in bent_requests(source)[::9]:
        try:
            check(json.loads(raw), source, "openai_chat" if source == "anthropic" else "anthropic")
        except ValueError:
            continue
    for number, (body, path, odd) in enumerate(every_bend([with_tools(source)])):
        if number % 5 == 0:
            check(bend_at(body, path, odd), source, "gemini")


class Role(StrEnum):
    USER = "user"


class Name(str):
    """A text of another type."""


def odd_objects() -> Iterator[Any]:
    base = with_tools("anthropic")
    said = {"role": "user", "content": "hi"}
    call = {"type": "tool_use", "id": "a", "name": "f"}
    for odd in (
        nan,
        10**30,
        b"bytes",
        datetime(2026, 1, 2, tzinfo=UTC),
        (1, 2),
        {1: 2},
        Name("x"),
        "\ud83d",
        Role.USER,
    ):
        yield {**base, "messages": [said, {"role": "assistant", "content": [{**call, "input": {"a": odd}}]}]}
        yield {**base, "tools": [{**base["tools"][0], "input_schema": {"type": "object", "default": odd}}]}
        yield {**base, "metadata": {"user_id": "u", "more": odd}}
        yield {**base, "messages": [{"role": odd, "content": "hi"}, {"role": "user", "content": odd}]}
    yield {**base, "messages": (said, said), "tools": tuple(base["tools"])}
    yield {**base, "messages": [{"role": Role.USER, "content": Name("hi")}]}
    yield {**base, "functions": []}


@pytest.mark.parametrize("to", ["openai_chat", "anthropic", "canonical"])
def test_objects_that_no_json_gives_are_converted_alike(to: str) -> None:
    for body in odd_objects():
        check(body, "anthropic", to)


@needs_corpus
@pytest.mark.parametrize("source", DIALECTS)
def test_recorded_requests_are_converted_alike_as_objects_and_as_bytes(source: str) -> None:
    found = [raw for case in cases(source) if (raw := case.read("request.json")) is not None]
    for number, raw in enumerate(found[::4]):
        try:
            body = json.loads(raw)
        except ValueError:
            continue
        to = DIALECTS[number % len(DIALECTS)]
        if type(body) is dict:
            check(body, source, to)
        check(raw, source, to)
