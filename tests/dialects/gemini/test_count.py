"""Token counts and model lists."""

import pytest

from dragoman.dialects._services import ListedModel
from dragoman.dialects.gemini.services import COUNTS, MODELS, decode_count_request, encode_count_request
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Message, Text
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest

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


def test_a_count_is_read_and_written() -> None:
    body = {"totalTokens": 61, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 61}]}
    assert COUNTS.decode_reply(body) == 61
    assert COUNTS.encode_reply(61) == {"totalTokens": 61}


def test_a_reply_without_a_count_is_refused() -> None:
    with pytest.raises(DecodeError, match="totalTokens"):
        COUNTS.decode_reply({})


def test_a_model_list_is_read_and_written() -> None:
    body = MODELS.encode([ListedModel(name="a"), ListedModel(name="up/b")], "")
    assert [row["name"] for row in body["models"]] == ["models/a", "models/up/b"]
    assert [model.name for model in MODELS.decode(body)] == ["a", "up/b"]
    with pytest.raises(DecodeError, match="expected array"):
        MODELS.decode({"error": "no"})
