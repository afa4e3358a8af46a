"""The strict checkers refuse what the vendors refuse, in their words, and take what they take."""

from typing import Any

import pytest

from dragoman.testing.checkers import (
    check_anthropic,
    check_gemini,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)

ASK = {"role": "user", "content": "q"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
GOT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]}
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "42"}


def claude(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-8", "max_tokens": 9000, "messages": list(messages), **more}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (claude(), "at least one message is required"),
        (claude(ASK, USE, ASK), "without `tool_result` blocks immediately after"),
        (claude(ASK, GOT), "unexpected `tool_use_id`"),
        (claude(ASK, USE, GOT, USE, GOT), "must be unique"),
        (claude(USE, GOT), "first message must use"),
        (claude(ASK, {"role": "assistant", "content": "Sure"}), "prefill"),
        (claude({"role": "user", "content": " "}), "non-whitespace"),
        (claude(ASK, temperature=0.5), "Extra inputs are not permitted"),
        (claude(ASK, thinking={"type": "enabled", "budget_tokens": 2048}), "adaptive"),
        (claude(ASK, tools=[{"name": "a.b", "input_schema": {"type": "object"}}]), "pattern"),
        (claude(ASK, tools=[{"name": "f", "input_schema": {}}]), "Input should be 'object'"),
        (claude(ASK, colour="red"), "colour: Extra inputs"),
        (claude(ASK, {"role": "system", "content": "s"}, ASK), "before an assistant turn"),
        (claude(ASK, {"role": "assistant", "content": [{"type": "thinking", "thinking": ""}]}, ASK), "signature"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anthropic_refuses(body: dict[str, Any], words: str) -> None:
    assert any(words in complaint for complaint in check_anthropic(body)), check_anthropic(body)


def test_anthropic_takes_a_tool_loop() -> None:
    assert check_anthropic(claude(ASK, USE, GOT)) == []


def test_anthropic_old_models_want_thinking_first() -> None:
    body = claude(ASK, USE, GOT, thinking={"type": "enabled", "budget_tokens": 2048}) | {"model": "claude-sonnet-4-5"}
    assert any("Expected `thinking`" in complaint for complaint in check_anthropic(body))


@pytest.mark.parametrize(
    ("messages", "server", "words"),
    [
        ([TOOL, ASK], "openai", "must be a response to a preceeding message"),
        ([ASK, CALL, ASK], "openai", "did not have response messages: c1"),
        ([{"role": "developer", "content": "x"}, ASK], "deepseek", "unknown variant `developer`"),
        ([ASK, {"role": "assistant", "content": "a", "reasoning_content": "b"}], "groq", "is unsupported"),
        ([ASK, CALL, TOOL], "deepseek", "must be passed back"),
        ([ASK, CALL, TOOL, ASK], "mistral", "Unexpected role 'user' after role 'tool'"),
        ([ASK, CALL, TOOL], "mistral", "length of 9"),
        ([ASK, ASK], "mistral", "must alternate"),
        ([{"role": "user", "content": []}], "openai", "content"),
    ],
)
def test_chat_servers_refuse(messages: list[dict[str, Any]], server: str, words: str) -> None:
    found = check_openai_chat({"model": "m", "messages": messages}, server)
    assert any(words in complaint for complaint in found), found


BROKEN = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}],
}
NULL_TOOL = {"type": "function", "function": {"name": "f", "parameters": None}}


