"""Faults that a scripted provider plays on request: `provider.next(faults.rate_limited(wait_s=2))`.

A fault replaces the answer (a status, a page, nothing at all) or spoils it on its way (cut, stalled, garbled).
RELIABILITY rows F03-F28 are made of these. "After k events" counts frames of the stream.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from dragoman.failure import FailureKind
from dragoman.jsontypes import dump_json

CutStyle: TypeAlias = Literal["reset", "close", "end"]  # RST; the connection closed amid the body; a well-formed end


class ScriptedFault(Struct, frozen=True, kw_only=True):
    name: str
    # These replace the answer:
    status: int | None = None  # an error in the vendor's own form
    message: str = ""
    code: str | None = None
    headers: dict[str, str] = {}
    details: list[dict[str, Any]] | None = None  # `details` of an error of Google
    listed: bool = False  # the error wrapped in an array, as Google does
    body: bytes | None = None  # these bytes, with `media_type` and `status`, instead of an answer
    media_type: str | None = None
    overflow: bool = False  # the conversation is too long, in the server's own words
    raw: bytes | None = None  # these bytes instead of a whole HTTP response
    reset: Literal["before_headers", "after_headers"] | None = None
    # These spoil the answer on its way:
    wait_s: float = 0.0  # silence before the headers
    after: int | None = None  # frames that are sent before the fault happens
    stall_s: float = 0.0
    how: CutStyle | None = None
    error: FailureKind | None = None  # in the stream, in the dialect's own form
    edit: Callable[[list[bytes]], list[bytes]] | None = None  # changes the frames
    piece: int | None = None  # bytes written at a time
    pause_s: float = 0.0  # the pause between two pieces
    gzip: bool = False
    short_by: int = 0  # bytes the body falls short of its Content-Length


# -- refusals


def failing(
    status: int, message: str = "", *, code: str | None = None, headers: dict[str, str] | None = None
) -> ScriptedFault:
    """Any error status, in the vendor's own form."""
    return ScriptedFault(name=f"status {status}", status=status, message=message, code=code, headers=headers or {})


RETRY_FORMS = (
    "seconds",
    "fraction",
    "date",
    "ms",
    "azure_ms",
    "reset_requests",
    "reset_tokens",
    "anthropic_reset",
    "google_delay",
    "google_text",
    "google_list",
    "none",
)
BAD_RETRY_FORMS = ("negative", "nan", "huge", "past", "several", "words")
QUOTA_FORMS = ("openai_quota", "openai_spend", "anthropic_spend", "google_daily")


def rate_limited(wait_s: float = 1.0, form: str = "seconds") -> ScriptedFault:
    """429 with a hint in one of the forms providers use (RETRY_FORMS), nonsense (BAD_RETRY_FORMS), or a quota that
    waiting does not fill (QUOTA_FORMS)."""
    headers = _retry_headers(wait_s)
    message = "Rate limit reached for requests"
    fault = ScriptedFault(name=f"429 {form}", status=429, message=message, headers=headers.get(form, {}))
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait_s:.9f}s"}
    match form:
        case "google_delay" | "google_list":
            return _with(fault, details=[retry], listed=form == "google_list", message="Resource has been exhausted")
        case "google_text":
            return _with(fault, message=f"You exceeded your current quota. Please retry in {wait_s:g}s.")
        case "openai_quota":
            return _with(
                fault, code="insufficient_quota", message="You exceeded your current quota, please check your plan."
            )
        case "openai_spend":
            return _with(fault, code="billing_hard_limit_reached", message="Billing hard limit has been reached.")
        case "anthropic_spend":
            return _with(fault, code="enforced_spend_limit_reached", message="You have reached your spend limit.")
        case "google_daily":
            quota = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "0"}
            failure = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [quota]}
            return _with(fault, details=[failure], message="You exceeded your current quota.")
        case _ if form not in headers and form != "none":
            raise ValueError(f"no such form: {form}")
        case _:
            return fault


