"""Faults on order: what a client of a scripted provider sees."""

import asyncio
import gzip
import http.client
import json
import socket
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, ReplyFailed, ReplyStart
from dragoman.model.fold import fold
from dragoman.model.messages import Text
from dragoman.model.reply import Reply
from dragoman.notes import Notes
from dragoman.testing import Provider, faults
from dragoman.wire import WireReply
from tests.testing.sample_requests import Answer, Scripted, ask
from tests.waiting import NEVER_S, wait_until

KINDS = {"openai_chat": "openai", "openai_responses": "openai", "anthropic": "anthropic", "gemini": "gemini"} | {
    "ollama": "ollama"
}
DIALECTS = tuple(KINDS)
SAID = "Say alpha beta gamma delta"


def body_of(dialect: str, stream: bool) -> tuple[str, dict[str, Any]]:
    turn = {"role": "user", "content": SAID}
    match dialect:
        case "openai_chat":
            return "/chat/completions", {"model": "m", "messages": [turn], "stream": stream}
        case "openai_responses":
            return "/responses", {"model": "m", "input": SAID, "stream": stream}
        case "anthropic":
            return "/v1/messages", {"model": "claude-x", "max_tokens": 99, "messages": [turn], "stream": stream}
        case "gemini":
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            return f"/models/gemini-x:{verb}", {"contents": [{"role": "user", "parts": [{"text": SAID}]}]}
        case _:
            return "/api/chat", {"model": "m", "messages": [turn], "stream": stream}


def meet(
    scripted: Scripted, dialect: str, fault: faults.ScriptedFault | None, *, stream: bool = False
) -> tuple[Provider, Answer]:
    provider = scripted(dialect)
    if fault is not None:
        provider.next(fault)
    return provider, ask(provider, *body_of(dialect, stream))


def heard(dialect: str, data: bytes) -> Reply | Failure:
    decoder = find_dialect(dialect).stream_decoder(Notes())
    return fold([*decoder.feed(data), *decoder.close()])


def text_of(reply: Reply | Failure) -> str:
    assert isinstance(reply, Reply), reply
    return "".join(part.text for part in reply.choices[0].parts if isinstance(part, Text))


# -- instead of an answer


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_status_comes_in_the_vendors_form(scripted: Scripted, dialect: str, status: int) -> None:
    _, answer = meet(scripted, dialect, faults.failing(status, "no luck"))
    assert answer.status == status
    failure = find_dialect(dialect).decode_failure(WireReply(body=answer.json, status=status))
    assert failure.message == "no luck"


def test_a_fault_comes_once_or_as_often_as_ordered(scripted: Scripted) -> None:
    provider = scripted("openai")
    path, body = body_of("openai_chat", False)
    provider.next(faults.failing(500), times=2)
    provider.next(faults.failing(503))
    assert [ask(provider, path, body).status for _ in range(4)] == [500, 500, 503, 200]
    provider.always(faults.failing(502))
    assert [ask(provider, path, body).status for _ in range(2)] == [502, 502]
    provider.always(None)
    assert ask(provider, path, body).status == 200
    assert [seen.fault for seen in provider.requests[:3]] == ["status 500", "status 500", "status 503"]


@pytest.mark.parametrize(
    ("form", "name", "value"),
    [
        ("seconds", "retry-after", "2"),
        ("fraction", "retry-after", "1.5"),
        ("ms", "retry-after-ms", "1500"),
        ("azure_ms", "x-ms-retry-after-ms", "1500"),
        ("reset_requests", "x-ratelimit-reset-requests", "1.5s"),
        ("reset_tokens", "x-ratelimit-reset-tokens", "1.5s"),
        ("nan", "retry-after", "nan"),
        ("several", "retry-after", "3, 5"),
    ],
)
def test_a_wait_is_said_in_the_form_ordered(scripted: Scripted, form: str, name: str, value: str) -> None:
    _, answer = meet(scripted, "openai_chat", faults.rate_limited(1.5, form))
    assert (answer.status, answer.headers[name]) == (429, value)


def test_a_wait_may_be_a_date(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.rate_limited(30, "date"))
    ahead = parsedate_to_datetime(answer.headers["retry-after"]) - datetime.now(UTC)
    assert 25 < ahead.total_seconds() <= 31
    _, answer = meet(scripted, "anthropic", faults.rate_limited(30, "anthropic_reset"))
    reset = datetime.fromisoformat(answer.headers["anthropic-ratelimit-requests-reset"])
    assert 25 < (reset - datetime.now(UTC)).total_seconds() <= 31


