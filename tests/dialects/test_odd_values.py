"""Odd values the wild laws found a loss in, each by name (tests/laws/odd_values.py draws them)."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from dragoman.convert import convert
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import (
    Audio,
    Cache,
    Message,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
)
from dragoman.model.reply import Choice, Finish, FinishReason, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.laws.compare import differences
from tests.laws.round_trip import through

Say: TypeAlias = Callable[..., tuple[Reply, list[str]]]


def replied(dialect: str, *parts: Part, reason: FinishReason = "stop") -> tuple[Reply, list[str]]:
    """A reply there and back, and the notes on the way; the first law holds."""
    there, notes = find_dialect(dialect), Notes()
    reply = Reply(id="reply_1", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),))
    wire = WireReply(body=load_json(dump_json(there.encode_reply(reply, notes).body)))
    returned = there.decode_reply(wire, Notes())
    assert differences(reply, returned, notes) == []
    return returned, [f"{note.kind} {note.where}" for note in notes]


def streamed(dialect: str, *parts: Part, reason: FinishReason = "stop") -> tuple[Reply, list[str]]:
    """The same as a stream."""
    there, notes = find_dialect(dialect), Notes()
    reply = Reply(id="reply_1", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),))
    returned = fold(through(there, unfold(reply), notes))
    assert isinstance(returned, Reply)
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
def test_the_words_of_a_hidden_thought_are_missed(dialect: str, form: str) -> None:
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


# ---------------------------------------------------------------- found when every field was drawn by its type


def test_a_thought_signed_in_an_unknown_form_keeps_its_signature_in_a_stream() -> None:
    thought = Reasoning(text="hm", seal=Seal(origin="anthropic", value="c2VhbA==", form="encrypted"))
    returned, notes = streamed("anthropic", thought)
    assert returned.choices[0].parts == (Reasoning(text="hm", seal=Seal(origin="anthropic", value="c2VhbA==")),)
    assert "altered /choices/0/parts/0/seal/form" in notes


@pytest.mark.parametrize("say", [replied, streamed])
def test_the_words_of_an_encrypted_thought_are_missed_and_are_no_seal(say: Say) -> None:
    seal = Seal(origin="openai_chat", value="c2VhbA==", form="encrypted")
    returned, notes = say("openai_chat", Reasoning(text="hm", summary=True, seal=seal))
    (thought,) = returned.choices[0].parts
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.summary, thought.seal) == ("", False, seal)
    assert {"altered /choices/0/parts/0/text", "altered /choices/0/parts/0/summary"} <= set(notes)


def test_no_tokens_of_a_refusal_are_not_the_same_as_none_given() -> None:
    returned, _ = streamed("openai_chat", Refusal(text="no", logprobs=()), reason="refusal")
    assert returned.choices[0].parts == (Refusal(text="no", logprobs=()),)


@pytest.mark.parametrize("say", [replied, streamed])
def test_an_answer_that_refuses_without_a_word_does_not_end_in_a_refusal(say: Say) -> None:
    _, notes = say("openai_chat", Text(text="hm"), Refusal(text=""), reason="refusal")
    assert "altered /choices/0/finish/reason" in notes


@pytest.mark.parametrize("sealed", [True, False])
def test_the_seal_of_an_empty_text_goes_to_the_text_before(sealed: bool) -> None:
    seal = Seal(origin="gemini", value="c2VhbA==")
    returned, notes = streamed("openai_chat", Text(text="hi", seal=seal if sealed else None), Text(text="", seal=seal))
    assert returned.choices[0].parts == (Text(text="hi", seal=seal),)
    assert ("dropped /choices/0/parts/1" if sealed else "altered /choices/0/parts") in notes


def test_one_sound_is_said_and_stands_last() -> None:
    sound = Audio(id="audio_1", transcript="hi")
    returned, notes = streamed("openai_chat", sound, Text(text="hi"), Audio(id="audio_2"))
    assert [part.__class__ for part in returned.choices[0].parts] == [Text, Audio]
    assert {"altered /choices/0/parts", "dropped /choices/0/parts/2"} <= set(notes)


@pytest.mark.parametrize("say", [replied, streamed])
def test_others_than_the_others_are_missed(say: Say) -> None:
    token = TokenLogprob(token="c", logprob=-3.0)
    for inner in ("b", "a"):
        token = TokenLogprob(token=inner, logprob=-1.0, top=(token,))
    _, notes = say("gemini", Text(text="a", logprobs=(token,)))
    assert "dropped /choices/0/parts/0/logprobs/0/top/0/top" in notes


def test_a_plain_result_of_a_freeform_call_is_a_freeform_one() -> None:
    request = Request(
        model="m",
        messages=(
            Message(role="assistant", parts=(ToolCall(id="call_1", name="f", arguments="x", freeform=True),)),
            Message(role="user", parts=(ToolResult(call_id="call_1", parts=(Text(text="ok"),)),)),
        ),
    )
    notes = Notes()
    wire = find_dialect("openai_chat").encode_request(request, notes)
    returned = find_dialect("openai_chat").decode_request(wire, Notes())
    assert differences(request, returned, notes) == []
    assert [f"{note.kind} {note.where}" for note in notes] == ["altered /messages/1/parts/0/freeform"]


@pytest.mark.parametrize("part", [Text(text=""), Reasoning(text=""), ToolCall(id="c", name="f", arguments="")])
@pytest.mark.parametrize("dialect", [name for name in NAMES if name != "canonical"])
def test_a_key_of_another_dialect_that_comes_with_the_end_of_a_part_has_a_note(dialect: str, part: Part) -> None:
    notes = Notes()
    encoder = find_dialect(dialect).stream_encoder(notes)
    encoder.feed([ReplyStart(id="x", model="m"), PartStart(index=0, part=part), PartDelta(index=0, text="{}")])
    encoder.feed([PartEnd(index=0, extras={"parrot": {"mood": "sour"}}), ReplyEnd(finishes=(Finish(reason="stop"),))])
    assert "dropped /choices/0/parts/0/extras/parrot/mood" in [f"{note.kind} {note.canonical}" for note in notes]


def notes_on(dialect: str, *messages: Message) -> list[str]:
    """The notes on a request."""
    notes = Notes()
    find_dialect(dialect).encode_request(Request(model="m", messages=messages), notes)
    return [f"{note.kind} {note.canonical}" for note in notes]


def test_a_result_without_words_has_a_note_where_one_is_demanded() -> None:
    call = Message(role="assistant", parts=(ToolCall(id="call_1", name="f", arguments="{}"),))
    result = ToolResult(call_id="call_1", name="f", parts=())
    assert notes_on("ollama", call, Message(role="user", parts=(result,))) == ["altered /messages/1/parts/0/parts"]


def test_a_cache_mark_that_moves_into_a_result_has_a_note_at_both_places() -> None:
    call = Message(role="assistant", parts=(ToolCall(id="call_1", name="f", arguments="{}"),))
    result = ToolResult(call_id="call_1", parts=(Text(text="snow"),), cache=Cache())
    found = notes_on("openai_chat", call, Message(role="user", parts=(result,)))
    assert found == ["altered /messages/1/parts/0/cache", "altered /messages/1/parts/0/parts/0/cache"]


def test_a_signature_of_its_own_has_no_note_in_a_stream() -> None:
    notes = Notes()
    encoder = find_dialect("anthropic").stream_encoder(notes)
    seal = Seal(origin="anthropic", value="abc", form="signature")
    encoder.feed(
        [ReplyStart(id="x", model="m"), PartStart(index=0, part=Reasoning(text="")), PartDelta(index=0, text="hm")]
    )
    encoder.feed([PartEnd(index=0, seal=seal)])
    assert [note.canonical for note in notes] == []


@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
def test_a_summary_that_the_target_shows_anyway_has_no_note(dialect: str) -> None:
    body = {"model": "m", "input": "q", "reasoning": {"effort": "high", "summary": "auto"}}
    made = convert(body, source="openai_responses", to=dialect)
    assert [note.where for note in made.notes if note.where.startswith("/reasoning")] == []
