"""OpenAI Chat Completions: its words and ours.
https://platform.openai.com/docs/api-reference/chat (digest read 2026-11-15)"""

from typing import Literal

from dragoman.failure import FailureKind
from dragoman.model.messages import Role
from dragoman.model.reply import FinishReason

NAME = "openai_chat"
CALL_SEAL = "thought_signature"  # the form of the seal of a call: Google's `extra_content`

LIMITS = ("max_tokens", "max_completion_tokens")  # both say max_output; servers take one or the other

SPEAKERS: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}
ROLES: dict[str, Role] = SPEAKERS | {
    "tool": "user",  # our results are parts of user turns
    "function": "user",
}

FINISHES: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "content_filter": "filter",
    # words of compatible servers
    "function_call": "tool_call",
    "tool_call": "tool_call",
    "tool_use": "tool_call",
    "eos": "stop",
    "eos_token": "stop",  # text-generation-inference
    "end_turn": "stop",
    "stop_sequence": "sequence",
    "max_tokens": "length",
    "model_length": "context",
}
END_WORDS = ("stop", "length", "tool_calls", "content_filter", "function_call")  # those that OpenAI's clients know


# Strict clients parse only five words. A reason without its own word becomes `length`, never `stop`: `stop` would say
# that the answer is complete (FIELD-CASES 31).
FINISH_WORDS: dict[FinishReason, str] = {
    "stop": "stop",
    "sequence": "stop",
    "length": "length",
    "context": "length",
    "tool_call": "tool_calls",
    "filter": "content_filter",
    "refusal": "content_filter",
    "pause": "length",
    "malformed": "length",
    "other": "length",
}

CHOICES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral
}

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
NO_EFFORT = "none"

OWN_TTLS = ("30m", "12h")
# 12h costs more, so we write it only if the request asks for it.
TTLS = {"30m": "30m", "12h": "12h", "5m": "30m", "1h": "30m"}

# The keys that servers use for reasoning (provider-quirks, FIELD-CASES 74). We write the first.
REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")

AUDIO_FORMATS: dict[str, str] = {"wav": "audio/wav", "mp3": "audio/mpeg"}
AUDIO_WORDS: dict[str, str] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

# Our kind for each `code` or `type` of an error; `code` is looked up first. A numeric code is a status.
FAILURE_CODES: dict[str, FailureKind] = {
    "context_length_exceeded": "too_long",
    "exceed_context_size_error": "too_long",  # llama.cpp
    "too_many_prompt_tokens": "too_long",  # Perplexity
    "invalid_api_key": "unauthenticated",
    "authentication_error": "unauthenticated",
    "insufficient_quota": "no_credit",
    "credit_balance_exhausted": "no_credit",
    "billing_hard_limit_reached": "no_credit",
    "insufficient_balance": "no_credit",
    "billing_error": "no_credit",
    "permission_denied": "forbidden",
    "permission_error": "forbidden",
    "unsupported_country_region_territory": "forbidden",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "DeploymentNotFound": "not_found",
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "RateLimitReached": "rate_limited",
    "slow_down": "rate_limited",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "server_is_overloaded": "overloaded",
    "server_overloaded": "overloaded",
    "service_unavailable_error": "overloaded",
    "overloaded_error": "overloaded",
    "unavailable_error": "overloaded",  # llama.cpp while it loads a model
    "server_error": "server_error",
    "internal_server_error": "server_error",
    "api_error": "server_error",
    "tool_use_failed": "invalid_request",  # Groq, with `failed_generation`
    "timeout": "timed_out",
    "request_too_large": "too_large",
    "invalid_request_error": "invalid_request",
    "stream_cut_off": "cut_off",
}

# Other dialects' words for a service tier, and ours. Any other word stays: servers have words of their own.
TIERS = {"standard": "default", "standard_only": "default", "unspecified": "auto"}

UNKNOWN_URL = "unknown_url"  # OpenAI's code for a path that is not there; another 404 is about a model
# `type` and `code` for each kind. The openai packages and agents react to these words.
FAILURE_WORDS: dict[FailureKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "too_long": ("invalid_request_error", "context_length_exceeded"),
    "unauthenticated": ("invalid_request_error", "invalid_api_key"),
    "no_credit": ("insufficient_quota", "insufficient_quota"),
    "forbidden": ("invalid_request_error", "permission_denied"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "conflict": ("invalid_request_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limited": ("rate_limit_error", "rate_limit_exceeded"),
    "refused": ("invalid_request_error", "content_filter"),
    "server_error": ("server_error", None),
    "overloaded": ("service_unavailable_error", "server_is_overloaded"),
    "timed_out": ("server_error", "timeout"),
    "cut_off": ("server_error", "stream_cut_off"),
    "unknown": ("server_error", None),
}
STATUSES: dict[FailureKind, int] = {"no_credit": 429}  # OpenAI's status differs from our default
