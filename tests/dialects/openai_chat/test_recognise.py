"""Whether a body is Chat's, told from it alone."""

import pytest

from dragoman.convert import recognise
from dragoman.jsontypes import JsonObject

HELLO = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": HELLO},
        {"model": "m", "messages": [{"role": "system", "content": "s"}, *HELLO]},
        {"model": "m", "messages": HELLO, "max_completion_tokens": 5},
        {"model": "m", "messages": HELLO, "functions": []},
        {"model": "m", "messages": [{"role": "developer", "content": "s"}]},
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}], "max_tokens": 5},
    ],
)
def test_requests_are_recognised(body: JsonObject) -> None:
    assert recognise(body, "request").name == "openai_chat"


def test_replies_chunks_and_errors_are_recognised() -> None:
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}
    assert recognise({"choices": [choice]}, "reply").name == "openai_chat"
    assert recognise({"choices": [{"index": 0, "delta": {}}]}, "stream").name == "openai_chat"
    assert (
        recognise({"error": {"message": "m", "type": "t", "param": None, "code": None}}, "failure").name
        == "openai_chat"
    )
