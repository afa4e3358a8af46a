"""Anthropic Messages: its words and ours. https://docs.anthropic.com/en/api/messages (digest read 2026-11-15)"""

from typing import Literal

from dragoman.failure import FailureKind
from dragoman.model.messages import Extras, Role
from dragoman.model.reply import FinishReason

NAME = "anthropic"

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
ROLE_WORDS: dict[Role, str] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}

FINISHES: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "tool_use": "tool_call",
    "refusal": "refusal",
    "pause_turn": "pause",
}
# A reason without its own word gets the nearest one, but never `end_turn`: that would say that the answer is complete
# (FIELD-CASES 31).
FINISH_WORDS: dict[FinishReason, str] = {reason: word for word, reason in FINISHES.items()} | {
    "filter": "refusal",
    "malformed": "max_tokens",
    "other": "max_tokens",
}

CHOICES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
    "tool": "required",
}

MODES: dict[str, Literal["on", "off", "auto"]] = {"enabled": "on", "disabled": "off", "adaptive": "auto"}
MODE_WORDS: dict[str, str] = {mode: word for word, mode in MODES.items()}
DISPLAYS: dict[str, bool] = {"summarized": True, "omitted": False}
DISPLAY_WORDS: dict[bool, str] = {show: word for word, show in DISPLAYS.items()}
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# A lifetime that Anthropic lacks becomes the next longer one, or else the longest.
TTLS = {"5m": "5m", "1h": "1h", "30m": "1h", "12h": "1h"}
# A usage and a request have different words for the tier.
SERVED_TIERS = {"standard": "standard", "priority": "priority", "batch": "batch", "default": "standard"}
TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}

FAILURES: dict[str, FailureKind] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "unauthenticated",
    "billing_error": "no_credit",
    "permission_error": "forbidden",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limited",
    "api_error": "server_error",
    "timeout_error": "timed_out",
    "overloaded_error": "overloaded",
}
FAILURE_WORDS: dict[FailureKind, str] = {kind: word for word, kind in FAILURES.items()} | {
    "too_long": "invalid_request_error",
    "refused": "invalid_request_error",
    "cut_off": "api_error",
    "unknown": "api_error",
}
STATUSES: dict[FailureKind, int] = {"overloaded": 529}  # Anthropic's status differs from our default

LISTED: Extras = {NAME: {"~content": "list"}}  # extras that only remember the form of the content

VERSION_HEADER = "anthropic-version"
BETA_HEADER = "anthropic-beta"
VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 16_000  # max_tokens is required: we write this if the request has no limit
