"""A reply that a quick look calls plain is one that the whole way leaves as it is: no note, no call, no thought."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.answers.spelling import SpellingMender
from dragoman.dialects import find_dialect
from dragoman.dialects.openai_chat.plain_reply import look_at_reply
from dragoman.jsontypes import dump_json
from dragoman.model.messages import Text
from dragoman.notes import Notes
from dragoman.reasoning_state.carry import has_state
from dragoman.upstream.read_reply import decode_whole
from tests.laws.damage import bend_at, every_bend
from tests.laws.near_misses import bent_replies
from tests.recorded import cases, needs_corpus

CHAT = find_dialect("openai_chat")
MESSAGE: dict[str, Any] = {"role": "assistant", "content": "Hello.", "refusal": None, "annotations": []}
PLAIN: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    },
    "service_tier": "default",
    "system_fingerprint": "fp",
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNUSUAL: tuple[dict[str, Any], ...] = (
    *({"tool_calls": [CALL]}, {"function_call": {"name": "f", "arguments": "{}"}}, {"reasoning": "Hm."}),
    *({"reasoning_content": "Hm."}, {"thinking": "Hm."}, {"refusal": "No."}, {"content": None}, {"content": ""}),
    *({"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}, {"dragoman": {"seal": {}}}),
    *({"audio": {"id": "a"}}, {"content": [{"type": "text", "text": "Hello."}]}, {"role": "user"}),
)


def check(raw: bytes) -> bool:
    """Whether the look calls it plain; then the whole way must agree."""
    found = look_at_reply(raw)
    if found is None:
        return False
    notes = Notes()
    reply, whole = decode_whole({}, raw, CHAT, notes)
    mender = SpellingMender(CHAT.name, CHAT.reply_rules, notes)
    assert whole
    assert mender.reply(reply) is reply
    assert not mender.changed
    assert not len(notes)
    assert found.usage == reply.usage
    parts = [part for choice in reply.choices for part in choice.parts]
    assert all(type(part) is Text for part in parts)
    assert not has_state(parts)
    return True


def test_a_reply_of_one_text_is_plain() -> None:
    assert check(dump_json(PLAIN))


@pytest.mark.parametrize("odd", UNUSUAL, ids=str)
def test_what_must_be_read_is_not_plain(odd: dict[str, Any]) -> None:
    choice = {**PLAIN["choices"][0], "message": {**MESSAGE, **odd}}
    assert not check(dump_json({**PLAIN, "choices": [choice]}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        dump_json({**PLAIN, "error": {"message": "no"}}),
        dump_json({**PLAIN, "choices": []}),
        dump_json({**PLAIN, "choices": PLAIN["choices"] * 2}),
        dump_json(PLAIN).replace(b'"fp"', b'"\xff"'),
        dump_json(PLAIN) + b"}",
    ],
)
def test_what_is_no_reply_is_not_plain(raw: bytes) -> None:
    assert not check(raw)


def near_misses() -> Iterator[bytes]:
    yield from bent_replies(CHAT.name)
    for body, path, odd in every_bend([PLAIN]):
        yield json.dumps(bend_at(body, path, odd)).encode()


def test_near_misses_are_plain_only_if_the_whole_way_agrees() -> None:
    assert sum(map(check, near_misses())) > 10


@needs_corpus
def test_recorded_replies_are_plain_only_if_the_whole_way_agrees() -> None:
    recorded = [raw for case in cases(CHAT.name) if (raw := case.read("reply.json")) is not None and not case.failed]
    plain = sum(map(check, recorded))
    assert plain > len(recorded) / 10
