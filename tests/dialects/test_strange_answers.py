"""What real providers send and a reader must take: recorded facts, in our own words (issue 16, points 24 and 25)."""

import json
from typing import Any

import pytest

from dragoman import convert, convert_reply
from dragoman.convert import StreamConverter

DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
OTHERS = DIALECTS[1:]
PIXEL = "iVBORw0KGgo="


def ask(*content: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(content)}]}


def picture(url: str) -> dict[str, Any]:
    return ask({"type": "image_url", "image_url": {"url": url}})


@pytest.mark.parametrize("to", OTHERS)
def test_a_data_url_with_parameters_is_data(to: str) -> None:
    plain = convert(picture(f"data:image/png;base64,{PIXEL}"), source="openai_chat", to=to)
    made = convert(picture(f"data:image/png;charset=utf-8;base64,{PIXEL}"), source="openai_chat", to=to)
    assert made.body == plain.body
    assert [n.where for n in made.notes if "parameters" in n.why] == ["/messages/0/content/0/image_url/url"]


def test_a_data_url_without_base64_is_data() -> None:
    made = convert(picture("data:image/svg+xml,%3Csvg%2F%3E"), source="openai_chat", to="anthropic")
    assert "PHN2Zy8+" in json.dumps(made.body) or "image left out" in json.dumps(made.body)
    assert "%3Csvg" not in json.dumps(made.body)


def test_a_data_url_stays_as_it_is_in_its_own_dialect() -> None:
    body = picture(f"data:image/png;charset=utf-8;base64,{PIXEL}")
    assert convert(body, source="openai_chat", to="openai_chat").body == body


@pytest.mark.parametrize("uri", ["https://generativelanguage.googleapis.com/v1beta/files/abc", "gs://bucket/cat.png"])
@pytest.mark.parametrize("to", [d for d in DIALECTS if d != "gemini"])
def test_a_file_that_only_google_can_read_is_no_public_address(uri: str, to: str) -> None:
    part = {"fileData": {"mimeType": "image/png", "fileUri": uri}}
    made = convert({"contents": [{"role": "user", "parts": [part]}]}, source="gemini", to=to, path="/v1beta/models/m:x")
    assert f"[image left out: {uri}]" in json.dumps(made.body)
    assert any("another provider's file" in note.why for note in made.notes)


def test_a_public_address_from_gemini_stays_one() -> None:
    part = {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/cat.png"}}
    body = {"contents": [{"role": "user", "parts": [part]}]}
    made = convert(body, source="gemini", to="anthropic", path="/v1beta/models/m:x")
    assert {"type": "url", "url": "https://example.com/cat.png"} in [
        block.get("source") for block in made.body["messages"][0]["content"]
    ]


def chat_reply(choice: dict[str, Any], created: int = 1) -> dict[str, Any]:
    return {"id": "r", "object": "chat.completion", "created": created, "model": "m", "choices": [choice]}


SAID: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
FILTERED: dict[str, Any] = {
    "index": 0,
    "finish_reason": "content_filter",
    "content_filter_results": {"hate": {"filtered": True}},
}


@pytest.mark.parametrize("to", DIALECTS)
def test_azures_filtered_choice_has_no_message_and_is_an_answer(to: str) -> None:
    made = convert_reply(chat_reply(FILTERED), source="openai_chat", to=to)
    words = {"openai_chat": "content_filter", "openai_responses": "content_filter", "anthropic": "refusal"}
    assert words.get(to, {"gemini": "SAFETY", "ollama": "length"}.get(to, "")) in json.dumps(made.body)
    if to == "openai_chat":
        assert made.body == chat_reply(FILTERED)


def test_an_invented_time_is_noted_and_the_providers_own_zero_is_not() -> None:
    reply = {"type": "message", "id": "m", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn"}
    made = convert_reply({**reply, "usage": {}}, source="anthropic", to="openai_chat")
    assert made.body["created"] == 0
    assert [n.canonical for n in made.notes if "demands a time" in n.why] == ["/created"]
    same = convert_reply(chat_reply(SAID, 0), source="openai_chat", to="openai_chat")
    assert (same.body["created"], same.notes) == (0, ())


SCORES: dict[str, Any] = {
    "content": [{"token": "x", "logprob": -0.1, "bytes": None, "top_logprobs": []}],
    "refusal": None,
}


def chunk(delta: dict[str, Any], reason: str | None = None, scores: dict[str, Any] | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": scores}
    body = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def call_stream(scores: dict[str, Any] | None) -> bytes:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    second = {"index": 0, "function": {"arguments": "{}"}}
    return b"".join(
        (
            chunk({"role": "assistant", "content": None}),
            chunk({"tool_calls": [first]}, scores=scores),
            chunk({"tool_calls": [second]}, scores=scores),
            chunk({}, "tool_calls"),
            b"data: [DONE]\n\n",
        )
    )


@pytest.mark.parametrize("to", OTHERS)
def test_scores_of_a_call_make_no_text_behind_it(to: str) -> None:
    plain, scored = StreamConverter("openai_chat", to), StreamConverter("openai_chat", to)
    expected = plain.feed(call_stream(None)) + plain.close()
    assert scored.feed(call_stream(SCORES)) + scored.close() == expected
    assert any("logprobs" in note.why or "logprobs" in note.where for note in scored.notes)


@pytest.mark.parametrize("to", ["anthropic", "openai_responses", "gemini", "ollama"])
def test_azures_first_chunk_without_a_model_does_not_begin_the_answer(to: str) -> None:
    """Claude Code and others read the model from the beginning."""
    first = {"id": "r", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    stream = StreamConverter("openai_chat", to)
    sent = stream.feed(b"data: " + json.dumps(first).encode() + b"\n\n")
    assert sent == b""
    assert b'"m"' in stream.feed(chunk({"role": "assistant", "content": "hi"})) + stream.close()


def test_vllms_created_cache_tokens_are_tokens_written_to_the_cache() -> None:
    details = {"cached_tokens": 100, "created_cache_tokens": 50}
    usage = {"prompt_tokens": 272, "completion_tokens": 3, "total_tokens": 275, "prompt_tokens_details": details}
    made = convert_reply({**chat_reply(SAID), "usage": usage}, source="openai_chat", to="anthropic")
    counts = made.body["usage"]
    assert (counts["cache_creation_input_tokens"], counts["cache_read_input_tokens"]) == (50, 100)
    assert counts["input_tokens"] == 122
    assert not any("created_cache_tokens" in note.where for note in made.notes)
    same = convert_reply({**chat_reply(SAID), "usage": usage}, source="openai_chat", to="openai_chat")
    assert same.body["usage"] == usage
