"""The checks of each kind of server: those of its dialect, and its own."""

import re
from typing import Any

from msgspec import Struct

from dragoman.dialects.gemini.spelling import SNAKE
from dragoman.testing.checkers import (
    check_anthropic,
    check_gemini,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)
from dragoman.testing.checkers.model_rules import find_breaches
from dragoman.testing.checkers.shared import objects, walk

_CHAT = frozenset(
    {"model", "messages", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "n"}
    | {"max_completion_tokens", "max_tokens", "metadata", "modalities", "parallel_tool_calls", "prediction", "stop"}
    | {"presence_penalty", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "reasoning_effort"}
    | {"response_format", "safety_identifier", "seed", "service_tier", "store", "stream", "stream_options", "user"}
    | {"temperature", "tool_choice", "tools", "top_logprobs", "top_p", "verbosity", "web_search_options"}
    | {"moderation", "background"}
)
_RESPONSES = frozenset(
    {"model", "input", "background", "context_management", "conversation", "include", "instructions", "metadata"}
    | {"max_output_tokens", "max_tool_calls", "parallel_tool_calls", "previous_response_id", "prompt", "reasoning"}
    | {"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier", "service_tier"}
    | {"store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"}
    | {"truncation", "user", "moderation"}
    | {"client_metadata"}  # in no document, but OpenAI's own Codex 0.166 sends it with every request
)
_MISTRAL = frozenset(
    {"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "response_format"}
    | {"tools", "tool_choice", "presence_penalty", "frequency_penalty", "n", "prediction", "parallel_tool_calls"}
    | {"prompt_mode", "safe_prompt", "reasoning_effort", "metadata", "prompt_cache_key"}
)
_TOLERANT = {"vllm", "sglang", "gpustack", "llamacpp", "lmstudio", "ollama", "openrouter", "together", "compatible"}
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}


# Objections of the checkers that the real server does not have (recorded traffic): a warning, not a refusal.
_SHAPES = r"Invalid value: '\w+'\. Supported values"
_TAKEN: dict[str, str] = {
    "anthropic": r"first message must use",
    "gemini": r"should be non-empty for OBJECT type|text: must not be empty",
    "ollama": r"dropped by the server|answers .* is next|calls? have no result|without a call",
    "mistral": rf"{_SHAPES}|got null|\[\] is too short - 'messages\.",
    "azure": r"got null",
    **dict.fromkeys(
        ("openrouter", "together", "compatible"),
        rf"{_SHAPES}|\[\] is too short - '(messages\.|tools)|does not match pattern",
    ),
}


class Complaint(Struct, frozen=True):
    message: str
    status: int = 400
    param: str | None = None
    code: str | None = None


def check(kind: str, dialect: str, body: dict[str, Any], model: str = "") -> list[Complaint]:
    """All objections of the server. The real one reports only the first."""
    taken = re.compile(_TAKEN.get(kind, r"(?!)"))
    return [complaint for complaint in _check_all(kind, dialect, body, model) if not taken.search(complaint.message)]


def warn(kind: str, dialect: str, body: dict[str, Any], model: str = "") -> list[str]:
    """Parts of the request that the server accepts without an error, and then drops or misreads."""
    taken = re.compile(_TAKEN.get(kind, r"(?!)"))
    return [c.message for c in _check_all(kind, dialect, body, model) if taken.search(c.message)]


def _check_all(kind: str, dialect: str, body: dict[str, Any], model: str) -> list[Complaint]:
    breaches = find_breaches(kind, dialect, _camel(body) if dialect == "gemini" else body, model)
    own = [Complaint(breach.message, breach.rule.status, breach.at, breach.rule.code) for breach in breaches]
    return [*own, *_check_dialect(kind, dialect, body, model)]


def _check_dialect(kind: str, dialect: str, body: dict[str, Any], model: str) -> list[Complaint]:
    match dialect:
        case "anthropic":
            return [*_plain(check_anthropic(body)), *_check_output_schema(body)]
        case "gemini":
            return _plain(check_gemini(_camel(body), model))
        case "ollama":
            return [*_check_images(body), *_plain(check_ollama(body))]
        case "openai_responses":
            return [*_check_openai(kind, body, _RESPONSES), *_plain(check_openai_responses(_flat(body)))]
        case _:
            return [*_check_openai(kind, body, _CHAT), *_plain(check_openai_chat(body, kind))]


