"""Turns that are joined: what both say and one turn can say only once is noted, at every target."""

from itertools import product

import pytest
from msgspec.structs import replace

import dragoman
from dragoman import LossError
from dragoman.dialects import find_dialect
from dragoman.model.messages import Message, Text, ToolCall
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.passes.turns import join_apart, join_calls, join_turns
from dragoman.wire import WireRequest
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


# What a server demands, the roles it joins, and the reason of the note for a name that is gone.
JOINING: dict[str, tuple[dict[str, object], tuple[str, ...], str]] = {
    "one turn for neighbours": (
        {"join_turns": True},
        ("user", "assistant", "system", "developer"),
        "joined with a turn that has another name",
    ),
    "results apart": (
        {"results_alone": True},
        ("user", "assistant", "system", "developer"),
        "joined with a turn that has another name",
    ),
    "one system message": (
        {"lead_system": "one"},
        ("system", "developer"),
        "joined with a turn that has another name",
    ),
    "system text at the head only": (
        {"mid_system": "lead", "lead_system": "one"},
        ("system", "developer"),
        "joined with a turn that has another name",
    ),
    "no system role": ({"lead_system": "user"}, ("system", "developer"), "the turn is now a part of the user's turn"),
}
SPOKEN = {"alice": "first words", "bob": "second words"}
ROWS = [(server, role) for server, (_, roles, _) in JOINING.items() for role in roles]


def write_joined(server: str, role: str, names: tuple[str | None, ...]) -> tuple[list[dict[str, str]], Notes]:
    """What a Chat server that joins turns is sent for two turns of one role, with or without names."""
    demands = JOINING[server][0]
    words = ("first words", "second words")
    turns = [
        {"role": role, "content": text} | ({"name": name} if name else {})
        for text, name in zip(words, names, strict=True)
    ]
    opening = [{"role": "user", "content": "Hello."}] if role == "assistant" or "mid_system" in demands else []
    wire = WireRequest(body={"model": "m", "messages": [*opening, *turns, {"role": "user", "content": "Go on."}]})
    if role == "user":
        wire.body["messages"].pop()
    chat, notes = find_dialect("openai_chat"), Notes()
    request = chat.decode_request(wire, notes)
    notes.begin("request", chat.locate_request, request)
    profile = replace(chat.profile, native=True, **demands)
    return chat.encode_request(legalise(request, profile, notes), notes).body["messages"], notes


@pytest.mark.parametrize(("server", "role"), ROWS)
@pytest.mark.parametrize("names", [("alice", "bob"), ("alice", None), (None, "bob")])
def test_no_words_are_given_to_another_name_in_silence(server: str, role: str, names: tuple[str | None, ...]) -> None:
    """Seen: where servers take one system message, alice was gone without a note. And the words of a turn without a
    name were said under the name of its neighbour."""
    sent, notes = write_joined(server, role, names)
    about_names = {(note.kind, note.why) for note in notes if note.where.endswith("/name")}
    left_out = [name for name in names if name and all(turn.get("name") != name for turn in sent)]
    if left_out:
        assert ("dropped", JOINING[server][2]) in about_names
        assert sum(note.kind == "dropped" and note.where.endswith("/name") for note in notes) == len(left_out)
    for turn, (name, words) in product(sent, zip(names, SPOKEN.values(), strict=True)):
        if words in turn["content"] and turn.get("name") != name:
            assert about_names, f"{words!r} is said by {turn.get('name')}, not by {name}"
