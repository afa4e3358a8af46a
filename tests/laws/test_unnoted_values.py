"""What the laws hush means the same in every dialect: that nothing is said of it is no licence to get it wrong."""

import pytest

import dragoman
from dragoman.errors import DragomanError
from dragoman.jsontypes import JsonObject
from tests.laws.second.corpus import TALK as CONVERSATION
from tests.laws.second.corpus import TRIES
from tests.recorded import cases, needs_corpus

EVERY = 12  # of the recorded bodies

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


@needs_corpus
@pytest.mark.parametrize("name", TARGETS)
def test_a_recorded_body_that_its_own_dialect_writes_unchanged_has_no_note(name: str) -> None:
    """A note that nothing has caused: `bench/mutants.py` found three places where no other law would notice one."""
    for case in [case for case in cases(name) if case.meta["endpoint"] in CONVERSATION][::EVERY]:
        for what, attempt in TRIES.items():
            try:
                tried = attempt(case, name, name)
            except DragomanError:
                continue
            if tried is not None and (what != "request" or tried[0] == tried[1]):
                assert list(tried[2]) == [], (case.name, what)
