"""Odd values the wild laws found a loss in, each by name (tests/laws/wide.py draws them)."""

import pytest

from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.messages import Message, Part, Reasoning, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.reply import Choice, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.laws.compare import differences


def replied(dialect: str, *parts: Part) -> tuple[Reply, list[str]]:
    """A reply there and back, and the notes on the way; the first law holds."""
    there, notes = find_dialect(dialect), Notes()
    reply = Reply(id="reply_1", model="m", choices=(Choice(parts=parts),))
    wire = WireReply(body=load_json(dump_json(there.encode_reply(reply, notes).body)))
    returned = there.decode_reply(wire, Notes())
    assert differences(reply, returned, notes) == []
    return returned, [f"{note.kind} {note.where}" for note in notes]


def asked(dialect: str, *parts: Part) -> tuple[Request, list[str]]:
    there, notes = find_dialect(dialect), Notes()
    request = Request(model="m", messages=(Message(role="user", parts=parts),), max_output=99, stream=True)
    wire = there.encode_request(request, notes)
    returned = there.decode_request(WireRequest(body=load_json(dump_json(wire.body)), path=wire.path), Notes())
    assert differences(request, returned, notes) == []
    return returned, [f"{note.kind} {note.where}" for note in notes]


@pytest.mark.parametrize(("dialect", "form"), [("anthropic", "redacted"), ("openai_chat", "encrypted")])
def test_the_words_of_a_thought_nobody_may_read_are_missed(dialect: str, form: str) -> None:
    seal = Seal(origin=dialect, value="c2VhbA==", form=form)
    _, notes = replied(dialect, Reasoning(text="hm", seal=seal))
    assert "altered /choices/0/parts/0/text" in notes


@pytest.mark.parametrize(
    ("dialect", "form"),
    [
        ("anthropic", "signature"),
        ("gemini", "signature"),
        ("openai_chat", "signature"),
        ("openai_responses", "encrypted"),
    ],
)
def test_who_issued_a_seal_is_missed_where_the_slot_holds_its_value_alone(dialect: str, form: str) -> None:
    seal = Seal(origin=dialect, value="c2VhbA==", form=form, model="m-1", upstream="u")
    _, notes = replied(dialect, Reasoning(text="hm", summary=True, seal=seal))
    assert {"dropped /choices/0/parts/0/seal/model", "dropped /choices/0/parts/0/seal/upstream"} <= set(notes)


def test_a_thought_without_words_or_seal_leaves_nothing_beside_the_message() -> None:
    returned, notes = replied("openai_chat", Reasoning(text="", summary=True))
    assert returned.choices[0].parts == ()
    assert "dropped /choices/0/parts/0" in notes


def test_an_empty_text_leaves_no_tokens_behind() -> None:
    returned, _ = replied("ollama", Text(text="", logprobs=(TokenLogprob(token="", logprob=0.0),)))
    assert not [key for key in returned.extras.get("ollama", {}) if key[:1] != "~"]


def test_tokens_of_what_the_user_said_are_missed_even_if_there_are_none() -> None:
    _, notes = asked("openai_responses", Text(text="hi", logprobs=()))
    assert notes == ["dropped /messages/0/parts/0/logprobs"]


@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "ollama"])
@pytest.mark.parametrize(
    ("arguments", "noted"), [("", False), ("{}", False), ("null", True), ("[1]", True), ("{", True)]
)
def test_a_call_without_arguments_is_one_with_none(dialect: str, arguments: str, noted: bool) -> None:
    _, notes = replied(dialect, ToolCall(id="call_1", name="f", arguments=arguments))
    assert ("altered /choices/0/parts/0/arguments" in notes) is noted
