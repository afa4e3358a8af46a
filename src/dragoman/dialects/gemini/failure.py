"""Gemini generateContent: errors, both ways. https://cloud.google.com/apis/design/errors (digest read 2026-11-15)"""

from typing import Any

from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects.gemini.words import FAILURE_WORDS, FAILURES, KNOWN_STATUSES, NAME, STATUSES
from dragoman.failure import STATUS, Failure, FailureKind, kind_of_status
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireReply

TYPE = "type.googleapis.com/google.rpc."
OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"


def decode_failure(wire: WireReply) -> Failure:
    status = wire.status if wire.status >= 400 else None
    body = wire.body
    if type(body) is list and body:  # "sometimes wrapped in a one-element array"
        body = body[0]
    error = body.pop("error", None) if type(body) is dict else body
    if type(error) is not dict:
        error = {"message": error if type(error) is str else ""}
    message, word, code = (error.pop(key, None) for key in ("message", "status", "code"))
    given = error.get("details")
    details = [item for item in given if type(item) is dict] if type(given) is list else []
    number = code if type(code) is int else None
    kind = _kind(word, message, details, status or number)
    own: JsonObject = error  # the other keys of the error
    if type(word) is str and FAILURE_WORDS[kind] != word:
        own["status"] = word
    if number is not None and number != (status or STATUSES.get(kind, STATUS[kind])):
        own["code"] = number
    retry = _find(details, "RetryInfo", "retryDelay")
    return Failure(
        kind=kind,
        message=message if type(message) is str else "",
        status=status,
        param=_read_param(details),
        retry_after_s=_read_delay(retry) if retry is not None else read_retry_after(wire.headers),
        request_id=_find(details, "RequestInfo", "requestId"),
        extras=leftovers(own, NAME),
    )


def _kind(word: object, message: object, details: list[JsonObject], status: int | None) -> FailureKind:
    kind = FAILURES.get(word) if type(word) is str else None
    if kind is None:
        kind = kind_of_status(status)
    if kind == "rate_limited" and _is_spent(details):
        return "no_credit"
    if kind == "invalid_request":
        if _find(details, "ErrorInfo", "reason") == "API_KEY_INVALID":
            return "unauthenticated"
        if status == 413:
            return "too_large"
        # Gemini has no status for a prompt that is too long, so we read the message.
        if type(message) is str and is_overflow(message):
            return "too_long"
    return kind


def _is_spent(details: list[JsonObject]) -> bool:
    """Whether a daily quota or a quota of 0 is used up: waiting a minute does not help."""
    for item in details:
        violations: Any = item.get("violations")
        for violation in violations if type(violations) is list else ():
            if type(violation) is dict and (
                "PerDay" in str(violation.get("quotaId", "")) or violation.get("quotaValue") in (0, "0")
            ):
                return True
    return False


def is_overflow(message: str) -> bool:
    plain = message.lower()
    return "token count" in plain and "exceeds the maximum" in plain


def _find(details: list[JsonObject], kind: str, key: str) -> str | None:
    for item in details:
        if item.get("@type") == TYPE + kind and type(item.get(key)) is str:
            found: str = item[key]
            return found
    return None


def _read_param(details: list[JsonObject]) -> str | None:
    for item in details:
        violations: Any = item.get("fieldViolations")
        if type(violations) is list and violations and type(violations[0]) is dict:
            field = violations[0].get("field")
            return field if type(field) is str and field else None
    return None


def _read_delay(text: str) -> float | None:
    """A protobuf duration: "30s", "1.5s"."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None


def encode_failure(failure: Failure) -> WireReply:
    return WireReply(body={"error": encode_error(failure)}, status=_status(failure), headers=write_retry_after(failure))


def _status(failure: Failure) -> int:
    """The failure's own status if Google uses it. Another provider's 529, for example, becomes 503."""
    if failure.status is not None and failure.status in KNOWN_STATUSES:
        return failure.status
    return STATUSES.get(failure.kind, STATUS[failure.kind])


def encode_error(failure: Failure) -> JsonObject:
    """The error object. A reply and a stream have the same one."""
    message, own = failure.message, failure.extras.get(NAME, {})
    if failure.kind == "too_long" and not is_overflow(message):
        message = f"{OVERFLOW}: {message}"
    error: JsonObject = {"code": _status(failure), "message": message, "status": FAILURE_WORDS[failure.kind]} | own
    known = own.get("details")
    known = known if type(known) is list else []
    details = [*known, *_encode_details(failure, known)]
    if details:
        error["details"] = details
    return error


def _encode_details(failure: Failure, known: list[JsonObject]) -> list[JsonObject]:
    """The details that Google's errors have and `known` lacks."""
    details: list[JsonObject] = []
    if failure.retry_after_s is not None and _find(known, "RetryInfo", "retryDelay") is None:
        details.append({"@type": f"{TYPE}RetryInfo", "retryDelay": f"{failure.retry_after_s:.9g}s"})
    if failure.param is not None and _read_param(known) is None:
        violation = {"field": failure.param, "description": failure.message}
        details.append({"@type": f"{TYPE}BadRequest", "fieldViolations": [violation]})
    if failure.request_id is not None and _find(known, "RequestInfo", "requestId") is None:
        details.append({"@type": f"{TYPE}RequestInfo", "requestId": failure.request_id})
    return details
