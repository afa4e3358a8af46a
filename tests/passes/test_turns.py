"""Turns that are joined: what both say and one turn can say only once is noted, at every target."""

import pytest

import dragoman
from dragoman import LossError
from dragoman.model.messages import Message, Text, ToolCall
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.passes.turns import join_apart, join_calls, join_turns
from tests.passes.short_forms import talk, user

NAMED = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "who are you?"},
        {
            "role": "assistant",
            "name": "alice",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "assistant", "name": "bob", "content": "I am Bob."},
        {"role": "tool", "tool_call_id": "c1", "content": "here"},
        {"role": "user", "content": "go on"},
    ],
}


def named(name: str, *parts: Text | ToolCall) -> Message:
    return Message(role="assistant", parts=parts, extras={"openai_chat": {"name": name}})


@pytest.mark.parametrize("join", [join_turns, join_calls, join_apart])
def test_a_join_notes_what_one_turn_cannot_say_twice(join: object) -> None:
    call = ToolCall(id="c", name="f", arguments="{}")
    notes = Notes()
    said = talk(user("hi"), named("alice", call), named("bob", Text(text="x")))
    joined = join(said, Profile(), notes)  # type: ignore[operator]
    assert len(joined.messages) == 2
    assert joined.messages[1].extras == {"openai_chat": {"name": "bob"}}
    assert [(note.kind, note.why) for note in notes] == [("dropped", "joined with a turn that has another name")]


@pytest.mark.parametrize(("target", "lost"), [("anthropic", [1, 2]), ("gemini", [1, 2]), ("openai_chat", [1])])
def test_neighbours_with_different_names_are_not_joined_in_silence(target: str, lost: list[int]) -> None:
    """Seen: alice was gone without a note, and a strict caller was not refused."""
    converted = dragoman.convert(NAMED, source="openai_chat", to=target)
    places = [note.where for note in converted.notes if note.kind == "dropped"]
    assert places == [f"/messages/{i}/name" for i in lost]
    with pytest.raises(LossError, match="/messages/1/name: joined with a turn that has another name"):
        dragoman.convert(NAMED, source="openai_chat", to=target, refuse={"dropped"})


@pytest.mark.parametrize(
    ("turn", "kept"),
    [
        ({"content": ""}, True),
        ({"content": None}, False),
        ({}, False),
        ({"content": None, "tool_calls": []}, False),
    ],
)
def test_a_turn_without_content_is_left_out_also_for_its_own_dialect(turn: dict[str, object], kept: bool) -> None:
    """`llm` writes null for an answer that it does not have; servers refuse that, and take ""."""
    asked = {"role": "user", "content": "Tell me."}
    body = {
        "model": "gpt-4.1",
        "messages": [asked, {"role": "assistant", **turn}, {"role": "user", "content": "Go on."}],
    }
    made = dragoman.convert(body, source="openai_chat", to="openai_chat")
    assert len(made.body["messages"]) == (3 if kept else 2)
