"""OpenAI Chat Completions: errors, both ways.
https://platform.openai.com/docs/guides/error-codes (digest read 2026-11-15). Compatible servers answer in these forms:

    {"error": {"message", "type", "param", "code"}}     OpenAI; the code may be a number, a status, or missing
    {"error": "text", "code": "..."}                    xAI, LM Studio, Venice
    {"message", "type", "code", "object": "error"}      Mistral, older vLLM
    {"detail": "text" | [{"loc", "msg"}]}               FastAPI
    [{"error": {...}}]                                  Google's OpenAI layer
"""

import re

from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects.openai_chat.words import FAILURE_CODES, FAILURE_WORDS, NAME, STATUSES, UNKNOWN_URL
from dragoman.failure import Failure, FailureKind, kind_of_status, status_of
from dragoman.fields import leftovers
from dragoman.jsontypes import Json, JsonObject
from dragoman.wire import WireReply

# These words say less than the status does, so the status decides.
GENERIC = {"invalid_request_error", "server_error", "api_error", "internal_server_error", "tool_use_failed"}

# Most servers have no code for a prompt that is too long, only a message (FIELD-CASES 20).
OVERFLOW = re.compile(
    r"maximum context length|(?<!search_)context[ _](length|window|size|limit)|prompt( is)? too long"
    r"|too many (input )?tokens|input is too long|length of all messages is too long|exceed\w* .{0,40}\bcontext\b",
    re.IGNORECASE,
)


def decode_failure(wire: WireReply) -> Failure:
    status = wire.status if wire.status >= 400 else None
    error = _find_error(wire.body)
    message, code, word, param = (error.pop(key, None) for key in ("message", "code", "type", "param"))
    text = message if type(message) is str else _detail_text(_inner_detail(message)) or ""
    own: JsonObject = {key: value for key, value in error.items() if value is not None}
    if type(word) is str:
        own["type"] = word
    if code is not None:
        own["code"] = code
    if param is not None and type(param) is not str:
        own["param"] = param
    return Failure(
        kind=_kind(code, word, text, status, own),
        message=text or _fallback(wire.body, status),
        status=status,
        code=code if type(code) is str and not code.isdigit() else None,
        param=param if type(param) is str else None,
        retry_after_s=read_retry_after(wire.headers),
        request_id=wire.headers.get("x-request-id"),
        extras=leftovers(own, NAME),
    )


def _find_error(body: Json) -> JsonObject:
    """Find the error in any of the forms, and return it with `message`, `type`, `code` and `param`."""
    if type(body) is list and body:
        body = body[0]
    if type(body) is not dict:
        return {"message": body if type(body) is str else None}
    error = body.get("error")
    if type(error) is dict:
        return error
    if type(error) is str and error:
        found = {key: value for key, value in body.items() if key != "error"}
        if type(found.get("message")) is str:
            found["detail"] = found["message"]
        return {**found, "message": error}
    if "detail" in body and "message" not in body:
        return {"message": _detail_text(body["detail"])}
    found = dict(body)
    if found.get("object") == "error":
        del found["object"]
    return found


def _inner_detail(message: Json) -> Json:
    """Mistral: `{"message": {"detail": [...]}}`."""
    return message.get("detail") if type(message) is dict else None


def _detail_text(detail: Json) -> str | None:
    if type(detail) is str:
        return detail
    if type(detail) is not list:
        return None
    messages = [item for item in detail if type(item) is dict and type(item.get("msg")) is str]
    return "; ".join(f"{'.'.join(str(step) for step in item.get('loc') or ())}: {item['msg']}" for item in messages)


def _fallback(body: Json, status: int | None) -> str:
    return "the upstream gave no reason" if status is None else f"the upstream answered {status} and gave no reason"


def _kind(code: object, word: object, message: str, status: int | None, own: JsonObject) -> FailureKind:
    words = [text for text in (code, word) if type(text) is str]
    for text in words:
        if text in FAILURE_CODES and text not in GENERIC:
            return FAILURE_CODES[text]
    if status in (None, 400, 413, 422) and OVERFLOW.search(message):
        return "too_long"
    if status is None:
        status = next(
            (n for n in (_status(code), _status(own.get("status_code")), _status(own.get("status"))) if n), None
        )
    kind = kind_of_status(status)
    if kind == "unknown":
        return next((FAILURE_CODES[text] for text in words if text in FAILURE_CODES), kind)
    return kind


def _status(value: object) -> int | None:
    """The HTTP status in an error code, which is a number or digits."""
    if type(value) is str and value.isdigit():
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None


def encode_failure(failure: Failure) -> WireReply:
    headers = write_retry_after(failure)
    if failure.request_id is not None:
        headers["x-request-id"] = failure.request_id
    given = failure.status is not None and failure.status >= 400
    status = status_of(failure) if given else STATUSES.get(failure.kind) or status_of(failure)
    return WireReply(body={"error": encode_error(failure)}, status=status, headers=headers)


def encode_error(failure: Failure) -> JsonObject:
    """The error object. A reply and a stream have the same one."""
    word, code = FAILURE_WORDS[failure.kind]
    error: JsonObject = {
        "message": failure.message,
        "type": word,
        "param": failure.param,
        "code": failure.code if code is None or failure.code == UNKNOWN_URL else code,
    }
    error.update(failure.extras.get(NAME, {}))
    if failure.kind == "too_long":
        error["code"] = code  # on this word clients shorten their history (FIELD-CASES 20, appendix B)
    return error
