"""A request whose tools are known is read as one whose tools are not: the same values, the same errors."""

from typing import Any

import pytest

from dragoman.dialects import SPOKEN, find_dialect
from dragoman.errors import DecodeError
from dragoman.exchange import read_request
from dragoman.gateway.bodies import load_apart, load_body
from dragoman.gateway.config.settings import RequestLimits
from dragoman.jsontypes import dump_json
from dragoman.known_turns.tools import LEAST_BYTES, KnownTools
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import usual_request
from tests.recorded import cases, needs_corpus

DIALECTS = [name for name in SPOKEN if find_dialect(name).tools_keys]
LIMITS = RequestLimits()
OWNER = ("key", "dialect")
LONG = "what it does " * (LEAST_BYTES // 10)  # so that the list is worth to be known


def read(name: str, values: Any) -> tuple[Request, int]:
    notes = Notes()
    return read_request(find_dialect(name), WireRequest(body=values), notes), len(notes)


def read_slow(name: str, raw: bytes) -> object:
    try:
        return read(name, load_body(raw, LIMITS))[0]
    except DecodeError as error:
        return str(error)


def read_known(name: str, raw: bytes, known: KnownTools) -> tuple[object, bool]:
    """As a gateway reads it, and whether its tools were known."""
    try:
        body = load_apart(raw, LIMITS, find_dialect(name), known, OWNER)
        found = body.values["tools"] if type(body.values.get("tools")) is tuple else None
        request, notes = read(name, body.values)
    except DecodeError as error:
        return str(error), False
    if found is not None:
        return request, True
    if body.tools_text and request.tools and not notes and not find_dialect(name).has_other_tools(request):
        known.keep(OWNER, body.tools_text, request.tools)
    return request, False


def with_tools(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    function = {"name": "f", "description": LONG, "parameters": schema}
    anthropic = {"name": "f", "description": LONG, "input_schema": schema, "cache_control": {"type": "ephemeral"}}
    tool = {
        "anthropic": anthropic,
        "openai_chat": {"type": "function", "function": {**function, "strict": True}},
        "openai_responses": {"type": "function", **function, "strict": False},
        "ollama": {"type": "function", "function": function},
        "gemini": {"functionDeclarations": [function, {"name": "g", "parametersJsonSchema": schema}]},
    }[name]
    body: dict[str, Any] = {"model": "m", **usual_request(name)}
    return {**body, "tools": [tool], "max_tokens": 5}


@pytest.mark.parametrize("name", DIALECTS)
def test_known_tools_are_the_same_object_from_the_third_time_on(name: str) -> None:
    known, raw = KnownTools(), dump_json(with_tools(name))
    found = [read_known(name, raw, known) for _ in range(4)]
    assert [hit for _, hit in found] == [False, False, True, True]
    assert all(request == read_slow(name, raw) for request, _ in found)
    third, fourth = found[2][0], found[3][0]
    assert isinstance(third, Request)
    assert isinstance(fourth, Request)
    assert third.tools is fourth.tools


@pytest.mark.parametrize("name", DIALECTS)
def test_near_misses_are_read_alike(name: str) -> None:
    base, known = with_tools(name), KnownTools()
    for _ in range(3):
        read_known(name, dump_json(base), known)
    hits = 0
    for body, path, odd in every_bend([base]):
        raw = dump_json(bend_at(body, path, odd))
        for _ in range(3):  # bent tools become known, too
            found, hit = read_known(name, raw, known)
            assert found == read_slow(name, raw), (path, odd)
            hits += hit
    assert hits > 50


GROUP = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h", "description": LONG}]}
ADDED = {"type": "additional_tools", "tools": [{"type": "function", "name": "h"}]}


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("openai_responses", {"tools": [GROUP]}),  # its tools are copied to the list
        ("openai_responses", {"input": [ADDED, {"role": "user", "content": "hi"}]}),  # so are those of an item
        ("gemini", {"tools": [{"functionDeclarations": [{"name": "f"}]}, {"functionDeclarations": [{"name": LONG}]}]}),
        ("gemini", {"tools": {"functionDeclarations": [{"name": "f", "description": LONG}]}}),
    ],
)
def test_a_list_that_is_not_all_there_is_to_tell_of_the_tools_is_read_each_time(name: str, odd: dict[str, Any]) -> None:
    known, usual = KnownTools(), dump_json(with_tools(name))
    raw = dump_json(with_tools(name) | odd)
    found = [read_known(name, raw, known) for _ in range(4)]
    assert found == [(read_slow(name, raw), False)] * 4
    for _ in range(3):  # the usual list is known, and comes together with the odd thing
        read_known(name, usual, known)
    assert read_known(name, raw, known)[0] == read_slow(name, raw)


@pytest.mark.parametrize(
    "extra", [b',"tools":[]', b',"model":"other"', b',"functions":[]', b',"x":"\\ud83d"', b',"x":}']
)
def test_odd_bodies_are_read_alike(extra: bytes) -> None:
    known, raw = KnownTools(), dump_json(with_tools("openai_chat"))
    for _ in range(3):
        read_known("openai_chat", raw, known)
    odd = raw[:-1] + extra + b"}"
    assert read_known("openai_chat", odd, known)[0] == read_slow("openai_chat", odd)


@needs_corpus
@pytest.mark.parametrize("name", DIALECTS)
def test_recorded_requests_are_read_alike(name: str) -> None:
    known, hits = KnownTools(1 << 30), 0
    for raw in [data for case in cases(name) if (data := case.read("request.json")) is not None]:
        for _ in range(3):
            found, hit = read_known(name, raw, known)
            hits += hit
            assert found == read_slow(name, raw)
    assert hits > (15 if name == "ollama" else 20)  # few cases of Ollama have long lists


def test_owners_do_not_share_and_the_oldest_is_forgotten() -> None:
    known = KnownTools(2_000)
    tools = (*(read("anthropic", with_tools("anthropic"))[0].tools or ()),)
    texts = [b"%d" % i * 900 for i in range(3)]
    for text in texts:
        for _ in range(2):
            known.keep(OWNER, text, tools)
    assert known.find(OWNER, texts[0]) is None
    assert known.find(OWNER, texts[2]) is tools
    assert known.find(("another key", "dialect"), texts[2]) is None
    assert known.bytes <= 2_000
