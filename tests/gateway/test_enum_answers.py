"""Gemini's `text/x.enum`: the answer is one of several words, without quotation marks, from every provider."""

import json
from typing import Any

import pytest

from dragoman.convert import convert
from tests.gateway.house import faultline, open_house, upstream
from tests.gateway.test_emulated import pieces, whole
from tests.gateway.web import post

WORDS = {"type": "STRING", "enum": ["cat", "dog"]}
ASKED = {
    "contents": [{"role": "user", "parts": [{"text": "which?"}]}],
    "generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": WORDS},
}
LACKING = {"lacks": ["json", "json_schema", "tool_choice"]}


def test_gemini_itself_is_asked_as_the_client_asked() -> None:
    assert convert(ASKED, to="gemini", source="gemini").body == ASKED


@pytest.mark.parametrize("to", ["openai_chat", "openai_responses", "anthropic", "ollama"])
def test_others_are_held_to_an_object_with_the_word(to: str) -> None:
    converted = convert(ASKED, to=to, source="gemini")
    assert '"enum": ["cat", "dog"]' in json.dumps(converted.body)
    assert not [note for note in converted.notes if note.kind == "dropped"]
    assert [note for note in converted.notes if note.kind == "altered" and "answer" in note.why]


@pytest.mark.parametrize("more", [{}, LACKING])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_client_gets_the_bare_word(more: dict[str, Any], streamed: bool) -> None:
    script = pieces('{"ans', 'wer":"', 'dog"}') if streamed else whole('{"answer":"dog"}')
    path = "/v1beta/models/m:" + ("streamGenerateContent?alt=sse" if streamed else "generateContent")
    with (
        faultline(script) as line,
        open_house(upstream("chat", "openai_chat", line.url, models=("m",), overrides=more)) as house,
    ):
        got = post(house.url, path, ASKED)
    assert '"text":"dog"' in got.body.decode().replace('": "', '":"')
    assert "answer" not in got.body.decode()
    assert len(line.seen) == 1


def test_a_word_that_was_not_offered_is_asked_for_once_more() -> None:
    with (
        faultline(whole('{"answer":"cow"}'), whole('{"answer":"cat"}')) as line,
        open_house(upstream("chat", "openai_chat", line.url, models=("m",), overrides=LACKING)) as house,
    ):
        got = post(house.url, "/v1beta/models/m:generateContent", ASKED)
    assert got.json["candidates"][0]["content"]["parts"][0]["text"] == "cat"
    assert len(line.seen) == 2
