"""Chat replies: what goes wrong, one case each."""

from typing import Any

import pytest

import dragoman
from dragoman.convert import convert_reply
from dragoman.dialects.openai_chat import DIALECT
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json
from dragoman.model.messages import Audio, Citation, Image, Opaque, Part, Reasoning, Refusal, Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest


def decode(body: JsonObject) -> Reply:
    return DIALECT.decode_reply(WireReply(body=copy_json(body)), Notes())


def encode(reply: Reply, request: Request | None = None) -> tuple[Any, list[tuple[str, str]]]:
    notes = Notes()
    body = load_json(dump_json(DIALECT.encode_reply(reply, notes, request).body))
    return body, [(note.kind, note.where) for note in notes]


def answer(*parts: Part, **finish: Any) -> Reply:
    ended = Finish(**finish) if finish else None
    return Reply(id="r", model="m", created=7, choices=(Choice(parts=parts, finish=ended),))


def wire(message: JsonObject, **choice: Any) -> JsonObject:
    whole = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}
    return {"id": "r", "object": "chat.completion", "created": 5, "model": "m", "choices": [whole]}


def only(body: JsonObject) -> Choice:
    (choice,) = decode(body).choices
    return choice


# ---------------------------------------------------------------- seed 002, mission C2


def test_a_function_call_alone_becomes_a_tool_use() -> None:
    body = {"choices": [{"message": {"function_call": {"name": "get_weather", "arguments": '{"location":"Paris"}'}}}]}
    converted = convert_reply(body, source="openai-chat", to="anthropic").body
    assert converted["content"] == [
        {"type": "tool_use", "id": "call__0", "name": "get_weather", "input": {"location": "Paris"}}
    ]
    assert converted["stop_reason"] == "tool_use"
    assert encode(decode(body))[0] == body


def test_a_plain_reply_becomes_an_anthropic_message() -> None:
    body = {
        "id": "chatcmpl-123",
        "model": "gpt-4",
        "choices": [{"message": {"role": "assistant", "content": "Hi!"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }
    assert convert_reply(body, source="openai-chat", to="anthropic").body == {
        "id": "chatcmpl-123",
        "type": "message",
        "role": "assistant",
        "model": "gpt-4",
        "content": [{"type": "text", "text": "Hi!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": None,
            "output_tokens": 5,
        },
    }


def test_a_matched_stop_sequence_is_in_the_answer() -> None:
    body = wire({"content": "a"}, stop_reason="END")
    assert only(body).finish == Finish(reason="sequence", sequence="END")
    converted = convert_reply(body, source="openai-chat", to="anthropic").body
    assert (converted["stop_reason"], converted["stop_sequence"]) == ("stop_sequence", "END")
    back, notes = encode(answer(Text(text="a"), reason="sequence", sequence="END"))
    assert (back["choices"][0]["finish_reason"], back["choices"][0]["stop_reason"]) == ("stop", "END")
    assert notes == []


def test_a_client_that_asked_with_functions_gets_a_function_call() -> None:
    asked = {"model": "m", "messages": [], "functions": [{"name": "f", "parameters": {}}]}
    request = DIALECT.decode_request(WireRequest(body=asked), Notes())
    calls = [ToolCall(id=str(i), name="f", arguments="{}") for i in range(2)]
    body, notes = encode(answer(*calls, reason="tool_call"), request)
    message = body["choices"][0]["message"]
    assert message["function_call"] == {"name": "f", "arguments": "{}"}
    assert "tool_calls" not in message
    assert body["choices"][0]["finish_reason"] == "function_call"
    assert ("dropped", "/choices/0/parts/1") in notes


# ---------------------------------------------------------------- why it ended

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("word", "message", "reason"),
    [
        ("stop", {"content": "a"}, "stop"),
        ("eos", {"content": "a"}, "stop"),
        ("length", {"content": "a"}, "length"),
        ("model_length", {"content": "a"}, "context"),
        ("content_filter", {"content": "a"}, "filter"),
        ("stop", {"content": None, "refusal": "no"}, "refusal"),
        ("tool_calls", {"content": None, "tool_calls": [CALL]}, "tool_call"),
        ("tool_call", {"content": None, "tool_calls": [CALL]}, "tool_call"),
        ("stop", {"content": None, "tool_calls": [CALL]}, "tool_call"),
        ("length", {"content": None, "tool_calls": [CALL]}, "length"),
        (None, {"content": None, "tool_calls": [CALL]}, "tool_call"),
        ("", {"content": None, "tool_calls": [CALL]}, "tool_call"),
        ("error", {"content": "a"}, "other"),
        ("insufficient_system_resource", {"content": "a"}, "other"),
        (None, {"content": "a"}, "stop"),
        ("", {"content": "a"}, "stop"),
        (None, {"content": None, "refusal": "no"}, "refusal"),
    ],
)
def test_finish_words_are_read_and_come_back(word: str | None, message: JsonObject, reason: str) -> None:
    body = wire(message, finish_reason=word)
    finish = only(body).finish
    assert finish is not None
    assert finish.reason == reason
    assert encode(decode(body)) == (body, [])


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("context", "length"),
        ("filter", "content_filter"),
        ("refusal", "content_filter"),
        ("pause", "length"),
        ("malformed", "length"),
        ("other", "length"),
    ],
)
def test_an_end_chat_has_no_word_for_is_never_a_plain_stop(reason: FinishReason, word: str) -> None:
    body, notes = encode(answer(Text(text="a"), reason=reason))
    assert body["choices"][0]["finish_reason"] == word
    exact = reason in ("stop", "length", "filter")
    assert notes == ([] if exact else [("altered", "/choices/0/finish/reason")])


def test_a_refusal_stops_as_openai_says_it() -> None:
    body, notes = encode(answer(Refusal(text="no"), reason="refusal"))
    choice = body["choices"][0]
    assert (choice["finish_reason"], choice["message"]["refusal"], choice["message"]["content"]) == ("stop", "no", None)
    assert notes == []


# ---------------------------------------------------------------- the message


@pytest.mark.parametrize(
    "message",
    [
        {"content": "a", "refusal": None, "annotations": []},
        {"content": ""},
        {"content": None, "tool_calls": [], "function_call": None},
        {"content": [{"type": "text", "text": "a"}]},
        {"content": {"title": "an object"}},
        {"content": "a", "refusal": "", "audio": {"data": "", "expires_at": 0, "id": "", "transcript": ""}},
        {"content": "a", "reasoning": None, "reasoning_details": [{"type": "reasoning.encrypted", "data": "b"}]},
        {"content": "a", "reasoning": "told otherwise", "reasoning_details": [{"type": "reasoning.text", "text": "b"}]},
        {"content": "a", "executed_tools": [{"type": "search"}], "padding": "abc"},
        {"content": "a", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]},
        {"content": None, "audio": {"id": "x", "data": "UklG", "expires_at": 9, "transcript": "Hi"}},
        {"content": None, "tool_calls": [{"id": "", "function": {"name": "f", "arguments": "{}"}, "index": 0}]},
    ],
)
def test_messages_come_back_as_they_were(message: JsonObject) -> None:
    body = wire(message)
    assert encode(decode(body)) == (body, [])


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"id": "", "choices": [], "created": 0, "object": "chat.completion", "model": "", "service_tier": ""},
        {"id": 5, "choices": [], "created": "now", "usage": None, "x": 1},
        wire({"content": "a"}, index=3, native_finish_reason="STOP", stop_reason=None, seed=7, error={"code": 502}),
        wire({"content": "a"}, logprobs=None, matched_stop=2, delta={"role": "assistant", "content": ""}),
    ],
)
def test_odd_replies_come_back_as_they_were(body: JsonObject) -> None:
    assert encode(decode(body)) == (body, [])


