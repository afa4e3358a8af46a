"""Compacted conversations: carried, told, or refused; never answered as if they were not there."""

from typing import Any

import pytest

from dragoman.convert import convert
from dragoman.errors import LossError

OTHERS = ("openai_chat", "openai_responses", "gemini", "ollama")
TURN = {"role": "user", "content": "go on"}


def asked(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [*turns, TURN], **more}


@pytest.mark.parametrize("to", OTHERS)
def test_an_order_to_compact_is_refused_where_it_would_be_answered(to: str) -> None:
    with pytest.raises(LossError, match="/compaction: only anthropic can carry out compaction"):
        convert(asked(compaction={"type": "summarize"}), to=to, source="anthropic")
    body = convert(asked(compaction={"type": "summarize"}), to="anthropic", source="anthropic").body
    assert "compaction" in body


@pytest.mark.parametrize("to", ["openai_chat", "anthropic", "gemini", "ollama"])
def test_a_conversation_that_only_its_provider_can_read_is_refused(to: str) -> None:
    items = [{"type": "compaction", "encrypted_content": "x"}, TURN]
    with pytest.raises(LossError, match="/input/0: only openai_responses can read this compaction"):
        convert({"model": "m", "input": items}, to=to, source="openai_responses")


@pytest.mark.parametrize("to", ["openai_chat", "anthropic", "gemini", "ollama"])
def test_a_summary_behind_the_turns_that_it_summarizes_is_left_out(to: str) -> None:
    said = {"role": "assistant", "content": "cats"}
    items = [TURN, said, {"type": "compaction", "encrypted_content": "x"}, TURN]
    converted = convert({"model": "m", "input": items}, to=to, source="openai_responses")
    assert "cats" in str(converted.body)
    assert [note.where for note in converted.notes if note.kind == "dropped"] == ["/input/2"]


@pytest.mark.parametrize("to", OTHERS)
def test_a_summary_that_can_be_read_becomes_text(to: str) -> None:
    block = {"type": "compaction", "content": "they spoke of cats", "signature": "s"}
    converted = convert(asked({"role": "assistant", "content": [block]}), to=to, source="anthropic")
    assert "they spoke of cats" in str(converted.body)


@pytest.mark.parametrize("to", OTHERS)
def test_a_compaction_that_failed_says_nothing(to: str) -> None:
    block = {"type": "compaction", "content": None, "encrypted_content": "x"}
    assert convert(asked(TURN, {"role": "assistant", "content": [block]}), to=to, source="anthropic").body


def test_anthropics_own_summary_stays_the_first_turn() -> None:
    first = {"role": "assistant", "content": [{"type": "compaction", "content": "cats", "signature": "s"}]}
    body: Any = convert(asked(first), to="anthropic", source="anthropic").body
    assert body["messages"][0] == first


@pytest.mark.parametrize("to", OTHERS)
def test_a_wish_to_compact_later_is_left_out_with_a_note(to: str) -> None:
    edits = {"edits": [{"type": "compact_20260112"}]}
    notes = convert(asked(context_management=edits), to=to, source="anthropic").notes
    assert [note.kind for note in notes if note.where == "/context_management"] == ["dropped"]
