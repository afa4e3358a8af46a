"""Ollama errors: a text and a status."""

from typing import Any

import pytest

from dragoman.dialects.ollama import DIALECT
from dragoman.failure import Failure, FailureKind
from dragoman.jsontypes import copy_json
from dragoman.wire import WireReply


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"error": "model 'x' not found"}, 404, "not_found", "model 'x' not found"),
        ({"error": "model is required"}, 400, "invalid_request", "model is required"),
        ({"error": "the input length exceeds the context length"}, 400, "too_long", None),
        ({"error": "unauthorized", "signin_url": "https://example.org"}, 401, "unauthenticated", "unauthorized"),
        ({"error": "server busy, please try again"}, 503, "overloaded", "server busy, please try again"),
        ({"error": {"message": "nope", "type": "api_error"}}, 500, "server_error", "nope"),
        ("404 page not found\n", 404, "not_found", "404 page not found"),
        ({"error": "llama runner stopped"}, 200, "unknown", "llama runner stopped"),
        ({"error": "late", "status": 429}, 200, "rate_limited", "late"),
        (None, 502, "server_error", ""),
    ],
)
def test_a_status_says_what_kind(body: Any, status: int, kind: FailureKind, message: str | None) -> None:
    before = copy_json(body)
    failure = DIALECT.decode_failure(WireReply(body=body, status=status))
    assert failure.kind == kind
    if message is not None:
        assert failure.message == message
    if status >= 400 and type(before) is dict:
        again = DIALECT.encode_failure(failure)
        assert (again.body, again.status) == (before, status)


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (Failure(kind="overloaded", message="busy", status=529), 503, "busy"),
        (Failure(kind="rate_limited", message="slow", retry_after_s=1.2), 429, "slow"),
        (Failure(kind="cut_off", message=""), 502, "cut off"),
    ],
)
def test_any_failure_is_a_text_that_is_not_empty(failure: Failure, status: int, text: str) -> None:
    wire = DIALECT.encode_failure(failure)
    assert (wire.status, wire.body) == (status, {"error": text})
    assert wire.headers == ({"retry-after": "2"} if failure.retry_after_s else {})
