"""Settings that OpenAI's two dialects both have, by the official SDK's own types: each is carried, in both ways."""

from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from dragoman import convert
from dragoman.upstream.profiles import profile_for

BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "hi"}]},
    "openai_responses": {"input": "hi"},
}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    ],
    "openai_responses": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}],
}
VALUES: dict[str, Any] = {
    "metadata": {"a": "b"},
    "model": "gpt-5.6",
    "moderation": {"model": "omni-moderation-latest"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "temperature": 0.5,
    "tool_choice": "required",
    "top_logprobs": 3,
    "top_p": 0.5,
    "user": "u",
}
OTHER_FORM = {"tools"}  # the same, in another form: tests of tools
RENAMED = {"user": "safety_identifier"}  # OpenAI's newer name
BOTH = sorted(set(CompletionCreateParamsBase.__annotations__) & set(ResponseCreateParamsBase.__annotations__))
WAYS = [("openai_chat", "openai_responses"), ("openai_responses", "openai_chat")]


def ask(source: str, to: str, **settings: Any) -> Any:
    body = {"model": "gpt-5.6", "stream": True, "tools": TOOLS[source], **BODIES[source], **settings}
    if "top_logprobs" in settings and source == "openai_chat":
        body["logprobs"] = True
    elif "top_logprobs" in settings:
        body["include"] = ["message.output_text.logprobs"]
    return convert(body, source=source, to=to)


def test_every_setting_that_both_have_has_a_case() -> None:
    assert set(BOTH) | {"stream"} == VALUES.keys() | OTHER_FORM


@pytest.mark.parametrize("key", VALUES)
@pytest.mark.parametrize(("source", "to"), WAYS)
def test_a_setting_that_both_have_is_carried(source: str, to: str, key: str) -> None:
    said = ask(source, to, **{key: VALUES[key]})
    assert said.body[RENAMED.get(key, key)] == VALUES[key]
    assert [note for note in said.notes if key in note.where] == []


@pytest.mark.parametrize(("source", "to"), WAYS)
def test_two_ids_of_a_user_are_both_carried_and_both_short(source: str, to: str) -> None:
    said = ask(source, to, user="u" * 100, safety_identifier="s" * 100)
    assert len(said.body["user"]) == len(said.body["safety_identifier"]) == 64
    assert said.body["user"] != said.body["safety_identifier"]
    assert {note.where for note in said.notes if note.kind == "altered"} == {"/user", "/safety_identifier"}


def test_what_only_responses_knows_of_a_shared_setting_is_noted() -> None:
    said = ask(
        "openai_responses", "openai_chat", prompt_cache_options={"mode": "explicit", "ttl": "12h", "prewarm": True}
    )
    assert said.body["prompt_cache_options"] == {"mode": "explicit"}
    assert [note.where for note in said.notes if note.kind == "dropped"] == ["/prompt_cache_options"]


@pytest.mark.parametrize(("kind", "taken"), [("openai", True), ("azure", True), ("mistral", False), ("groq", False)])
def test_only_the_maker_is_sent_shared_settings(kind: str, taken: bool) -> None:
    assert profile_for(kind, "some-model", "openai_chat").maker == taken
