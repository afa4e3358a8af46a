"""The door of our own client: extras are what only their dialect knows, and change nothing that was checked."""

from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.gateway.own_door import PLAIN, find_false
from dragoman.jsontypes import dump_json
from dragoman.notes import Notes
from dragoman.upstream.read_reply import decode_whole
from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.web import post, send

MESSAGES = [{"role": "user", "parts": [{"kind": "text", "text": "x"}]}]
ANSWER = b'{"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    "extras",
    [
        {"openai_chat": {"model": "dear"}},
        {"openai_chat": {"messages": []}},
        {"openai_chat": {"n": 50}},
        {"openai_chat": {"stream": True}},
        {"openai_chat": {"max_tokens": 10**6}},
        {"canonical": {"model": "dear"}},
        {"ollama": {"~form": "generate", "~empty": 5}},
    ],
)
def test_an_extra_does_not_change_what_was_checked(extras: dict[str, Any]) -> None:
    """The key was allowed and priced for one model, and the provider was asked for another."""
    with faultline(say(200, ANSWER)) as line, open_house(upstream("up", "openai_chat", line.url)) as house:
        asked = {"model": "up-model", "messages": MESSAGES, "extras": extras}
        refused = post(house.url, "/dragoman/v1/chat", asked)
        assert refused.status == 400
        assert "it is no extra" in refused.text
        assert line.seen == []
        asked["extras"] = {"openai_chat": {"a_new_option": {"of": "a server"}}}
        assert post(house.url, "/dragoman/v1/chat", asked).status == 200
        assert b'"a_new_option"' in line.seen[0].body


@pytest.mark.parametrize("name", NAMES)
def test_every_key_that_a_dialect_writes_is_no_extra(name: str) -> None:
    for key in find_dialect(name).encode_request(PLAIN, Notes()).body:
        assert find_false(name, {"unknown": 1, key: "x"}) == key
    assert find_false(name, {"unknown": {"a": 1}, "~spelling": 1}) is None
    assert find_false("of another version", {"model": "x"}) is None


SPOOFED: dict[str, Any] = {"~form": "generate", "~empty": {"model": "dear", "raw": True}}


def test_a_spelling_does_not_change_the_model() -> None:
    """Keys that begin with ~ remember how a request was spelled. A client that knew them was asked for another model
    than the one that its key was checked for."""
    said = say(200, b'{"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": true}')
    with faultline(said) as line, open_house(upstream("up", "ollama", line.url)) as house:
        asked = {"model": "up-model", "messages": MESSAGES, "extras": {"ollama": SPOOFED}}
        post(house.url, "/dragoman/v1/chat", asked)
        assert b"dear" not in line.seen[0].body
        assert b'"raw"' not in line.seen[0].body


DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
    "/v1beta/models/up-model:generateContent": {"contents": [{"role": "user", "parts": [{"text": "x"}]}]},
    "/api/chat": {"messages": [{"role": "user", "content": "x"}]},
}


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("key", ["~empty", "~omit", "~", "\\u007eomit"])
def test_a_client_brings_no_spellings_of_ours(path: str, key: str) -> None:
    with faultline(say(200, ANSWER)) as line, open_house(upstream("up", "openai_chat", line.url)) as house:
        model = {} if "models" in path else {"model": "up-model"}
        body = dump_json({**model, **DOORS[path], "SPOOF": {"model": "dear"}}).replace(b"SPOOF", key.encode())
        refused = send(house.url, "POST", path, body, {"content-type": "application/json"})
        assert (refused.status, line.seen) == (400, [])
        assert "begin with ~" in refused.text


@pytest.mark.parametrize("path", [*DOORS, "/dragoman/v1/chat", "/v1/embeddings"])
@pytest.mark.parametrize("key", ["Model", "MODEL", "m\\u004fdel"])
def test_a_model_in_large_letters_is_none(path: str, key: str) -> None:
    """Ollama, and others that are written in Go, read it, and not the one that the key was checked for."""
    with faultline(say(200, ANSWER)) as line, open_house(upstream("up", "ollama", line.url)) as house:
        more = {} if "models" in path else {"model": "up-model"}
        asked = {"input": "x", "messages": MESSAGES, "extras": {"ollama": {"SPOOF": "dear"}}}
        spoofed = {
            **more,
            **(DOORS.get(path, asked)),
            **({} if "dragoman" in path else {"SPOOF": "dear"}),
        }
        body = dump_json(spoofed).replace(b"SPOOF", key.encode())
        refused = send(house.url, "POST", path, body, {"content-type": "application/json"})
        assert (refused.status, line.seen) == (400, [])


@pytest.mark.parametrize("place", ["top", "choice", "message"])
@pytest.mark.parametrize("key", ["~logprobs", "~omit", "~message", "~silent", "~delta", "~index"])
@pytest.mark.parametrize("value", [None, True, 5, "x", [{}], {"a": 1}], ids=str)
def test_a_server_brings_no_spellings_of_ours(place: str, key: str, value: Any) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "hi"}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    reply: dict[str, Any] = {"id": "r", "model": "m", "choices": [choice]}
    plain = dump_json(reply)
    {"top": reply, "choice": choice, "message": message}[place][key] = value
    assert write_everywhere(dump_json(reply)) == write_everywhere(plain)


def write_everywhere(raw: bytes) -> list[bytes]:
    """A server's answer, in every dialect."""
    read, _ = decode_whole({}, raw, find_dialect("openai_chat"), Notes())
    return [dump_json(find_dialect(name).encode_reply(read, Notes(), None).body) for name in NAMES]
