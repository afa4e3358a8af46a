"""How each vendor's server says no: status, headers and body, written by hand and not by the encoders under test."""

from typing import Any

from msgspec import Struct

from dragoman.failure import FailureKind
from dragoman.jsontypes import dump_json

_GOOGLE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}

WORDS: dict[FailureKind, tuple[int, str]] = {
    "invalid_request": (400, "The request is not valid."),
    "too_long": (400, "prompt is too long: 262462 tokens > 200000 maximum"),
    "unauthenticated": (401, "Incorrect API key provided."),
    "no_credit": (402, "Insufficient balance"),
    "forbidden": (403, "Your key does not have permission to use this resource."),
    "not_found": (404, "The model does not exist or you do not have access to it."),
    "too_large": (413, "Request exceeds the maximum allowed number of bytes."),
    "rate_limited": (429, "Rate limit reached. Please try again later."),
    "server_error": (500, "The server had an error while processing your request."),
    "overloaded": (503, "Overloaded"),
    "timed_out": (504, "The request timed out."),
}


# "It does not fit": the words, and the code where there is one (recorded traffic; FIELD-CASES 20 and appendix B).
OVERFLOWS: dict[str, tuple[str, str | None]] = {
    "openai_chat": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
        "context_length_exceeded",
    ),
    "openai_responses": (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "context_length_exceeded",
    ),
    "anthropic": ("prompt is too long: 230462 tokens > 200000 maximum", None),
    "gemini": ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", None),
    "ollama": ("the input length exceeds the context length", None),
    "groq": ("Please reduce the length of the messages or completion.", "context_length_exceeded"),
    "xai": ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", "invalid-argument"),
    "mistral": ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "3051"),
    "vllm": ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.", None),
    "llamacpp": (
        "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it",
        "exceed_context_size_error",
    ),
    "openrouter": ("This endpoint's maximum context length is 8192 tokens. However, you requested about 9000.", None),
}


class VendorRefusal(Struct, frozen=True, kw_only=True):
    status: int
    body: Any
    headers: dict[str, str] = {}

    def json(self) -> bytes:
        return dump_json(self.body)


def refuse(
    kind: str,
    dialect: str,
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
    details: list[dict[str, Any]] | None = None,
) -> VendorRefusal:
    """`kind` is a row of profiles.toml: servers of one dialect do not agree on the shape of an error."""
    body = error_body(kind, dialect, status, message, code=code, param=param, details=details)
    if dialect == "anthropic":
        headers = {"request-id": "req_011scripted", **(headers or {})}
    if dialect.startswith("openai"):
        headers = {"x-request-id": "req_scripted", **(headers or {})}
    return VendorRefusal(status=status, body=body, headers=headers or {})


def refuse_model(kind: str, dialect: str, model: str) -> VendorRefusal:
    """Nobody agrees on how to say that there is no such model (recorded traffic)."""
    match kind, dialect:
        case "mistral", _:
            refusal = refuse(kind, dialect, 400, f"Invalid model: {model}", code="1500")
            refusal.body["type"] = "invalid_model"
            return refusal
        case "xai", _:
            return refuse(kind, dialect, 400, f"Model not found: {model}")
        case _, "anthropic":
            return refuse(kind, dialect, 404, f"model: {model}")
        case _, "gemini":
            words = "is not found for API version v1beta, or is not supported for generateContent."
            return refuse(kind, dialect, 404, f"models/{model} {words}")
        case _, "ollama":
            return refuse(kind, dialect, 404, f"model '{model}' not found")
        case "openai", "openai_responses":
            words = f"The requested model '{model}' does not exist."
            return refuse(kind, dialect, 400, words, code="model_not_found", param="model")
        case _:
            return refuse(kind, dialect, 404, f"The model `{model}` does not exist or you do not have access to it.")


def refuse_overflow(kind: str, dialect: str) -> VendorRefusal:
    message, code = OVERFLOWS.get(kind if dialect == "openai_chat" else dialect) or OVERFLOWS[dialect]
    return refuse(kind, dialect, 400, message, code=code, param="messages" if dialect == "openai_chat" else None)


def error_body(
    kind: str,
    dialect: str,
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    details: list[dict[str, Any]] | None = None,
) -> Any:
    match dialect:
        case "anthropic":
            error: dict[str, Any] = {"type": _ANTHROPIC.get(status, "api_error"), "message": message}
            if code is not None:
                error["details"] = {"error_code": code}
            return {"type": "error", "error": error, "request_id": "req_011scripted"}
        case "gemini":
            error = {"code": status, "message": message, "status": _GOOGLE.get(status, "UNKNOWN")}
            if details is not None:
                error["details"] = details
            return {"error": error}
        case "ollama":
            return {"error": message}
        case _:
            return _compatible(kind, status, message, code, param)


def _compatible(kind: str, status: int, message: str, code: str | None, param: str | None) -> Any:
    word, usual = _OPENAI.get(status, ("invalid_request_error" if status < 500 else "server_error", None))
    match kind:
        case "xai":
            return {"code": code or ("invalid-argument" if status < 500 else "unavailable"), "error": message}
        case "lmstudio":
            return {"error": message}
        case "mistral":
            if status == 422:
                detail = {"type": "extra_forbidden", "loc": ["body", param], "msg": message, "input": None}
                return {"detail": [detail]}
            number = "3230" if status == 400 else str(status)
            told = {"object": "error", "message": message, "type": word, "param": param, "code": code or number}
            return {**told, "raw_status_code": status}
        case "vllm" | "sglang" | "gpustack":
            name = "NotFoundError" if status == 404 else "BadRequestError" if status < 500 else "InternalServerError"
            return {"error": {"message": message, "type": name, "param": param, "code": status}}
        case "llamacpp":
            return {"error": {"code": status, "message": message, "type": code or word}}
        case "openrouter":
            return {"error": {"code": status, "message": message, "metadata": {"provider_name": "scripted"}}}
        case _:
            return {"error": {"message": message, "type": word, "param": param, "code": code or usual}}


def error_frame(kind: str, dialect: str, failure: FailureKind) -> bytes:
    """The same in the middle of a stream."""
    status, message = WORDS.get(failure, (500, "Internal server error"))
    if dialect == "anthropic" and failure == "overloaded":
        status = 529
    body = error_body(kind, dialect, status, message)
    match dialect:
        case "anthropic":
            body.pop("request_id")
            return b"event: error\ndata: %b\n\n" % dump_json(body)
        case "openai_responses":
            told = {"code": body["error"]["code"] or "server_error", "message": message, "param": None}
            event = {"type": "error", **told, "sequence_number": 0}
            return b"event: error\ndata: %b\n\n" % dump_json(event)
        case "ollama":
            return dump_json(body) + b"\n"
        case _:
            if kind == "groq":
                return b"event: error\ndata: %b\n\n" % dump_json(body)
            if kind == "gpustack":
                return b"error: %b\n\n" % dump_json(body["error"])
            if kind == "openrouter":
                choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
                return b"data: %b\n\n" % dump_json({"id": "gen-1", "choices": [choice], **body})
            return b"data: %b\n\n" % dump_json(body)
