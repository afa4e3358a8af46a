"""Rules of single vendors of Chat-compatible servers, with their own messages. Sources: the rows of profiles.toml."""

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from dragoman.testing.checkers.shared import Complaints, objects

ChatMessage = dict[str, Any]
FIXED = ("temperature", "top_p", "n", "frequency_penalty", "presence_penalty")


def check_maker(body: dict[str, Any], messages: list[ChatMessage], server: str) -> Complaints:
    check = _CHECKS.get(server)
    return [] if check is None else check(body, messages)


def _arguments(messages: list[ChatMessage]) -> Iterator[tuple[str, object]]:
    for message in messages:
        for call in objects(message.get("tool_calls")):
            yield str(call.get("id")), (call.get("function") or {}).get("arguments")


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _check_arguments(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    """vLLM and similar servers parse arguments, because their chat templates need objects."""
    return [
        "Unterminated string starting at: line 1 column 1" for _, text in _arguments(messages) if not _is_object(text)
    ]


def _check_kimi(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    model = str(body.get("model", ""))
    if not model.startswith("kimi-"):
        return []
    complaints: Complaints = [
        f"invalid {key}: only 1 is allowed for this model" for key in FIXED if body.get(key) not in (None, 1)
    ]
    thinking = (body.get("thinking") or {}).get("type")
    if thinking == "disabled" and any(fnmatchcase(model, pattern) for pattern in ("kimi-k3*", "kimi-k2.7-code*")):
        complaints.append("thinking cannot be disabled for this model")
    if thinking is not None and body.get("reasoning_effort") is not None:
        complaints.append("cannot specify both 'thinking' and 'reasoning_effort'")
    if thinking == "disabled":
        return complaints
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        complaints.append(f"tool_choice '{choice}' is incompatible with thinking enabled")
    for i, message in enumerate(messages):
        if objects(message.get("tool_calls")) and not message.get("reasoning_content"):
            complaints.append(
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {i}"
            )
    return complaints


_FLAVORED = "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path '{at}': {why}>"


def _odd_unions(schema: object, at: str) -> Iterator[str]:
    """kimi-code #2661, kimi-cli #2061, pi #5822 (2026)."""
    if isinstance(schema, list):
        for i, inner in enumerate(schema):
            yield from _odd_unions(inner, f"{at}.{i}")
    if not isinstance(schema, dict):
        return
    where = at.removeprefix(".") or "root"
    if isinstance(schema.get("anyOf"), list) and "type" in schema:
        words = "when using anyOf, type should be defined in anyOf items instead of the parent schema"
        yield _FLAVORED.format(at=where, why=words)
    beside = ", ".join(key for key in schema if key != "$ref")
    if isinstance(schema.get("$ref"), str) and beside:
        yield _FLAVORED.format(at=where, why=f"conflicting keywords found after $ref expansion: {beside}")
    if "enum" in schema and not {"type", "anyOf"} & set(schema):
        yield _FLAVORED.format(at=where, why="type is not defined")
    for key, inner in schema.items():
        if key not in ("enum", "const", "default", "examples"):
            yield from _odd_unions(inner, f"{at}.{key}")


def _check_moonshot(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    schemas = [(tool.get("function") or {}).get("parameters") for tool in objects(body.get("tools"))]
    return _check_kimi(body, messages) + [words for schema in schemas for words in _odd_unions(schema, "")]


def _check_minimax(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    complaints: Complaints = []
    roles = [message.get("role") for message in messages]
    if "system" in roles[1:]:
        complaints.append("invalid params, chat content has invalid message role: system (2013)")
    for call, text in _arguments(messages):
        if not _is_object(text):
            complaints.append(f"invalid params, invalid function arguments json string, tool_call_id: {call} (2013)")
    temperature = body.get("temperature")
    if temperature is not None and not 0 < temperature <= 1:
        complaints.append("invalid params, temperature must be in (0, 1]")
    return complaints


def _check_xai(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    """Strict Rust types: no null in tools, no empty arguments."""
    head = "Failed to deserialize the JSON body into the target type: "
    found = [
        f"{head}tools: invalid type: null" for tool in objects(body.get("tools")) if _has_null(tool.get("function"))
    ]
    return found + [f"{head}not a valid JSON string" for _, text in _arguments(messages) if not _is_object(text)]


def _has_null(value: object) -> bool:
    return isinstance(value, dict) and any(item is None for item in value.values())


def _check_lmstudio(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    nulls = [i for i, message in enumerate(messages) if "content" in message and message["content"] is None]
    return [f"messages[{i}].content: invalid type: null" for i in nulls]


def _check_sglang(body: dict[str, Any], messages: list[ChatMessage]) -> Complaints:
    known = ("text", "thinking", "reasoning", "image_url", "video_url", "audio_url", "tool_reference")
    kinds = [part.get("type") for message in messages for part in objects(message.get("content"))]
    return [f"messages.content: no such part: {kind}" for kind in kinds if kind not in known]


_CHECKS: dict[str, Callable[[dict[str, Any], list[ChatMessage]], Complaints]] = {
    "gpustack": _check_arguments,
    "llamacpp": _check_arguments,
    "lmstudio": _check_lmstudio,
    "minimax": _check_minimax,
    "moonshot": _check_moonshot,
    "sglang": _check_sglang,
    "vllm": _check_arguments,
    "xai": _check_xai,
}