def _camel(value: Any) -> Any:
    """Google reads snake_case too. Keys inside arguments and schemas belong to the caller."""
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, item in value.items():
        name = SNAKE.get(key, key)
        free = name in (
            "args",
            "response",
            "parameters",
            "parametersJsonSchema",
            "responseSchema",
            "responseJsonSchema",
        )
        made[name] = item if free else _camel(item)
    return made


def _flat(body: dict[str, Any]) -> dict[str, Any]:
    """Responses accepts Chat's nested form of a function too (recorded)."""
    tools = [
        {**tool["function"], "type": "function"} if isinstance(tool.get("function"), dict) else tool
        for tool in objects(body.get("tools"))
    ]
    return (
        {**body, "tools": [{**tool, "strict": None} for tool in tools]} if tools != objects(body.get("tools")) else body
    )


_UNSAID = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems"),
}


def _check_output_schema(body: dict[str, Any]) -> list[Complaint]:
    """Anthropic's structured output knows only a part of JSON Schema (recorded)."""
    found = []
    for name, form in (
        ("output_format", body.get("output_format")),
        ("output_config.format", (body.get("output_config") or {}).get("format")),
    ):
        for _, node in walk((form or {}).get("schema") if isinstance(form, dict) else None):
            kind = str(node.get("type"))
            for key in _UNSAID.get(kind, ()):
                if key in node:
                    words = f"{name}.schema: For '{kind}' type, property '{key}' is not supported"
                    found.append(Complaint(words))
            if kind == "object" and node.get("additionalProperties") is not False:
                words = "For 'object' type, 'additionalProperties' must be explicitly set to false"
                found.append(Complaint(f"{name}.schema: {words}"))
    return found


def _check_images(body: dict[str, Any]) -> list[Complaint]:
    found = []
    for message in objects(body.get("messages")):
        for image in message.get("images") or ():
            bad = re.search(r"[^A-Za-z0-9+/=\r\n]", str(image))
            if bad:
                found.append(Complaint(f"illegal base64 data at input byte {bad.start()}"))
    return found


def _plain(found: list[str]) -> list[Complaint]:
    return [_sort(message) for message in found]


# Messages of the real server (recorded traffic) that replace the messages of the checkers.
_WORDS = {
    "[] is too short - 'messages'": Complaint(
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        400,
        "messages",
        "empty_array",
    ),
    "json: cannot unmarshal string into Go struct field .function.arguments of type map": Complaint(
        "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments of type "
        "api.ToolCallFunctionArguments"
    ),
}


def _sort(message: str) -> Complaint:
    """The status and the param that belong to a message."""
    if message in _WORDS:
        return _WORDS[message]
    if message.startswith("Failed to deserialize"):
        return Complaint(message, 422)
    named = re.search(r"(?:parameter|Invalid|value for|Unknown parameter):? '([\w.\[\]]+)'", message)
    code = "unsupported_parameter" if message.startswith("Unsupported parameter") else None
    return Complaint(message, 400, named.group(1) if named else None, code)


def _check_openai(kind: str, body: dict[str, Any], known: frozenset[str]) -> list[Complaint]:
    found: list[Complaint] = []
    if not body.get("model") and not body.get("prompt") and kind != "azure":  # a prompt or a deployment has one
        found.append(Complaint("you must provide a model parameter"))
    if kind == "mistral":
        extra = [key for key in body if key not in _MISTRAL]
        found += [Complaint("Extra inputs are not permitted", 422, key) for key in extra]
    elif kind not in _TOLERANT:
        for key in body:
            if key not in known and not (kind != "openai" and key in _OWN.get(kind, ())):
                found.append(Complaint(f"Unrecognized request argument supplied: {key}", 400, key, "unknown_parameter"))
    if kind in ("openai", "azure"):
        found += _check_thoughts(body)
    if kind == "xai":
        found += _check_nulls(body)
    if kind == "groq":
        named = [
            i for i, message in enumerate(body.get("messages") or ()) if isinstance(message, dict) and "name" in message
        ]
        found += [Complaint(f"'messages.{i}' : property 'name' is unsupported") for i in named]
    for key, (low, high) in _RANGES.items():
        found += _check_range(key, body.get(key), low, high)
    if "stream_options" in body and not body.get("stream") and kind in ("openai", "azure"):
        found.append(
            Complaint("The 'stream_options' parameter is only allowed when 'stream' is enabled.", 400, "stream_options")
        )
    if "max_tokens" in body and "max_completion_tokens" in body and kind not in _TOLERANT:
        found.append(Complaint("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."))
    if body.get("top_logprobs") is not None and not body.get("logprobs") and known is _CHAT:
        found.append(
            Complaint("Invalid value for 'top_logprobs': 'logprobs' must be set to true.", 400, "top_logprobs")
        )
    if body.get("previous_response_id"):
        missing = f"Previous response with id '{body['previous_response_id']}' not found."
        found.append(Complaint(missing, 400, "previous_response_id", "previous_response_not_found"))
    return found


