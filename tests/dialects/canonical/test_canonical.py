"""Our own form as a dialect."""

import pytest

import dragoman
from dragoman.dialects.canonical import NOT_OURS, decode_failure
from dragoman.errors import DecodeError
from dragoman.jsontypes import dump_json, load_json
from dragoman.wire import WireReply

ASKED = {"model": "m", "max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": "hi"}]}


def test_what_it_hands_out_is_what_it_prints() -> None:
    """Lists, never tuples: a caller may look at `.body` with the eyes of the JSON it stands for."""
    body = dragoman.convert(ASKED, to="canonical").body
    assert load_json(dump_json(body)) == body
    assert dragoman.convert(body, to="anthropic").body == ASKED


def test_a_mistake_has_a_place() -> None:
    wrong = {"model": "m", "messages": [{"role": "user", "parts": [{"kind": "text", "text": 5}]}]}
    with pytest.raises(DecodeError) as caught:
        dragoman.convert(wrong, source="canonical", to="anthropic")
    assert caught.value.where == "/messages/0/parts/0/text"


def test_a_setting_of_a_newer_version_is_noted() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "parts": [{"kind": "text", "text": "x"}]}], "mood": "calm"}
    [note] = dragoman.convert(asked, source="canonical", to="ollama").notes
    assert (note.kind, note.where) == ("dropped", "/mood")


@pytest.mark.parametrize(
    ("body", "message"),
    [({"error": {"message": "no"}}, "no"), ({"detail": "Not Found"}, "Not Found"), ("gone", "gone"), ([], "")],
)
def test_an_error_of_another_server_is_known_as_such(body: object, message: str) -> None:
    failure = decode_failure(WireReply(body=body, status=404))
    assert (failure.kind, failure.code, failure.message) == ("not_found", NOT_OURS, message)