@pytest.mark.parametrize(
    ("server", "body", "words"),
    [
        ("moonshot", {"model": "kimi-k2.6", "messages": [ASK], "temperature": 0.3}, "only 1 is allowed"),
        ("moonshot", {"model": "kimi-k2.6", "messages": [ASK, CALL, TOOL]}, "reasoning_content is missing"),
        ("moonshot", {"model": "kimi-k3", "messages": [ASK], "thinking": {"type": "disabled"}}, "cannot be disabled"),
        (
            "moonshot",
            {"model": "kimi-k2.6", "messages": [ASK], "tool_choice": "required"},
            "incompatible with thinking",
        ),
        ("minimax", {"messages": [ASK, {"role": "system", "content": "s"}, ASK]}, "invalid message role: system"),
        ("minimax", {"messages": [ASK, BROKEN, TOOL]}, "invalid function arguments"),
        ("minimax", {"messages": [ASK], "temperature": 0}, "temperature"),
        ("vllm", {"messages": [ASK, BROKEN, TOOL]}, "Unterminated string"),
        ("llamacpp", {"messages": [ASK, BROKEN, TOOL]}, "Unterminated string"),
        ("xai", {"messages": [ASK], "tools": [NULL_TOOL]}, "invalid type: null"),
        ("lmstudio", {"messages": [ASK, {**CALL, "content": None}, TOOL]}, "invalid type: null"),
        ("sglang", {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "no such part"),
    ],
)
def test_a_maker_refuses(server: str, body: dict[str, Any], words: str) -> None:
    found = check_openai_chat({"model": "m", **body}, server)
    assert any(words in complaint for complaint in found), found


@pytest.mark.parametrize(
    ("schema", "strict", "words"),
    [
        ({"type": "object"}, None, "missing properties"),
        (None, None, "type"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, None, "missing items"),
        ({"type": "object", "properties": {}, "anyOf": []}, None, "top level"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True, "additionalProperties"),
    ],
)
def test_openai_refuses_a_schema(schema: Any, strict: bool | None, words: str) -> None:
    function = {"name": "f", "parameters": schema, "strict": strict}
    found = check_openai_chat({"model": "m", "messages": [ASK], "tools": [{"type": "function", "function": function}]})
    assert any(words in complaint for complaint in found), found


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], "No tool output found"),
        ([{"type": "function_call_output", "call_id": "c", "output": ""}], "No tool call found"),
        ([{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "q"}], "following item"),
        ([{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}], "Supported values"),
    ],
)
def test_responses_refuses(items: list[dict[str, Any]], words: str) -> None:
    found = check_openai_responses({"model": "m", "input": items})
    assert any(words in complaint for complaint in found), found


def _content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


SAY, CALLED = {"text": "q"}, {"functionCall": {"name": "f", "args": {}}}
ANSWERED = {"functionResponse": {"name": "f", "response": {"output": "42"}}}


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([], "contents is not specified"),
        ([_content("model", SAY), _content("user", SAY)], "begin with a user role"),
        ([_content("user", SAY), _content("model", SAY)], "end with a user role"),
        (
            [_content("user", SAY), _content("model", CALLED, CALLED), _content("user", ANSWERED)],
            "number of function response",
        ),
        (
            [_content("user", SAY), _content("model", CALLED), _content("user", ANSWERED, SAY)],
            "only function responses",
        ),
        ([_content("user", SAY), _content("model", CALLED), _content("user", ANSWERED)], "missing a thought_signature"),
        ([_content("user", {"text": ""})], "must not be empty"),
        ([_content("user")], "parts must not be empty"),
        ([_content("assistant", SAY)], "valid role"),
    ],
)
def test_gemini_refuses(contents: list[dict[str, Any]], words: str) -> None:
    found = check_gemini({"contents": contents}, "gemini-3-pro")
    assert any(words in complaint for complaint in found), found


def test_gemini_takes_a_turn_without_a_role() -> None:
    """As in Google's own examples for curl."""
    assert check_gemini({"contents": [{"parts": [SAY]}]}, "gemini-3-pro") == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}, "exclusiveMinimum"),
        ({"type": "object", "properties": {"n": {"type": ["string", "null"]}}}, "cannot start list"),
        ({"type": "object", "properties": {"n": {"type": "array"}}}, "missing field"),
        ({"type": "object", "properties": {"n": {"type": "object", "properties": {}}}}, "non-empty for OBJECT"),
        ({"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}}, "TYPE_STRING"),
    ],
)
def test_gemini_refuses_a_schema(schema: dict[str, Any], words: str) -> None:
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    found = check_gemini({"contents": [_content("user", SAY)], "tools": tools})
    assert any(words in complaint for complaint in found), found


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "developer", "content": "x"}], "invalid role"),
        ([{"role": "user", "content": [SAY]}], "cannot unmarshal array"),
        ([{"role": "user", "content": "x", "images": ["data:image/png;base64,AA"]}], "illegal base64"),
        ([{"role": "tool", "content": "x", "tool_name": "f"}], "without a call"),
    ],
)
def test_ollama_refuses(messages: list[dict[str, Any]], words: str) -> None:
    found = check_ollama({"model": "m", "messages": messages})
    assert any(words in complaint for complaint in found), found