def _check_thoughts(body: dict[str, Any]) -> list[Complaint]:
    """OpenAI's own thoughts have a summary at most (bifrost openai/responses.go; O-3 of docs/provider-rules.md). What
    follows one that the server keeps is the item that it keeps, by its id (recorded)."""
    items = objects(body.get("input"))
    found = []
    for i, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        if size := len(item.get("content") or ()):
            words = "array too long. Expected an array with maximum length 0, but got an array with length"
            found.append(
                Complaint(f"Invalid 'input[{i}].content': {words} {size} instead.", 400, f"input[{i}].content")
            )
        after = items[i + 1] if i + 1 < len(items) else {}
        if body.get("store") is not False and item.get("id") and not after.get("id"):
            words = "of type 'reasoning' was provided without its required following item."
            found.append(Complaint(f"Item '{item['id']}' {words}", 400, "input"))
    return found


# Keys that some kinds of servers take in addition to OpenAI's (provider-quirks, November 2026).
_OWN: dict[str, tuple[str, ...]] = {
    "groq": ("reasoning_format", "include_reasoning", "documents", "search_settings", "top_k"),
    "xai": ("search_parameters", "deferred"),
    "deepseek": ("thinking",),
    "zai": ("thinking", "do_sample", "request_id", "tool_stream"),
    "moonshot": ("thinking", "partial"),
    "minimax": ("thinking", "reasoning_split", "mask_sensitive_info"),
    "cerebras": ("reasoning_format", "disable_reasoning", "clear_thinking"),
    "fireworks": ("top_k", "min_p", "repetition_penalty", "thinking", "reasoning_history", "prompt_truncate_len"),
    "azure": ("data_sources",),
}


def _check_range(key: str, value: object, low: float, high: float) -> list[Complaint]:
    if value is None:
        return []
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "a boolean" if isinstance(value, bool) else "a string" if isinstance(value, str) else "an object"
        return [
            Complaint(
                f"Invalid type for '{key}': expected a decimal, but got {kind} instead.", 400, key, "invalid_type"
            )
        ]
    if value > high:
        words = f"decimal above maximum value. Expected a value <= {high}, but got {value} instead."
        return [Complaint(f"Invalid '{key}': {words}", 400, key, "decimal_above_max_value")]
    if value < low:
        words = f"decimal below minimum value. Expected a value >= {low}, but got {value} instead."
        return [Complaint(f"Invalid '{key}': {words}", 400, key, "decimal_below_min_value")]
    return []


def _check_nulls(body: dict[str, Any]) -> list[Complaint]:
    """xAI parses into typed values and refuses null (provider-quirks)."""
    head = "Failed to deserialize the JSON body into the target type: "
    found = []
    for i, tool in enumerate(body.get("tools") or ()):
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        runs_itself = isinstance(tool, dict) and tool.get("type") not in (None, "function")  # recorded: web_search
        if isinstance(function, dict) and function.get("parameters") is None and not runs_itself:
            found.append(Complaint(f"{head}tools[{i}]: missing field `parameters`", 422))
        found += [
            Complaint(f"{head}tools[{i}].function.{key}: invalid type: null, expected a value", 422)
            for key, value in (function.items() if isinstance(function, dict) else ())
            if value is None and key != "parameters"
        ]
    for i, item in enumerate(objects(body.get("input"))):
        if item.get("type") == "reasoning" and item.get("content", ()) is None:
            found.append(
                Complaint(f"{head}data did not match any variant of untagged enum ModelInput (input[{i}])", 422)
            )
    for i, message in enumerate(body.get("messages") or ()):
        for call in (message.get("tool_calls") or ()) if isinstance(message, dict) else ():
            if (call.get("function") or {}).get("arguments") == "":
                found.append(Complaint(f"messages[{i}]: tool call arguments is not a valid JSON string"))
    return found
