"""Gemini generateContent: its words and ours. https://ai.google.dev/api/generate-content (digest read 2026-11-15)"""

from typing import Literal

from dragoman.failure import FailureKind
from dragoman.model.messages import Role
from dragoman.model.reply import FinishReason

NAME = "gemini"
SIGNATURE = "thought_signature"  # the form of Gemini's seals

# `function` and `tool` are older words for a turn with results. A content without a role is the user's.
ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "assistant": "assistant", "system": "system"}
RESULT_ROLES = ("function", "tool")  # of turns with results, in older SDKs
ROLE_WORDS: dict[Role, str] = {"user": "user", "assistant": "model", "system": "user", "developer": "user"}

FINISHES: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "MODEL_ARMOR": "filter",
    "IMAGE_SAFETY": "filter",
    "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter",
    "IMAGE_OTHER": "filter",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "TOO_MANY_TOOL_CALLS": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "CONTINUATION": "pause",
    "OTHER": "other",
    "LANGUAGE": "other",
    "NO_IMAGE": "other",
}
# Calls end with STOP ("there is no tool-call reason"). A reason without its own word gets the nearest one.
FINISH_WORDS: dict[FinishReason, str] = {
    "stop": "STOP",
    "sequence": "STOP",
    "length": "MAX_TOKENS",
    "context": "MAX_TOKENS",
    "tool_call": "STOP",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "CONTINUATION",
    "malformed": "MALFORMED_FUNCTION_CALL",
    "other": "OTHER",
}
UNFINISHED = "FINISH_REASON_UNSPECIFIED"  # an end without a reason
# `$alt=json;enum-encoding=int` gives numbers. From 6 on the two APIs differ, so we read only the common ones.
FINISH_NUMBERS: dict[int, str] = {
    0: UNFINISHED,
    1: "STOP",
    2: "MAX_TOKENS",
    3: "SAFETY",
    4: "RECITATION",
    5: "OTHER",
}

MODES: dict[str | int, Literal["auto", "none", "required"]] = {
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
    "VALIDATED": "auto",
}
MODE_NUMBERS: dict[int, str] = {1: "AUTO", 2: "ANY", 3: "NONE"}
MODE_WORDS: dict[str, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}

EFFORTS = ("minimal", "low", "medium", "high")
TIERS: dict[str, str] = {
    "unspecified": "unspecified",
    "flex": "flex",
    "standard": "standard",
    "priority": "priority",
    "default": "standard",  # OpenAI's and Anthropic's words for it
    "standard_only": "standard",
}

DETAILS: dict[str, str] = {
    "MEDIA_RESOLUTION_LOW": "low",
    "MEDIA_RESOLUTION_HIGH": "high",
    "MEDIA_RESOLUTION_ULTRA_HIGH": "original",
}
DETAIL_WORDS: dict[str, str] = {detail: word for word, detail in DETAILS.items()}

FAILURES: dict[str, FailureKind] = {
    "INVALID_ARGUMENT": "invalid_request",
    "FAILED_PRECONDITION": "invalid_request",
    "OUT_OF_RANGE": "invalid_request",
    "UNIMPLEMENTED": "invalid_request",
    "UNAUTHENTICATED": "unauthenticated",
    "PERMISSION_DENIED": "forbidden",
    "NOT_FOUND": "not_found",
    "ALREADY_EXISTS": "conflict",
    "ABORTED": "conflict",
    "RESOURCE_EXHAUSTED": "rate_limited",
    "CANCELLED": "cut_off",
    "INTERNAL": "server_error",
    "UNKNOWN": "server_error",
    "DATA_LOSS": "server_error",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timed_out",
}
FAILURE_WORDS: dict[FailureKind, str] = {
    "invalid_request": "INVALID_ARGUMENT",
    "too_long": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "no_credit": "RESOURCE_EXHAUSTED",
    "forbidden": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "too_large": "INVALID_ARGUMENT",
    "rate_limited": "RESOURCE_EXHAUSTED",
    "refused": "INVALID_ARGUMENT",
    "server_error": "INTERNAL",
    "overloaded": "UNAVAILABLE",
    "timed_out": "DEADLINE_EXCEEDED",
    "cut_off": "UNAVAILABLE",
    "unknown": "UNKNOWN",
}
STATUSES: dict[FailureKind, int] = {"no_credit": 429, "cut_off": 503}  # Google's status differs from our default
KNOWN_STATUSES = frozenset({400, 401, 403, 404, 408, 409, 413, 429, 499, 500, 501, 502, 503, 504})

SSE = "alt=sse"  # in the query; without it a stream is one JSON array
