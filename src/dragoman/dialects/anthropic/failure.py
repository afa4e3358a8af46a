"""Anthropic Messages: errors, both ways. https://docs.anthropic.com/en/api/errors (digest read 2026-11-15)"""

from dragoman.dialects._retry import read_retry_after, write_retry_after
from dragoman.dialects.anthropic.words import FAILURE_WORDS, FAILURES, NAME, STATUSES
from dragoman.failure import Failure, FailureKind, kind_of_failing, kind_of_status, status_of
from dragoman.fields import leftovers
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireReply

SPENT = frozenset({"enforced_spend_limit_reached"})


def decode_failure(wire: WireReply) -> Failure:
    status = wire.status if wire.status >= 400 else None
    body = wire.body
    error = body.pop("error", None) if type(body) is dict else None
    if type(error) is not dict:
        error = {"message": error if type(error) is str else _text_of(body)}
    word, message = error.pop("type", None), error.pop("message", None)
    own: JsonObject = dict(error)  # the other keys of the error object
    if type(word) is str and word not in FAILURES:
        own["type"] = word
    if type(body) is dict:
        body.pop("type", None)
    request_id = body.pop("request_id", None) if type(body) is dict else None
    return Failure(
        kind="no_credit" if _is_spent(error.get("details")) else _kind(word, message, status),
        message=message if type(message) is str else "",
        status=status,
        retry_after_s=read_retry_after(wire.headers),
        request_id=request_id if type(request_id) is str else wire.headers.get("request-id"),
        extras=leftovers(own, NAME),
    )


def _is_spent(details: object) -> bool:
    """A spend limit has the type of a rate limit, but waiting does not help."""
    return type(details) is dict and details.get("error_code") in SPENT


def _text_of(body: object) -> str:
    return body if type(body) is str else ""


def _kind(word: object, message: object, status: int | None) -> FailureKind:
    kind = FAILURES.get(word) if type(word) is str else None
    if kind is None:
        return kind_of_status(status)
    if kind == "server_error":
        return kind_of_failing(status)
    # Anthropic has no error type for a prompt that is too long, so we read the message.
    if kind == "invalid_request" and type(message) is str and _is_overflow(message):
        return "too_long"
    return kind


def _is_overflow(message: str) -> bool:
    return "prompt is too long" in message or "exceed context limit" in message


def encode_failure(failure: Failure) -> WireReply:
    body: JsonObject = {"type": "error", "error": encode_error(failure)}
    if failure.request_id is not None:
        body["request_id"] = failure.request_id
    status = failure.status if failure.status is not None and NAME in failure.extras else None
    return WireReply(
        body=body,
        status=status or STATUSES.get(failure.kind) or status_of(failure),
        headers=write_retry_after(failure),
    )


def encode_error(failure: Failure) -> JsonObject:
    """The error object. A reply and a stream have the same one."""
    message = failure.message
    if failure.kind == "too_long" and not _is_overflow(message):
        message = (
            f"prompt is too long: {message}"  # on these words clients shorten their history (FIELD-CASES appendix B)
        )
    error: JsonObject = {"type": FAILURE_WORDS[failure.kind], "message": message}
    error.update(failure.extras.get(NAME, {}))
    return error
