"""Notes: loss as data, the place in the caller's body, and the policy that refuses it."""

from dataclasses import dataclass

import pytest

from dragoman.convert import Converted, convert
from dragoman.errors import LossError
from dragoman.note_places import Place, Stages
from dragoman.note_ranks import fold_notes
from dragoman.notes import ROOT, Note, Notes, is_mended_turn, make_repeated


@dataclass
class Value:
    """A stand-in for a canonical value."""

    tools: tuple[object, ...] = ()
    seed: int = 1
    user: str | None = None


def locate(value: Value, place: Place) -> Place:
    return ("body", f"of {len(value.tools)}", *place)


def test_a_place_is_spelled_as_a_json_pointer() -> None:
    notes = Notes()
    notes.dropped((((ROOT, "messages"), 3), "a/b~c"), "why")
    notes.altered(ROOT, "everything")
    where = "/messages/3/a~1b~0c"
    assert list(notes) == [Note("dropped", where, "why", where), Note("altered", "", "everything")]


def test_a_refused_kind_raises_at_once_and_others_are_kept() -> None:
    notes = Notes(refuse={"dropped"})
    notes.altered((ROOT, "temperature"), "clamped")
    with pytest.raises(LossError, match="/seed: the target has none"):
        notes.dropped((ROOT, "seed"), "the target has none")
    assert len(notes) == 1


def test_a_note_says_the_place_in_the_body_and_in_the_canonical_value() -> None:
    notes = Notes()
    notes.begin("request", locate)
    notes.altered((ROOT, "seed"), "noted while the body was read")
    notes.stage(Value())
    notes.dropped((ROOT, "seed"), "noted of what was read")
    notes.begin("reply", None)
    notes.dropped((ROOT, "id"), "no one knows where that is in the reply's body")
    assert [(note.where, note.canonical, note.body) for note in notes] == [
        ("/body/of 0/seed", "/seed", "request"),
        ("/body/of 0/seed", "/seed", "request"),
        ("/id", "/id", "reply"),
    ]


def test_a_note_is_about_the_form_the_value_had_when_it_was_made() -> None:
    a, b, c = object(), object(), object()
    notes = Notes(refuse={"dropped"})
    notes.begin("request", locate, Value((a, b, c)))
    notes.altered(((ROOT, "tools"), 1), "b, before anything was left out")
    notes.stage(Value((b, c)))
    notes.altered(((ROOT, "tools"), 1), "c, after a was left out")
    assert [note.canonical for note in notes] == ["/tools/1", "/tools/2"]
    with pytest.raises(LossError) as caught:
        notes.dropped(((ROOT, "tools"), 0), "b")
    assert (caught.value.where, caught.value.canonical) == ("/body/of 3/tools/1", "/tools/1")


def test_a_note_that_is_known_from_before_is_about_the_present_form() -> None:
    known = Notes()
    known.altered((((ROOT, "tools"), 0), "strict"), "off")
    a, b = object(), object()
    notes = Notes()
    notes.begin("request", locate, Value((a, b)))
    notes.stage(Value((b,)))
    notes.repeat(make_repeated(known))
    assert [note.canonical for note in notes] == ["/tools/1/strict"]


@pytest.mark.parametrize("tools_after", [("a", "b"), ("b",), ("a", "new", "b")])
def test_notes_that_are_known_from_before_fold_as_new_ones(tools_after: tuple[str, ...]) -> None:
    def note_all(notes: Notes) -> None:
        for i in range(len(tools_after)):
            tool = ((ROOT, "tools"), i)
            notes.altered((tool, "strict"), "off")
            notes.dropped(((tool, "parameters"), "minimum"), "none here")
            notes.dropped(((tool, "parameters"), "$schema"), "none here")

    known, rows = Notes(), []
    note_all(known)
    for add in (note_all, lambda notes: notes.repeat(make_repeated(known))):
        notes = Notes()
        notes.begin("request", locate, Value(("a", "b")))
        notes.stage(Value(tools_after))
        add(notes)
        rows.append([[notes.fold(most) for most in (0, 2, 50)], notes.items])
    assert rows[0] == rows[1]


def test_settled_notes_keep_their_places_and_nothing_else() -> None:
    notes = Notes()
    notes.begin("request", locate, Value())
    notes.dropped((ROOT, "seed"), "why")
    notes.settle(9, each=True)
    notes.dropped((ROOT, "user"), "why")
    assert [note.where for note in notes] == ["/body/of 0/seed", "/user"]


