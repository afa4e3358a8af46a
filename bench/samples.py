"""Sample traffic for the bench, made by us and always the same."""

import json
from typing import Any

WORDS = (
    *("the", "harbour", "lamp", "turns", "slowly", "while", "nine", "grey", "boats", "wait", "for", "a", "quiet"),
    *("tide", "and", "the", "keeper", "counts", "them", "twice"),
)


def prose(count: int, seed: int) -> str:
    return " ".join(WORDS[(seed * 7 + i * 3) % len(WORDS)] for i in range(count))


def tool(number: int) -> dict[str, Any]:
    return {
        "name": f"tool_{number}",
        "description": prose(12, number),
        "input_schema": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": prose(6, number)},
                "limit": {"type": "integer", "minimum": 1},
                "mode": {"type": "string", "enum": ["read", "write", "list"]},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    }


def anthropic_request(turns: int, words: int, tools: int) -> bytes:
    """A tool-using conversation in Anthropic's form: text, a call, its result, an answer, again and again."""
    messages: list[dict[str, Any]] = []
    for i in range(turns // 4):
        call = {"type": "tool_use", "id": f"toolu_{i:04}", "name": f"tool_{i % tools}", "input": {"path": f"/srv/{i}"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i:04}", "content": prose(words, i)}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": prose(words, i)}]},
            {"role": "assistant", "content": [{"type": "text", "text": prose(words, i + 1)}, call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "text", "text": prose(words, i + 2)}]},
        ]
    messages[-1] = {"role": "user", "content": prose(words, 3)}
    body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": prose(60, 1), "cache_control": {"type": "ephemeral"}}],
        "messages": messages,
        "tools": [tool(i) for i in range(tools)],
        "stream": True,
    }
    return json.dumps(body, separators=(",", ":")).encode()