def test_spoken_answers_and_pictures_are_parts() -> None:
    sound = only(wire({"content": None, "audio": {"id": "x", "data": "UklG", "expires_at": 9, "transcript": "Hi"}}))
    assert isinstance(sound.parts[0], Audio)
    assert (sound.parts[0].id, sound.parts[0].data, sound.parts[0].transcript) == ("x", "UklG", "Hi")
    drawn = only(wire({"content": "a", "images": [{"type": "image_url", "image_url": {"url": "https://a"}}]}))
    assert [type(part) for part in drawn.parts] == [Text, Image]


def test_calls_without_an_id_get_one_that_differs_from_reply_to_reply() -> None:
    nameless = {"content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}] * 2}
    first, second = (decode({**wire(copy_json(nameless)), "id": name}) for name in ("chatcmpl-1/x", "chatcmpl-2"))
    ids = [part.id for reply in (first, second) for part in reply.choices[0].parts if isinstance(part, ToolCall)]
    assert ids == ["call_chatcmpl-1x_0", "call_chatcmpl-1x_1", "call_chatcmpl-2_0", "call_chatcmpl-2_1"]


def test_citations_stand_on_the_text_with_their_span() -> None:
    annotation = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 4}}
    body = wire({"content": "text", "annotations": [annotation, {"type": "file", "file": {"hash": "x"}}]})
    (text,) = only(body).parts
    assert isinstance(text, Text)
    assert text.citations[0] == Citation(url="u", title="t", start=0, end=4)
    assert encode(decode(body)) == (body, [])


def test_several_texts_are_joined_and_their_citations_moved() -> None:
    texts = (Text(text="One. "), Text(text="Two.", citations=(Citation(url="u", title="t"),)))
    body, notes = encode(answer(*texts, reason="stop"))
    message = body["choices"][0]["message"]
    assert message["content"] == "One. Two."
    assert message["annotations"][0]["url_citation"] == {"url": "u", "title": "t", "start_index": 5, "end_index": 9}
    assert ("altered", "/choices/0/parts") in notes