def test_settled_notes_fold_as_before_and_what_was_done_to_turns_is_told_one_by_one() -> None:
    def make() -> Notes:
        notes = Notes()
        notes.begin("request", locate, Value())
        for i in range(4):
            notes.altered((((ROOT, "tools"), i), "strict"), "why")
            notes.dropped(((((ROOT, "messages"), i), "parts"), 0), "why")
            notes.dropped((ROOT, "metadata"), f"reason {i % 2}")
        return notes

    notes, settled = make(), make()
    settled.settle(9, each=False)
    assert settled.fold(9) == notes.fold(9)
    assert settled.read_mended_turns(9, 9) == notes.read_mended_turns(9, 9)
    assert len(settled.read_mended_turns(9, 9)[0]) == 3


def test_what_is_not_there_is_at_the_place_of_its_holder_unless_it_was_invented() -> None:
    notes = Notes()
    notes.begin("request", lambda value, place: place, Value((object(),)))
    notes.altered((ROOT, "user"), "there is none")
    notes.altered((((ROOT, "tools"), 0), "cache"), "it has none")
    notes.altered(((ROOT, "tools"), 3), "there is no such tool")
    notes.invented((ROOT, "user"), "it has to be somewhere")
    notes.invented(((ROOT, "tools"), 3), "one more tool")
    assert [note.where for note in notes] == ["", "/tools/0", "/tools", "/user", "/tools"]


def test_notes_about_the_request_may_follow_notes_about_the_reply() -> None:
    notes = Notes()
    notes.begin("request", None)
    notes.begin("reply", None)
    notes.dropped((ROOT, "id"), "of the reply")
    notes.resume_request()
    notes.dropped((ROOT, "seed"), "of the request, which is sent once more")
    assert [note.body for note in notes] == ["reply", "request"]


def test_a_conversion_looks_for_places_when_its_notes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Place] = []
    trace = Stages.trace

    def watch(self: Stages, number: int, place: Place) -> Place:
        looked.append(place)
        return trace(self, number, place)

    monkeypatch.setattr(Stages, "trace", watch)
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "top_k": 5}
    converted = convert(asked, source="anthropic", to="openai_chat")
    assert not looked
    assert [note.where for note in converted.notes] == ["/top_k"]
    assert converted.notes is converted.notes
    assert looked == [("top_k",)]


def test_conversions_with_other_notes_are_not_equal() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    plain, other = (convert(asked | more, source="anthropic", to="openai_chat") for more in ({}, {"top_k": 5}))
    assert plain == convert(asked, source="anthropic", to="openai_chat")
    assert plain.body == other.body
    assert plain != other
    assert "top_k" in repr(other)


def test_a_note_says_the_place_in_what_was_written() -> None:
    call = {"type": "tool_use", "id": "a", "name": "add", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "5"}
    asked = {
        "model": "m",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "adding"}, call]},
            {"role": "user", "content": [{"type": "text", "text": "and then?"}, result]},
        ],
        "top_k": 5,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
    }
    found = convert(asked, source="anthropic", to="gemini").notes
    assert ("invented", "/messages/2/content/1", "/contents/2/parts/0/functionResponse/name") in [
        (note.kind, note.where, note.target) for note in found
    ]
    found = convert(asked, source="anthropic", to="openai_chat").notes
    assert [note.target for note in found if note.where == "/top_k"] == [""], "nothing was written for it"


MARKED = {"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}
LIMITED = {"type": "object", "properties": {"1": {"type": "integer", "minimum": 1}}, "additionalProperties": False}
AGENT = {
    "model": "m",
    "max_tokens": 10,
    "top_k": 3,
    "system": [MARKED, MARKED],
    "tools": [{"name": f"t{i}", "input_schema": LIMITED, "cache_control": {"type": "ephemeral"}} for i in range(4)],
    "messages": [
        {"role": "user", "content": [MARKED, {"type": "text", "text": ""}, MARKED]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "so", "signature": "s"}, MARKED]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a b", "name": "t1", "input": {}}]},
        {"role": "user", "content": [MARKED, {"type": "tool_result", "tool_use_id": "other", "content": "no"}]},
    ],
}


@pytest.mark.parametrize("to", ["openai_chat", "openai_responses", "gemini", "ollama"])
@pytest.mark.parametrize("most", [0, 3, 50])
def test_notes_are_folded_alike_with_and_without_all_their_places(to: str, most: int) -> None:
    def write() -> Converted:
        return convert(AGENT, source="anthropic", to=to)

    read = write().noted.read(most)
    assert write().noted.fold(most) == fold_notes(read)
    mended = [note for note in read[:most] if is_mended_turn(note)]
    assert write().noted.read_mended_turns(most, 2) == (mended[:2], len(mended))
