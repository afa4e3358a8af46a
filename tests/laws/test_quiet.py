"""What the laws hush means the same in every dialect: that nothing is said of it is no licence to get it wrong."""

import pytest

import dragoman
from dragoman.jsontypes import JsonObject

TALK: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, JsonObject] = {
    "openai_chat": TALK,
    "openai_responses": {"model": "m", "input": "hi"},
    "anthropic": TALK | {"max_tokens": 9},
    "ollama": TALK,
}
TARGETS = (*BODIES, "gemini")


def is_streamed(converted: dragoman.Converted) -> bool:
    """As the target's server would read it; Ollama's streams unless told not to."""
    if converted.to == "gemini":
        return ":streamGenerateContent" in converted.path
    assert isinstance(converted.body, dict)
    return bool(converted.body.get("stream", converted.to == "ollama"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", BODIES)
@pytest.mark.parametrize("said", [None, False, True])
def test_whether_to_stream_is_as_the_client_meant_it(source: str, target: str, said: bool | None) -> None:
    body = BODIES[source] | ({} if said is None else {"stream": said})
    meant = source == "ollama" if said is None else said
    assert is_streamed(dragoman.convert(body, to=target, source=source)) is meant


@pytest.mark.parametrize("source", ["openai_chat", "openai_responses"])
def test_what_must_not_be_stored_is_said_to_those_who_would_store_it(source: str) -> None:
    converted = dragoman.convert(BODIES[source] | {"store": False}, to="openai_responses", source=source)
    assert isinstance(converted.body, dict)
    assert converted.body["store"] is False
