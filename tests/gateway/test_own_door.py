"""The door of our own client: extras are what only their dialect knows, and change nothing that was checked."""

from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.gateway.own_door import PLAIN, find_false
from dragoman.notes import Notes
from tests.gateway.house import faultline, open_house, say, upstream
from tests.gateway.web import post

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
