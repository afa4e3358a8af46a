"""A bug of ours is our 500, logged with its place in our code; a body that is wrong is its sender's, with its place."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import dragoman
from tests.gateway.house import FirstWords, House, faultline, open_house, say, stream, upstream
from tests.gateway.test_error_table import DOORS
from tests.gateway.test_faults import chunk
from tests.gateway.web import Got, post

SECRET = "the-words-of-a-client"
MODULES = {"chat": "openai_chat", "responses": "openai_responses"}


def plant(*_: object, **__: object) -> Any:
    """A bug whose exception quotes what was in the data."""
    raise AttributeError(SECRET)


def ask(house: House, door: str, **more: Any) -> Got:
    path, body = DOORS[door]
    return post(house.url, path.replace("/m:", "/demo:"), demo_body(body, more))


def demo_body(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    if "params" in body:
        return body | {"params": body["params"] | {"model": "demo"} | more}
    return body | ({} if "contents" in body else {"model": "demo"}) | more


@pytest.mark.parametrize("door", DOORS)
def test_a_bug_in_a_decoder_is_our_500_in_the_clients_dialect(
    door: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dialect = MODULES.get(door, door)
    monkeypatch.setattr(f"dragoman.dialects.{dialect}.request.Request", plant)
    with open_house() as house:
        more = {"logprobs": True} if door == "chat" else {}  # without it, another module reads the request
        got = ask(house, door, **more)
    assert got.status == (200 if door == "jsonrpc" else 500), got.text
    assert "an internal error of the gateway" in json.dumps(got.json["error"])
    assert SECRET not in got.text + caplog.text
    (line,) = [record.getMessage() for record in caplog.records if "internal_error" in record.getMessage()]
    assert "error=AttributeError" in line
    assert f"at=dialects/{dialect}/request.py:" in line


WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "chat": [
        ({"messages": [{"role": "user", "content": 5}]}, "/messages/0/content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "/messages/0/content/0/text"),
        ({"tools": 5}, "/tools: expected array, found number"),
    ],
    "responses": [
        ({"input": [{"type": "message", "role": "user", "content": 5}]}, "/input/0/content"),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": 5}]}]},
            "/input/0/content/0/text",
        ),
        ({"tools": 5}, "/tools: expected array, found number"),
    ],
    "anthropic": [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "/messages/0/content/0/text"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": 5}]}]}, "/messages/0/content/0/source"),
    ],
    "gemini": [
        ({"contents": [{"role": "user", "parts": [5]}]}, "/contents/0/parts/0"),
        ({"contents": [{"role": "user", "parts": [{"text": 5}]}]}, "/contents/0/parts/0/text"),
        ({"generationConfig": 5}, "/generationConfig: expected object, found number"),
    ],
    "ollama": [({"messages": [{"role": "user", "content": 5}]}, "/messages/0/content")],
    "jsonrpc": [({"messages": [{"role": "user", "content": 5}]}, "/params/messages/0/content")],
}


@pytest.mark.parametrize("door", DOORS)
def test_a_shape_the_client_got_wrong_is_its_400_with_the_place(door: str, caplog: pytest.LogCaptureFixture) -> None:
    with open_house() as house:
        for more, place in WRONG[door]:
            got = ask(house, door, **more)
            assert got.status == (200 if door == "jsonrpc" else 400), got.text
            assert place in json.dumps(got.json["error"])
    assert "internal_error" not in caplog.text


@pytest.fixture
def behind() -> Iterator[Callable[..., Any]]:
    """A gateway before an upstream that answers so."""
    with ExitStack() as stack:

        def open_before(*scripts: Any) -> House:
            line = stack.enter_context(faultline(*scripts))
            return stack.enter_context(open_house(upstream("a", "openai_chat", line.url)))

        yield open_before


GOOD = b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
ASKED = {"model": "a-model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def test_a_malformed_answer_is_the_upstreams_502_with_the_place(behind: Callable[..., House]) -> None:
    got = post(behind(say(200, b'{"id":"x","choices":[5]}')).url, "/v1/messages", ASKED)
    assert got.status == 502
    assert "/choices/0: expected object, found number" in got.json["error"]["message"]


def test_a_bug_in_reading_an_answer_is_our_500_and_does_not_count_against_the_upstream(
    behind: Callable[..., House], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.dialects.openai_chat.reply.Reply", plant)
    house = behind(say(200, GOOD))
    for _ in range(10):
        got = post(house.url, "/v1/messages", ASKED)
        assert (got.status, got.json["error"]["type"]) == (500, "api_error")
        assert SECRET not in got.text
    assert "at=dialects/openai_chat/reply.py:" in caplog.text
    assert SECRET not in caplog.text
    monkeypatch.undo()
    assert post(house.url, "/v1/messages", ASKED).status == 200, "the upstream is still asked"


def test_a_bug_in_reading_a_stream_is_our_500_before_its_first_word_and_an_error_in_it_after(
    behind: Callable[..., House], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first_words = FirstWords()
    rest = (chunk("sh"), b"data: [DONE]\n\n")
    house = behind(stream(chunk("fi"), *rest), stream(chunk("fi"), first_words, *rest))
    monkeypatch.setattr("dragoman.dialects.openai_chat.stream_choice.PartStart", plant)
    got = post(house.url, "/v1/messages", ASKED | {"stream": True})
    assert (got.status, got.json["error"]["type"]) == (500, "api_error")
    monkeypatch.undo()

    monkeypatch.setattr("dragoman.dialects.openai_chat.stream_decoder.ReplyEnd", plant)
    first_words.watch(house)
    got = post(house.url, "/v1/messages", ASKED | {"stream": True})
    assert got.status == 200
    assert "event: error" in got.text
    assert "message_stop" not in got.text
    assert "read_failed" in caplog.text
    assert caplog.text.count("at=dialects/openai_chat/stream") == 2
    assert SECRET not in caplog.text + got.text


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_bug_of_ours_is_not_taken_for_a_wrong_body_in_the_library(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"dragoman.dialects.openai_chat.{what}.{what.title()}", plant)
    work: Callable[[], object] = (
        (lambda: dragoman.convert(ASKED, source="openai_chat", to="gemini"))
        if what == "request"
        else (lambda: dragoman.convert_reply(GOOD, source="openai_chat", to="gemini"))
    )
    with pytest.raises(AttributeError):
        work()
