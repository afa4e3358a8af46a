"""What 19 real clients send (CLIENTS.md), point by point, through their door to every upstream dialect.

The strict providers refuse what their vendor would refuse: a point passes when nobody complains and an answer comes.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.sdks import PIXEL
from tests.gateway.strict_providers import StrictProviders, serve_strict_providers
from tests.gateway.web import post

UPSTREAMS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
MESSAGES, RESPONSES, CHAT, OLLAMA = "/v1/messages?beta=true", "/v1/responses", "/v1/chat/completions", "/api/chat"
GEMINI = "/v1beta/models/MODEL:generateContent"

READ = {
    "name": "Read",
    "description": "Reads a file",
    "input_schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "pattern": "^/"},
            "limit": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            "mode": {"oneOf": [{"const": "text"}, {"const": "binary"}]},
            "extra": {"$ref": "#/$defs/extra"},
        },
        "$defs": {"extra": {"type": "object", "propertyNames": {"pattern": "^x-"}, "additionalProperties": True}},
        "required": ["file_path"],
        "additionalProperties": False,
    },
}
FUNCTION = {
    "type": "function",
    "function": {**{k: READ[k] for k in ("name", "description")}, "parameters": READ["input_schema"]},
}
USE = {"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"file_path": "/a"}}
USE2 = {"type": "tool_use", "id": "toolu_02", "name": "Read", "input": {"file_path": "/b"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
ASK = {"role": "user", "content": "read /a please"}
THANKS = {"role": "user", "content": "say thanks"}


def anthropic(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "MODEL", "max_tokens": 8000, "messages": list(messages), **more}


def result(call: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


TEXT = {"type": "text", "text": "say hi"}
EPHEMERAL = {"type": "ephemeral"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "Read", "arguments": '{"file_path": "/a"}'}}
DECLARED = {"name": "Read", "description": "Reads", "parametersJsonSchema": READ["input_schema"]}
PLEASE = {"role": "user", "parts": [{"text": "read /a"}]}
MODEL_CALL = {"role": "model", "parts": [{"functionCall": {"name": "Read", "args": {"file_path": "/a"}}}]}
ANSWERED = {"functionResponse": {"name": "Read", "response": {"output": "text of a"}}}

POINTS: list[tuple[str, str, dict[str, Any]]] = [
    ("1 system in the middle", MESSAGES, anthropic(ASK, {"role": "system", "content": "be brief"}, THANKS)),
    ("1 system last, as blocks", MESSAGES, anthropic(ASK, {"role": "system", "content": [TEXT]})),
    ("2 a budget next to the limit", MESSAGES,
     anthropic(THANKS, max_tokens=64000, thinking={"type": "enabled", "budget_tokens": 63999})),
    ("2 a budget above the limit", MESSAGES, anthropic(THANKS, thinking={"type": "enabled", "budget_tokens": 32000})),
    ("2 adaptive with an effort", MESSAGES,
     anthropic(THANKS, thinking={"type": "adaptive"}, output_config={"effort": "high"})),
    ("2 disabled", MESSAGES, anthropic(THANKS, thinking={"type": "disabled"})),
    ("3 context management and metadata", MESSAGES,
     anthropic(THANKS, context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
               metadata={"user_id": '{"device_id": "x", "account": "y"}'},
               system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=65abc;"},
                       {"type": "text", "text": "You are a coding agent.", "cache_control": EPHEMERAL}])),
    ("4 deferred tools", MESSAGES, anthropic(THANKS, tools=[READ, {**READ, "name": "Late", "defer_loading": True}])),
    ("5 a result as text", MESSAGES, anthropic(ASK, says(USE), user(result("toolu_01", "text")), tools=[READ])),
    ("5 a result with a picture", MESSAGES,
     anthropic(ASK, says(USE), user(result("toolu_01", [{"type": "text", "text": "x"}, IMAGE])), tools=[READ])),
    ("5 a failed result, cached", MESSAGES,
     anthropic(ASK, says(USE), user(result("toolu_01", "no such file", is_error=True, cache_control=EPHEMERAL)),
               tools=[READ])),
    ("6 results split over two turns, text after", MESSAGES,
     anthropic(ASK, says(USE, USE2), user(result("toolu_01", "one")), user(result("toolu_02", "two"), TEXT),
               tools=[READ])),
    ("7 custom and server tools", RESPONSES,
     {"model": "MODEL", "input": "say hi", "store": False,
      "tools": [{"type": "function", "strict": False, **FUNCTION["function"]},  # type: ignore[dict-item]
                {"type": "custom", "name": "apply_patch", "description": "patches",
                 "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}}]}),
    ("8 custom calls and their outputs", RESPONSES,
     {"model": "MODEL", "store": False, "tools": [{"type": "custom", "name": "apply_patch"}],
      "input": [{"role": "user", "content": "patch it"},
                {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
                {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"}]}),
    ("8 an output with a picture", RESPONSES,
     {"model": "MODEL", "store": False, "tools": [{"type": "function", "strict": False, **FUNCTION["function"]}],  # type: ignore[dict-item]
      "input": [{"role": "user", "content": "look"},
                {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": '{"file_path":"/a"}'},
                {"type": "function_call_output", "call_id": "c1", "output": [
                    {"type": "input_text", "text": "see"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}]}]}),
    ("9 items without type or id", RESPONSES,
     {"model": "MODEL", "store": False, "include": ["reasoning.encrypted_content"],
      "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "hello", "annotations": []}]},
                {"role": "user", "content": "say hi"}]}),
    ("10 instructions", RESPONSES, {"model": "MODEL", "input": "say hi", "instructions": "be brief", "store": False}),
    ("10 a developer message", RESPONSES,
     {"model": "MODEL", "store": False,
      "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
                {"role": "user", "content": "say hi"}]}),
    ("11 text and calls split by a user message", CHAT,
     {"model": "MODEL", "tools": [FUNCTION],
      "messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                   {"role": "tool", "tool_call_id": "call_1", "content": "text of a"},
                   {"role": "assistant", "content": "I read it."}, {"role": "user", "content": "(note)"}, THANKS]}),
    ("11 developer role, several systems in a row", CHAT,
     {"model": "MODEL", "messages": [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"},
                                     {"role": "user", "content": [{"type": "text", "text": "hello"}]}, THANKS]}),
    ("12 keys of others", CHAT,
     {"model": "MODEL", "prompt_cache_key": "k", "search_parameters": {"mode": "off"}, "x_private": 1,
      "messages": [ASK, {"role": "assistant", "content": "ok", "reasoning_content": "hm", "refusal": None,
                         "provider_specific_fields": {"a": 1}}, {**THANKS, "name": "ada"}]}),
    ("14 both cases in one body", GEMINI,
     {"contents": [PLEASE], "system_instruction": {"parts": [{"text": "be brief"}]},
      "generationConfig": {"max_output_tokens": 100, "topP": 0.9}, "tools": {"function_declarations": [DECLARED]}}),
    ("15 no ids, a result whose name is no name", GEMINI,
     {"contents": [PLEASE, MODEL_CALL,
                   {"role": "user", "parts": [{"functionResponse": {"name": "8d6c9a4e-id", "response": {"o": "x"}}}]}],
      "tools": [{"functionDeclarations": [DECLARED]}]}),
    ("15 a result twice", GEMINI,
     {"contents": [PLEASE, MODEL_CALL, {"role": "user", "parts": [ANSWERED]},
                   {"role": "user", "parts": [ANSWERED]}], "tools": [{"functionDeclarations": [DECLARED]}]}),
    ("16 thoughts echoed, the literal in place of a signature", GEMINI,
     {"contents": [PLEASE,
                   {"role": "model", "parts": [{"text": "hm", "thought": True},
                                               {**MODEL_CALL["parts"][0],  # type: ignore[dict-item]
                                                "thoughtSignature": "skip_thought_signature_validator"}]},
                   {"role": "user", "parts": [ANSWERED, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]}],
      "tools": [{"functionDeclarations": [DECLARED]}], "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}}),
    ("18 pictures, tool_name and tool_choice", OLLAMA,
     {"model": "MODEL", "stream": False, "tools": [FUNCTION], "tool_choice": "auto", "keep_alive": "5m",
      "messages": [{"role": "user", "content": "look", "images": [PIXEL]},
                   {"role": "assistant", "content": "", "tool_calls": [
                       {"function": {"name": "Read", "arguments": {"file_path": "/a"}}}]},
                   {"role": "tool", "tool_name": "Read", "content": "text of a"}, THANKS]}),
    ("19 long names and hard schemas", CHAT,
     {"model": "MODEL", "messages": [THANKS],
      "tools": [{"type": "function", "function": {**FUNCTION["function"], "name": "mcp__server__" + "x" * 32}}]}),  # type: ignore[dict-item]
    ("20 a call id of 300 characters", CHAT,
     {"model": "MODEL", "tools": [FUNCTION],
      "messages": [ASK, {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "c" * 300}]},
                   {"role": "tool", "tool_call_id": "c" * 300, "content": "text of a"}, THANKS]}),
    ("21 arguments written in another way", CHAT,
     {"model": "MODEL", "tools": [FUNCTION],
      "messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [
          {**CALL, "function": {"name": "Read", "arguments": '{ "file_path" :"/a" }'}}]},
                   {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "text of a"}]}]}),
]  # fmt: skip


@pytest.fixture(scope="module")
def providers() -> Iterator[StrictProviders]:
    with serve_strict_providers(*UPSTREAMS) as providers:
        yield providers


@pytest.mark.parametrize("target", UPSTREAMS)
@pytest.mark.parametrize(("path", "body"), [row[1:] for row in POINTS], ids=[row[0] for row in POINTS])
def test_a_clients_request_is_taken_by_every_upstream(
    providers: StrictProviders, path: str, body: dict[str, Any], target: str
) -> None:
    provider = providers.providers[target]
    provider.reset()
    model = f"{target}-model"
    asked = json.loads(json.dumps(body).replace("MODEL", model))
    headers = (
        {"anthropic-version": "2023-06-01", "anthropic-beta": "unknown-beta-2027-01-01"} if path == MESSAGES else {}
    )
    got = post(providers.house.url, path.replace("MODEL", model), asked, headers)
    assert got.status == 200, got.text
    # private keys in the provider's own dialect are refused, each once; the gateway learns and sends the rest
    assert len(provider.refusals) == (2 if "x_private" in asked and target == "openai_chat" else 0), provider.refusals
