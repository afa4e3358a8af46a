"""Token counts and model lists."""

import pytest

from dragoman.dialects.gemini.count import (
    decode_count_reply,
    decode_count_request,
    encode_count_reply,
    encode_count_request,
)
from dragoman.dialects.gemini.models import ListedModel, decode_model_list, encode_model_list
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Message, Text
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

PATH = "/v1beta/models/gemini-3-flash:countTokens"
HI: JsonObject = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    "body",
    [
        HI,
        HI | {"systemInstruction": {"parts": [{"text": "be brief"}]}, "generationConfig": {"max_output_tokens": 5}},
        {"generateContentRequest": HI | {"model": "models/gemini-3-flash", "tools": [{"googleSearch": {}}]}},
    ],
)
def test_a_count_is_asked_for_as_it_was(body: JsonObject) -> None:
    notes = Notes()
    request = decode_count_request(WireRequest(body=copy_json(body), path=PATH), notes)
    wire = encode_count_request(request, notes)
    assert (wire.body, wire.path) == (body, PATH)
    assert not notes.items


def test_a_count_of_another_dialect_s_request_is_asked_for_whole() -> None:
    request = Request(model="gemini-3-flash", messages=(Message(role="user", parts=(Text(text="hi"),)),), stream=True)
    wire = encode_count_request(request, Notes())
    assert wire.path == PATH
    assert wire.body == {"generateContentRequest": HI | {"model": "models/gemini-3-flash"}}


@pytest.mark.parametrize(
    "body",
    [
        {"totalTokens": 61, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 61}]},
        {"totalTokens": 61, "cachedContentTokenCount": 40},
    ],
)
def test_a_count_comes_back_as_it_was(body: JsonObject) -> None:
    usage = decode_count_reply(WireReply(body=copy_json(body)))
    assert (usage.input or 0) + (usage.cache_read or 0) == 61
    assert encode_count_reply(usage, Notes()).body == body


def test_a_count_is_a_total() -> None:
    assert encode_count_reply(Usage(input=5, cache_write=2), Notes()).body == {"totalTokens": 7}


def test_a_reply_without_a_count_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_count_reply(WireReply(body={}))


def test_a_model_list_is_read_and_written() -> None:
    entry: JsonObject = {
        "name": "models/gemini-3-flash",
        "version": "001",
        "displayName": "Gemini 3 Flash",
        "description": "quick",
        "inputTokenLimit": 1048576,
        "outputTokenLimit": 65536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        "temperature": 1,
        "thinking": True,
    }
    models, token = decode_model_list({"models": [copy_json(entry)], "nextPageToken": "n"})
    assert (models[0].id, models[0].max_input, models[0].thinking) == ("gemini-3-flash", 1048576, True)
    assert encode_model_list(models, token) == {"models": [entry], "nextPageToken": "n"}


def test_a_model_of_another_provider_is_listed_with_what_is_known() -> None:
    (entry,) = encode_model_list([ListedModel(id="claude-opus-4-8")])["models"]
    assert entry == {
        "name": "models/claude-opus-4-8",
        "displayName": "claude-opus-4-8",
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    }