def test_logprobs_belong_to_their_text_and_those_of_thoughts_stay() -> None:
    token = {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": None}],
    }
    body = wire({"content": "a"}, logprobs={"content": [token], "refusal": None, "reasoning_content": [token]})
    (text,) = only(body).parts
    assert isinstance(text, Text)
    assert text.logprobs is not None
    assert text.logprobs[0].logprob == -0.5
    assert encode(decode(body)) == (body, [])


def test_thoughts_go_to_clients_with_their_seals_beside_them() -> None:
    seal = Seal(origin="anthropic", value="sig")
    body, notes = encode(answer(Reasoning(text="hm", seal=seal), Text(text="a"), reason="stop"))
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == "hm"
    entry = {"index": 0, "at": 0, "text": "hm", "seal": {"origin": "anthropic", "value": "sig"}}
    assert message["dragoman"] == {"reasoning": [entry]}
    assert notes == []


def test_a_thought_without_a_signature_needs_no_side_field() -> None:
    body, _ = encode(answer(Reasoning(text="hm"), Text(text="a"), reason="stop"))
    assert "dragoman" not in body["choices"][0]["message"]


def test_what_no_chat_reply_can_say_is_noted() -> None:
    opaque = Opaque(dialect="anthropic", body={"type": "server_tool_use"})
    body, notes = encode(answer(opaque, Text(text="a"), reason="stop"))
    assert body["choices"][0]["message"]["content"] == "a"
    assert notes == [("dropped", "/choices/0/parts/0")]


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            Usage(input=10, output=5),
        ),
        (
            {
                "prompt_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1, "audio_tokens": 2},
                "completion_tokens": 5,
                "completion_tokens_details": {"reasoning_tokens": 3, "accepted_prediction_tokens": 0},
                "total_tokens": 15,
            },
            Usage(input=5, cache_read=4, cache_write=1, output=2, reasoning=3, input_audio=2),
        ),
        (  # xAI leaves the thoughts out of the completion
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "completion_tokens_details": {"reasoning_tokens": 30},
                "total_tokens": 45,
            },
            Usage(input=10, output=5, reasoning=30),
        ),
        (  # DeepSeek
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_cache_hit_tokens": 4,
                "prompt_cache_miss_tokens": 6,
            },
            Usage(input=6, cache_read=4, output=5),
        ),
        (  # a server that counts the cache apart
            {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3, "cache_read_input_tokens": 50},
            Usage(input=2, cache_read=50, output=1),
        ),
        (
            {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109, "prompt_tokens_details": None},
            Usage(input=35, output=12),
        ),
        ({"prompt_tokens": 3}, Usage(input=3)),
        ({"prompt_tokens_details": {}, "x": {"y": 1}}, Usage()),
    ],
)
def test_usage_is_disjoint_and_comes_back_as_it_was(usage: JsonObject, counts: Usage) -> None:
    body = wire({"content": "a"}) | {"usage": usage}
    found = decode(body).usage
    assert found is not None
    for key in ("input", "cache_read", "cache_write", "output", "reasoning", "input_audio", "output_audio"):
        assert getattr(found, key) == getattr(counts, key), key
    assert encode(decode(body)) == (body, [])


@pytest.mark.parametrize("to", ["anthropic", "openai_responses", "gemini"])
def test_a_servers_other_names_for_the_cache_are_no_loss_elsewhere(to: str) -> None:
    names = {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **names}
    said = dragoman.convert_reply(wire({"content": "a"}) | {"usage": usage}, source="openai_chat", to=to)
    assert [note.where for note in said.notes if "cache" in note.where] == []
    odd = usage | {"prompt_cache_miss_tokens": 3}
    said = dragoman.convert_reply(wire({"content": "a"}) | {"usage": odd}, source="openai_chat", to=to)
    assert [note.where for note in said.notes if "cache" in note.where] == ["/usage/prompt_cache_miss_tokens"]


def test_an_answer_without_a_reason_to_end_is_no_whole_one_in_chat() -> None:
    """Vertex answers so (recorded), and the official type demands a word: not the one for a whole answer."""
    empty = {"candidates": [{"content": {}, "index": 0}]}
    said = dragoman.convert_reply(empty, source="gemini", to="openai_chat")
    assert said.body["choices"][0]["finish_reason"] == "length"
    assert ("altered", "changed") in [(note.kind, note.rank) for note in said.notes if "why it ended" in note.why]


def test_cached_input_is_counted_once_in_chat() -> None:
    usage = Usage(input=3, cache_write=12304, cache_read=0, output=500, reasoning=50)
    body, notes = encode(Reply(id="r", model="m", created=7, choices=(), usage=usage))
    assert body["usage"] == {
        "prompt_tokens": 12307,
        "completion_tokens": 550,
        "total_tokens": 12857,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 12304},
        "completion_tokens_details": {"reasoning_tokens": 50},
    }
    assert notes == []