def test_google_says_it_in_the_body(scripted: Scripted) -> None:
    _, answer = meet(scripted, "gemini", faults.rate_limited(45.837906927, "google_delay"))
    assert "retry-after" not in answer.headers
    assert answer.json["error"]["details"][0]["retryDelay"] == "45.837906927s"
    _, answer = meet(scripted, "gemini", faults.rate_limited(47.43, "google_text"))
    assert "Please retry in 47.43s." in answer.json["error"]["message"]
    _, answer = meet(scripted, "gemini", faults.rate_limited(1, "google_list"))
    assert answer.json[0]["error"]["status"] == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize(
    ("dialect", "form", "kind"),
    [
        ("openai_chat", "openai_quota", "no_credit"),
        ("openai_chat", "openai_spend", "no_credit"),
        ("anthropic", "anthropic_spend", "no_credit"),
        ("gemini", "google_daily", "no_credit"),
    ],
)
def test_a_used_up_quota_is_no_wait(scripted: Scripted, dialect: str, form: str, kind: str) -> None:
    _, answer = meet(scripted, dialect, faults.rate_limited(form=form))
    assert find_dialect(dialect).decode_failure(WireReply(body=answer.json, status=429)).kind == kind


def test_an_unknown_form_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="no such form"):
        faults.rate_limited(form="smoke")


@pytest.mark.parametrize("kind", [*DIALECTS, "groq", "mistral", "vllm", "llamacpp", "openrouter", "deepseek"])
def test_too_long_is_said_in_the_servers_words_and_understood(scripted: Scripted, kind: str) -> None:
    provider = scripted(kind)
    provider.next(faults.too_long())
    answer = ask(provider, *body_of(provider.dialect, False))
    failure = find_dialect(provider.dialect).decode_failure(WireReply(body=answer.json, status=answer.status))
    assert (answer.status, failure.kind) == (400, "too_long")


def test_a_call_written_badly_is_groqs_own_error(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.tool_use_failed())
    assert answer.json["error"]["failed_generation"]


def test_a_redirect_points_elsewhere(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.redirect("http://127.0.0.1:9/x"))
    assert (answer.status, answer.headers["location"]) == (302, "http://127.0.0.1:9/x")


def test_pages_and_garbage(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.html(502))
    assert (answer.status, answer.headers["content-type"]) == (502, "text/html")
    _, answer = meet(scripted, "openai_chat", faults.garbage())
    assert answer.status == 200
    with pytest.raises(json.JSONDecodeError):
        _ = answer.json
    _, answer = meet(scripted, "openai_chat", faults.wrong_type("text/plain"))
    assert answer.headers["content-type"] == "text/plain"
    assert answer.json["choices"]


def test_bytes_may_be_anything(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.raw(b"HTTP/1.1 299 Odd\r\ncontent-length: 2\r\n\r\nhi"))
    assert (answer.status, answer.body) == (299, b"hi")


# -- connections


def test_a_reset_before_the_headers(scripted: Scripted) -> None:
    with pytest.raises(ConnectionResetError):
        meet(scripted, "openai_chat", faults.reset_before_headers())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reset_after_the_headers_or_amid_the_stream(scripted: Scripted, dialect: str) -> None:
    for fault in (faults.reset_after_headers(), faults.cut(2, "reset"), faults.cut(2, "close")):
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            meet(scripted, dialect, fault, stream=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_ends_before_its_end(scripted: Scripted, dialect: str) -> None:
    provider, answer = meet(scripted, dialect, faults.cut(2, "end"), stream=True)
    reply = heard(dialect, answer.body)
    assert isinstance(reply, Failure)
    assert reply.kind == "cut_off"
    assert provider.requests[0].frames_sent == 2


def test_a_body_shorter_than_it_says(scripted: Scripted) -> None:
    with pytest.raises(http.client.IncompleteRead):
        meet(scripted, "openai_chat", faults.truncated_body())


def test_a_stall_before_the_headers_is_noticed_when_the_client_leaves(scripted: Scripted) -> None:
    provider = scripted("openai")
    provider.next(faults.stalled(30))
    path, body = body_of("openai_chat", False)
    url = urlsplit(provider.base_url + path)
    data = json.dumps(body).encode()
    with socket.create_connection((url.hostname or "", url.port or 0), NEVER_S) as client:
        client.sendall(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (url.path.encode(), len(data)) + data
        )
        wait_until(lambda: provider.requests)
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
    wait_until(lambda: provider.requests[0].left)


def test_a_stall_amid_the_stream(scripted: Scripted) -> None:
    start = time.monotonic()
    _, answer = meet(scripted, "anthropic", faults.stalled(0.2, after=2), stream=True)
    assert time.monotonic() - start >= 0.2
    assert text_of(heard("anthropic", answer.body)) == "alpha beta gamma delta"


# -- streams


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_amid_the_stream_has_the_dialects_own_form(scripted: Scripted, dialect: str) -> None:
    for fault in (faults.error_in_stream(2, "server_error"), faults.error_first("overloaded")):
        _, answer = meet(scripted, dialect, fault, stream=True)
        assert answer.status == 200
        reply = heard(dialect, answer.body)
        assert isinstance(reply, Failure)
        assert reply.kind == ("unknown" if dialect == "ollama" else fault.error)  # Ollama has words only


@pytest.mark.parametrize("kind", ["groq", "gpustack", "openrouter", "vllm", "xai"])
def test_compatible_servers_have_their_own_forms_of_it(scripted: Scripted, kind: str) -> None:
    provider = scripted(kind)
    provider.next(faults.error_in_stream(3, "overloaded"))
    reply = heard("openai_chat", ask(provider, *body_of("openai_chat", True)).body)
    assert isinstance(reply, Failure)
    assert reply.message == "Overloaded"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["slow", "compressed", "chatter"])
