"""Chat errors: every form a compatible server answers in."""

from typing import Any

import pytest

from dragoman.dialects.openai_chat import DIALECT
from dragoman.failure import KINDS, Failure, FailureKind
from dragoman.jsontypes import copy_json
from dragoman.wire import WireReply


def decode(body: Any, status: int = 400, **headers: str) -> Failure:
    return DIALECT.decode_failure(WireReply(body=copy_json(body), status=status, headers=headers))


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        (
            {"error": {"message": "m", "type": "invalid_request_error", "param": "stop", "code": None}},
            400,
            "invalid_request",
            "m",
        ),
        ({"error": {"message": "m", "code": "invalid_api_key"}}, 401, "unauthenticated", "m"),
        ({"error": {"message": "m", "code": 401, "type": "authentication_error"}}, 401, "unauthenticated", "m"),
        ({"error": {"message": "m", "type": "api_error"}}, 401, "unauthenticated", "m"),
        ({"error": {"message": "m", "code": "insufficient_quota"}}, 429, "no_credit", "m"),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, 429, "rate_limited", "m"),
        ({"error": {"message": "m", "code": 402}}, 402, "no_credit", "m"),
        ({"error": {"message": "m", "code": "content_filter", "innererror": {}}}, 400, "refused", "m"),
        ({"error": {"message": "m", "code": "404"}}, 404, "not_found", "m"),
        ({"error": {"message": "m", "type": "unavailable_error", "code": 503}}, 503, "overloaded", "m"),
        ({"error": "m"}, 404, "not_found", "m"),
        ({"error": "m", "code": "Client specified an invalid argument"}, 400, "invalid_request", "m"),
        ({"detail": "m"}, 401, "unauthenticated", "m"),
        ({"detail": [{"loc": ["body", "x"], "msg": "bad", "type": "t"}]}, 422, "invalid_request", "body.x: bad"),
        ({"object": "error", "message": "m", "type": "invalid_model", "code": "1500"}, 400, "invalid_request", "m"),
        ([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], 400, "invalid_request", "m"),
        ("gone", 502, "server_error", "gone"),
        (None, 500, "server_error", "the upstream answered 500 and gave no reason"),
        ({}, 418, "invalid_request", "the upstream answered 418 and gave no reason"),
        ({"error": {"message": "m", "code": 502}}, 200, "server_error", "m"),
    ],
)
def test_every_form_is_read(body: Any, status: int, kind: FailureKind, message: str) -> None:
    failure = decode(body, status)
    assert (failure.kind, failure.message) == (kind, message)
    assert failure.status == (status if status >= 400 else None)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
        "Requested token count exceeds the model's maximum context length of 262144 tokens.",
        "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it",
        "prompt too long; exceeded max context length by 5 tokens",
        "prompt is too long: 5 tokens > 4 maximum",
        "input length and `max_tokens` exceed context limit: 5 + 4 > 8",
        "The total length of all messages is too long.",
        "Input is too long for requested model.",
        "your prompt exceeds the context window of this model",
    ],
)
def test_an_overflow_is_known_by_its_words_and_said_with_its_code(message: str) -> None:
    failure = decode({"error": {"message": message, "type": "invalid_request_error", "code": None}})
    assert failure.kind == "too_long"
    wire = DIALECT.encode_failure(failure)
    assert (wire.status, wire.body["error"]["code"]) == (400, "context_length_exceeded")


def test_a_wait_and_the_id_of_the_request_are_kept() -> None:
    failure = decode({"error": {"message": "m"}}, 429, **{"retry-after-ms": "1500", "x-request-id": "req_1"})
    assert (failure.retry_after_s, failure.request_id) == (1.5, "req_1")
    assert DIALECT.encode_failure(failure).headers == {"retry-after": "2", "x-request-id": "req_1"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_said_and_read_back(kind: FailureKind) -> None:
    wire = DIALECT.encode_failure(Failure(kind=kind, message="m", param="messages"))
    assert wire.body["error"].keys() == {"message", "type", "param", "code"}
    again = DIALECT.decode_failure(wire)
    assert (again.kind, again.message, again.param) == (kind if kind != "unknown" else "server_error", "m", "messages")


def test_own_details_come_back() -> None:
    error = {"message": "m", "type": "t", "param": None, "code": 400, "metadata": {"raw": "x"}}
    assert DIALECT.encode_failure(decode({"error": error})).body == {"error": error}


def test_a_parameter_of_a_web_search_is_not_the_length_of_the_conversation() -> None:
    body = {"error": {"message": "Unrecognized request argument supplied: search_context_size"}}
    assert decode(body).kind == "invalid_request"
