"""The rank of a note, folding, and `refuse` with ranks."""

import pytest

from dragoman import Client, DragomanError, LossError, Note, convert
from dragoman.note_ranks import check_words, fold_notes, rank_note
from dragoman.notes import NoteKind

MARKED = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
TURNS = [{"role": role, "content": [MARKED]} for role in ("user", "assistant", "user")]
ASKED = {"model": "m", "max_tokens": 9, "messages": TURNS}


@pytest.mark.parametrize(
    ("kind", "field", "why", "rank"),
    [
        ("dropped", "cache", "gemini has no cache marks", "harmless"),
        ("dropped", "top_k", "openai_chat has no top_k", "lost"),
        ("dropped", "seed", "anthropic has no seed", "lost"),
        ("dropped", "tools", "only gemini runs the tool google_search", "lost"),
        ("dropped", "tool_choice", "there are no tools", "harmless"),
        ("dropped", "parts", "gemini takes back only its own thoughts; this is another model's", "changed"),
        ("dropped", "parts", "only claude-opus-4-5 can read its signature", "changed"),
        ("dropped", "seal", "only anthropic can read its signature, and does not demand it here", "changed"),
        ("dropped", "parts", "mistral refuses reasoning in the history", "changed"),
        ("dropped", "parts", "a thought without words", "changed"),
        ("dropped", "parallel_calls", "anthropic has it in the tool choice, and there are no tools", "harmless"),
        ("dropped", "summary_style", "thinking is off", "harmless"),
        ("dropped", "0", "at most 4 cache marks", "harmless"),
        ("dropped", "0", "it takes no cache marks", "harmless"),
        ("altered", "reasoning", "tools are refused here unless thinking is off", "changed"),
        ("dropped", "strict", "gemini promises no strict calls", "changed"),
        ("altered", "temperature", "anthropic's goes up to 1", "changed"),
        ("altered", "parameters", "written in the target's schema language", "harmless"),
        ("invented", "max_output", "anthropic demands a limit: 4096", "changed"),
        ("invented", "name", "the name of its call", "harmless"),
        ("repaired", "parts", "the call a has no result", "changed"),
        ("dropped", "name", "only openai_chat has name", "changed"),  # which person speaks
        ("dropped", "name", "joined with a turn that has another name", "changed"),
        ("altered", "name", "joined with a turn without a name, which has this name now", "changed"),
        ("altered", "0", "ollama takes no image as url: a line of text takes its place", "lost"),
    ],
)
def test_a_note_has_a_rank(kind: NoteKind, field: str, why: str, rank: str) -> None:
    assert rank_note(kind, field, why) == rank
    assert Note(kind, "", why, f"/messages/0/{field}").rank == rank


@pytest.mark.parametrize(
    "name", ["sealed_offer", "cache marks", "there are no tools", "x can read its y", "thinking is off"]
)
def test_a_name_of_the_clients_does_not_lower_the_rank_of_its_loss(name: str) -> None:
    """Seen: a key called `sealed_offer` was lost, and `refuse={"lost"}` let it pass, for the reason names the key."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], name: 1}
    with pytest.raises(LossError, match="only openai_chat has"):
        convert(asked, source="openai_chat", to="gemini", refuse={"lost"})


def test_equal_notes_are_one_line_and_the_worst_is_first() -> None:
    notes = convert({**ASKED, "thinking": {"type": "disabled"}, "top_k": 3}, source="anthropic", to="openai_chat").notes
    marks = convert(ASKED, source="anthropic", to="gemini").notes
    assert [(row.rank, row.places) for row in fold_notes(marks)] == [("harmless", 3)]
    assert str(fold_notes(marks)[0]) == "/messages/0/content/0/cache_control and 2 more: gemini has no cache marks"
    assert fold_notes(notes)[0].first.where == "/top_k"


def test_a_rank_is_refused_and_a_lower_one_is_not() -> None:
    convert(ASKED, source="anthropic", to="gemini", refuse={"lost", "changed"})
    with pytest.raises(LossError, match="cache marks"):
        convert(ASKED, source="anthropic", to="gemini", refuse={"harmless"})
    with pytest.raises(LossError, match="top_k"):
        convert({**ASKED, "top_k": 3}, source="anthropic", to="openai_chat", refuse={"lost"})


def test_a_word_that_is_no_kind_and_no_rank_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"refuse: expected some of dropped, .* found loss"):
        check_words({"loss"})
    with pytest.raises(ValueError, match="found loss"):
        convert(ASKED, source="anthropic", to="gemini", refuse={"loss"})  # type: ignore[arg-type]
    with pytest.raises(DragomanError, match="found loss"):
        Client("demo", refuse={"loss"})  # type: ignore[arg-type]
    with Client("demo") as client, pytest.raises(DragomanError, match="found loss"):
        client.chat("demo", "hi", refuse={"loss"})  # type: ignore[arg-type]
