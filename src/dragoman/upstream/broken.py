"""How large an upstream's answer may be, and the failures for one that cannot be used."""

from dragoman.failure import Failure

MAX_ERROR_BYTES = 1024 * 1024


def malformed(words: str) -> Failure:
    return Failure(kind="server_error", status=502, code="upstream_malformed", message=words)


def too_late() -> Failure:
    words = "the upstream did not answer in time"
    return Failure(kind="timed_out", status=504, code="upstream_timeout", message=words)


def too_large(what: str, limit: int) -> Failure:
    words = f"the upstream's {what} is larger than {limit} bytes"
    return Failure(kind="server_error", status=502, code="upstream_response_too_large", message=words)
