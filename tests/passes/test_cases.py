"""FIELD-CASES x targets: each case by number and name, the exact wire the target gets, and its strict checker's word.

An expectation is a path into the wire and the value there; `GONE` is "nothing there". Every case is also sent to every
other target of `tests/passes/test_prepare.py`, whose checkers must take it.
"""

from base64 import b64encode
from hashlib import sha256
from struct import pack
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.notes import Notes
from dragoman.upstream.profiles import profile_for
from tests.passes.test_prepare import TARGETS
from tests.passes.wires import complain, read, send, write

GONE = object()
CHAT, RESP, ANTH, GEM, OLL = "openai_chat", "openai_responses", "anthropic", "gemini", "ollama"


def calls(*ids: str, name: str = "look") -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def answer(call_id: str, text: str = "42") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def ask(text: str = "q") -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str = "ok", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def use(call_id: str, name: str = "look") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def got(call_id: str, text: str = "42") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def fn(parameters: Any = None, name: str = "look", **more: Any) -> dict[str, Any]:
    inner = {"name": name, **more} | ({"parameters": parameters} if parameters is not None else {})
    return {"type": "function", "function": inner}


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


LONG = "mcp__mcp-router__mcp-router__mcp-shrimp-task-manager__analyze_task"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
JPEG = "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAEBAQ=="
FLASH, PRO, OLD, NEW = "gemini-2.5-flash", "gemini-3-pro", "claude-sonnet-4-5", "claude-opus-5-5"
SENTINEL = "skip_thought_signature_validator"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
CLAUDE_USER = f"user_{'0a' * 32}_account_{'1b' * 16}_session_{'2c' * 16}"
LOOP = [ask(), calls("c1"), answer("c1")]


def png(width: int, height: int) -> str:
    """The head of a picture of this size."""
    return b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + pack(">II", width, height) + bytes(8)).decode()


def picture(width: int, height: int = 10) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(width, height)}}


A, B = {"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {}}
CLAUDE_LOOP = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": [use("t1")]},
    {"role": "user", "content": [got("t1")]},
]
TWO_CALLS = [  # of one turn, as Responses has them
    {"role": "user", "content": "q"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"type": "function_call_output", "call_id": "c2", "output": "2"},
]

BILLED = {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.42.834; cc_entrypoint=cli; cch=65abc;"},
        {"type": "text", "text": "You are Claude Code."},
    ],
    "messages": [ask()],
}
MARKED = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": t, "cache_control": MARK} for t in ("a", "b")]},
    ]
}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjcK"}}

SEARCHED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "bergen"}}
HIT = {"type": "web_search_result", "title": "Bergen", "url": "https://ex.org/b", "encrypted_content": "E" * 40}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]}

Expect = dict[str, Any]
Case = tuple[str, str, dict[str, Any], str, str, Expect]