def _retry_headers(wait_s: float) -> dict[str, dict[str, str]]:
    """The headers of a form; empty if it has none."""
    now = datetime.now(UTC)
    then = now + timedelta(seconds=wait_s)
    return {
        "seconds": {"retry-after": str(-int(-wait_s // 1))},
        "fraction": {"retry-after": f"{wait_s:g}"},
        "date": {"retry-after": format_datetime(then + timedelta(seconds=1), usegmt=True)},
        "ms": {"retry-after-ms": f"{wait_s * 1000:g}"},
        "azure_ms": {"x-ms-retry-after-ms": f"{wait_s * 1000:g}"},
        "reset_requests": {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": _spell_wait(wait_s)},
        "reset_tokens": {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": _spell_wait(wait_s)},
        "anthropic_reset": {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": then.isoformat().replace("+00:00", "Z"),
        },
        "negative": {"retry-after": "-5"},
        "nan": {"retry-after": "nan"},
        "huge": {"retry-after": "9999999"},
        "past": {"retry-after": format_datetime(now - timedelta(days=1), usegmt=True)},
        "several": {"retry-after": "3, 5"},
        "words": {"retry-after": "soon"},
    }


def _spell_wait(wait_s: float) -> str:
    """As Go writes a duration: 1m30s, 2.5s, 20ms."""
    if wait_s >= 60:
        return f"{int(wait_s // 60)}m{wait_s % 60:g}s"
    return f"{wait_s:g}s" if wait_s >= 1 else f"{wait_s * 1000:g}ms"


def _with(fault: ScriptedFault, **changes: Any) -> ScriptedFault:
    return ScriptedFault(**{name: getattr(fault, name) for name in ScriptedFault.__struct_fields__} | changes)


def overloaded(status: int = 529) -> ScriptedFault:
    return failing(status, "Overloaded" if status == 529 else "server busy, please try again.")


def too_long() -> ScriptedFault:
    """The conversation does not fit the model, in the words of the kind of server."""
    return ScriptedFault(name="too long", overflow=True)


def tool_use_failed() -> ScriptedFault:
    """Groq's error for a tool call that its model wrote badly."""
    error = {
        "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": '[{"name": "add", "parameters": {"a": "2"}}]',
    }
    return ScriptedFault(
        name="tool_use_failed", status=400, body=dump_json({"error": error}), media_type="application/json"
    )


def redirect(to: str, status: int = 302) -> ScriptedFault:
    return ScriptedFault(
        name=f"redirect {status}", status=status, body=b"", headers={"location": to}, media_type="text/plain"
    )


# -- connections


def reset_before_headers(wait_s: float = 0.0) -> ScriptedFault:
    return ScriptedFault(name="reset before headers", reset="before_headers", wait_s=wait_s)


def reset_after_headers() -> ScriptedFault:
    return ScriptedFault(name="reset after headers", reset="after_headers")


def stalled(seconds: float = 3600.0, after: int | None = None) -> ScriptedFault:
    """Silence before the headers, or after `after` events of a stream."""
    if after is None:
        return ScriptedFault(name="stalled before headers", wait_s=seconds)
    return ScriptedFault(name=f"stalled after {after}", after=after, stall_s=seconds)


def cut(after: int = 3, how: CutStyle = "reset") -> ScriptedFault:
    """A stream that breaks off after `after` events."""
    return ScriptedFault(name=f"cut after {after} ({how})", after=after, how=how)


def slow(piece: int = 1, pause_s: float = 0.001) -> ScriptedFault:
    """A few bytes at a time, which also cuts characters and frames in two."""
    return ScriptedFault(name=f"{piece} bytes at a time", piece=piece, pause_s=pause_s)


# -- bodies


def truncated_body(short_by: int = 20) -> ScriptedFault:
    """An unstreamed body shorter than its Content-Length says."""
    return ScriptedFault(name="truncated body", short_by=short_by)


def garbage(body: bytes = b'{"id": "x", "choices": [', status: int = 200) -> ScriptedFault:
    return ScriptedFault(name="garbage", status=status, body=body, media_type="application/json")


def html(status: int = 200) -> ScriptedFault:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"
    return ScriptedFault(name="a page", status=status, body=page, media_type="text/html")


def wrong_type(media_type: str = "text/plain") -> ScriptedFault:
    """The right answer under the wrong Content-Type."""
    return ScriptedFault(name=f"as {media_type}", media_type=media_type)


def compressed() -> ScriptedFault:
    """gzip, though the client did not accept it."""
    return ScriptedFault(name="gzip", gzip=True)


def raw(data: bytes) -> ScriptedFault:
    """Bytes instead of a whole HTTP response; then the connection closes."""
    return ScriptedFault(name="raw bytes", raw=data)


# -- streams


def error_in_stream(after: int = 3, error: FailureKind = "server_error") -> ScriptedFault:
    return ScriptedFault(name=f"{error} after {after}", after=after, error=error)


def error_first(error: FailureKind = "overloaded") -> ScriptedFault:
    """An error as the first event, under status 200."""
    return ScriptedFault(name=f"{error} first", after=0, error=error)


def no_terminator(frames: int = 1) -> ScriptedFault:
    """The stream ends well-formed, without its last frames."""
    return ScriptedFault(name="no terminator", edit=lambda all_frames: all_frames[:-frames])


def empty_stream() -> ScriptedFault:
    return ScriptedFault(name="empty stream", edit=lambda all_frames: [])


def invalid_utf8() -> ScriptedFault:
    """Bytes that are no UTF-8 inside the first text of a stream."""
    return ScriptedFault(name="invalid UTF-8", edit=_spoil)


def _spoil(frames: list[bytes]) -> list[bytes]:
    for i in range(len(frames) // 2, len(frames)):
        for mark in (b'"text":"', b'"content":"', b'"delta":"', b'"thinking":"', b'"partial_json":"'):
            if mark in frames[i]:
                return [*frames[:i], frames[i].replace(mark, mark + b"\xff\xfe", 1), *frames[i + 1 :]]
    return frames


def giant_event(size_bytes: int = 8 * 1024 * 1024) -> ScriptedFault:
    """One event far larger than any reader should take."""

    def swell(frames: list[bytes]) -> list[bytes]:
        middle = len(frames) // 2
        giant = b'{"giant": "' + b"x" * size_bytes + b'"}\n'
        if not _is_ndjson(frames):
            giant = b"data: " + giant + b"\n"
        return [*frames[:middle], giant, *frames[middle:]]

    return ScriptedFault(name="giant event", edit=swell)


def chatter() -> ScriptedFault:
    """Comments, blank events and CRLF line ends: all legal, all met (FIELD-CASES 46)."""

    def spoil(frames: list[bytes]) -> list[bytes]:
        if _is_ndjson(frames):
            return [b"\r\n" + frame.replace(b"\n", b"\r\n") for frame in frames]
        framed = [b": keep-alive\n\n" + frame.replace(b"data: ", b"data:", 1) for frame in frames]
        return [b"\xef\xbb\xbf:\n\n", *(frame.replace(b"\n", b"\r\n") for frame in framed)]

    return ScriptedFault(name="chatter", edit=spoil)


def _is_ndjson(frames: list[bytes]) -> bool:
    return bool(frames) and frames[0][:1] == b"{"


# All faults by name, for tests that try every one of them.
ALL: dict[str, Callable[[], ScriptedFault]] = {
    **{f"429_{form}": partial(rate_limited, 1.0, form) for form in (*RETRY_FORMS, *BAD_RETRY_FORMS, *QUOTA_FORMS)},
    **{f"status_{n}": partial(failing, n) for n in (400, 401, 403, 404, 413, 422, 500, 502, 503, 504, 529)},
    "too_long": too_long,
    "tool_use_failed": tool_use_failed,
    "redirect": lambda: redirect("http://127.0.0.1:9/"),
    "reset_before_headers": reset_before_headers,
    "reset_after_headers": reset_after_headers,
    "stalled": stalled,
    "stalled_in_stream": lambda: stalled(after=3),
    "cut_reset": lambda: cut(3, "reset"),
    "cut_close": lambda: cut(3, "close"),
    "cut_end": lambda: cut(3, "end"),
    "truncated_body": truncated_body,
    "garbage": garbage,
    "html": html,
    "wrong_type": wrong_type,
    "compressed": compressed,
    "slow": slow,
    "error_in_stream": error_in_stream,
    "error_first": error_first,
    "no_terminator": no_terminator,
    "empty_stream": empty_stream,
    "invalid_utf8": invalid_utf8,
    "giant_event": giant_event,
    "chatter": chatter,
}
