"""JSON-RPC: its words and ours. https://www.jsonrpc.org/specification (read 2026-11-15)"""

from dragoman.failure import FailureKind
from dragoman.model.messages import Role
from dragoman.model.reply import FinishReason

NAME = "jsonrpc"
VERSION = "2.0"

METHOD = "generate_content"
START = "generate_content.start"  # notifications of a streamed answer
DELTA = "generate_content.delta"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MESSAGES: dict[int, str] = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
}

# Servers may define the codes from -32000 to -32099. The last digits of ours hint at the HTTP status.
CODES: dict[FailureKind, int] = {
    "invalid_request": INVALID_PARAMS,
    "too_long": INVALID_PARAMS,
    "unauthenticated": -32001,
    "forbidden": -32003,
    "refused": -32003,
    "not_found": -32004,
    "conflict": -32009,
    "too_large": -32013,
    "rate_limited": -32029,
    "no_credit": -32030,
    "server_error": INTERNAL_ERROR,
    "unknown": INTERNAL_ERROR,
    "cut_off": -32050,
    "overloaded": -32053,
    "timed_out": -32054,
}
BAD_UPSTREAM = -32050
# For errors of other servers, which have no `data.kind`.
KINDS: dict[int, FailureKind] = {
    **{code: kind for kind, code in reversed(CODES.items())},
    PARSE_ERROR: "invalid_request",
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "not_found",
    INTERNAL_ERROR: "server_error",
}

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",  # the word of Gemini's clients
}

# We use Gemini's words where it has one, because clients of this method compare with them.
FINISHES: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_call",
    "SAFETY": "filter",
    "REFUSAL": "refusal",
    "PAUSE": "pause",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "OTHER": "other",
}
FINISH_WORDS: dict[FinishReason, str] = {reason: word for word, reason in FINISHES.items()} | {
    "sequence": "STOP",
    "context": "MAX_TOKENS",
}
