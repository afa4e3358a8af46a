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
from tests.laws.snapshot.ways import DIALECTS
from tests.laws.test_plain_replies import CALL, MESSAGE, PLAIN
from tests.recorded import cases, needs_corpus

BARE = {"role": "assistant", "content": "Hello."}
BROKEN = {**CALL, "id": "d", "function": {"name": "f", "arguments": '{"a":'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL, BROKEN], "refusal": None}
FUNCTION: dict[str, Any] = {"name": "f", "args": {"a": [1, 1.5, "x", None], "big": 12345678901234567890}}


def saying(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**PLAIN, "choices": [choice], **more}


def candidate(*parts: dict[str, Any], finish: str = "STOP", **more: Any) -> dict[str, Any]:
    content = {"parts": list(parts), "role": "model"}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    head = {"usageMetadata": usage, "modelVersion": "m", "responseId": "r 1"}
    return {"candidates": [{"content": content, "finishReason": finish, "index": 0}], **head, **more}


DETAILS = {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}], "serviceTier": "gold", "trafficType": "X"}
COUNTS = {"promptTokenCount": 3, "cachedContentTokenCount": 1, "thoughtsTokenCount": 7, "totalTokenCount": 99}
USUAL: dict[str, dict[str, dict[str, Any]]] = {
    "openai_chat": {
        "a text": PLAIN,
        "a text of another server": saying(BARE),
        "a text that was cut": saying(MESSAGE, "length"),
        "a text without counts": {key: value for key, value in PLAIN.items() if key != "usage"},
        "a tier that is not known": saying(MESSAGE, service_tier="gold"),
        "no tier": saying(MESSAGE, service_tier=None, system_fingerprint=None),
        "plain counts": saying(MESSAGE, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        "calls": saying(CALLING, "tool_calls"),
        "a text and calls": saying({**CALLING, "content": "Let me see."}, "tool_calls"),
    },
    "gemini": {
        "a text": candidate({"text": "Hello."}),
        "a text that was cut": candidate({"text": "Hello."}, finish="MAX_TOKENS"),
        "an empty text": candidate({"text": ""}),
        "a time": candidate({"text": "Hello."}, createTime="2026-11-15T10:00:00.123456789Z"),
        "a time that is none": candidate({"text": "Hello."}, createTime="soon"),
        "no counts": {key: value for key, value in candidate({"text": "Hello."}).items() if key != "usageMetadata"},
        "other counts": candidate({"text": "Hello."}, usageMetadata=COUNTS | DETAILS),
        "a thought": candidate({"text": "Hm.", "thought": True}, {"text": "Hello.", "thoughtSignature": "c2ln"}),
        "a call": candidate({"functionCall": FUNCTION}, finish="STOP"),
        "calls with ids": candidate({"text": "So."}, *[{"functionCall": {"id": i, **FUNCTION}} for i in "ab"]),
        "a part that is not known": candidate({"text": "Hello."}, {"hologram": {"x": 1}}),
        "no index": {
            **candidate(),
            "candidates": [{"content": {"parts": [{"text": "Hello."}], "role": "model"}, "finishReason": "STOP"}],
        },
    },
}
READERS = [find_dialect(name) for name in USUAL]
BOTH = [
    pytest.param(find_dialect(name), body, id=f"{name}: {what}")
    for name, rows in USUAL.items()
    for what, body in rows.items()
]


def outcome(raw: bytes, dialect: Dialect) -> object:
    notes = Notes()
    try:
        return *decode_whole({}, raw, dialect, notes, False), notes.items
    except UpstreamError as error:
        return error.failure


def is_read_at_once(raw: bytes, dialect: Dialect) -> bool:
    """Whether it is read in one step; the long way must agree in any case."""
    assert outcome(raw, dialect) == outcome(raw, replace(dialect, read_usual_reply=None))
    return dialect.read_usual_reply is not None and dialect.read_usual_reply(raw) is not None


def test_each_reader_is_tried() -> None:
    assert {name for name in DIALECTS if find_dialect(name).read_usual_reply is not None} == set(USUAL)


@pytest.mark.parametrize(("dialect", "body"), BOTH)
def test_a_usual_reply_is_read_in_one_step(dialect: Dialect, body: dict[str, Any]) -> None:
    assert is_read_at_once(dump_json(body), dialect)
    assert is_read_at_once(json.dumps(body, indent=1).encode(), dialect)


@pytest.mark.parametrize("dialect", READERS, ids=USUAL)
def test_anything_else_is_read_key_by_key(dialect: Dialect) -> None:
    plain = next(iter(USUAL[dialect.name].values()))
    odd = [b"", dump_json(plain) + b"}", b"\xef\xbb\xbf" + dump_json(plain)]
    odd += [dump_json({**plain, **more}) for more in ({"error": {"message": "no"}}, {"~omit": ["id"]})]
    key = dialect.reply_keys[0]
    odd.append(dump_json({**plain, key: plain[key] * 2}))
    if dialect.name == "openai_chat":
        odd += [dump_json(saying(CALLING)), dump_json(saying(MESSAGE, "tool_calls"))]
        odd += [dump_json(saying({**MESSAGE, "content": content})) for content in (None, "~")]
    for raw in odd:
        assert not is_read_at_once(raw, dialect), raw


def near_misses(dialect: Dialect) -> Iterator[bytes]:
    yield from bent_replies(dialect.name)
    for body, path, odd in every_bend(USUAL[dialect.name].values()):
        yield json.dumps(bend_at(body, path, odd)).encode()


@pytest.mark.parametrize("dialect", READERS, ids=USUAL)
def test_near_misses_are_read_alike(dialect: Dialect) -> None:
    assert sum(is_read_at_once(raw, dialect) for raw in near_misses(dialect)) > 10


@needs_corpus
@pytest.mark.parametrize("dialect", READERS, ids=USUAL)
def test_recorded_replies_are_read_alike(dialect: Dialect) -> None:
    recorded = [raw for case in cases(dialect.name) if (raw := case.read("reply.json")) is not None and not case.failed]
    assert sum(is_read_at_once(raw, dialect) for raw in recorded) > len(recorded) / 10
