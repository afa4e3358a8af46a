"""Gemini errors, both ways."""

from typing import Any

import pytest

from dragoman.dialects.gemini import DIALECT
from dragoman.failure import Failure, FailureKind
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.wire import WireReply

TYPE = "type.googleapis.com/google.rpc."


def decode(body: Any, status: int = 400, headers: dict[str, str] | None = None) -> Failure:
    return DIALECT.decode_failure(WireReply(body=copy_json(body), status=status, headers=headers or {}))


def error(status: str, message: str = "m", code: int = 400, **more: Any) -> JsonObject:
    return {"error": {"code": code, "message": message, "status": status} | more}


KEY = [{"@type": f"{TYPE}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
OVERFLOW = "The input token count (12) exceeds the maximum number of tokens allowed (8)."


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (error("INVALID_ARGUMENT"), 400, "invalid_request"),
        (error("INVALID_ARGUMENT", details=KEY), 400, "unauthenticated"),
        (error("INVALID_ARGUMENT", OVERFLOW), 400, "too_long"),
        (error("PERMISSION_DENIED", code=403), 403, "forbidden"),
        (error("NOT_FOUND", code=404), 404, "not_found"),
        (error("RESOURCE_EXHAUSTED", code=429), 429, "rate_limited"),
        (error("INTERNAL", code=500), 500, "server_error"),
        (error("UNAVAILABLE", code=503), 503, "overloaded"),
        (error("DEADLINE_EXCEEDED", code=504), 504, "timed_out"),
        (error("BORED", code=503), 503, "overloaded"),
        ([error("NOT_FOUND", code=404)], 404, "not_found"),
        ({"error": "no"}, 401, "unauthenticated"),
        ("<html>bad gateway</html>", 502, "server_error"),
        (None, 503, "overloaded"),
    ],
)
def test_a_kind_is_read_from_the_status_word_and_never_guessed(body: Any, status: int, kind: FailureKind) -> None:
    failure = decode(body, status)
    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize(
    "body",
    [
        error("INVALID_ARGUMENT", details=KEY),
        error("FAILED_PRECONDITION", "billing"),
        error("RESOURCE_EXHAUSTED", code=429, details=[{"@type": f"{TYPE}RetryInfo", "retryDelay": "1.5s"}]),
        error("INVALID_ARGUMENT", OVERFLOW),
        error("NOT_FOUND", code=404, errors=[{"domain": "global"}]),
    ],
)
def test_an_error_is_written_back_as_it_was(body: JsonObject) -> None:
    status = body["error"]["code"]
    wire = DIALECT.encode_failure(decode(body, status))
    assert (wire.body, wire.status) == (body, status)


def test_a_delay_is_read_from_the_details_or_the_header() -> None:
    details = [{"@type": f"{TYPE}RetryInfo", "retryDelay": "30s"}]
    assert decode(error("RESOURCE_EXHAUSTED", code=429, details=details), 429).retry_after_s == 30
    assert decode(error("RESOURCE_EXHAUSTED", code=429), 429, {"retry-after": "7"}).retry_after_s == 7
    odd = [{"@type": f"{TYPE}RetryInfo", "retryDelay": "soon"}]
    assert decode(error("RESOURCE_EXHAUSTED", code=429, details=odd), 429).retry_after_s is None


def test_the_field_an_error_is_about_is_found() -> None:
    details = [{"@type": f"{TYPE}BadRequest", "fieldViolations": [{"field": "contents[0]", "description": "d"}]}]
    assert decode(error("INVALID_ARGUMENT", details=details)).param == "contents[0]"


@pytest.mark.parametrize(
    ("failure", "status", "word"),
    [
        (Failure(kind="overloaded", message="m", status=529), 503, "UNAVAILABLE"),
        (Failure(kind="no_credit", message="m", status=402), 429, "RESOURCE_EXHAUSTED"),
        (Failure(kind="unauthenticated", message="m", status=401), 401, "UNAUTHENTICATED"),
        (Failure(kind="cut_off", message="m"), 503, "UNAVAILABLE"),
        (Failure(kind="refused", message="m"), 400, "INVALID_ARGUMENT"),
    ],
)
def test_errors_of_other_dialects_have_a_status_google_knows(failure: Failure, status: int, word: str) -> None:
    wire = DIALECT.encode_failure(failure)
    assert wire.status == status
    assert wire.body["error"] == {"code": status, "message": "m", "status": word}


def test_an_overflow_is_said_in_the_words_clients_look_for() -> None:
    wire = DIALECT.encode_failure(Failure(kind="too_long", message="prompt is too long", status=400))
    assert DIALECT.decode_failure(wire).kind == "too_long"


def test_what_helps_to_retry_and_mend_is_said_in_the_details() -> None:
    failure = Failure(kind="rate_limited", message="m", retry_after_s=2.5, param="tools", request_id="q1")
    wire = DIALECT.encode_failure(failure)
    assert wire.headers == {"retry-after": "3"}
    again = DIALECT.decode_failure(wire)
    assert (again.retry_after_s, again.param, again.request_id) == (2.5, "tools", "q1")