CASES: list[Case] = [
    # ---------------------------------------------------------------- 1-5: calls and results
    (
        "1 a call without a result poisons every later turn",
        ANTH,
        {"messages": [ask(), {"role": "assistant", "content": [use("t1"), use("t2")]}, ask("continue")]},
        "anthropic",
        NEW,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("q", "continue")]}]},
    ),
    ("1", CHAT, {"messages": [ask(), calls("c1"), ask("go")]}, "openai", "gpt-4o", {"messages": [ask(), ask("go")]}),
    (
        "1",
        CHAT,
        {"messages": [ask(), calls("c1"), ask("go")]},
        "gemini",
        FLASH,
        {"contents": [{"role": "user", "parts": [{"text": "q"}, {"text": "go"}]}]},
    ),
    (
        "2 a result without a call",
        CHAT,
        {"messages": [ask("hi"), answer("c9")]},
        "openai",
        "gpt-4o",
        {"messages": [ask("hi")]},
    ),
    ("2", CHAT, {"messages": [ask("hi"), answer("c9")]}, "groq", "llama", {"messages": [ask("hi")]}),
    ("2", CHAT, {"messages": [ask("hi"), answer("c9")]}, "cerebras", "qwen", {"messages": [ask("hi")]}),
    ("2", CHAT, {"messages": [ask("hi"), answer("c9")]}, "fireworks", "kimi", {"messages": [ask("hi")]}),
    ("2", CHAT, {"messages": [ask("hi"), answer("c9")]}, "ollama", "llama3", {"messages": [ask("hi")]}),
    ("2", CHAT, {"messages": [ask("hi"), answer("c9")]}, "anthropic", NEW, {"messages": [ask("hi")]}),
    (
        "3 parallel results over several turns, text in between",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("A"), use("B")]},
                {"role": "user", "content": [got("A"), {"type": "text", "text": "note"}]},
                {"role": "user", "content": [got("B")]},
            ]
        },
        "openai",
        "gpt-4o",
        {"messages.2": answer("A"), "messages.3": answer("B"), "messages.4": ask("note"), "messages.5": GONE},
    ),
    (
        "3 a Gemini client says a note beside its result",
        GEM,
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"name": "look", "response": {"output": "42"}}},
                        {"text": "note"},
                    ],
                },
            ]
        },
        "gemini",
        PRO,
        {
            "contents.2.parts": [{"functionResponse": {"name": "look", "response": {"output": "42"}}}],
            "contents.3": {"role": "user", "parts": [{"text": "note"}]},
        },
    ),
    (
        "3 a note before the result of a call the thread has kept",
        ANTH,
        {
            "thread": {"type": "continue", "previous_message_id": "msg_1"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "note"}, got("t1")]}],
        },
        "anthropic",
        NEW,
        {"messages.0.content": [got("t1"), {"type": "text", "text": "note"}]},
    ),
    (
        "4 one model turn as several items",
        RESP,
        {"input": TWO_CALLS},
        "deepseek",
        "deepseek-v4",
        {"messages.1.tool_calls.1.id": "c2", "messages.2": answer("c1", "1"), "messages.3": answer("c2", "2")},
    ),
    (
        "5 the provider reuses tool-call ids",
        CHAT,
        {"messages": [*LOOP, calls("c1"), answer("c1", "again")]},
        "anthropic",
        NEW,
        {
            "messages.1.content.0.id": "c1",
            "messages.3.content.0.id": "c1_2",
            "messages.4.content.0.tool_use_id": "c1_2",
        },
    ),
    (
        "5",
        CHAT,
        {"messages": [ask(), calls("b9mgIC84m"), answer("b9mgIC84m"), calls("b9mgIC84m"), ask("...")]},
        "mistral",
        "mistral-large",
        {
            "messages.1.tool_calls.0.id": "b9mgIC84m",
            "messages.3": said("OK."),  # "Unexpected role 'user' after role 'tool'"
            "messages.4": ask("..."),
            "messages.5": GONE,
        },
    ),
    (
        "rule",
        CHAT,
        {"messages": [ask(), {**calls("b9mgIC84m"), "content": "Let me see."}, answer("b9mgIC84m")]},
        "mistral",
        "open-mixtral-8x22b",
        {"messages.1.content": None, "messages.1.tool_calls.0.id": "b9mgIC84m"},
    ),
    (
        "3 text beside a result",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("A")]},
                {"role": "user", "content": [got("A"), {"type": "text", "text": "note"}]},
            ]
        },
        "gemini",
        PRO,
        {"contents.2.parts.1": GONE, "contents.3": {"role": "user", "parts": [{"text": "note"}]}},
    ),
    (
        "4 one model turn as several messages",
        CHAT,
        {"messages": [ask(), calls("c1"), calls("c2"), answer("c1"), answer("c2")]},
        "vllm",
        "qwen",
        {"messages.1.tool_calls.1.id": "c2", "messages.2": answer("c1"), "messages.3": answer("c2")},
    ),
    # ---------------------------------------------------------------- 9-15: reasoning
    (
        "9 a signature from another provider",
        GEM,
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {
                    "role": "model",
                    "parts": [{"text": "hm", "thought": True}, {"text": "ok", "thoughtSignature": "Zm9v"}],
                },
                {"role": "user", "parts": [{"text": "and"}]},
            ]
        },
        "anthropic",
        NEW,
        {"messages.1.content": "ok"},
    ),
    (
        "9 a signature that is empty",
        ANTH,
        {
            "max_tokens": 99,
            "messages": [
                ask(),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "ok"},
                    ],
                },
                ask(),
            ],
        },
        "anthropic",
        NEW,
        {"messages.1.content": "ok"},
    ),
    (
        "10 thinking on, but the replayed tool turn has no thinking",
        CHAT,
        {"messages": LOOP, "reasoning_effort": "medium"},
        "anthropic",
        OLD,
        {"thinking": {"type": "disabled"}, "output_config": GONE},
    ),
    (
        "10 adaptive thinking does not mind",
        CHAT,
        {"messages": LOOP, "reasoning_effort": "medium"},
        "anthropic",
        NEW,
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
    ),
    (
        "11 the order of thinking and calls is kept",
        ANTH,
        {
            "messages": [
                ask(),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "1", "signature": "s1"},
                        use("t1"),
                        {"type": "thinking", "thinking": "2", "signature": "s2"},
                        use("t2"),
                    ],
                },
                {"role": "user", "content": [got("t1"), got("t2")]},
            ]
        },
        "anthropic",
        NEW,
        {"messages.1.content.2.signature": "s2", "messages.1.content.3.id": "t2"},
    ),
    (
        "12 thought_signature missing on function calls",
        CHAT,
        {"messages": [ask(), calls("c1", "c2"), answer("c1"), answer("c2")]},
        "gemini",
        PRO,
        {"contents.1.parts.0.thoughtSignature": SENTINEL, "contents.1.parts.1.thoughtSignature": GONE},
    ),
    (
        "12 OpenRouter has the signature in a detail of the turn, under the id of its first call",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("t1"), use("t2")]},
                {"role": "user", "content": [got("t1"), got("t2")]},
            ]
        },
        "openrouter",
        "google/gemini-3-pro",
        {
            "messages.1.reasoning_details": [
                {
                    "type": "reasoning.encrypted",
                    "data": SENTINEL,
                    "index": 0,
                    "id": "t1",
                    "format": "google-gemini-v1",
                }
            ]
        },
    ),
    (
        "12 no sentinel for models that need none",
        CHAT,
        {"messages": LOOP},
        "gemini",
        FLASH,
        {"contents.1.parts.0.thoughtSignature": GONE},
    ),
    (
        "13 opaque state in the call id",
        CHAT,
        {"messages": [ask(), calls("call_abc__thought__" + "A" * 930), answer("call_abc__thought__" + "A" * 930)]},
        "openai",
        "gpt-5",
        {"input.1.call_id": "call_abc__thought__" + "A" * 36 + "_" + digest("call_abc__thought__" + "A" * 930)},
    ),
    (
        "14 DeepSeek wants every thought back: one is missing, so thinking is off",
        CHAT,
        {"messages": LOOP},
        "deepseek",
        "deepseek-v4",
        {"thinking": {"type": "disabled"}, "reasoning_effort": GONE},
    ),
    (
        "14 DeepSeek gets every thought back",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, use("t1")]},
                {"role": "user", "content": [got("t1")]},
            ]
        },
        "deepseek",
        "deepseek-v4",
        {"messages.1.reasoning_content": "hm", "thinking": GONE},
    ),
    *[
        (
            "15 reasoning_content in the history",
            CHAT,
            {"messages": [ask(), said("hi", reasoning_content="hm"), ask("and")]},
            kind,
            model,
            {"messages.1": wanted},
        )
        for kind, model, wanted in (
            ("groq", "llama", said("hi")),
            ("mistral", "mistral-large", said("hi")),
            ("cerebras", "qwen", said("hi", reasoning="hm")),
            ("fireworks", "kimi", said("hi", reasoning_content="hm")),
            ("vllm", "qwen", said("hi", reasoning="hm")),
        )
    ],
    # ---------------------------------------------------------------- 17-19: schemas, system
    (
        "17 ordinary JSON Schema keywords",
        CHAT,
        {
            "messages": [ask()],
            "tools": [
                fn(
                    {
                        "$schema": "https://json-schema.org/draft/2020-12/schema",
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "n": {"type": "integer", "exclusiveMinimum": 0},
                            "k": {"const": "x"},
                            "t": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                        },
                    }
                )
            ],
        },
        "gemini",
        PRO,
        {
            "tools.0.functionDeclarations.0.parametersJsonSchema": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "n": {"type": "integer", "minimum": 1},
                    "k": {"enum": ["x"]},
                    "t": {"type": "array", "items": {"type": "string"}, "description": "(uniqueItems: true)"},
                },
            }
        },
    ),
    (
        "18 references and arrays without items",
        CHAT,
        {
            "messages": [ask()],
            "tools": [
                fn(
                    {
                        "type": "object",
                        "properties": {
                            "v": True,
                            "a": {"type": "array", "items": {"$ref": "#/properties/headers"}},
                            "headers": {"type": "object"},
                            "l": {"type": "array"},
                        },
                    }
                )
            ],
        },
        "gemini",
        PRO,
        {
            "tools.0.functionDeclarations.0.parametersJsonSchema.properties": {
                "v": {},
                "a": {"type": "array", "items": {"type": "object"}},
                "headers": {"type": "object"},
                "l": {"type": "array", "items": {"type": "string"}},
            }
        },
    ),
    *[
        (
            "19 role system inside messages",
            ANTH,
            {"system": "S", "messages": [ask("hi"), {"role": "system", "content": "R"}]},
            kind,
            model,
            wanted,
        )
        for kind, model, wanted in (
            ("anthropic", NEW, {"system": "S", "messages.1": {"role": "system", "content": "R"}}),
            (
                "anthropic",
                OLD,
                {"messages.0.content.1.text": "[System Instructions]\nR\n[End of System Instructions]"},
            ),
            ("openai", "gpt-4o", {"messages.2": {"role": "system", "content": "R"}}),
            (
                "llamacpp",
                "qwen",
                {"messages.1.content.1.text": "[System Instructions]\nR\n[End of System Instructions]"},
            ),
            ("gemini", PRO, {"contents.0.parts.1.text": "[System Instructions]\nR\n[End of System Instructions]"}),
        )
    ],
    (
        "28 malformed arguments in history",
        CHAT,
        {
            "messages": [
                ask(),
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"value": '}}
                    ],
                },
                answer("c1"),
            ]
        },
        "anthropic",
        NEW,
        {"messages.1.content.0.input": {"_raw": '{"value": '}},
    ),
    (
        "30 images inside tool results",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("t1")]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [
                                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
                            ],
                        }
                    ],
                },
            ]
        },
        "openai",
        "gpt-4o",
        {"messages.2.role": "tool", "messages.3.content.0.type": "image_url"},
    ),
    # ---------------------------------------------------------------- 37-43
    (
        "37 newer body fields at an Anthropic-compatible server",
        ANTH,
        {
            "messages": [ask()],
            "context_management": {"edits": []},
            "tools": [{"name": "look", "input_schema": B, "defer_loading": True}],
        },
        "zai",
        "glm-5",
        {"context_management": GONE, "tools.0.defer_loading": GONE},
    ),
    (
        "37 all of it to Anthropic itself",
        ANTH,
        {
            "messages": [ask()],
            "context_management": {"edits": []},
            "tools": [{"name": "look", "input_schema": B, "defer_loading": True}],
        },
        "anthropic",
        NEW,
        {"context_management": {"edits": []}, "tools.0.defer_loading": True},
    ),
    (
        "39 freeform tools on chat backends",
        RESP,
        {
            "input": "q",
            "tools": [
                {
                    "type": "custom",
                    "name": "apply_patch",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"},
                }
            ],
        },
        "compatible",
        "m",
        {
            "tools.0.function": {
                "name": "apply_patch",
                "description": "The input must match this lark grammar:\nstart: /.+/s",
                "parameters": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            }
        },
    ),
    (
        "40 a client of another dialect keeps its conversation itself",
        CHAT,
        {"messages": [ask()]},
        "openai",
        "gpt-5",
        {"store": False, "include": ["reasoning.encrypted_content"]},
    ),
    ("40", CHAT, {"messages": [ask()], "store": True}, "openai", "gpt-5", {"store": True}),
    ("40", CHAT, {"messages": [ask()]}, "openai", "gpt-5-chat", {"store": False, "include": GONE}),
    (
        "40 a reasoning item without its following item",
        RESP,
        {
            "input": [
                {"role": "user", "content": "q"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"role": "user", "content": "next"},
            ]
        },
        "openai",
        "gpt-5",
        {"input.0.content": "q", "input.1.content": "next", "input.2": GONE},
    ),
    *[
        (
            "43 role developer unknown to the provider",
            CHAT,
            {"messages": [{"role": "developer", "content": "D"}, ask()]},
            kind,
            model,
            {"messages.0": {"role": role, "content": "D"}},
        )
        for kind, model, role in (
            ("deepseek", "deepseek-v4", "system"),
            ("moonshot", "kimi-k2", "system"),
            ("fireworks", "kimi", "system"),
            ("openai", "gpt-4o", "developer"),
        )
    ],
    # ---------------------------------------------------------------- 50-54: parameters
    (
        "50 the newer word for an older server",
        CHAT,
        {"messages": [ask()], "max_completion_tokens": 64},
        "mistral",
        "mistral-large",
        {"max_tokens": 64, "max_completion_tokens": GONE},
    ),
    (
        "50 max_tokens stays where both words are taken",
        CHAT,
        {"messages": [ask()], "max_tokens": 64},
        "groq",
        "m",
        {"max_tokens": 64, "max_completion_tokens": GONE},
    ),
    ("50", CHAT, {"messages": [ask()], "max_tokens": 64}, "openai", "gpt-5-mini", {"max_output_tokens": 64}),
    (
        "50",
        ANTH,
        {"messages": [ask()], "max_tokens": 64},
        "mistral",
        "m",
        {"max_tokens": 64, "max_completion_tokens": GONE},
    ),
    ("50", ANTH, {"messages": [ask()], "max_tokens": 64}, "ollama", "m", {"options.num_predict": 64}),
    (
        "51 thinking controls: a budget for a model that wants adaptive",
        ANTH,
        {"messages": [ask()], "thinking": {"type": "enabled", "budget_tokens": 32000}, "max_tokens": 8000},
        "anthropic",
        "claude-opus-4-7",
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}, "max_tokens": 8000},
    ),
    (
        "51 a budget above the limit for a model that wants budgets",
        ANTH,
        {"messages": [ask()], "thinking": {"type": "enabled", "budget_tokens": 32000}, "max_tokens": 8000},
        "anthropic",
        OLD,
        {"thinking": {"type": "enabled", "budget_tokens": 32000}, "max_tokens": 40000},
    ),
    (
        "51 off stays off",
        ANTH,
        {"messages": [ask()], "thinking": {"type": "disabled"}, "max_tokens": 9},
        "anthropic",
        OLD,
        {"thinking": {"type": "disabled"}},
    ),
    (
        "51 effort",
        CHAT,
        {"messages": [ask()], "reasoning_effort": "xhigh"},
        "gemini",
        PRO,
        {"generationConfig.thinkingConfig.thinkingLevel": "HIGH"},
    ),
    (
        "51 effort",
        CHAT,
        {"messages": [ask()], "reasoning_effort": "high"},
        "gemini",
        FLASH,
        {"generationConfig.thinkingConfig.thinkingBudget": 16384},
    ),
    *[
        (
            "51 effort for a model that is only switched",
            CHAT,
            {"messages": [ask()], "reasoning_effort": effort},
            kind,
            model,
            {"reasoning_effort": GONE, "thinking": wanted},
        )
        for kind, model in (("moonshot", "kimi-k2.6"), ("minimax", "minimax-m3"))
        for effort, wanted in (("high", GONE), ("none", {"type": "disabled"}))
    ],
    (
        "51 effort for a model with three words",
        CHAT,
        {"messages": [ask()], "reasoning_effort": "medium"},
        "moonshot",
        "kimi-k3",
        {"reasoning_effort": "low"},
    ),
    (
        "52 sampling with thinking",
        ANTH,
        {
            "messages": [ask()],
            "max_tokens": 9000,
            "temperature": 0.05,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        "anthropic",
        OLD,
        {"temperature": GONE, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    (
        "52 sampling removed altogether",
        CHAT,
        {"messages": [ask()], "temperature": 0.5, "top_p": 0.9},
        "anthropic",
        "claude-opus-4-7",
        {"temperature": GONE, "top_p": GONE},
    ),
    ("52 clamped", CHAT, {"messages": [ask()], "temperature": 1.7}, "anthropic", OLD, {"temperature": 1}),
    ("52", CHAT, {"messages": [ask()], "temperature": 0.5}, "openai", "gpt-5", {"temperature": GONE}),
    (
        "53 forced tool choice with thinking",
        CHAT,
        {"messages": [ask()], "tools": [fn(A)], "tool_choice": "required", "reasoning_effort": "high"},
        "anthropic",
        OLD,
        {"thinking": {"type": "disabled"}, "tool_choice": {"type": "any"}},
    ),
    (
        "53 a model that cannot be forced is asked",
        CHAT,
        {
            "messages": [ask()],
            "tools": [fn(A), fn(B, "g")],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
        },
        "anthropic",
        NEW,
        {
            "tool_choice": {"type": "auto"},
            "tools.0.name": "g",
            "tools.1": GONE,
            "messages.0.content.1.text": "[Answer with a call of the tool g.]",
        },
    ),
    (
        "53",
        CHAT,
        {"messages": [ask()], "tools": [fn(A)], "tool_choice": "required"},
        "deepseek",
        "deepseek-v4",
        {"tool_choice": "required", "thinking": {"type": "disabled"}},
    ),
    (
        "54 parameters an individual model rejects",
        CHAT,
        {"messages": [ask()], "presence_penalty": 0, "reasoning_effort": "high", "stop": ["x"]},
        "xai",
        "grok-4",
        {"presence_penalty": GONE, "reasoning_effort": GONE, "stop": GONE},
    ),
    # ---------------------------------------------------------------- 56-68: turns, ids, tools
    (
        "57 a turn that says nothing",
        ANTH,
        {"messages": [ask("a"), {"role": "assistant", "content": []}, ask("b")]},
        "mistral",
        "mistral-large",
        {"messages.0.content.1.text": "b", "messages.1": GONE},
    ),
    (
        "32 a conversation that begins with the assistant",
        CHAT,
        {"messages": [said("Hello!"), ask()]},
        "anthropic",
        NEW,
        {"messages.0": ask("(conversation continues)"), "messages.1": said("Hello!")},
    ),
    (
        "32",
        CHAT,
        {"messages": [said("Hello!"), ask()]},
        "gemini",
        PRO,
        {"contents.0": {"role": "user", "parts": [{"text": "(conversation continues)"}]}},
    ),
    (
        "94 more cache marks than there are places",
        ANTH,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": str(i), "cache_control": MARK} for i in range(6)],
                }
            ]
        },
        "anthropic",
        NEW,
        {
            "messages.0.content.1.cache_control": GONE,
            "messages.0.content.2.cache_control": MARK,
            "messages.0.content.5.cache_control": MARK,
        },
    ),
    (
        "56 blank text beside a call",
        CHAT,
        {"messages": [ask(), {**calls("c1"), "content": "\n"}, answer("c1")]},
        "anthropic",
        NEW,
        {"messages.1.content": [use("c1")]},
    ),
    (
        "56 trailing space",
        CHAT,
        {"messages": [ask(), said("Sure: ")]},
        "anthropic",
        OLD,
        {"messages.1.content": "Sure:"},
    ),
    (
        "56 an empty turn",
        CHAT,
        {"messages": [ask(), said(""), ask("b")]},
        "anthropic",
        NEW,
        {"messages.1.content": "(no content)"},
    ),
    (
        "58 prefill refused",
        CHAT,
        {"messages": [ask(), said("Sure")]},
        "anthropic",
        NEW,
        {"messages.2": ask("(continue)")},
    ),
    (
        "58",
        CHAT,
        {"messages": [ask(), said("Sure")]},
        "gemini",
        PRO,
        {"contents.2": {"role": "user", "parts": [{"text": "(continue)"}]}},
    ),
    (
        "58 prefill taken",
        CHAT,
        {"messages": [ask(), said("Sure")]},
        "openai",
        "gpt-4o",
        {"messages.1": said("Sure"), "messages.2": GONE},
    ),
    (
        "59 strict alternation and one system message",
        CHAT,
        {"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, ask("c"), ask("d")]},
        "mistral",
        "mistral-large",
        {"messages.0.content.1.text": "b", "messages.1.content.1.text": "d", "messages.2": GONE},
    ),
    (
        "59 never for OpenAI",
        CHAT,
        {"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, ask("c"), ask("d")]},
        "openai",
        "gpt-4o",
        {"messages.3": ask("d")},
    ),
    (
        "60 illegal ids",
        CHAT,
        {"messages": [ask(), calls("functions.web_fetch:0"), answer("functions.web_fetch:0")]},
        "anthropic",
        NEW,
        {
            "messages.1.content.0.id": "functions_web_fetch_0_" + digest("functions.web_fetch:0"),
            "messages.2.content.0.tool_use_id": "functions_web_fetch_0_" + digest("functions.web_fetch:0"),
        },
    ),
    (
        "60 Kimi keeps its own",
        CHAT,
        {"messages": [ask(), calls("functions.f:0"), answer("functions.f:0")]},
        "moonshot",
        "kimi-k2",
        {"messages.1.tool_calls.0.id": "functions.f:0"},
    ),
    (
        "61 illegal names",
        CHAT,
        {"messages": [ask()], "tools": [fn(A, "immich.assets.list")]},
        "openai",
        "gpt-4o",
        {"tools.0.function.name": "immich_assets_list_" + digest("immich.assets.list")},
    ),
    (
        "61 legal at Gemini",
        CHAT,
        {"messages": [ask()], "tools": [fn(A, "immich.assets.list")]},
        "gemini",
        PRO,
        {"tools.0.functionDeclarations.0.name": "immich.assets.list"},
    ),
    (
        "61 a digit first",
        CHAT,
        {"messages": [ask()], "tools": [fn(A, "2fa")]},
        "moonshot",
        "kimi-k2",
        {"tools.0.function.name": "t_2fa_" + digest("2fa")},
    ),
    (
        "62 names longer than 64",
        ANTH,
        {
            "messages": [ask()],
            "tools": [{"name": LONG, "input_schema": A}],
        },
        "openai",
        "gpt-4o",
        {"tools.0.function.name": LONG[:55] + "_" + digest(LONG)},
    ),
    *[
        (
            "63 B5 tools without parameters",
            CHAT,
            {"messages": [ask()], "tools": [fn(given)]},
            kind,
            model,
            {path: wanted},
        )
        for given in (None, {}, {"type": "object"})
        for kind, model, path, wanted in (
            ("anthropic", NEW, "tools.0.input_schema", {"type": "object"}),
            ("openai", "gpt-4o", "tools.0.function.parameters", B),
            ("openai", "gpt-5", "tools.0.parameters", B),
            ("xai", "grok-4", "tools.0.function.parameters", B),
            ("gemini", PRO, "tools.0.functionDeclarations.0", {"name": "look"}),
            ("ollama", "m", "tools.0.function.parameters", B),
        )
    ],
    (
        "64 strict promised for a schema that cannot keep it",
        CHAT,
        {"messages": [ask()], "tools": [fn({**A, "required": []}, strict=True)]},
        "openai",
        "gpt-4o",
        {"tools.0.function.strict": False, "tools.0.function.parameters": {**A, "required": []}},
    ),
    (
        "65 stop sequences of blanks",
        CHAT,
        {"messages": [ask()], "stop": ["\n", "END"]},
        "anthropic",
        OLD,
        {"stop_sequences": ["END"]},
    ),
    ("65 no stop in Responses", CHAT, {"messages": [ask()], "stop": ["END"]}, "openai", "gpt-5", {"stop": GONE}),
    (
        "67 A7 function_response.name",
        CHAT,
        {"messages": [ask(), calls("c1", name="get_weather"), answer("c1")]},
        "gemini",
        FLASH,
        {"contents.2.parts.0.functionResponse.name": "get_weather"},
    ),
    (
        "67 A7",
        CHAT,
        {"messages": [ask(), calls("c1", name="get_weather"), answer("c1")]},
        "ollama",
        "m",
        {"messages.2.tool_name": "get_weather"},
    ),
    (
        "67 A7 a name that is a UUID (CLIENTS 15)",
        GEM,
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "look", "args": {}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"id": "c1", "name": "0b7e-uuid", "response": {"output": "42"}}}],
                },
            ]
        },
        "gemini",
        FLASH,
        {"contents.2.parts.0.functionResponse.name": "look"},
    ),
    (
        "68 results are objects",
        CHAT,
        {"messages": LOOP},
        "gemini",
        FLASH,
        {"contents.2.parts.0.functionResponse.response": {"output": "42"}},
    ),
    (
        "66 the history has calls, the request has no tools",
        CHAT,
        {"messages": [*LOOP, said(), ask("summarise")]},
        "litellm",
        "claude",
        {
            "tools": [fn(B, description="Used earlier in this conversation, no longer there: not to be called.")],
            "tool_choice": "none",
            "messages.1.tool_calls.0.id": "c1",
        },
    ),
    (
        "66 Claude itself takes it",
        ANTH,
        {"messages": [*CLAUDE_LOOP, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "summarise"}]},
        "anthropic",
        NEW,
        {"tools": GONE, "messages.1.content.0": use("t1")},
    ),
    (
        "66 no calls, no tools",
        CHAT,
        {"messages": [ask()]},
        "litellm",
        "claude",
        {"tools": GONE, "tool_choice": GONE},
    ),
    *[
        (
            "70 another provider's search in the history",
            ANTH,
            {
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": [SEARCHED, FOUND, {"type": "text", "text": "So."}]},
                    {"role": "user", "content": "and?"},
                ]
            },
            kind,
            model,
            {path: wanted},
        )
        for kind, model, path, wanted in (
            ("openai", "gpt-4o", "messages.1.content.0.text", "[web_search: bergen]"),
            ("openai", "gpt-4o", "messages.1.content.1.text", "[result of web_search]\n- Bergen <https://ex.org/b>"),
            ("openai", "gpt-5", "input.1.content.0.text", "[web_search: bergen]"),
            ("gemini", PRO, "contents.1.parts.1.text", "[result of web_search]\n- Bergen <https://ex.org/b>"),
            ("anthropic", NEW, "messages.1.content.1", FOUND),
        )
    ],
    (
        "70 Responses' own search in the history",
        RESP,
        {
            "input": [
                {"role": "user", "content": "q"},
                {
                    "type": "web_search_call",
                    "id": "ws_1",
                    "status": "completed",
                    "action": {
                        "type": "search",
                        "query": "bergen",
                        "sources": [{"type": "url", "url": "https://ex.org/b"}],
                    },
                },
                {"role": "user", "content": "and?"},
            ]
        },
        "anthropic",
        NEW,
        {
            "messages.1.content": "[web_search: bergen]\n[result of web_search]\n- <https://ex.org/b>",
        },
    ),
    (
        "70 Gemini's own code in the history",
        GEM,
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {
                    "role": "model",
                    "parts": [
                        {"executableCode": {"language": "PYTHON", "code": "print(6*7)"}},
                        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}},
                        {"text": "So."},
                    ],
                },
                {"role": "user", "parts": [{"text": "and?"}]},
            ]
        },
        "ollama",
        "m",
        {"messages.1.content": "[code_execution: print(6*7)]\n[result of code_execution]\n42\nSo."},
    ),
    (
        "70 server-side tools on other backends",
        ANTH,
        {"messages": [ask()], "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]},
        "openai",
        "gpt-4o",
        {"tools": GONE},
    ),
    (
        "71 a JSON schema where there is only JSON",
        CHAT,
        {"messages": [ask()], "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": A}}},
        "deepseek",
        "deepseek-v4",
        {
            "response_format": {"type": "json_object"},
            "messages.0.content": 'Answer with JSON and nothing else. It must match this JSON Schema:\n{"type":'
            '"object","properties":{"a":{"type":"string"}}}',
        },
    ),
    *[
        (
            f"a choice among no tools: {kind}",
            RESP,
            {"input": "hi", "tool_choice": "auto", "parallel_tool_calls": True},
            kind,
            model,
            {"tool_choice": GONE, "parallel_tool_calls": GONE},
        )
        for kind, model in (("anthropic", NEW), ("openai", "gpt-4o"))
    ],
    (
        "72 parallel off alone",
        CHAT,
        {"messages": [ask()], "tools": [fn(A)], "parallel_tool_calls": False},
        "anthropic",
        NEW,
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    (
        "72 parallel off with none",
        CHAT,
        {"messages": [ask()], "tools": [fn(A)], "parallel_tool_calls": False, "tool_choice": "none"},
        "anthropic",
        NEW,
        {"tool_choice": {"type": "none"}},
    ),
    *[
        (
            "72 some tools only, where there is no word for it",
            CHAT,
            {
                "messages": [ask()],
                "tools": [fn(A), fn(B, "g"), fn(B, "h")],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": mode,
                        "tools": [{"type": "function", "function": {"name": n}} for n in ("look", "g")],
                    },
                },
            },
            "groq",
            "m",
            {"tool_choice": mode, "tools.1.function.name": "g", "tools.2": GONE},
        )
        for mode in ("auto", "required")
    ],
    (
        "72 none where there is no choice",
        CHAT,
        {"messages": [ask()], "tools": [fn(A)], "tool_choice": "none"},
        "ollama",
        "m",
        {"tools": GONE},
    ),
    *[
        (
            "83 an image of another type than it says",
            CHAT,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{JPEG}"}}],
                    }
                ]
            },
            kind,
            model,
            {path: wanted},
        )
        for kind, model, path, wanted in (
            ("anthropic", NEW, "messages.0.content.0.source.media_type", "image/jpeg"),
            ("gemini", PRO, "contents.0.parts.0.inlineData.mimeType", "image/jpeg"),
            ("ollama", "m", "messages.0.images.0", JPEG),
        )
    ],
    *[
        (
            f"83 base64 as proto3's JSON allows it: {form}",
            GEM,
            {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/jpeg", "data": data}}]}]},
            kind,
            model,
            {path: wanted},
        )
        for kind, model, path, wanted in (
            ("anthropic", NEW, "messages.0.content.0.source.data", JPEG),
            ("openai", "gpt-4o", "messages.0.content.0.image_url.url", f"data:image/jpeg;base64,{JPEG}"),
            ("ollama", "m", "messages.0.images.0", JPEG),
        )
        for form, data in (
            ("URL-safe", JPEG.replace("+", "-").replace("/", "_")),
            ("without padding", JPEG.rstrip("=")),
            ("in lines", f"{JPEG[:10]}\n{JPEG[10:]} "),
        )
    ],
    (
        "83 an image URL where only base64 is taken",
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://ex.org/a.jpg"}}]}
            ]
        },
        "ollama",
        "m",
        {"messages.0.images": GONE, "messages.0.content": "[image left out: https://ex.org/a.jpg]"},
    ),
    (
        "128 a pattern for a grammar compiler",
        ANTH,
        {
            "messages": [ask()],
            "tools": [
                {
                    "name": "f",
                    "input_schema": {"type": "object", "properties": {"x": {"type": "string", "pattern": "^\\d+$"}}},
                }
            ],
        },
        "llamacpp",
        "m",
        {"tools.0.function.parameters.properties.x": {"type": "string", "description": '(pattern: "^\\\\d+$")'}},
    ),
    (
        "136 an image for a text-only model",
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://ex.org/a.jpg"}}]}
            ]
        },
        "deepseek",
        "deepseek-v4",
        {"messages.0.content": "[image left out: https://ex.org/a.jpg]"},
    ),
    (
        "150 edits outlive the thinking they edit",
        ANTH,
        {
            "messages": CLAUDE_LOOP,
            "max_tokens": 9000,
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        },
        "anthropic",
        OLD,
        {"thinking": {"type": "disabled"}, "context_management": GONE},
    ),
    # ---------------------------------------------------------------- more directions of the same
    *[
        (
            "1 a call without a result, Responses and Ollama too",
            CHAT,
            {"messages": [ask(), calls("c1"), ask("go")]},
            kind,
            model,
            wanted,
        )
        for kind, model, wanted in (
            ("openai", "gpt-5", {"input": [ask(), ask("go")]}),
            ("ollama", "m", {"messages": [ask(), ask("go")]}),
            ("xai", "grok-4", {"messages": [ask(), ask("go")]}),
        )
    ],
    *[
        (
            "2 a result without a call, every target",
            CHAT,
            {"messages": [ask("hi"), answer("c9")]},
            kind,
            model,
            wanted,
        )
        for kind, model, wanted in (
            ("openai", "gpt-5", {"input": [ask("hi")]}),
            ("gemini", PRO, {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
            ("minimax", "minimax-m2.7", {"messages": [ask("hi")]}),
        )
    ],
    (
        "4 one model turn as several items, for Gemini",
        RESP,
        {"input": TWO_CALLS},
        "gemini",
        FLASH,
        {
            "contents.1.parts.1.functionCall.name": "look",
            "contents.2.parts.1.functionResponse.response": {"output": "2"},
            "contents.3": GONE,
        },
    ),
    (
        "5 ids reused, for Responses",
        CHAT,
        {"messages": [*LOOP, calls("c1"), answer("c1", "again")]},
        "openai",
        "gpt-5",
        {"input.1.call_id": "c1", "input.3.call_id": "c1_2", "input.4.call_id": "c1_2"},
    ),
    (
        "9 encrypted reasoning of OpenAI for Claude",
        RESP,
        {
            "input": [
                {"role": "user", "content": "q"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
                {"role": "user", "content": "and"},
            ]
        },
        "anthropic",
        NEW,
        {"messages.1.content": [{"type": "text", "text": "ok"}]},
    ),
    (
        "9 a signature of Claude for Gemini",
        ANTH,
        {
            "messages": [
                ask(),
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "hm", "signature": "EqRk"}, use("t1")],
                },
                {"role": "user", "content": [got("t1")]},
            ]
        },
        "gemini",
        PRO,
        {"contents.1.parts.0.thoughtSignature": SENTINEL, "contents.1.parts.1": GONE},
    ),
    (
        "10 thinking on, from Responses",
        RESP,
        {
            "input": [
                {"role": "user", "content": "q"},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
            ],
            "reasoning": {"effort": "medium"},
        },
        "anthropic",
        OLD,
        {"thinking": {"type": "disabled"}},
    ),
    *[
        (
            "12 unsigned calls of other clients",
            source,
            body,
            "gemini",
            PRO,
            {"contents.1.parts.0.thoughtSignature": SENTINEL},
        )
        for source, body in (
            (ANTH, {"messages": CLAUDE_LOOP}),
            (
                RESP,
                {
                    "input": [
                        {"role": "user", "content": "q"},
                        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                        {"type": "function_call_output", "call_id": "c1", "output": "1"},
                    ]
                },
            ),
        )
    ],
    (
        "13 opaque state in the call id, for Claude",
        CHAT,
        {"messages": [ask(), calls("call_abc__thought__AY89a1+/=="), answer("call_abc__thought__AY89a1+/==")]},
        "anthropic",
        NEW,
        {"messages.1.content.0.id": "call_abc__thought__AY89a1_" + digest("call_abc__thought__AY89a1+/==")},
    ),
    *[
        ("14 Kimi wants the thoughts of turns with calls", CHAT, {"messages": history}, "moonshot", model, wanted)
        for history, model, wanted in (
            (LOOP, "kimi-k2.6", {"thinking": {"type": "disabled"}}),
            ([ask(), said("hi"), ask("and")], "kimi-k2.6", {"thinking": GONE}),
            (
                [ask(), {**calls("c1"), "reasoning_content": "hm"}, answer("c1")],
                "kimi-k2.6",
                {"thinking": GONE, "messages.1.reasoning_content": "hm"},
            ),
            (LOOP, "kimi-k3", {"thinking": GONE, "messages.1.reasoning_content": "(not kept)"}),
        )
    ],
    (
        "18 type arrays, null and booleans",
        CHAT,
        {
            "messages": [ask()],
            "tools": [
                fn(
                    {
                        "type": "object",
                        "properties": {
                            "l": {"type": ["array", "null"], "items": {"type": "string"}},
                            "n": {"type": ["string", "null"]},
                        },
                    }
                )
            ],
        },
        "gemini",
        PRO,
        {
            "tools.0.functionDeclarations.0.parametersJsonSchema.properties": {
                "l": {"type": ["array", "null"], "items": {"type": "string"}},
                "n": {"type": ["string", "null"]},
            }
        },
    ),
    *[
        (
            "28 malformed arguments at servers that read them",
            CHAT,
            {
                "messages": [
                    ask(),
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": given}}
                        ],
                    },
                    answer("c1"),
                ]
            },
            kind,
            "m",
            {"messages.1.tool_calls.0.function.arguments": wanted, "messages.2": answer("c1")},
        )
        for kind in ("vllm", "llamacpp", "minimax", "compatible")
        for given, wanted in (
            ('{"value": ', '{"_raw":"{\\"value\\": "}'),
            ("", "{}"),
            ("null", "{}"),
            ('{"a": 1}', '{"a": 1}'),
        )
    ],
    *[
        (
            "30 images inside tool results, where results may hold them",
            ANTH,
            {
                "messages": [
                    ask(),
                    {"role": "assistant", "content": [use("t1")]},
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "t1",
                                "content": [
                                    {
                                        "type": "image",
                                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                                    }
                                ],
                            }
                        ],
                    },
                ]
            },
            kind,
            model,
            wanted,
        )
        for kind, model, wanted in (
            ("openai", "gpt-5", {"input.2.output.0.type": "input_image"}),
            ("gemini", PRO, {"contents.2.parts.0.functionResponse.parts.0.inlineData.data": PNG}),
            ("ollama", "m", {"messages.2.images.0": PNG}),
        )
    ],
    (
        "37 newer fields at a local server that speaks Anthropic",
        ANTH,
        {
            "messages": [ask()],
            "context_management": {"edits": []},
            "tools": [{"name": "look", "input_schema": B, "defer_loading": True, "input_examples": [{}]}],
        },
        "fireworks",
        "kimi",
        {"context_management": GONE, "tools.0.defer_loading": GONE, "tools.0.function.name": "look"},
    ),
    *[
        (
            "39 freeform tools elsewhere",
            RESP,
            {
                "input": "q",
                "tools": [{"type": "custom", "name": "apply_patch", "format": {"type": "text"}}],
            },
            kind,
            model,
            {path: {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}},
        )
        for kind, model, path in (
            ("anthropic", NEW, "tools.0.input_schema"),
            ("gemini", PRO, "tools.0.functionDeclarations.0.parametersJsonSchema"),
            ("ollama", "m", "tools.0.function.parameters"),
        )
    ],
    *[
        (
            "43 role developer from Responses",
            RESP,
            {"input": [{"role": "developer", "content": "D"}, ask()]},
            kind,
            model,
            wanted,
        )
        for kind, model, wanted in (
            ("deepseek", "deepseek-v4", {"messages.0": {"role": "system", "content": "D"}}),
            ("anthropic", NEW, {"system": "D"}),
            ("gemini", PRO, {"systemInstruction.parts.0.text": "D"}),
            ("ollama", "m", {"messages.0": {"role": "system", "content": "D"}}),
        )
    ],
    *[
        (
            "57 a turn that only calls: null, empty or absent",
            CHAT,
            {
                "messages": [
                    ask(),
                    {k: v for k, v in {**calls("c1"), "content": given}.items() if v != "absent"},
                    answer("c1"),
                ]
            },
            kind,
            "m",
            {"messages.1.content": wanted},
        )
        for given in (None, "", "absent")
        for kind, wanted in (("compatible", None), ("lmstudio", ""))
    ],
    (
        "57 no tools and no calls said as null",
        CHAT,
        {"messages": [ask(), said("ok", tool_calls=None), ask()], "tools": None},
        "anthropic",
        NEW,
        {"tools": GONE, "messages.1.content": "ok"},
    ),
    *[
        (
            "57 nulls where there may be nothing",
            CHAT,
            {
                "messages": [ask(), said("ok", tool_calls=None, refusal=None), ask()],
                "tools": [{"type": "function", "function": {"name": "look", "parameters": None, "strict": None}}],
                "stop": None,
            },
            kind,
            model,
            {"stop": GONE, "messages.1": said("ok"), "tools.0.function": {"name": "look", "parameters": B}},
        )
        for kind, model in (("xai", "grok-4"), ("compatible", "m"))
    ],
    (
        "61 illegal names, for Claude",
        CHAT,
        {"messages": [ask()], "tools": [fn(A, "搜索")]},
        "anthropic",
        NEW,
        {"tools.0.name": "t_" + digest("搜索")},
    ),
    (
        "62 names longer than 64 are taken elsewhere",
        ANTH,
        {"messages": [ask()], "tools": [{"name": LONG, "input_schema": A}]},
        "openai",
        "gpt-5",
        {"tools.0.name": LONG},
    ),
    *[
        (
            "64 strict for a schema that cannot keep it",
            CHAT,
            {"messages": [ask()], "tools": [fn({**A, "required": []}, strict=True)]},
            kind,
            model,
            {path: wanted},
        )
        for kind, model, path, wanted in (
            ("openai", "gpt-5", "tools.0.strict", False),
            ("anthropic", NEW, "tools.0.input_schema.additionalProperties", False),
            ("zai", "glm-5", "tools.0.function.strict", GONE),
        )
    ],
    *[
        (
            "68 results are objects, whatever they were",
            CHAT,
            {"messages": [ask(), calls("c1"), {"role": "tool", "tool_call_id": "c1", "content": given}]},
            "gemini",
            FLASH,
            {"contents.2.parts.0.functionResponse.response": wanted},
        )
        for given, wanted in (("[1,2]", {"output": "[1,2]"}), ("", {}), ('{"a": 1}', {"output": '{"a": 1}'}))
    ],
    (
        "70 server-side tools of Responses",
        RESP,
        {"input": "q", "tools": [{"type": "web_search"}, {"type": "image_generation"}]},
        "compatible",
        "m",
        {"tools": GONE},
    ),
    *[
        (
            "71 a JSON schema where there is one",
            CHAT,
            {
                "messages": [ask()],
                "tools": [fn(A)],
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "r", "schema": {**A, "required": ["a"]}},
                },
            },
            kind,
            model,
            {path: wanted},
        )
        for kind, model, path, wanted in (
            ("anthropic", NEW, "output_config.format.type", "json_schema"),
            ("anthropic", NEW, "tools.1", GONE),
            ("gemini", PRO, "generationConfig.responseMimeType", "application/json"),
            ("openai", "gpt-5", "text.format.type", "json_schema"),
            ("ollama", "m", "format.properties.a", {"type": "string"}),
        )
    ],
    (
        "82 a long prompt opens a window",
        CHAT,
        {"messages": [ask("word " * 6000)], "max_tokens": 64},
        "ollama",
        "m",
        {"options.num_ctx": 16384, "options.num_predict": 64},
    ),
    ("82 a short one does not", CHAT, {"messages": [ask()]}, "ollama", "m", {"options": GONE}),
    (
        "82 what a client says is left",
        OLL,
        {"messages": [ask("word " * 6000)], "options": {"num_ctx": 5000}},
        "ollama",
        "m",
        {"options.num_ctx": 5000},
    ),
    (
        "83 an image URL for Gemini",
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://ex.org/a.jpg"}}]}
            ]
        },
        "gemini",
        PRO,
        {"contents.0.parts.0.fileData.fileUri": "https://ex.org/a.jpg"},
    ),
    *[
        ("91 the billing line is Anthropic's", ANTH, BILLED, kind, model, wanted)
        for kind, model, wanted in (
            ("llamacpp", "m", {"messages.0": {"role": "system", "content": "You are Claude Code."}}),
            ("openai", "gpt-5", {"instructions": "You are Claude Code."}),
            ("gemini", PRO, {"systemInstruction.parts": [{"text": "You are Claude Code."}]}),
            ("anthropic", NEW, {"system.0.text": BILLED["system"][0]["text"]}),
        )
    ],
    *[
        ("94 cache marks for those who do not know them", ANTH, MARKED, kind, model, {path: wanted})
        for kind, model, path, wanted in (
            *(
                (kind, "m", "messages.0.content", [{"type": "text", "text": t} for t in ("a", "b")])
                for kind in ("compatible", "vllm", "deepseek", "groq")
            ),
            ("ollama", "m", "messages.0.content", "a\nb"),
            ("gemini", PRO, "contents.0.parts.0", {"text": "a"}),
        )
    ],
    *[
        ("101 a PDF", CHAT, {"messages": [{"role": "user", "content": [PDF]}]}, kind, model, {path: wanted})
        for kind, model, path, wanted in (
            ("anthropic", NEW, "messages.0.content.0.source.media_type", "application/pdf"),
            ("openai", "gpt-5", "input.0.content.0.type", "input_file"),
            ("gemini", PRO, "contents.0.parts.0.inlineData.mimeType", "application/pdf"),
            ("ollama", "m", "messages.0.content", "[document left out: a.pdf]"),
            ("deepseek", "deepseek-v4", "messages.0.content", "[document left out: a.pdf]"),
        )
    ],
    (
        "133 a refusal where there is only text",
        CHAT,
        {"messages": [ask(), {"role": "assistant", "content": None, "refusal": "I will not."}, ask()]},
        "deepseek",
        "deepseek-v4",
        {"messages.1.content": "I will not.", "messages.1.refusal": GONE},
    ),
    (
        "133 the parts of an assistant's history",
        CHAT,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]},
                ask(),
            ]
        },
        "openai",
        "gpt-5",
        {"input.1.content.0.type": "output_text", "input.1.content.1.type": "refusal"},
    ),
    (
        "B5 a property name the target refuses, in the history too",
        CHAT,
        {
            "messages": [
                ask(),
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"$top":3}'}}
                    ],
                },
                answer("c1"),
            ],
            "tools": [fn({"type": "object", "properties": {"$top": {"type": "integer"}}, "required": ["$top"]})],
        },
        "anthropic",
        NEW,
        {
            "messages.1.content.0.input": {f"top_{digest('$top')}": 3},
            "tools.0.input_schema.required": [f"top_{digest('$top')}"],
        },
    ),
    (
        "D7 gemma has no system instruction",
        OLL,
        {"model": "m", "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]},
        "gemini",
        "gemma-3-27b-it",
        {
            "systemInstruction": GONE,
            "contents": [{"role": "user", "parts": [{"text": "[System Instructions]\nBe kind.\n\nhi"}]}],
        },
    ),
    # ---------------------------------------------------------------- limits and marks (docs/provider-rules.md)
    (
        "rule L-2 the user id of Claude Code",
        ANTH,
        {"messages": [ask()], "metadata": {"user_id": CLAUDE_USER}},
        "openai",
        "gpt-4o",
        {"safety_identifier": sha256(CLAUDE_USER.encode()).hexdigest()},
    ),
    (
        "rule L-1 a long cache key",
        CHAT,
        {"messages": [ask()], "prompt_cache_key": "k" * 77},
        "openai",
        "gpt-5.2",
        {"prompt_cache_key": sha256(b"k" * 77).hexdigest()},
    ),
    (
        "rule L-7 an address of a person",
        CHAT,
        {"messages": [ask()], "user": "ann@example.org"},
        "anthropic",
        NEW,
        {"metadata": {"user_id": sha256(b"ann@example.org").hexdigest()}},
    ),
    (
        "rule L-19 a limit above the model's",
        ANTH,
        {"messages": [ask()], "max_tokens": 100_000},
        "anthropic",
        OLD,
        {"max_tokens": 64_000},
    ),
    (
        "rule L-20 a limit nobody said, for a small model",
        CHAT,
        {"messages": [ask()]},
        "anthropic",
        "claude-3-haiku-20240307",
        {"max_tokens": 4096},
    ),
    (
        "rule K-10 a cache mark for a model before GPT-5.6",
        ANTH,
        MARKED,
        "openai",
        "gpt-4o",
        {"messages.0.content.0": {"type": "text", "text": "a"}, "prompt_cache_options": GONE},
    ),
    (
        "rule K-10 a cache mark for GPT-5.6",
        ANTH,
        MARKED,
        "openai",
        "gpt-5.6-sol",
        {"input.0.content.0.prompt_cache_breakpoint": {"mode": "explicit"}},
    ),
    (
        "rule K-2 a mark of an hour after one of five minutes",
        ANTH,
        {
            "system": [{"type": "text", "text": "s", "cache_control": MARK}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "q", "cache_control": HOUR}]}],
        },
        "anthropic",
        NEW,
        {"messages.0.content.0.cache_control": {"type": "ephemeral", "ttl": "5m"}},
    ),
    (
        "rule K-5 a mark inside a result",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("t1")]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "42", "cache_control": MARK}],
                        }
                    ],
                },
            ]
        },
        "anthropic",
        NEW,
        {"messages.2.content.0.cache_control": MARK, "messages.2.content.0.content": "42"},
    ),
    (
        "rule O-19 a result that failed without a word",
        ANTH,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": [use("t1")]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True}]},
            ]
        },
        "anthropic",
        NEW,
        {"messages.2.content.0.content": "(failed without a message)"},
    ),
    (
        "rule T-44 an empty list of tools",
        ANTH,
        {"messages": [ask()], "tools": [], "tool_choice": {"type": "auto"}},
        "vllm",
        "qwen",
        {"tools": GONE, "tool_choice": GONE},
    ),
    (
        "rule T-30 an empty list of tools, and a choice",
        CHAT,
        {"messages": [ask()], "tools": [], "tool_choice": "auto"},
        "gemini",
        FLASH,
        {"tools": GONE, "toolConfig": GONE},
    ),
    (
        "rule I-4 a wrong word for a type",
        CHAT,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": f"data:image/jpg;base64,{JPEG}"}}],
                }
            ]
        },
        "anthropic",
        NEW,
        {"messages.0.content.0.source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
    ),
    (
        "rule O-2 a second, different result of one call",
        CHAT,
        {"messages": [ask(), calls("c1"), answer("c1"), answer("c1", "43")]},
        "anthropic",
        NEW,
        {
            "messages.2.content": [
                got("c1"),
                {"type": "text", "text": "[result of an earlier tool call c1] 43"},
            ]
        },
    ),
    (
        "rule O-46 what OpenAI's SDK echoes",
        CHAT,
        {"messages": [ask(), said("ok", annotations=[]), ask()]},
        "mistral",
        "mistral-large",
        {"messages.1": said("ok")},
    ),
    (
        "rule F-10 a schema beside functions",
        CHAT,
        {
            "messages": [ask()],
            "tools": [fn(A)],
            "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": A}},
        },
        "gemini",
        FLASH,
        {"generationConfig": GONE, "tools.0.functionDeclarations.0.name": "look"},
    ),
    (
        "rule F-2 JSON without its word",
        CHAT,
        {"messages": [ask()], "response_format": {"type": "json_object"}},
        "deepseek",
        "deepseek-v4",
        {"messages.0": {"role": "system", "content": "Answer with one JSON value and nothing else."}},
    ),
    (
        "rule L-10 more tools than are taken",
        CHAT,
        {"messages": [ask()], "tools": [fn(A, name=f"t{i}") for i in range(140)]},
        "openai",
        "gpt-4o",
        {"tools.127.function.name": "t127", "tools.128": GONE},
    ),
    (
        "rule I-1 a picture that is too large",
        ANTH,
        {"messages": [{"role": "user", "content": [picture(9000), picture(900)]}]},
        "anthropic",
        NEW,
        {
            "messages.0.content": [
                {"type": "text", "text": "[image left out: a side of 9000 pixels, 8000 are taken]"},
                picture(900),
            ]
        },
    ),
    (
        "rule I-2 more than twenty pictures",
        ANTH,
        {"messages": [{"role": "user", "content": [picture(3000) for _ in range(22)]}]},
        "anthropic",
        NEW,
        {
            "messages.0.content.1.type": "text",
            "messages.0.content.2": picture(3000),
            "messages.0.content.21": picture(3000),
        },
    ),
    (
        "rule older forms of tools",
        CHAT,
        {
            "messages": [
                ask(),
                {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
                {"role": "function", "name": "look", "content": "42"},
            ],
            "functions": [{"name": "look", "parameters": {"type": "object", "properties": {}}}],
            "function_call": {"name": "look"},
        },
        "mistral",
        "mistral-large-latest",
        {"functions": GONE, "function_call": GONE, "messages.1.function_call": GONE, "messages.2.role": "tool"},
    ),
    (
        "rule settings that two dialects of one maker have",
        RESP,
        {"input": "q", "prompt_cache_retention": "24h"},
        "openai",
        "gpt-4o",
        {"prompt_cache_retention": "24h"},
    ),
]


