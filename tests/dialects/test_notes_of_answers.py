"""Notes say what was lost: no echo of a setting, nothing twice, and no tool without its name."""

import pytest

from dragoman import convert
from dragoman.dialects import find_dialect
from dragoman.model.fold import fold
from dragoman.model.reply import Reply
from dragoman.notes import Note, Notes
from tests.cases.summary import CHAT, RESP, sse
from tests.cases.test_streams import chunk, response

OTHERS = ("anthropic", "gemini", "ollama")


def notes_of(source: str, data: bytes, target: str) -> list[Note]:
    notes = Notes()
    decoder = find_dialect(source).stream_decoder(notes)
    encoder = find_dialect(target).stream_encoder(notes)
    encoder.feed([*decoder.feed(data), *decoder.close()])
    return list(notes)


ECHOES = {
    "tools": [],
    "store": False,
    "temperature": 1.0,
    "parallel_tool_calls": True,
    "prompt_cache_options": {"a": 1},
}


@pytest.mark.parametrize("target", ["openai_chat", *OTHERS])
def test_settings_that_a_responses_stream_repeats_are_no_losses(target: str) -> None:
    text = {"type": "output_text", "text": "hi", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    data = sse(
        {"type": "response.created", "response": response("in_progress") | ECHOES},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response("completed", item) | ECHOES | {"top_p": 1.0}},
    )
    assert not [note for note in notes_of(RESP, data, target) if note.why.startswith("only ")]


@pytest.mark.parametrize("target", OTHERS)
def test_what_every_chunk_repeats_is_noted_once(target: str) -> None:
    chunks = [chunk({"content": word}, system_fingerprint="fp") for word in ("a", "b", "c")]
    data = sse(*chunks, chunk(finish="stop", system_fingerprint="fp"))
    assert sum("system_fingerprint" in note.why for note in notes_of(CHAT, data, target)) == 1


def test_what_a_later_chunk_says_first_or_otherwise_is_kept() -> None:
    data = sse(chunk({"content": "a"}, system_fingerprint="fp"), chunk(finish="stop", system_fingerprint="other", x=1))
    decoder = find_dialect(CHAT).stream_decoder(Notes())
    reply = fold([*decoder.feed(data), *decoder.close()])
    assert isinstance(reply, Reply)
    assert reply.extras[CHAT] == {"system_fingerprint": "other", "x": 1}


ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"a": {}}}}}


@pytest.mark.parametrize("tools", [{"tools": [LOOK]}, {}], ids=["tools", "no tools"])
@pytest.mark.parametrize("target", OTHERS)
def test_parallel_calls_that_come_unasked_are_no_loss(target: str, tools: dict[str, object]) -> None:
    notes = convert({**ASKED, **tools, "parallel_tool_calls": True}, to=target, source=CHAT).notes
    assert not [note for note in notes if "parallel" in note.where]


@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_one_call_at_a_time_that_cannot_be_asked_for_is_a_loss(target: str) -> None:
    notes = convert({**ASKED, "tools": [LOOK], "parallel_tool_calls": False}, to=target, source=CHAT).notes
    assert [note.kind for note in notes if "parallel" in note.where] == ["dropped"]


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "ollama"])
def test_a_tool_of_geminis_own_is_named(target: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "tools": [{"codeExecution": {}}]}
    notes = convert(body, to=target, source="gemini", path="/v1beta/models/m:generateContent").notes
    assert [note.why for note in notes if "runs the tool" in note.why] == ["only gemini runs the tool codeExecution"]
