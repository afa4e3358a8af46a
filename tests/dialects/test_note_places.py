"""Each kind of place, in each dialect: from the canonical value to the body it was read from."""

from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._base import Dialect
from dragoman.dialects.jsonrpc import dialect_for
from dragoman.errors import pointer
from dragoman.jsontypes import copy_json
from dragoman.notes import Notes, flatten, unspell
from dragoman.wire import WireReply, WireRequest

PNG = "iVBORw0KGgo="
CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

# dialect -> requests, each with canonical places and where they are
REQUESTS: dict[str, list[tuple[dict[str, Any], dict[str, str]]]] = {
    "anthropic": [
        (
            {
                "model": "m",
                "max_tokens": 9,
                "system": [
                    {"type": "text", "text": "a"},
                    {"type": "text", "text": "b", "cache_control": {"ttl": "1h"}},
                ],
                "messages": [
                    {"role": "user", "content": "hi"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "t", "signature": "s"},
                            {"type": "redacted_thinking", "data": "d"},
                            {
                                "type": "text",
                                "text": "x",
                                "citations": [{"type": "q", "cited_text": "w", "title": "t"}],
                            },
                            {"type": "tool_use", "id": "c", "name": "f", "input": {}, "caller": {"type": "direct"}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "c",
                                "is_error": True,
                                "content": [
                                    {"type": "text", "text": "r"},
                                    {"type": "image", "source": {"type": "url", "url": "https://ex.org/a.png"}},
                                ],
                            },
                            {"type": "tool_result", "tool_use_id": "d", "content": "s"},
                        ],
                    },
                ],
                "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
                "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
                "thinking": {"type": "enabled", "budget_tokens": 9},
                "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
                "metadata": {"user_id": "u"},
                "stop_sequences": ["END"],
                "container": "c1",
            },
            {
                "/max_output": "/max_tokens",
                "/stop": "/stop_sequences",
                "/user": "/metadata/user_id",
                "/reasoning": "/thinking",
                "/reasoning/budget": "/thinking/budget_tokens",
                "/output/schema": "/output_config/format/schema",
                "/tool_choice/names": "/tool_choice/name",
                "/parallel_calls": "/tool_choice/disable_parallel_tool_use",
                "/tools/0": "/tools/0",
                "/tools/0/parameters/type": "/tools/0/input_schema/type",
                "/tools/0/cache": "/tools/0/cache_control",
                "/extras/anthropic/container": "/container",
                "/messages/0": "/system",
                "/messages/0/parts/1/cache/ttl": "/system/1/cache_control/ttl",
                "/messages/1": "/messages/0",
                "/messages/1/parts/0": "/messages/0/content",
                "/messages/1/role": "/messages/0/role",
                "/messages/2/parts": "/messages/1/content",
                "/messages/2/parts/0/seal": "/messages/1/content/0/signature",
                "/messages/2/parts/1/seal": "/messages/1/content/1/data",
                "/messages/2/parts/2/citations/0/quote": "/messages/1/content/2/citations/0/cited_text",
                "/messages/2/parts/2/citations/0/title": "/messages/1/content/2/citations/0/title",
                "/messages/2/parts/3": "/messages/1/content/3",
                "/messages/2/parts/3/arguments": "/messages/1/content/3/input",
                "/messages/2/parts/3/extras/anthropic/caller": "/messages/1/content/3/caller",
                "/messages/3/parts/0/failed": "/messages/2/content/0/is_error",
                "/messages/3/parts/0/parts/1": "/messages/2/content/0/content/1",
                "/messages/3/parts/0/parts/1/url": "/messages/2/content/0/content/1/source/url",
                "/messages/3/parts/1/parts/0": "/messages/2/content/1/content",
            },
        ),
        (
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "s"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "t", "signature": ""},
                            {
                                "type": "thinking",
                                "thinking": "",
                                "signature": "",
                                "dragoman": {"seal": {"origin": "gemini", "value": "v"}, "late": True},
                            },
                            {"type": "text", "text": "x"},
                        ],
                    },
                ],
                "output_config": {"effort": "low"},
            },
            {
                "/max_output": "/max_tokens",
                "/reasoning": "/output_config/effort",
                "/messages/0": "/messages/0",
                "/messages/1/parts/1": "/messages/1/content/2",
            },
        ),
    ],
    "openai_chat": [
        (
            {
                "model": "m",
                "max_completion_tokens": 9,
                "messages": [
                    {"role": "developer", "content": [{"type": "text", "text": "s"}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
                            {
                                "type": "image_url",
                                "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"},
                            },
                            {
                                "type": "file",
                                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="},
                            },
                        ],
                    },
                    {
                        "role": "assistant",
                        "reasoning_content": "t",
                        "content": "said",
                        "refusal": "no",
                        "tool_calls": [CALLED, {**CALLED, "id": "d", "index": 1}],
                    },
                    {"role": "tool", "tool_call_id": "c", "content": "r"},
                    {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "a"}, {"type": "odd"}]},
                    {
                        "role": "assistant",
                        "reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}],
                    },
                ],
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
                    {"type": "custom", "custom": {"name": "g"}},
                ],
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
                "reasoning_effort": "low",
                "n": 2,
                "user": "u",
                "parallel_tool_calls": False,
                "prediction": {"type": "content"},
            },
            {
                "/max_output": "/max_completion_tokens",
                "/choices": "/n",
                "/user": "/user",
                "/output": "/response_format",
                "/output/name": "/response_format/json_schema/name",
                "/output/schema/type": "/response_format/json_schema/schema/type",
                "/reasoning/effort": "/reasoning_effort",
                "/parallel_calls": "/parallel_tool_calls",
                "/extras/openai_chat/prediction": "/prediction",
                "/tools/0": "/tools/0",
                "/tools/0/strict": "/tools/0/function/strict",
                "/tools/0/parameters/type": "/tools/0/function/parameters/type",
                "/tools/1/name": "/tools/1/custom/name",
                "/messages/0/role": "/messages/0/role",
                "/messages/0/parts/0": "/messages/0/content/0",
                "/messages/1/parts/0/cache/ttl": "/messages/1/content/0/cache_control/ttl",
                "/messages/1/parts/1/detail": "/messages/1/content/1/image_url/detail",
                "/messages/1/parts/2/name": "/messages/1/content/2/file/filename",
                "/messages/2": "/messages/2",
                "/messages/2/parts/0": "/messages/2/reasoning_content",
                "/messages/2/parts/1": "/messages/2/content",
                "/messages/2/parts/2": "/messages/2/refusal",
                "/messages/2/parts/3": "/messages/2/tool_calls/0",
                "/messages/2/parts/4": "/messages/2/tool_calls/1",
                "/messages/2/parts/4/arguments": "/messages/2/tool_calls/1/function/arguments",
                "/messages/2/parts/4/extras/openai_chat/index": "/messages/2/tool_calls/1/index",
                "/messages/3/parts/0": "/messages/3",
                "/messages/3/parts/0/call_id": "/messages/3/tool_call_id",
                "/messages/3/parts/0/parts/0": "/messages/3/content",
                "/messages/4/parts/0/parts/1": "/messages/4/content/1",
                "/messages/5/parts/0/seal": "/messages/5/reasoning_details/0/signature",
            },
        ),
        (
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                    {"role": "function", "name": "f", "content": "r"},
                ],
                "functions": [{"name": "f", "parameters": {"type": "object"}}],
                "function_call": {"name": "f"},
            },
            {
                "/max_output": "/max_tokens",
                "/tools": "/functions",
                "/tools/0/parameters/type": "/functions/0/parameters/type",
                "/tool_choice": "/function_call",
                "/messages/1/parts/0": "/messages/1/function_call",
                "/messages/2/parts/0/name": "/messages/2/name",
            },
        ),
    ],
    "openai_responses": [
        (
            {
                "model": "m",
                "instructions": "s",
                "input": [
                    {"role": "user", "content": "hi"},
                    {
                        "type": "reasoning",
                        "id": "r",
                        "summary": [{"type": "summary_text", "text": "t"}],
                        "encrypted_content": "e",
                    },
                    {
                        "type": "message",
                        "role": "assistant",
                        "id": "m1",
                        "phase": "commentary",
                        "content": [
                            {
                                "type": "output_text",
                                "text": "a",
                                "annotations": [
                                    {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1, "title": "t"}
                                ],
                            },
                            {"type": "output_text", "text": "b", "annotations": []},
                        ],
                    },
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}", "id": "fc"},
                    {"type": "function_call_output", "call_id": "c", "output": "r"},
                    {
                        "type": "function_call_output",
                        "call_id": "d",
                        "output": [
                            {"type": "input_text", "text": "a"},
                            {"type": "input_image", "image_url": "https://ex.org/a.png"},
                        ],
                    },
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                    {"type": "web_search_call", "id": "w"},
                    {
                        "type": "additional_tools",
                        "role": "developer",
                        "tools": [
                            {
                                "type": "namespace",
                                "name": "n",
                                "tools": [{"type": "function", "name": "h", "parameters": {"type": "object"}}],
                            }
                        ],
                    },
                ],
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
                    "verbosity": "low",
                },
                "reasoning": {"effort": "low", "summary": "auto"},
                "include": ["message.output_text.logprobs"],
                "max_output_tokens": 99,
                "truncation": "auto",
            },
            {
                "/max_output": "/max_output_tokens",
                "/verbosity": "/text/verbosity",
                "/output/schema": "/text/format/schema",
                "/reasoning/show": "/reasoning/summary",
                "/logprobs": "/include",
                "/extras/openai_responses/truncation": "/truncation",
                "/tools/0/strict": "/tools/0/strict",
                "/tools/1": "/input/9/tools/0/tools/0",
                "/tools/1/parameters/type": "/input/9/tools/0/tools/0/parameters/type",
                "/messages/0": "/instructions",
                "/messages/0/parts/0": "/instructions",
                "/messages/1/parts/0": "/input/0/content",
                "/messages/2": "/input/1",
                "/messages/2/parts/0": "/input/1",  # the item, with its seal
                "/messages/2/parts/0/seal": "/input/1/encrypted_content",
                "/messages/2/parts/1": "/input/2/content/0",
                "/messages/2/parts/1/citations/0/start": "/input/2/content/0/annotations/0/start_index",
                "/messages/2/parts/1/extras/openai_responses/phase": "/input/2/phase",
                "/messages/2/parts/2": "/input/2/content/1",
                "/messages/2/parts/3": "/input/3",
                "/messages/2/parts/4/arguments": "/input/4/arguments",
                "/messages/3/parts/0": "/input/5",
                "/messages/3/parts/0/parts/0": "/input/5/output",
                "/messages/3/parts/1/parts/1/url": "/input/6/output/1/image_url",
                "/messages/4/parts/0": "/input/7/content/0",
                "/messages/5/parts/0": "/input/8",
                "/messages/6/parts/0": "/input/9",
            },
        ),
        (
            {"model": "m", "input": "hi", "safety_identifier": "u"},
            {"/messages/0/parts/0": "/input", "/messages": "/input", "/user": "/safety_identifier"},
        ),
    ],
    "gemini": [
        (
            {
                "system_instruction": {"parts": [{"text": "s"}]},
                "contents": [
                    {
                        "role": "user",
                        "parts": [{"text": "hi"}, {"inline_data": {"mime_type": "image/png", "data": PNG}}],
                    },
                    {
                        "role": "model",
                        "parts": [
                            {"text": "t", "thought": True},
                            {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"},
                        ],
                    },
                    {
                        "role": "user",
                        "parts": [
                            {
                                "functionResponse": {
                                    "name": "f",
                                    "response": {"output": "r"},
                                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
                                }
                            }
                        ],
                    },
                ],
                "tools": [
                    {"googleSearch": {}},
                    {"functionDeclarations": [{"name": "f"}, {"name": "g", "parameters": {"type": "OBJECT"}}]},
                ],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
                "generationConfig": {
                    "max_output_tokens": 9,
                    "stopSequences": ["END"],
                    "thinkingConfig": {"thinkingBudget": 9, "includeThoughts": True},
                    "responseMimeType": "application/json",
                    "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
                },
                "safetySettings": [],
            },
            {
                "/max_output": "/generationConfig/max_output_tokens",
                "/stop": "/generationConfig/stopSequences",
                "/reasoning/budget": "/generationConfig/thinkingConfig/thinkingBudget",
                "/reasoning/show": "/generationConfig/thinkingConfig/includeThoughts",
                "/reasoning/mode": "/generationConfig/thinkingConfig/thinkingBudget",
                "/output/schema/properties/a": "/generationConfig/responseSchema/properties/a",
                "/output": "/generationConfig/responseMimeType",
                "/tool_choice/names": "/toolConfig/functionCallingConfig/allowedFunctionNames",
                "/tools/0": "/tools/0/googleSearch",
                "/tools/2": "/tools/1/functionDeclarations/1",
                "/tools/2/parameters": "/tools/1/functionDeclarations/1/parameters",
                "/extras/gemini/safetySettings": "/safetySettings",
                "/messages/0": "/system_instruction",
                "/messages/0/parts/0": "/system_instruction/parts/0",
                "/messages/1/parts/1/media_type": "/contents/0/parts/1/inline_data/mime_type",
                "/messages/2/parts/0/summary": "/contents/1/parts/0/thought",
                "/messages/2/parts/1/seal": "/contents/1/parts/1/thoughtSignature",
                "/messages/2/parts/1/id": "/contents/1/parts/1/functionCall/id",
                "/messages/3/parts/0/parts/0": "/contents/2/parts/0/functionResponse/response",
                "/messages/3/parts/0/parts/1": "/contents/2/parts/0/functionResponse/parts/0",
            },
        ),
        ({"contents": "hi"}, {"/messages/0/parts/0": "/contents", "/max_output": "/generationConfig/maxOutputTokens"}),
    ],
    "ollama": [
        (
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": "hi", "images": [PNG]},
                    {
                        "role": "assistant",
                        "thinking": "t",
                        "content": "said",
                        "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
                    },
                    {"role": "tool", "tool_name": "f", "content": "r"},
                ],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                "format": {"type": "object"},
                "think": "low",
                "options": {"num_predict": 9, "seed": 1},
                "keep_alive": "5m",
            },
            {
                "/max_output": "/options/num_predict",
                "/seed": "/options/seed",
                "/top_k": "/options/top_k",
                "/output/schema/type": "/format/type",
                "/reasoning/effort": "/think",
                "/extras/ollama/keep_alive": "/keep_alive",
                "/tools/0/parameters/type": "/tools/0/function/parameters/type",
                "/messages/1/parts/0": "/messages/1/content",
                "/messages/1/parts/1": "/messages/1/images/0",
                "/messages/2/parts/0": "/messages/2/thinking",
                "/messages/2/parts/1": "/messages/2/content",
                "/messages/2/parts/2": "/messages/2/tool_calls/0",
                "/messages/2/parts/2/arguments": "/messages/2/tool_calls/0/function/arguments",
                "/messages/3/parts/0/name": "/messages/3/tool_name",
                "/messages/3/parts/0/parts/0": "/messages/3/content",
            },
        ),
        (
            {"model": "m", "system": "s", "prompt": "hi", "images": [PNG]},
            {
                "/messages": "/prompt",
                "/messages/0/parts/0": "/system",
                "/messages/1/parts/0": "/prompt",
                "/messages/1/parts/1": "/images/0",
            },
        ),
    ],
    "jsonrpc": [
        (
            {
                "model": "m",
                "system": "s",
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "user", "parts": ["a", {"text": "b"}]},
                    {
                        "role": "model",
                        "content": "x",
                        "tool_calls": [{"id": "c", "name": "f"}, {"id": "d", "name": "f"}],
                    },
                    {"role": "tool", "tool_call_id": "c", "content": "r"},
                ],
                "tools": [{"name": "f", "parameters": {"type": "object"}}],
                "max_output_tokens": 9,
                "response_schema": {"type": "object"},
            },
            {
                "/max_output": "/params/max_output_tokens",
                "/output/schema/type": "/params/response_schema/type",
                "/tools/0/parameters/type": "/params/tools/0/parameters/type",
                "/messages/0": "/params/system",
                "/messages/1/parts/0": "/params/messages/0/content",
                "/messages/2/parts/1": "/params/messages/1/parts/1",
                "/messages/3/parts/0": "/params/messages/2/content",
                "/messages/3/parts/2": "/params/messages/2/tool_calls/1",
                "/messages/4/parts/0/call_id": "/params/messages/3/tool_call_id",
                "/messages/4/parts/0/parts/0": "/params/messages/3/content",
            },
        )
    ],
    "canonical": [({"model": "m", "top_k": 5}, {"/top_k": "/top_k"})],
}

REPLIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "anthropic": (
        {
            "id": "i",
            "model": "m",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            "stop_reason": "refusal",
            "stop_details": {"type": "refusal", "explanation": "x", "category": "y"},
            "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "service_tier": "batch"},
        },
        {
            "/choices/0": "/content",
            "/choices/0/parts/1": "/content/1",
            "/choices/0/parts/1/arguments": "/content/1/input",
            "/choices/0/finish/reason": "/stop_reason",
            "/choices/0/finish/message": "/stop_details/explanation",
            "/choices/0/finish/extras/anthropic/stop_details": "/stop_details",
            "/usage/cache_read": "/usage/cache_read_input_tokens",
            "/service_tier": "/usage/service_tier",
        },
    ),
    "openai_chat": (
        {
            "id": "i",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "a",
                        "reasoning_content": "t",
                        "tool_calls": [CALLED, {**CALLED, "id": "d"}],
                        "annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}],
                    },
                    "logprobs": {"content": [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}]},
                    "finish_reason": "tool_calls",
                    "content_filter_results": {},
                }
            ],
            "usage": {
                "prompt_tokens": 5,
                "completion_tokens": 5,
                "total_tokens": 10,
                "prompt_cache_hit_tokens": 2,
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            "x_groq": {"id": "r"},
        },
        {
            "/created": "/created",
            "/choices/0/parts": "/choices/0/message",
            "/choices/0/parts/0": "/choices/0/message/reasoning_content",
            "/choices/0/parts/1": "/choices/0/message/content",
            "/choices/0/parts/1/citations/0/title": "/choices/0/message/annotations/0/url_citation/title",
            "/choices/0/parts/1/logprobs/0/bytes": "/choices/0/logprobs/content/0/bytes",
            "/choices/0/parts/3": "/choices/0/message/tool_calls/1",
            "/choices/0/finish": "/choices/0/finish_reason",
            "/choices/0/extras/openai_chat/content_filter_results": "/choices/0/content_filter_results",
            "/usage/cache_read": "/usage/prompt_cache_hit_tokens",
            "/usage/reasoning": "/usage/completion_tokens_details/reasoning_tokens",
            "/extras/openai_chat/x_groq": "/x_groq",
        },
    ),
    "openai_responses": (
        {
            "id": "i",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "status": "completed",
            "output": [
                {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
                {
                    "type": "message",
                    "id": "m1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": []},
                        {"type": "refusal", "refusal": "no"},
                    ],
                },
                {"type": "function_call", "id": "f1", "call_id": "c", "name": "f", "arguments": "{}"},
            ],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        },
        {
            "/created": "/created_at",
            "/choices/0/parts/0": "/output/0",
            "/choices/0/parts/0/seal": "/output/0/encrypted_content",
            "/choices/0/parts/1": "/output/1/content/0",
            "/choices/0/parts/2": "/output/1/content/1",
            "/choices/0/parts/3/id": "/output/2/call_id",
            "/choices/0/finish": "/status",
            "/usage/output": "/usage/output_tokens",
        },
    ),
    "gemini": (
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "a"}, {"functionCall": {"name": "f", "args": {}}}]},
                    "finishReason": "STOP",
                    "index": 0,
                    "safetyRatings": [],
                }
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
            "modelVersion": "m",
            "responseId": "i",
        },
        {
            "/id": "/responseId",
            "/choices/0/parts/1": "/candidates/0/content/parts/1",
            "/choices/0/parts/1/name": "/candidates/0/content/parts/1/functionCall/name",
            "/choices/0/finish/reason": "/candidates/0/finishReason",
            "/choices/0/extras/gemini/safetyRatings": "/candidates/0/safetyRatings",
            "/usage/output": "/usageMetadata/candidatesTokenCount",
        },
    ),
    "ollama": (
        {
            "model": "m",
            "created_at": "2026-11-16T08:00:00Z",
            "message": {
                "role": "assistant",
                "thinking": "t",
                "content": "a",
                "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
            },
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 1,
            "eval_count": 2,
            "total_duration": 3,
        },
        {
            "/created": "/created_at",
            "/choices/0/parts/0": "/message/thinking",
            "/choices/0/parts/1": "/message/content",
            "/choices/0/parts/2": "/message/tool_calls/0",
            "/choices/0/finish": "/done_reason",
            "/usage/input": "/prompt_eval_count",
            "/extras/ollama/total_duration": "/total_duration",
        },
    ),
}


def spoken(name: str) -> Dialect:
    return dialect_for(1) if name == "jsonrpc" else find_dialect(name)


ALL = [(name, body, *pair) for name, rows in REQUESTS.items() for body, places in rows for pair in places.items()]


@pytest.mark.parametrize(
    ("name", "body", "canonical", "where"), ALL, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_place_of_a_request(name: str, body: dict[str, Any], canonical: str, where: str) -> None:
    dialect = spoken(name)
    request = dialect.decode_request(WireRequest(body=copy_json(body)), Notes())
    assert pointer(dialect.locate_request(request, flatten(unspell(canonical)))) == where


ANSWERED = [(name, body, *pair) for name, (body, places) in REPLIES.items() for pair in places.items()]


@pytest.mark.parametrize(
    ("name", "body", "canonical", "where"), ANSWERED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_place_of_a_reply(name: str, body: dict[str, Any], canonical: str, where: str) -> None:
    dialect = spoken(name)
    reply = dialect.decode_reply(WireReply(body=copy_json(body)), Notes())
    assert pointer(dialect.locate_reply(reply, flatten(unspell(canonical)))) == where