def dig(value: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else GONE
        elif isinstance(value, dict):
            value = value.get(step, GONE)
        else:
            return GONE
    return value


def whole(source: str, body: dict[str, Any]) -> dict[str, Any]:
    """With what every request of that dialect says."""
    return {"model": "m"} | ({"max_tokens": 4000} if source == ANTH else {}) | body


def name(case: Case) -> str:
    return f"{case[0]} [{case[1]} -> {case[3]} {case[4]}]"


@pytest.mark.parametrize("case", CASES, ids=[name(case) for case in CASES])
def test_the_target_gets_exactly_this_and_takes_it(case: Case) -> None:
    _, source, body, kind, model, expected = case
    request = replace(read(source, whole(source, body)), model=model)
    wire, complaints = send(request, kind, model)
    for path, value in expected.items():
        assert dig(wire, path) == value, path
    assert complaints == []


def test_case_50_a_reasoning_model_over_chat_gets_the_newer_word() -> None:
    request = read(CHAT, {"model": "gpt-5-mini", "messages": [ask()], "max_tokens": 64})
    profile = profile_for("openai", "gpt-5-mini", CHAT)
    body = write(request, profile)
    assert body["max_completion_tokens"] == 64
    assert complain(body, profile, "gpt-5-mini") == []


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=[f"{k}-{m.rpartition('/')[2]}" for k, m in TARGETS])
def test_every_case_is_taken_by_every_target(kind: str, model: str) -> None:
    for case in CASES:
        request = replace(read(case[1], whole(case[1], case[2])), model=model)
        notes = Notes()
        _, complaints = send(request, kind, model, notes)
        assert complaints == [], name(case)


# Repairs of a conversation, whoever speaks; a native client's schemas and parameters are its own affair.
REPAIRS = frozenset({"1", "2", "3", "4", "5", "9", "14", "15", "32", "43", "57", "58", "59", "60", "67"})


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=[f"{k}-{m.rpartition('/')[2]}" for k, m in TARGETS])
def test_case_146_a_repair_is_made_for_clients_of_the_same_dialect_too(kind: str, model: str) -> None:
    profile = replace(profile_for(kind, model), native=True)
    for case in CASES:
        if case[1] == profile.dialect and case[0].split()[0] in REPAIRS:
            request = replace(read(case[1], whole(case[1], case[2])), model=model)
            assert complain(write(request, profile), profile, model) == [], name(case)
