"""A value of a type that every provider refuses is the client's mistake: it is refused with its place, not left out."""

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.convert import convert
from dragoman.errors import DecodeError

TURNS = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": TURNS},
    "openai_responses": {"model": "m", "input": "hi"},
    "anthropic": {"model": "m", "max_tokens": 10, "messages": TURNS},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "ollama": {"model": "m", "messages": TURNS},
}
VALUES: dict[str, Any] = {"string": "word", "number": 5, "array": [5], "object": {"x": 1}, "boolean": True}
# By dialect, the types that a key takes and the keys; `a.b` is b in the object a.
TAKEN: dict[str, dict[str, str]] = {
    "openai_chat": {
        "number": "temperature top_p max_tokens max_completion_tokens n seed frequency_penalty presence_penalty "
        "top_logprobs top_k min_p",
        "boolean": "stream parallel_tool_calls store logprobs",
        "string": "user reasoning_effort service_tier verbosity",
        "array": "tools functions modalities",
        "object": "response_format logit_bias metadata stream_options audio prediction web_search_options",
        "string object": "tool_choice function_call",
        "string array": "stop",
    },
    "openai_responses": {
        "number": "temperature top_p max_output_tokens max_tool_calls top_logprobs",
        "boolean": "stream parallel_tool_calls store background",
        "string": "user service_tier truncation previous_response_id",
        "array": "tools include",
        "object": "text reasoning metadata prompt",
        "string object": "tool_choice conversation",
        "string array": "instructions",
    },
    "anthropic": {
        "number": "temperature top_p top_k max_tokens",
        "boolean": "stream",
        "string": "service_tier",
        "array": "tools stop_sequences mcp_servers",
        "object": "tool_choice thinking metadata output_config cache_control context_management compaction",
        "string object": "container",
        "string array": "system",
    },
    "gemini": {
        "number": "generationConfig.temperature generationConfig.topP generationConfig.topK generationConfig.seed "
        "generationConfig.candidateCount generationConfig.maxOutputTokens generationConfig.presencePenalty "
        "generationConfig.frequencyPenalty generationConfig.logprobs",
        "boolean": "generationConfig.responseLogprobs",
        "string": "cachedContent generationConfig.responseMimeType",
        "array": "safetySettings generationConfig.stopSequences generationConfig.responseModalities",
        "array object": "tools",  # one tool may stand without its list (CLIENTS 14)
        "object": "toolConfig labels generationConfig generationConfig.responseSchema generationConfig.thinkingConfig "
        "generationConfig.responseJsonSchema generationConfig.speechConfig",
        "string array object": "systemInstruction",
    },
    "ollama": {
        "number": "options.temperature options.top_p options.top_k options.num_predict options.seed options.min_p "
        "options.num_ctx",
        "boolean": "stream",
        "array": "tools",
        "object": "options",
        "string object": "format",
        "string boolean": "think",
        "string number": "keep_alive",
        "string array": "options.stop",
    },
}


def wrong() -> Iterator[tuple[str, str, str]]:
    for dialect, kinds in TAKEN.items():
        for taken, keys in kinds.items():
            for key in keys.split():
                yield from ((dialect, key, kind) for kind in VALUES if kind not in taken.split())


@pytest.mark.parametrize(("dialect", "key", "kind"), list(wrong()))
def test_a_value_of_a_wrong_type_is_refused_with_its_place(dialect: str, key: str, kind: str) -> None:
    outer, _, inner = key.partition(".")
    value = {inner: VALUES[kind]} if inner else VALUES[kind]
    to = "ollama" if dialect == "openai_chat" else "openai_chat"
    with pytest.raises(DecodeError) as caught:
        convert(BODIES[dialect] | {outer: value}, to=to, source=dialect)
    assert caught.value.where.startswith("/" + key.replace(".", "/"))


def test_null_is_no_value_and_a_number_of_proto3_may_be_a_string() -> None:
    for dialect, kinds in TAKEN.items():
        keys = {key for keys in kinds.values() for key in keys.split() if "." not in key}
        for key in keys - {"max_tokens", "tools", "stream"}:
            assert convert(BODIES[dialect] | {key: None}, to=dialect, source=dialect).body
    assert convert(
        BODIES["gemini"] | {"generationConfig": {"temperature": "0.5"}}, to="openai_chat", source="gemini"
    ).body
