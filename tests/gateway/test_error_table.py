"""Every kind of failure at every door, before the first byte and after it, in the words that door's clients act on
(RELIABILITY.md, 3.1)."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.gateway.error_responses import fail
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.upstream.spec import Timeouts
from tests.gateway.house import (
    PATIENT,
    QUICK,
    FirstWords,
    House,
    Script,
    Seen,
    faultline,
    open_house,
    say,
    stream,
    upstream,
)
from tests.gateway.test_faults import chunk, dice, stall
from tests.gateway.web import Got, post
from tests.waiting import wait_until

USER = [{"role": "user", "content": "hi"}]
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": USER}),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "anthropic": ("/v1/messages", {"model": "m", "messages": USER, "max_tokens": 9}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "ollama": ("/api/chat", {"model": "m", "messages": USER, "stream": False}),
    "jsonrpc": (
        "/generate",
        {"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": {"model": "m", "messages": USER}},
    ),
}
NO_CREDIT = b'{"error":{"message":"no","type":"insufficient_quota","code":"insufficient_quota"}}'
SAID = b'{"error":{"message":"said"}}'
TOO_LONG = b'{"error":{"message":"too long","code":"context_length_exceeded"}}'

# what the upstream answers; None: the gateway says it by itself
CAUSES: dict[str, Script | None] = {
    "bad request": say(400, SAID),
    "too long": say(400, TOO_LONG),
    "bad key": None,
    "forbidden": None,
    "no model": None,
    "too large": None,
    "limit hit": say(429, SAID, retry_after="90"),
    "budget": say(429, NO_CREDIT),
    "our key": say(401, SAID),
    "upstream bad": say(200, b"{"),
    "upstream error": say(500, SAID),
    "overloaded": say(503, SAID),
    "timeout": stall,
}
# kind -> door -> status, and the words clients act on: (type, code), type, status word, nothing, code
CELLS: dict[str, dict[str, tuple[int, Any]]] = {
    "bad request": {
        "chat": (400, ("invalid_request_error", None)),
        "responses": (400, ("invalid_request_error", None)),
        "anthropic": (400, "invalid_request_error"),
        "gemini": (400, "INVALID_ARGUMENT"),
        "ollama": (400, None),
        "jsonrpc": (200, -32602),
    },
    "too long": {
        "chat": (400, ("invalid_request_error", "context_length_exceeded")),
        "responses": (400, ("invalid_request_error", "context_length_exceeded")),
        "anthropic": (400, "invalid_request_error"),
        "gemini": (400, "INVALID_ARGUMENT"),
        "ollama": (400, None),
        "jsonrpc": (200, -32602),
    },
    "bad key": {
        "chat": (401, ("invalid_request_error", "invalid_api_key")),
        "responses": (401, ("authentication_error", "invalid_api_key")),
        "anthropic": (401, "authentication_error"),
        "gemini": (401, "UNAUTHENTICATED"),
        "ollama": (401, None),
        "jsonrpc": (401, -32001),
    },
    "forbidden": {
        "chat": (403, ("invalid_request_error", "permission_denied")),
        "responses": (403, ("permission_error", None)),
        "anthropic": (403, "permission_error"),
        "gemini": (403, "PERMISSION_DENIED"),
        "ollama": (403, None),
        "jsonrpc": (403, -32003),
    },
    "no model": {
        "chat": (404, ("invalid_request_error", "model_not_found")),
        "responses": (404, ("not_found_error", "model_not_found")),
        "anthropic": (404, "not_found_error"),
        "gemini": (404, "NOT_FOUND"),
        "ollama": (404, None),
        "jsonrpc": (200, -32004),
    },
    "too large": {
        "chat": (413, ("invalid_request_error", "request_too_large")),
        "responses": (413, ("invalid_request_error", "request_too_large")),
        "anthropic": (413, "request_too_large"),
        "gemini": (413, "INVALID_ARGUMENT"),
        "ollama": (413, None),
        "jsonrpc": (413, -32013),
    },
    "limit hit": {
        "chat": (429, ("rate_limit_error", "rate_limit_exceeded")),
        "responses": (429, ("rate_limit_error", "rate_limit_exceeded")),
        "anthropic": (429, "rate_limit_error"),
        "gemini": (429, "RESOURCE_EXHAUSTED"),
        "ollama": (429, None),
        "jsonrpc": (200, -32029),
    },
    "budget": {
        "chat": (429, ("insufficient_quota", "insufficient_quota")),
        "responses": (429, ("insufficient_quota", "insufficient_quota")),
        "anthropic": (429, "billing_error"),
        "gemini": (429, "RESOURCE_EXHAUSTED"),
        "ollama": (429, None),
        "jsonrpc": (200, -32030),
    },
    "our key": {
        "chat": (502, ("server_error", "upstream_auth")),
        "responses": (502, ("server_error", "upstream_auth")),
        "anthropic": (502, "api_error"),
        "gemini": (502, "INTERNAL"),
        "ollama": (502, None),
        "jsonrpc": (200, -32050),
    },
    "upstream bad": {
        "chat": (502, ("server_error", "upstream_malformed")),
        "responses": (502, ("server_error", "upstream_malformed")),
        "anthropic": (502, "api_error"),
        "gemini": (502, "INTERNAL"),
        "ollama": (502, None),
        "jsonrpc": (200, -32050),
    },
    "upstream error": {
        "chat": (500, ("server_error", None)),
        "responses": (500, ("server_error", "server_error")),
        "anthropic": (500, "api_error"),
        "gemini": (500, "INTERNAL"),
        "ollama": (500, None),
        "jsonrpc": (200, -32603),
    },
    "overloaded": {
        "chat": (503, ("service_unavailable_error", "server_is_overloaded")),
        "responses": (503, ("service_unavailable_error", "server_is_overloaded")),
        "anthropic": (529, "overloaded_error"),
        "gemini": (503, "UNAVAILABLE"),
        "ollama": (503, None),
        "jsonrpc": (200, -32053),
    },
    "timeout": {
        "chat": (504, ("server_error", "timeout")),
        "responses": (504, ("timeout_error", "upstream_timeout")),
        "anthropic": (504, "timeout_error"),
        "gemini": (504, "DEADLINE_EXCEEDED"),
        "ollama": (504, None),
        "jsonrpc": (200, -32054),
    },
}
RETRIED_LATER = {"limit hit": (90, 99), "overloaded": (1, 5)}  # Retry-After, at least and at most


def words_of(door: str, error: Any) -> Any:
    """What a client of that door looks at."""
    match door:
        case "chat" | "responses":
            return error["error"]["type"], error["error"]["code"]
        case "anthropic":
            assert error["type"] == "error"
            return error["error"]["type"]
        case "gemini":
            return error["error"]["status"]
        case "ollama":
            assert isinstance(error["error"], str)
            return None
        case _:
            assert error["jsonrpc"] == "2.0"
            return error["error"]["code"]


def message_of(door: str, error: Any) -> str:
    return str(error["error"] if door == "ollama" else error["error"]["message"])


@contextmanager
def failing(kind: str, tmp_path: Any) -> Iterator[House]:
    keys = SqliteKeyStore(tmp_path / "keys.db")
    if kind == "bad key":
        keys.new("a", admin=False)
    short = QUICK if kind == "timeout" else PATIENT
    with faultline(CAUSES[kind] or say(200, b"{}")) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), timeouts=short)
        limits = {"max_body_bytes": 2000} if kind == "too large" else {}
        deadline = {"deadline_s": 0.2} if kind == "timeout" else {}
        with open_house(spec, keys=keys, **limits, **deadline) as house, dice(house, 0.0):
            yield house


def provoke(house: House, kind: str, door: str) -> Got:
    path, body = DOORS[door]
    headers = {"origin": "https://evil.test"} if kind == "forbidden" else {}
    if kind == "no model":
        path, body = path.replace("/m:", "/bad%3Fname:"), json.loads(json.dumps(body).replace('"m"', '"bad?name"'))
    if kind == "too large":
        body = {**body, "padding": "x" * 3000}
    for state in house.gateway.now.upstream_states.values():
        state._breakers.clear()
        for key in state.keys.keys:
            key.rests.clear()
    return post(house.url, path, body, headers)


@pytest.mark.parametrize("kind", CELLS)
def test_a_failure_before_the_first_byte_is_said_in_the_doors_own_words(kind: str, tmp_path: Any) -> None:
    seen: dict[str, tuple[int, Any]] = {}
    with failing(kind, tmp_path) as house:
        for door in DOORS:
            got = provoke(house, kind, door)
            seen[door] = (got.status, words_of(door, got.json))
            assert message_of(door, got.json), door
            assert got.headers["x-request-id"], door
            check_retry_after(kind, door, got)
    assert seen == CELLS[kind]


def check_retry_after(kind: str, door: str, got: Got) -> None:
    if kind not in RETRIED_LATER:
        assert "retry-after" not in got.headers, door
        return
    least, most = RETRIED_LATER[kind]
    assert least <= int(got.headers["retry-after"]) <= most, door
    if door == "gemini":
        details = [item for item in got.json["error"].get("details", ()) if item["@type"].endswith("RetryInfo")]
        assert [least <= float(item["retryDelay"].removesuffix("s")) <= most for item in details] == [True]
    if door == "jsonrpc":
        assert least <= got.json["error"]["data"]["retry_after_s"] <= most


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "canonical"])
def test_a_client_that_may_come_again_is_told_when_even_without_a_hint(name: str, kind: Any) -> None:
    response = fail(find_dialect(name), Failure(kind=kind, message="not now"))
    assert response.headers["retry-after"] == "1"
    assert name != "gemini" or b'"retryDelay":"1s"' in response.body


# ---------------------------------------------------------------- after the first byte

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{door: (path, {**body, "stream": True}) for door, (path, body) in DOORS.items() if door not in ("gemini",)},
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", DOORS["gemini"][1]),
    "gemini array": ("/v1beta/models/m:streamGenerateContent", DOORS["gemini"][1]),
    "jsonrpc": (
        "/generate",
        {**DOORS["jsonrpc"][1], "params": {"model": "m", "messages": USER, "stream": True}},
    ),
}


FIRST_WORDS = FirstWords()


def in_band(error: dict[str, Any]) -> Script:
    return stream(chunk("fi"), FIRST_WORDS, b"data: " + json.dumps({"error": error}).encode() + b"\n\n")


async def cut(seen: Seen, writer: asyncio.StreamWriter) -> None:
    await stream(chunk("fi"), FIRST_WORDS, end="reset")(seen, writer)


BREAKS: dict[str, Script] = {
    "cut": cut,
    "silence": stream(chunk("fi"), 5.0),
    "overloaded": in_band({"message": "said", "type": "service_unavailable_error", "code": "server_is_overloaded"}),
    "limit hit": in_band({"message": "said", "type": "rate_limit_error", "code": "rate_limit_exceeded"}),
    "upstream error": in_band({"message": "said", "type": "server_error", "code": None}),
    "unreadable": stream(chunk("fi"), FIRST_WORDS, b"data: {]\n\n"),
}
BROKEN_CELLS: dict[str, dict[str, Any]] = {
    "cut": {
        "chat": ("server_error", "stream_cut_off"),
        "responses": ("server_error", "upstream_truncated"),
        "anthropic": "api_error",
        "gemini": "UNAVAILABLE",
        "gemini array": "UNAVAILABLE",
        "ollama": None,
        "jsonrpc": -32050,
    },
    "silence": {
        "chat": ("server_error", "timeout"),
        "responses": ("server_error", "upstream_timeout"),
        "anthropic": "timeout_error",
        "gemini": "DEADLINE_EXCEEDED",
        "gemini array": "DEADLINE_EXCEEDED",
        "ollama": None,
        "jsonrpc": -32054,
    },
    "overloaded": {
        "chat": ("service_unavailable_error", "server_is_overloaded"),
        "responses": ("server_is_overloaded", "server_is_overloaded"),
        "anthropic": "overloaded_error",
        "gemini": "UNAVAILABLE",
        "gemini array": "UNAVAILABLE",
        "ollama": None,
        "jsonrpc": -32053,
    },
    "limit hit": {
        "chat": ("rate_limit_error", "rate_limit_exceeded"),
        "responses": ("rate_limit_exceeded", "rate_limit_exceeded"),
        "anthropic": "rate_limit_error",
        "gemini": "RESOURCE_EXHAUSTED",
        "gemini array": "RESOURCE_EXHAUSTED",
        "ollama": None,
        "jsonrpc": -32029,
    },
    "upstream error": {
        "chat": ("server_error", None),
        "responses": ("server_error", "server_error"),
        "anthropic": "api_error",
        "gemini": "INTERNAL",
        "gemini array": "INTERNAL",
        "ollama": None,
        "jsonrpc": -32603,
    },
    "unreadable": {
        "chat": ("server_error", "upstream_malformed"),
        "responses": ("server_error", "upstream_malformed"),
        "anthropic": "api_error",
        "gemini": "INTERNAL",
        "gemini array": "INTERNAL",
        "ollama": None,
        "jsonrpc": -32050,
    },
}


def last_frame(door: str, got: Got) -> Any:
    """The last thing a client of that door reads; its form is checked on the way."""
    if door == "gemini array":
        return json.loads(got.text)[-1]
    text = got.frames
    last = text.split("\n\n")[-1] if door != "ollama" else text.splitlines()[-1]
    lines = last.splitlines()
    if door == "anthropic":
        assert lines[0] == "event: error"
    if door == "responses":
        assert lines[0] == "event: response.failed"
    assert door in ("ollama", "jsonrpc") or lines[-1].startswith("data: {"), lines
    return json.loads(lines[-1].removeprefix("data: "))


def words_in_stream(door: str, frame: Any) -> Any:
    if door == "responses":
        assert frame["response"]["status"] == "failed"
        return frame["response"]["error"]["code"]  # one of the words that OpenAI's types know
    return words_of("gemini" if door == "gemini array" else door, frame)


def code_of_error_event(got: Got) -> str:
    """The code in the event before `response.failed`, which may be any word."""
    lines = got.frames.split("\n\n")[-2].splitlines()
    assert lines[0] == "event: error"
    return str(json.loads(lines[-1].removeprefix("data: "))["code"])


@pytest.mark.parametrize("kind", BREAKS)
def test_a_failure_after_the_first_byte_is_said_in_the_stream(kind: str) -> None:
    seen: dict[str, Any] = {}
    short = Timeouts(connect_s=100, headers_s=100, idle_s=0.3 if kind == "silence" else 100)
    with faultline(BREAKS[kind]) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), timeouts=short)
        with open_house(spec) as house:
            for number, (door, (path, body)) in enumerate(STREAMS.items(), 1):
                wait_until(lambda: house.gateway.metrics.running == 0)  # and what the last one taught is known
                house.gateway.now.upstream_states["one"]._breakers.clear()
                for key in house.gateway.now.upstream_states["one"].keys.keys:
                    key.rests.clear()
                FIRST_WORDS.watch(house)
                got = post(house.url, path, body)
                assert got.status == 200, (door, got.text)
                assert "fi" in got.text, door
                assert "[DONE]" not in got.text, "a cut stream must not look complete"
                seen[door] = words_in_stream(door, last_frame(door, got))
                if door == "responses":
                    seen[door] = (seen[door], code_of_error_event(got))
                assert len(line.seen) == number, "nothing is retried after the first byte"
    assert seen == BROKEN_CELLS[kind]
