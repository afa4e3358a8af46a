"""Failure: an API error as a value, the same for every dialect."""

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

FailureKind: TypeAlias = Literal[
    "invalid_request",  # the caller's fault: the same request would fail again
    "too_long",  # the conversation does not fit the model's context
    "unauthenticated",
    "no_credit",  # quota or balance used up: waiting does not help
    "forbidden",
    "not_found",
    "conflict",
    "too_large",  # the body, in bytes
    "rate_limited",
    "refused",  # refused by a policy
    "server_error",
    "overloaded",
    "timed_out",
    "cut_off",  # a stream was cut off
    "unknown",
]

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

STATUS: dict[FailureKind, int] = {
    "invalid_request": 400,
    "too_long": 400,
    "unauthenticated": 401,
    "no_credit": 402,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limited": 429,
    "refused": 400,
    "server_error": 500,
    "overloaded": 503,
    "timed_out": 504,
    "cut_off": 502,
    "unknown": 500,
}

_KIND_OF_STATUS: dict[int, FailureKind] = {
    400: "invalid_request",
    401: "unauthenticated",
    402: "no_credit",
    403: "forbidden",
    404: "not_found",
    405: "invalid_request",
    408: "timed_out",
    409: "conflict",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limited",
    498: "overloaded",
    503: "overloaded",
    504: "timed_out",
    529: "overloaded",
}


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: FailureKind
    message: str
    status: int | None = None  # the HTTP status; None for an error inside a stream
    code: str | None = None  # a machine-readable word shared by several dialects
    param: str | None = None  # the field the error is about
    retry_after_s: float | None = None
    request_id: str | None = None
    extras: dict[str, dict[str, Any]] = {}


def kind_of_failing(status: int | None) -> FailureKind:
    """The kind of an error whose words only say that a server failed: with 503 or 504 the status says more."""
    kind = kind_of_status(status)
    return kind if kind in ("overloaded", "timed_out") else "server_error"


def kind_of_status(status: int | None) -> FailureKind:
    """The kind for a status, if the body does not tell more."""
    if status is None:
        return "unknown"
    found = _KIND_OF_STATUS.get(status)
    if found is not None:
        return found
    if 400 <= status < 500:
        return "invalid_request"
    return "server_error" if status >= 500 else "unknown"


def status_of(failure: Failure) -> int:
    """The status to answer with: the failure's own if it is an error status, else that of its kind."""
    if failure.status is not None and failure.status >= 400:
        return failure.status
    return STATUS[failure.kind]