def test_a_stream_that_is_only_odd_is_read_all_the_same(scripted: Scripted, dialect: str, name: str) -> None:
    fault = faults.slow(3, 0) if name == "slow" else faults.ALL[name]()
    _, answer = meet(scripted, dialect, fault, stream=True)
    data = gzip.decompress(answer.body) if name == "compressed" else answer.body
    assert text_of(heard(dialect, data)) == "alpha beta gamma delta"


def test_an_unstreamed_answer_may_be_compressed_too(scripted: Scripted) -> None:
    _, answer = meet(scripted, "openai_chat", faults.compressed())
    assert json.loads(gzip.decompress(answer.body))["choices"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_may_lack_its_last_frame(scripted: Scripted, dialect: str) -> None:
    _, whole = meet(scripted, dialect, None, stream=True)
    _, answer = meet(scripted, dialect, faults.no_terminator(), stream=True)
    assert whole.body.startswith(answer.body)
    assert len(answer.body) < len(whole.body)
    _, answer = meet(scripted, dialect, faults.empty_stream(), stream=True)
    assert answer.body == b""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_bytes_that_are_no_utf8(scripted: Scripted, dialect: str) -> None:
    _, answer = meet(scripted, dialect, faults.invalid_utf8(), stream=True)
    with pytest.raises(UnicodeDecodeError):
        answer.body.decode()


def test_an_event_larger_than_anyone_should_read(scripted: Scripted) -> None:
    for dialect in ("anthropic", "ollama"):
        _, answer = meet(scripted, dialect, faults.giant_event(5_000_000), stream=True)
        assert len(answer.body) > 5_000_000


def test_every_fault_can_be_ordered() -> None:
    for make in faults.ALL.values():
        assert make().name


# -- scripts


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_it_says_the_text_of_the_question(scripted: Scripted, dialect: str, stream: bool) -> None:
    provider = scripted(dialect)
    provider.say("one", "two")
    answers = [ask(provider, *body_of(dialect, stream)) for _ in range(3)]
    replies = [
        heard(dialect, a.body) if stream else find_dialect(dialect).decode_reply(WireReply(body=a.json), Notes())
        for a in answers
    ]
    assert [text_of(reply) for reply in replies] == ["one", "two", "alpha beta gamma delta"]


def test_it_sends_bytes_as_they_are(scripted: Scripted) -> None:
    provider = scripted("openai")
    provider.say(b'{"odd": true}', b"data: 1\n\ndata: 2\n\n")
    assert ask(provider, *body_of("openai_chat", False)).body == b'{"odd": true}'
    assert ask(provider, *body_of("openai_chat", True)).body == b"data: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_events_may_end_in_a_failure(scripted: Scripted, dialect: str) -> None:
    provider = scripted(dialect)
    failure = Failure(kind="overloaded", message="too much", status=503)
    events: list[Event] = [ReplyStart(id="r1", model="m"), ReplyFailed(failure=failure)]
    provider.say(events, events)
    reply = heard(dialect, ask(provider, *body_of(dialect, True)).body)
    assert isinstance(reply, Failure)
    assert "too much" in reply.message
    assert ask(provider, *body_of(dialect, False)).status == 503


def test_its_brain_may_be_replaced(scripted: Scripted) -> None:
    provider = scripted("openai", brain=lambda request: f"I am {request.model}")
    answer = ask(provider, *body_of("openai_chat", False))
    assert answer.json["choices"][0]["message"]["content"] == "I am m"


def test_it_records_what_it_was_asked(scripted: Scripted) -> None:
    provider = scripted("gemini")
    ask(provider, "/models/gemini-x:generateContent?key=abc", body_of("gemini", False)[1], {"X-Thing": "1"})
    (seen,) = provider.requests
    assert (seen.method, seen.path) == ("POST", "/v1beta/models/gemini-x:generateContent?key=abc")
    assert seen.headers["x-thing"] == "1"
    assert seen.json["contents"][0]["parts"] == [{"text": SAID}]
    wait_until(lambda: seen.done)
    assert (seen.status, seen.refused) == (200, None)
    provider.reset()
    assert provider.requests == []


async def _talk_in_loop() -> str:
    async with Provider("openai") as provider, aiohttp.ClientSession() as session:
        path, body = body_of("openai_chat", False)
        async with session.post(provider.base_url + path, json=body) as response:
            told = await response.json()
            return str(told["choices"][0]["message"]["content"])


def test_it_runs_in_a_running_loop_too() -> None:
    assert asyncio.run(_talk_in_loop()) == "alpha beta gamma delta"
