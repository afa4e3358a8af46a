"""A request that is read in one step is read as key by key: the same value, no note, and no key twice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects.openai_chat.plain_request import MOST_BYTES, read_plain_request
from dragoman.exchange import read_request
from dragoman.gateway.bodies import load_body
from dragoman.gateway.config.settings import RequestLimits
from dragoman.jsontypes import dump_json
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import bent_requests, doubled_bodies
from tests.recorded import cases, needs_corpus

CHAT = find_dialect("openai_chat")
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'What is "model"? \u00e9 \U0001f600'},
    {"role": "assistant", "content": "A word."},
    {"role": "developer", "content": "Go on."},
]
PLAIN: dict[str, Any] = {"model": "m", "messages": TURNS, "stream": True}
SETTINGS: dict[str, Any] = {"temperature": 0.5, "top_p": 1, "seed": -7, "max_tokens": 100, "max_completion_tokens": 200}


def check(raw: bytes) -> bool:
    """Whether it is read in one step; then the long way must agree."""
    found = read_plain_request(raw)
    if found is None:
        return False
    notes = Notes()
    wire = WireRequest(body=load_body(raw, RequestLimits()), path="/v1/chat/completions", headers={})
    assert read_request(CHAT, wire, notes) == found
    assert not len(notes)
    return True


@pytest.mark.parametrize("keys", [("model", "messages"), ("messages", "model"), ("stream", "messages", "model")])
def test_a_request_of_texts_is_plain(keys: tuple[str, ...]) -> None:
    body = {key: PLAIN[key] for key in keys}
    assert check(dump_json(body))
    assert check(json.dumps(body, ensure_ascii=False).encode())
    assert check(dump_json(body).replace(b":", b" :\n"))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("value", [0, 1, -1, 0.7, 3.0, 2**53, 1e300], ids=str)
def test_a_usual_setting_is_plain(name: str, value: float) -> None:
    assert check(dump_json({**PLAIN, name: SETTINGS[name]}))
    if type(value) is int or name in ("temperature", "top_p"):
        assert check(dump_json({**PLAIN, name: value}))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("odd", ["null", "true", '"1"', "[1]", "1e999", "-", "9" * 30, "1.5"])
def test_an_odd_setting_is_plain_only_if_the_long_way_agrees(name: str, odd: str) -> None:
    raw = dump_json(PLAIN)[:-1] + f',"{name}":{odd}}}'.encode()
    assert check(raw) == (odd in ("1.5", "9" * 30) and name in ("temperature", "top_p"))
    assert not check(dump_json({**PLAIN, name: 1})[:-1] + f',"{name}":2}}'.encode())


def test_two_limits_are_not_plain() -> None:
    assert not check(dump_json({**PLAIN, **SETTINGS}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"model":"a","model":"b","messages":[{"role":"user","content":"hi"}]}',
        b'{"model":"a","\\u006dodel":"b","messages":[{"role":"user","content":"hi"}]}',
        b'{"messages":[{"role":"user","content":"hi"}],"model":"a","messages":[{"role":"user","content":"ho"}]}',
        b'{"stream":false,"model":"a","messages":[{"role":"user","content":"hi"}],"stream":true}',
        b'{"model":"a","messages":[{"role":"user","content":"\\ud83d"}]}',
        b'{"model":"a","messages":[{"role":"user","content":"\xff"}]}',
        dump_json({**PLAIN, "base_url": "http://elsewhere"}),
        dump_json({**PLAIN, "stream": None}),
        dump_json({**PLAIN, "messages": []}),
        dump_json({**PLAIN, "messages": [{"role": "user", "content": "x" * MOST_BYTES}]}),
        dump_json(PLAIN) + b"}",
    ],
)
def test_what_must_be_read_key_by_key_is_not_plain(raw: bytes) -> None:
    assert not check(raw)


def near_misses() -> Iterator[bytes]:
    yield from bent_requests(CHAT.name)
    yield from doubled_bodies()
    for body, path, odd in every_bend([PLAIN, {**PLAIN, **SETTINGS}]):
        yield json.dumps(bend_at(body, path, odd)).encode()


def test_near_misses_are_plain_only_if_the_long_way_agrees() -> None:
    assert sum(map(check, near_misses())) > 3


@needs_corpus
def test_recorded_requests_are_plain_only_if_the_long_way_agrees() -> None:
    recorded = [raw for case in cases(CHAT.name) if (raw := case.read("request.json")) is not None]
    assert sum(map(check, recorded)) > 3
