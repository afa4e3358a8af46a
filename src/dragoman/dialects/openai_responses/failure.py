"""OpenAI Responses: errors, both ways. https://platform.openai.com/docs/guides/error-codes (digest read 2026-11-15)

Errors have many forms: `{"error": {...}}`, the same keys flat in an event, `{"code", "error": "text"}` (xAI),
`{"detail": "text"}` (the ChatGPT backend), and `error` inside a failed response.
"""

from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects.openai_responses.words import (
    CODES,
    FAILURE_CODES,
    FAILURE_TYPES,
    NAME,
    OWN_STATUS,
    RUNNING,
    STATUSES,
    TYPES,
)
from dragoman.failure import STATUS, Failure, FailureKind, kind_of_failing, kind_of_status
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireReply


def decode_failure(wire: WireReply) -> Failure:
    error = _find_error(wire.body)
    status = wire.status if wire.status >= 400 else None
    code = error.pop("code", None)
    if type(code) is int:  # OpenRouter, llama.cpp and vLLM repeat the status there
        status = status or (code if 400 <= code < 600 else None)
        code = None
    word, message, param = error.pop("type", None), error.pop("message", None), error.pop("param", None)
    message = message if type(message) is str else ""
    code = code if type(code) is str else None
    kind = _kind(code, word, message, status)
    own: JsonObject = {key: value for key, value in error.items() if value is not None}
    if type(word) is str and word not in ("error", FAILURE_TYPES.get(kind, "invalid_request_error")):
        own["type"] = word
    return Failure(
        kind=kind,
        message=message,
        status=status,
        code=code,
        param=param if type(param) is str else None,
        retry_after_s=read_retry_after(wire.headers),
        request_id=wire.headers.get("x-request-id"),
        extras=leftovers(own, NAME),
    )


def find_failure(body: JsonObject) -> Failure | None:
    """A response object under status 200 that failed, or that its server still works on in the background. Only clients
    of Responses know what to do with it."""
    status = body.get("status")
    if status in RUNNING:
        words = f"the upstream has not finished this answer: it is {status} in the background, as {body.get('id')}"
        return Failure(kind="server_error", status=502, code="upstream_unfinished", message=words)
    if status == "failed" and body.get("error"):
        return decode_failure(WireReply(body=body))
    return None


def _find_error(body: object) -> JsonObject:
    if type(body) is str:
        return {"message": body}
    if type(body) is not dict:
        return {}
    body.pop("sequence_number", None)
    error = body.get("error")
    if type(error) is dict:
        return error
    if type(error) is str:
        return {"message": error, "code": body.get("code")}
    detail = body.get("detail")
    if "message" not in body and detail is not None:
        if type(detail) is dict:
            return detail
        return {"message": detail if type(detail) is str else str(detail)}
    return body


def _kind(code: str | None, word: object, message: str, status: int | None) -> FailureKind:
    kind = CODES.get(code or "") or (TYPES.get(word) if type(word) is str else None)
    if kind == "server_error":
        kind = kind_of_failing(status)
    if kind is None:
        kind = kind_of_status(status)
        blamed = word == "invalid_request_error" or (code or "").startswith(("image_", "invalid_", "unsupported_"))
        if kind == "unknown" and blamed:
            kind = "invalid_request"
    # Local servers have no code for a prompt that is too long, so we read the message (FIELD-CASES 20).
    if kind == "invalid_request" and ("maximum context length" in message or "context window" in message):
        return "too_long"
    return kind


def encode_failure(failure: Failure) -> WireReply:
    status = failure.status if failure.status in STATUSES else OWN_STATUS.get(failure.kind)
    headers = write_retry_after(failure)
    if failure.request_id is not None:
        headers["x-request-id"] = failure.request_id
    return WireReply(body={"error": encode_error(failure)}, status=status or STATUS[failure.kind], headers=headers)


def encode_error(failure: Failure) -> JsonObject:
    """The error object of an HTTP reply."""
    error: JsonObject = {
        "message": failure.message,
        "type": FAILURE_TYPES.get(failure.kind, "invalid_request_error"),
        "param": failure.param,
        "code": code_of(failure),
    }
    error.update(failure.extras.get(NAME, {}))
    return error


def code_of(failure: Failure) -> str | None:
    """The code that clients react to: the failure's own if it means the same kind, else our code for the kind."""
    if failure.code is not None and CODES.get(failure.code) == failure.kind:
        return failure.code
    if failure.kind in ("too_long", "no_credit") or failure.code is None or failure.code in CODES:
        return FAILURE_CODES.get(failure.kind)
    return failure.code
