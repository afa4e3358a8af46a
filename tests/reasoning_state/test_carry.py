"""Opaque values of ours: recognised, authenticated, bound to one client, and never sent to a vendor."""

import json
from typing import Any

import pytest

from dragoman.convert import convert, convert_reply, convert_stream
from dragoman.dialects._seals import without_side
from dragoman.model.messages import Message, Reasoning, Seal, Text
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.reasoning_state.envelope import MARK, CarriedState, StateKey, is_wrapped, unwrap_state, wrap_state
from dragoman.upstream.profiles import profile_for

KEY = StateKey(b"secret", "alice")
STATE = CarriedState(thoughts=((0, Reasoning(text="Hm.", seal=Seal(origin="anthropic", value="c2ln"))),))
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


def test_it_comes_back_in_either_alphabet_of_base64_and_without_its_padding() -> None:
    value = wrap_state(STATE, KEY)
    assert is_wrapped(value)
    assert unwrap_state(value, KEY) == STATE
    assert unwrap_state(value.replace("+", "-").replace("/", "_").rstrip("="), KEY) == STATE


@pytest.mark.parametrize("key", [StateKey(b"secret", "bob"), StateKey(b"other", "alice"), StateKey()])
def test_another_client_or_gateway_cannot_use_it(key: StateKey) -> None:
    assert unwrap_state(wrap_state(STATE, KEY), key) is None


@pytest.mark.parametrize(
    "broken", [lambda v: v[:-8], lambda v: v[:40] + "A" + v[41:], lambda v: MARK, lambda v: MARK + "é"]
)
def test_a_damaged_one_is_none(broken: Any) -> None:
    assert unwrap_state(broken(wrap_state(STATE, KEY)), KEY) is None


def ask(answer: dict[str, Any]) -> dict[str, Any]:
    """The next request of a Gemini client that drops thoughts, as Gemini CLI does."""
    parts = [part for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought")]
    result = {"functionResponse": {"id": "toolu_1", "name": "f", "response": {"output": "42"}}}
    turns = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": parts},
        {"role": "user", "parts": [result]},
    ]
    return {"contents": turns}


def test_a_thought_comes_back_although_the_client_dropped_it() -> None:
    said = json.loads(convert_reply(ANSWER, to="gemini", state_key=KEY).json())
    back = convert(ask(said), to="anthropic", source="gemini", state_key=KEY)
    assert isinstance(back.body, dict)
    assert back.body["messages"][1]["content"] == ANSWER["content"]


def test_state_of_another_key_is_left_out_with_a_note() -> None:
    said = json.loads(convert_reply(ANSWER, to="gemini", state_key=KEY).json())
    back = convert(ask(said), to="anthropic", source="gemini", state_key=StateKey(b"secret", "bob"))
    assert MARK not in back.json().decode()
    assert b"c2ln" not in back.json()
    assert [note.kind for note in back.notes if "another key" in note.why] == ["dropped"]


def test_no_vendor_gets_one_as_its_own_wherever_a_client_put_it() -> None:
    value = wrap_state(STATE, KEY)
    result = {"functionResponse": {"name": "f", "response": {}}, "thoughtSignature": value}
    body = {"contents": [{"role": "user", "parts": [result, {"text": value}]}]}
    sent = json.loads(without_side(json.dumps(body).encode()))
    del result["thoughtSignature"]
    assert sent == {"contents": [{"role": "user", "parts": [result, {"text": value}]}]}, "a user's own words stay"


@pytest.mark.parametrize("kind", ["openai", "azure"])
def test_openai_s_own_chat_gets_no_reasoning_content(kind: str) -> None:
    profile: Profile = profile_for(kind, "gpt-4o", "openai_chat")
    turns = (
        Message(role="user", parts=(Text(text="q"),)),
        Message(role="assistant", parts=(Reasoning(text="Hm."), Text(text="a"))),
    )
    legal = legalise(Request(model="gpt-4o", messages=(*turns, turns[0])), profile, Notes())
    assert not any(isinstance(part, Reasoning) for message in legal.messages for part in message.parts)


SIGNED = {"text": "Rain.", "thoughtSignature": "c2ln"}
SIGNED_END = {"text": "", "thoughtSignature": "c2ln"}
CALL = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}


@pytest.mark.parametrize("parts", [[SIGNED], [{"text": "Rain."}, SIGNED_END], [CALL, SIGNED_END]])
@pytest.mark.parametrize("to", ["anthropic", "openai_responses", "openai_chat"])
def test_no_client_gets_a_member_of_ours_for_a_signed_text(to: str, parts: list[dict[str, Any]]) -> None:
    """Gemini 3 signs the end of each answer; Claude Code takes the last block for the answer, so none may follow it."""

    def candidate(*said: dict[str, Any], **more: str) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": list(said)}, "index": 0, **more}]}

    whole = convert_reply(candidate(*parts, finishReason="STOP"), to=to, source="gemini", state_key=KEY)
    pieces = [candidate(part) for part in parts] + [candidate(finishReason="STOP")]
    sent = b"".join(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces)
    streamed = b"".join(convert_stream([sent], source="gemini", to=to, state_key=KEY))
    for said in (whole.json(), streamed):
        assert b'"dragoman"' not in said
        assert b'"text":""}}\n\nevent: content_block_stop' not in said, "no block without words"
    if to != "openai_chat" and parts[-1] is SIGNED:
        lost = [note for note in whole.notes if note.where.endswith("/thoughtSignature")]
        assert [note.kind for note in lost] == ["dropped"], "said, because the model would read it"
