"""Refusals of each vendor: status, headers and body. They are written by hand, not by the encoders under test."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.dialects import USUAL
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


# "The conversation is too long" at servers that speak OpenAI Chat: the message, and the code if there is one (recorded;
# FIELD-CASES 20 and appendix B).
OVERFLOWS: dict[str, tuple[str, str | None]] = {
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


class RefusalDetails(Struct, frozen=True, kw_only=True):
    """What a refusal says. `kind` is a row of profiles.toml: servers of one dialect have different shapes of errors."""

    kind: str
    status: int
    message: str
    code: str | None = None
    param: str | None = None
    details: list[dict[str, Any]] | None = None


class VendorStyle(Struct, frozen=True, kw_only=True):
    """How the vendor of a dialect writes refusals and headers."""

    body: Callable[[RefusalDetails], Any]
    frame: Callable[[str, Any], bytes]  # kind and body -> an error in the middle of a stream
    overflow: tuple[str, str | None]  # the message for a conversation that is too long, and its code
    overflow_param: str | None = None
    no_model: str  # the message; `{}` stands for the model
    no_model_status: int = 404
    no_model_code: str | None = None
    wrong_key: str  # the message; `{}` stands for the first characters of the key
    no_key: str | None = None
    wrong_key_status: int = 401
    overloaded: int = 503
    headers: dict[str, str] = {}  # headers of a refusal
    reply_headers: dict[str, str] = {}  # headers of an answer


def _chat_body(refusal: RefusalDetails) -> Any:
    return _compatible(refusal.kind, refusal.status, refusal.message, refusal.code, refusal.param)


def _anthropic_body(refusal: RefusalDetails) -> Any:
    error: dict[str, Any] = {"type": _ANTHROPIC.get(refusal.status, "api_error"), "message": refusal.message}
    if refusal.code is not None:
        error["details"] = {"error_code": refusal.code}
    return {"type": "error", "error": error, "request_id": "req_011scripted"}


def _google_body(refusal: RefusalDetails) -> Any:
    error = {"code": refusal.status, "message": refusal.message, "status": _GOOGLE.get(refusal.status, "UNKNOWN")}
    return {"error": error if refusal.details is None else {**error, "details": refusal.details}}


def _ollama_body(refusal: RefusalDetails) -> Any:
    return {"error": refusal.message}


def _chat_frame(kind: str, body: Any) -> bytes:
    if kind == "groq":
        return _named_frame(kind, body)
    if kind == "gpustack":
        return b"error: %b\n\n" % dump_json(body["error"])
    if kind == "openrouter":
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        return b"data: %b\n\n" % dump_json({"id": "gen-1", "choices": [choice], **body})
    return b"data: %b\n\n" % dump_json(body)


def _named_frame(kind: str, body: Any) -> bytes:
    return b"event: error\ndata: %b\n\n" % dump_json({k: v for k, v in body.items() if k != "request_id"})


def _responses_frame(kind: str, body: Any) -> bytes:
    error = body["error"]
    fields = {"code": error["code"] or "server_error", "message": error["message"], "param": None}
    return _named_frame(kind, {"type": "error", **fields, "sequence_number": 0})


def _ollama_frame(kind: str, body: Any) -> bytes:
    return dump_json(body) + b"\n"


_OPENAI_KEY = "Incorrect API key provided: {}***. You can find your API key in your dashboard."
_OPENAI_ID = {"x-request-id": "req_scripted"}
_ANTHROPIC_ID = {"request-id": "req_011scripted"}
VENDOR_STYLES: dict[str, VendorStyle] = {
    "openai_chat": VendorStyle(
        body=_chat_body,
        frame=_chat_frame,
        overflow=(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            "context_length_exceeded",
        ),
        overflow_param="messages",
        no_model="The model `{}` does not exist or you do not have access to it.",
        wrong_key=_OPENAI_KEY,
        headers=_OPENAI_ID,
        reply_headers={**_OPENAI_ID, "openai-processing-ms": "1"},
    ),
    "openai_responses": VendorStyle(
        body=_chat_body,
        frame=_responses_frame,
        overflow=(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "context_length_exceeded",
        ),
        no_model="The requested model '{}' does not exist.",
        no_model_status=400,
        no_model_code="model_not_found",
        wrong_key=_OPENAI_KEY,
        headers=_OPENAI_ID,
        reply_headers={**_OPENAI_ID, "openai-processing-ms": "1"},
    ),
    "anthropic": VendorStyle(
        body=_anthropic_body,
        frame=_named_frame,
        overflow=("prompt is too long: 230462 tokens > 200000 maximum", None),
        no_model="model: {}",
        wrong_key="invalid x-api-key",
        no_key="x-api-key header is required",
        overloaded=529,
        headers=_ANTHROPIC_ID,
        reply_headers=_ANTHROPIC_ID,
    ),
    "gemini": VendorStyle(
        body=_google_body,
        frame=_chat_frame,
        overflow=("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", None),
        no_model="models/{} is not found for API version v1beta, or is not supported for generateContent.",
        wrong_key="API key not valid. Please pass a valid API key.",
        wrong_key_status=400,
    ),
    "ollama": VendorStyle(
        body=_ollama_body,
        frame=_ollama_frame,
        overflow=("the input length exceeds the context length", None),
        no_model="model '{}' not found",
        wrong_key=_OPENAI_KEY,
    ),
}


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
    refusal = RefusalDetails(kind=kind, status=status, message=message, code=code, param=param, details=details)
    manner = VENDOR_STYLES[dialect]
    return VendorRefusal(status=status, body=manner.body(refusal), headers={**manner.headers, **(headers or {})})


def refuse_model(kind: str, dialect: str, model: str) -> VendorRefusal:
    """An unknown model. Each server has its own error for it (recorded traffic)."""
    manner = VENDOR_STYLES[dialect]
    match kind:
        case "mistral":
            refusal = refuse(kind, dialect, 400, f"Invalid model: {model}", code="1500")
            refusal.body["type"] = "invalid_model"
            return refusal
        case "xai":
            return refuse(kind, dialect, 400, f"Model not found: {model}")
        case _ if manner.no_model_code is not None and kind != "openai":
            manner = VENDOR_STYLES[USUAL]
        case _:
            pass
    code, param = manner.no_model_code, "model" if manner.no_model_code else None
    return refuse(kind, dialect, manner.no_model_status, manner.no_model.format(model), code=code, param=param)


def refuse_overflow(kind: str, dialect: str) -> VendorRefusal:
    manner = VENDOR_STYLES[dialect]
    message, code = (OVERFLOWS.get(kind) if dialect == USUAL else None) or manner.overflow
    return refuse(kind, dialect, 400, message, code=code, param=manner.overflow_param)


def refuse_key(kind: str, dialect: str, given: str) -> VendorRefusal:
    manner = VENDOR_STYLES[dialect]
    words = manner.no_key if not given and manner.no_key is not None else manner.wrong_key.format(given[:4])
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    status = 400 if kind == "xai" else manner.wrong_key_status
    return refuse(kind, dialect, status, words, details=[info])


def error_frame(kind: str, dialect: str, failure: FailureKind) -> bytes:
    """An error in the middle of a stream."""
    manner = VENDOR_STYLES[dialect]
    status, message = WORDS.get(failure, (500, "Internal server error"))
    if failure == "overloaded":
        status = manner.overloaded
    return manner.frame(kind, manner.body(RefusalDetails(kind=kind, status=status, message=message)))


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
            fields = {"object": "error", "message": message, "type": word, "param": param, "code": code or number}
            return {**fields, "raw_status_code": status}
        case "vllm" | "sglang" | "gpustack":
            name = "NotFoundError" if status == 404 else "BadRequestError" if status < 500 else "InternalServerError"
            return {"error": {"message": message, "type": name, "param": param, "code": status}}
        case "llamacpp":
            return {"error": {"code": status, "message": message, "type": code or word}}
        case "openrouter":
            return {"error": {"code": status, "message": message, "metadata": {"provider_name": "scripted"}}}
        case _:
            return {"error": {"message": message, "type": word, "param": param, "code": code or usual}}
