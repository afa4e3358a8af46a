"""OpenAI Responses: its words and ours.
https://platform.openai.com/docs/api-reference/responses (digest read 2026-11-15)
"""

from typing import Literal

from dragoman.failure import FailureKind
from dragoman.model.messages import Role
from dragoman.model.reply import FinishReason

NAME = "openai_responses"

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}

# Items that we read as calls and results. Every other item is carried whole.
CALLS: dict[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS: dict[str, bool] = {"function_call_output": False, "custom_tool_call_output": True}  # whether freeform
ID_PREFIXES: dict[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "image_generation_call": "ig",
}

# The kinds of content that we read. An item with any other content is carried whole.
CONTENT_PREFIXES = ("input_", "output_")
CONTENT_TYPES = frozenset({"text", "refusal", "computer_screenshot", "image_url", "summary_text", "reasoning_text"})
TEXT_TYPES = ("input_text", "output_text", "text")

# The role for items without a role that only this dialect knows. All other items are the model's.
USER_ITEMS = frozenset({"mcp_approval_response", "compaction_trigger"})
DEVELOPER_ITEMS = frozenset({"additional_tools", "configuration_update"})
MODEL_OUTPUTS = frozenset({"program_output"})

MODES: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}
FORMATS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
FORMAT_WORDS = {ours: word for word, ours in FORMATS.items()}
EFFORT_OFF = "none"
SUMMARIES = ("auto", "concise", "detailed")
LOGPROBS = "message.output_text.logprobs"  # this and the next are entries of `include`
SEALED = "reasoning.encrypted_content"

TIERS = {word: word for word in ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")} | {
    "standard_only": "default",
    "standard": "default",
    "unspecified": "auto",
}
# 12h costs more, so we write it only if the request asks for it.
TTLS = {"30m": "30m", "12h": "12h", "5m": "30m", "1h": "30m"}
MIN_OUTPUT = 16

INCOMPLETES: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "filter"}
# (status, reason of incomplete_details). A reason without its own word gets the nearest one.
FINISH_WORDS: dict[FinishReason, tuple[str, str | None]] = {
    "stop": ("completed", None),
    "sequence": ("completed", None),
    "tool_call": ("completed", None),
    "pause": ("completed", None),
    "refusal": ("incomplete", "content_filter"),  # "completed" if there is a refusal part
    "length": ("incomplete", "max_output_tokens"),
    "context": ("incomplete", "max_output_tokens"),
    "filter": ("incomplete", "content_filter"),
    "malformed": ("incomplete", None),
    "other": ("incomplete", None),
}
RUNNING = ("queued", "in_progress")

CODES: dict[str, FailureKind] = {
    "context_length_exceeded": "too_long",
    "insufficient_quota": "no_credit",
    "billing_hard_limit_reached": "no_credit",
    "invalid_api_key": "unauthenticated",
    "unsupported_country_region_territory": "forbidden",
    "model_not_found": "not_found",
    "previous_response_not_found": "not_found",
    "rate_limit_exceeded": "rate_limited",
    "invalid_prompt": "refused",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "bio_policy": "refused",
    "misalignment_policy_violation": "refused",
    "image_content_policy_violation": "refused",
    "server_error": "server_error",
    "server_is_overloaded": "overloaded",
    "server_overloaded": "overloaded",
    "slow_down": "overloaded",
    "vector_store_timeout": "timed_out",
}
TYPES: dict[str, FailureKind] = {
    "authentication_error": "unauthenticated",
    "permission_error": "forbidden",
    "not_found_error": "not_found",
    "rate_limit_error": "rate_limited",
    "tokens": "rate_limited",
    "requests": "rate_limited",
    "insufficient_quota": "no_credit",
    "exceed_context_size_error": "too_long",  # llama.cpp
    "unavailable_error": "overloaded",  # llama.cpp while it loads
    "service_unavailable_error": "overloaded",
    "timeout_error": "timed_out",
    "server_error": "server_error",
    "api_error": "server_error",
}
FAILURE_TYPES: dict[FailureKind, str] = {
    "unauthenticated": "authentication_error",
    "no_credit": "insufficient_quota",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "rate_limited": "rate_limit_error",
    "server_error": "server_error",
    "overloaded": "service_unavailable_error",
    "timed_out": "timeout_error",
    "cut_off": "server_error",
    "unknown": "server_error",
}
# The codes that clients react to: Codex shortens its history, waits or gives up (FIELD-CASES 20, appendix B).
FAILURE_CODES: dict[FailureKind, str] = {
    "too_long": "context_length_exceeded",
    "no_credit": "insufficient_quota",
    "unauthenticated": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "refused": "invalid_prompt",
    "server_error": "server_error",
    "overloaded": "server_is_overloaded",
    "timed_out": "server_error",
    "cut_off": "server_error",
    "unknown": "server_error",
}
OWN_STATUS: dict[FailureKind, int] = {"no_credit": 429}  # OpenAI's status differs from our default
STATUSES = frozenset({400, 401, 402, 403, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504})
