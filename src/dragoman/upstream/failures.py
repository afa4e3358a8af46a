"""Failures of our own making: an upstream's answer cannot be used, or there is none."""

import msgspec
from msgspec.structs import replace

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.upstream.keys import Secret

MAX_ERROR_BYTES = 1024 * 1024


def queue_full(name: str, most: int, wait_s: float) -> Failure:
    words = f"the queue of {name} is full ({most} requests wait)"
    return Failure(kind="overloaded", status=503, code="queue_full", message=words, retry_after_s=max(1.0, wait_s))


def queue_timeout(name: str, waited_s: float, wait_s: float, at_once: int | None) -> Failure:
    """A limit by the minute is the client's to keep (429); too many requests at once are ours (503). (F31)

    `wait_s` is how long a new request would wait now. It can be 0 although a limit by the minute held this one up: a
    place is free since this moment, or Valkey has lost its memory."""
    words = f"waited {waited_s:.1f} s for a free place at {name}"
    if wait_s > 0 or at_once is None:
        return Failure(
            kind="rate_limited", status=429, code="queue_timeout", message=words, retry_after_s=max(1.0, wait_s)
        )
    return Failure(kind="overloaded", status=503, code="queue_timeout", message=words, retry_after_s=1.0)


def malformed(words: str) -> Failure:
    return Failure(kind="server_error", status=502, code="upstream_malformed", message=words)


def too_late() -> Failure:
    words = "the upstream did not answer in time"
    return Failure(kind="timed_out", status=504, code="upstream_timeout", message=words)


def too_large(what: str, limit: int) -> Failure:
    words = f"the upstream's {what} is larger than {limit} bytes"
    return Failure(kind="server_error", status=502, code="upstream_response_too_large", message=words)


def unreadable(error: DecodeError | RecursionError) -> Failure:
    """The upstream's fault, with the place. Any other exception is a bug of ours and stays an exception."""
    why = error if isinstance(error, DecodeError) else "nested too deeply"
    return malformed(f"the upstream's answer cannot be read: {why}"[:300])


def left_alone(names: list[str], wait: float, *, resting: bool) -> Failure:
    who = ", ".join(names)
    if resting:
        words = f"no key of {who} may be used for another {wait:.0f} s"
        return Failure(kind="rate_limited", status=429, code="keys_resting", message=words, retry_after_s=wait)
    words = f"{who} did not answer lately. It is asked again every second: try again"
    return Failure(kind="overloaded", status=503, code="upstream_closed", message=words, retry_after_s=max(wait, 1.0))


def requests_own(failure: Failure) -> Failure:
    """A server error that one request meets each time, and others do not. Told as a server error, its client would send
    it again and again."""
    words = f"the upstream answers this request with the same error each time, and serves others: {failure.message}"
    return replace(failure, kind="invalid_request", status=400, code="request_not_served", message=words)


def hide_refused_key(failure: Failure, name: str) -> Failure:
    """For a gateway's client: it does not own the key that the upstream refuses, so this is no 401 of its own (F18)."""
    if failure.kind in ("unauthenticated", "forbidden"):
        words = f"{name} refuses the key dragoman has for it"
        if failure.kind == "forbidden" and failure.message:
            words = f"{name} does not allow this: {failure.message}"
        return Failure(kind="server_error", status=502, code="upstream_auth", message=words)
    return failure


def redact_error(error: UpstreamError, secret: Secret) -> None:
    error.failure = redact(error.failure, secret)
    error.args = (error.failure.message,)


def redact(failure: Failure, secret: Secret) -> Failure:
    """The failure without our key, which a provider may repeat in its message, in a stream too (T09)."""
    return msgspec.json.decode(secret.redact(msgspec.json.encode(failure)), type=Failure)
