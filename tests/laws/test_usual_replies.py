"""A reply that is read in one step is what the long way reads: the same value, notes and verdict on its calls."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.errors import UpstreamError
from dragoman.jsontypes import dump_json
from dragoman.notes import Notes
from dragoman.upstream.read_reply import decode_whole
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import bent_replies
from tests.laws.test_plain_replies import CALL, MESSAGE, PLAIN
from tests.recorded import cases, needs_corpus

CHAT = find_dialect("openai_chat")
SLOW = replace(CHAT, read_usual_reply=None)
BARE = {"role": "assistant", "content": "Hello."}
BROKEN = {**CALL, "id": "d", "function": {"name": "f", "arguments": '{"a":'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL, BROKEN], "refusal": None}


def saying(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**PLAIN, "choices": [choice], **more}


USUAL = {
    "a text": PLAIN,
    "a text of another server": saying(BARE),
    "a text that was cut": saying(MESSAGE, "length"),
    "a text without counts": {key: value for key, value in PLAIN.items() if key != "usage"},
    "a tier that is not known": saying(MESSAGE, service_tier="gold"),
    "no tier": saying(MESSAGE, service_tier=None, system_fingerprint=None),
    "plain counts": saying(MESSAGE, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    "calls": saying(CALLING, "tool_calls"),
    "a text and calls": saying({**CALLING, "content": "Let me see."}, "tool_calls"),
}


def outcome(raw: bytes, dialect: Dialect) -> object:
    notes = Notes()
    try:
        return *decode_whole({}, raw, dialect, notes, False), notes.items
    except UpstreamError as error:
        return error.failure


def is_read_at_once(raw: bytes) -> bool:
    """Whether it is read in one step; the long way must agree in any case."""
    assert outcome(raw, CHAT) == outcome(raw, SLOW)
    return CHAT.read_usual_reply is not None and CHAT.read_usual_reply(raw) is not None


@pytest.mark.parametrize("body", USUAL.values(), ids=USUAL)
def test_a_usual_reply_is_read_in_one_step(body: dict[str, Any]) -> None:
    assert is_read_at_once(dump_json(body))
    assert is_read_at_once(json.dumps(body, indent=1).encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        dump_json(PLAIN) + b"}",
        b"\xef\xbb\xbf" + dump_json(PLAIN),
        dump_json({**PLAIN, "error": {"message": "no"}}),
        dump_json({**PLAIN, "choices": PLAIN["choices"] * 2}),
        dump_json({**PLAIN, "~omit": ["id"]}),
        dump_json(saying(CALLING)),
        dump_json(saying(MESSAGE, "tool_calls")),
        dump_json(saying({**MESSAGE, "content": None})),
        dump_json(saying({**MESSAGE, "content": "~"})),
    ],
)
def test_anything_else_is_read_key_by_key(raw: bytes) -> None:
    assert not is_read_at_once(raw)


def near_misses() -> Iterator[bytes]:
    yield from bent_replies(CHAT.name)
    for body, path, odd in every_bend(USUAL.values()):
        yield json.dumps(bend_at(body, path, odd)).encode()


def test_near_misses_are_read_alike() -> None:
    assert sum(map(is_read_at_once, near_misses())) > 10


@needs_corpus
def test_recorded_replies_are_read_alike() -> None:
    recorded = [raw for case in cases(CHAT.name) if (raw := case.read("reply.json")) is not None and not case.failed]
    assert sum(map(is_read_at_once, recorded)) > len(recorded) / 10
