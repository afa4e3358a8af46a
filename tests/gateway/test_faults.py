"""The fault rows of RELIABILITY.md that need only a scripted upstream, by table (F01-F39)."""

import asyncio
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from dragoman.gateway import stream_writer
from dragoman.gateway.process import server as process_server
from dragoman.upstream.http.connection import HttpConnection
from dragoman.upstream.spec import Timeouts
from tests.gateway.house import (
    CANARY,
    PATIENT,
    QUICK,
    FirstWords,
    House,
    Script,
    Seen,
    faultline,
    open_house,
    reset,
    say,
    set_deadline,
    stream,
    upstream,
)
from tests.gateway.skipped_pauses import held_time
from tests.gateway.test_restarts import accepts
from tests.gateway.web import Got, head_of, post
from tests.waiting import NEVER_S, until, wait_until

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()


def chunk(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text is not None else {}
    body = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
GOOD_STREAM = stream(chunk("fi"), chunk("ne"), chunk(finish="stop"), DONE)
GOOD = say(200, WHOLE)


def ask(house: House, *, streamed: bool = False, path: str = "/v1/chat/completions", **more: Any) -> Got:
    return post(house.url, path, {**ASK, "stream": streamed, **more})


def text_of(got: Got) -> str:
    said = ""
    for line in got.text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", ()):
                said += choice["delta"].get("content") or ""
    return said


async def hang_up(seen: Seen, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def head_then_reset(seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.02)  # so that the head is read before the reset overtakes it
    reset(writer)


async def stall(seen: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def short_body(seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n" + WHOLE)


async def trickle_head(seen: Seen, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-slow: " + b"x" * 200:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def zipped(seen: Seen, writer: asyncio.StreamWriter) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n"
    writer.write(head + b"\x1f\x8b\x08\x00")


# name, what the first upstream does, whether the client streams: the second one answers and nobody notices
INVISIBLE: list[tuple[str, Script, bool]] = [
    ("F03 reset before headers", hang_up, False),
    ("F04 reset after headers, before the first event", head_then_reset, True),
    ("F07 truncated body", short_body, False),
    ("F08 stall before headers", stall, True),
    ("F10 slow headers", trickle_head, True),
    ("F12 rate limited", say(429, b'{"error":{"message":"slow down"}}', retry_after="30"), False),
    (
        "F13 quota",
        say(429, b'{"error":{"message":"no","type":"insufficient_quota","code":"insufficient_quota"}}'),
        False,
    ),
    ("F15 500", say(500, b'{"error":{"message":"oops"}}'), False),
    ("F15 502 with a page", say(502, b"<html>bad gateway</html>", "text/html"), True),
    ("F16 overloaded", say(503, b'{"error":{"message":"busy"}}'), True),
    ("F17 200, then an error first", stream(b'data: {"error":{"message":"overloaded","code":503}}\n\n'), True),
    ("F18 refused key", say(401, b'{"error":{"message":"bad key"}}'), False),
    ("F20 redirect", say(302, b"", location="http://127.0.0.1:1/steal"), False),
    ("F21 malformed JSON", say(200, b'{"id": "x", "choices": ['), False),
    ("F22 a web page", say(200, b"<html>hello</html>", "text/html"), False),
    ("F22 a web page instead of a stream", say(200, b"<html>hello</html>", "text/html"), True),
    ("F24 an endless line", stream(b"data: " + b"x" * (5 * 1024 * 1024)), True),
    ("F27 nothing at all", stream(), True),
    ("F28 an encoding nobody asked for", zipped, False),
    ("F28 a legal answer under such a name", say(200, WHOLE.replace(b"fine", b"read"), content_encoding="gzip"), False),
    ("T42 comments only", stream(b": still here\n\n", 0.01, b": still here\n\n", 0.01), True),
]


SLOW = (stall, trickle_head)


@pytest.mark.parametrize(("script", "streamed"), [row[1:] for row in INVISIBLE], ids=[row[0] for row in INVISIBLE])
def test_a_failure_before_the_first_byte_is_invisible(script: Script, streamed: bool) -> None:
    with (
        faultline(script) as first,
        faultline(GOOD_STREAM if streamed else GOOD) as second,
        open_house(
            upstream("one", "openai_chat", first.url, models=("m",), timeouts=QUICK if script in SLOW else PATIENT),
            upstream("two", "openai_chat", second.url, models=("m",)),
        ) as house,
    ):
        got = ask(house, streamed=streamed)
        assert got.status == 200
        assert (text_of(got) if streamed else got.json["choices"][0]["message"]["content"]) == "fine"
        assert got.headers["x-dragoman-upstream"] == "two/m"
        assert len(first.seen) == 1 or (script in SLOW and not first.seen), "a busy machine may connect too late"
        assert len(second.seen) == 1
        assert not streamed or got.body.endswith(DONE)


def test_f01_a_refused_connection_goes_to_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed, faultline(GOOD) as second:
        closed.bind(("127.0.0.1", 0))
        one = upstream("one", "openai_chat", f"http://127.0.0.1:{closed.getsockname()[1]}", models=("m",))
        two = upstream("two", "openai_chat", second.url, models=("m",))
        with open_house(one, two) as house, held_time(house, monkeypatch) as held:
            assert ask(house).status == 200
            assert held.waits == []


def test_f01_a_closed_port_is_a_503_that_says_when_to_come_again() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        spec = upstream("one", "openai_chat", f"http://127.0.0.1:{closed.getsockname()[1]}", models=("m",))
        with open_house(spec) as house:
            got = ask(house)
            assert got.status == 503
            assert 1 <= int(got.headers["retry-after"]) <= 5


# name, script, status, attempts: with one upstream only
VISIBLE: list[tuple[str, Script, bool, int, int]] = [
    ("F08 stall", stall, True, 504, 1),
    ("F12 a hint that is too long", say(429, b'{"error":{"message":"x"}}', retry_after="300"), False, 429, 1),
    (
        "F13 quota",
        say(429, b'{"error":{"message":"no","type":"insufficient_quota","code":"insufficient_quota"}}'),
        False,
        429,
        1,
    ),
    ("F15 500", say(500, b'{"error":{"message":"oops"}}'), False, 500, 3),
    ("F18 refused key", say(401, f'{{"error":{{"message":"bad {CANARY}"}}}}'.encode()), False, 502, 1),
    ("F19 400", say(400, b'{"error":{"message":"bad","type":"invalid_request_error"}}'), False, 400, 1),
    ("F19 404", say(404, b'{"error":{"message":"no model","code":"model_not_found"}}'), False, 404, 1),
    ("F19 413", say(413, b'{"error":{"message":"too big"}}'), False, 413, 1),
    ("F20 redirect", say(307, b"", location="http://127.0.0.1:1/steal"), False, 502, 1),
    ("F21 malformed", say(200, b"{"), False, 502, 2),
]


@pytest.mark.parametrize(
    ("script", "streamed", "status", "attempts"), [row[1:] for row in VISIBLE], ids=[row[0] for row in VISIBLE]
)
def test_a_failure_that_stays_is_reported(script: Script, streamed: bool, status: int, attempts: int) -> None:
    timeouts = QUICK if script in SLOW else PATIENT
    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=timeouts)) as house,
        dice(house, 0.0),
    ):
        for path in ("/v1/chat/completions", "/v1/messages"):
            line.seen.clear()
            for state in house.gateway.now.upstream_states.values():
                state._breakers.clear()
                for key in state.keys.keys:
                    key.rests.clear()
            got = ask(house, streamed=streamed, path=path, max_tokens=100)
            assert got.status in ({status, 500} if status == 502 else {status})
            assert got.json["error"]["message"]
            assert CANARY not in got.text
            assert "127.0.0.1" not in got.text
            late = script in SLOW and len(line.seen) < attempts  # a busy machine may connect too late
            assert len(line.seen) == attempts or late


# ---------------------------------------------------------------- after the first byte


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("F05 reset", "reset"),
        ("F06 half a frame, then the end", b'data: {"id":"x","choi'),
        ("F06 the end without an end", b""),
        ("F21 malformed", b"data: {not json}\n\n"),
        ("in-band error", b'data: {"error":{"message":"broke","type":"server_error"}}\n\n'),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
def test_a_stream_that_breaks_ends_in_its_dialects_error(name: str, tail: Any, path: str) -> None:
    first_words = FirstWords()
    pieces: list[bytes | float | FirstWords] = [chunk("fi"), first_words, chunk("ne"), 0.05]
    script = stream(*pieces, end="reset") if tail == "reset" else stream(*pieces, tail)
    with faultline(script) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        body: dict[str, Any] = {"model": "m", "stream": True}
        body |= {"input": "hi"} if path == "/v1/responses" else {"messages": ASK["messages"]}
        body |= {"max_tokens": 50} if path == "/v1/messages" else {}
        first_words.watch(house)
        got = post(house.url, path, body)
        assert got.status == 200
        assert len(line.seen) == 1, "nothing is retried after the first byte"
        assert b"[DONE]" not in got.body
        last = got.frames.split("\n\n")[-1].splitlines()[-1]
        value = json.loads(last.removeprefix("data: "))
        match path:
            case "/v1/responses":
                assert value["type"] in ("response.failed", "error")
            case "/v1/messages":
                assert value["type"] == "error"
            case _:
                assert value["error"]
        assert "choi" not in got.text.replace("choices", "") or path != "/v1/chat/completions"


def test_f09_a_stream_that_stalls_ends_with_a_timeout_in_band() -> None:
    spec = {"models": ("m",), "timeouts": QUICK}
    with (
        faultline(stream(chunk("fi"), threading.Event())) as line,
        open_house(upstream("one", "openai_chat", line.url, **spec)) as house,
    ):
        got = ask(house, streamed=True, path="/v1/messages", max_tokens=5)
        assert "event: error" in got.text
        assert "sent nothing" in got.text
        assert line.seen[0].left.wait(NEVER_S)


def test_f09_the_silence_of_a_long_prompt_counts_until_the_first_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM and others open a stream at once and then read a long prompt in silence."""
    waits: list[float] = []
    wait = HttpConnection.wait

    async def remember(connection: HttpConnection, seconds: float) -> None:
        waits.append(seconds)
        await wait(connection, seconds)

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        await until(lambda: 47.0 in waits)
        for piece in (chunk(""), chunk("fi")):
            waits.clear()
            writer.write(piece)
            await until(lambda: waits)
            waited.append(waits[-1])
        writer.write(chunk(finish="stop") + DONE)

    waited: list[float] = []
    monkeypatch.setattr(HttpConnection, "wait", remember)
    slow = Timeouts(headers_s=20, first_s=47, idle_s=29)
    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=slow)) as house,
    ):
        assert "fi" in ask(house, streamed=True, path="/v1/messages", max_tokens=5).text
        assert waited == [47.0, 29.0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_f27_an_upstream_that_does_not_hang_up_after_its_end_is_left(path: str) -> None:
    extra = chunk("more")
    script = stream(chunk("fi"), chunk("ne"), chunk(finish="stop"), DONE, 0.1, extra, threading.Event())
    endless = Timeouts(headers_s=3600, idle_s=3600)
    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=endless)) as house,
    ):
        got = ask(house, streamed=True, path=path, max_tokens=50)
        assert "fi" in got.text
        assert "more" not in got.text or path == "/v1/chat/completions"  # there its own bytes pass
        assert line.seen[0].left.wait(NEVER_S)
        assert house.gateway.now.upstream_states["one"].worst_state() == "closed"


def test_f11_a_slow_stream_that_lives_is_not_cut() -> None:
    lives = Timeouts(headers_s=100, idle_s=4)
    pieces: list[bytes | float] = [p for n in range(16) for p in (chunk("x"), 0.27)]  # 4.3 s in all, never 4 s quiet
    with (
        faultline(stream(*pieces, chunk(finish="stop"), DONE)) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=lives)) as house,
    ):
        assert text_of(ask(house, streamed=True)) == "x" * 16


def test_f22_a_whole_answer_becomes_a_stream_and_a_stream_a_whole_answer() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        got = ask(house, streamed=True, path="/v1/messages", max_tokens=50)
        assert got.text.count("event: message_stop") == 1
        assert "fine" in got.text
    with faultline(GOOD_STREAM) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        assert ask(house, path="/v1/messages", max_tokens=50).json["content"][0]["text"] == "fine"


def test_f23_a_character_cut_anywhere_arrives_whole() -> None:
    body = chunk("안녕🌍")
    data = json.dumps(json.loads(body[6:]), ensure_ascii=False).encode()
    whole = b"data: " + data + b"\n\n"
    at = whole.index("🌍".encode())
    for cut in range(at, at + 5):
        script = stream(whole[:cut], 0.01, whole[cut:], chunk(finish="stop"), DONE)
        with faultline(script) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
            assert "안녕🌍" in ask(house, streamed=True, path="/api/chat").text


def test_f32_a_connection_the_server_had_closed_is_no_error() -> None:
    async def answer_then_close_late(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await GOOD(seen, writer)
        await writer.drain()

    with (
        faultline(answer_then_close_late) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        assert [ask(house).status for _ in range(30)] == [200] * 30


# ---------------------------------------------------------------- keys and cool-downs


def test_a_rate_limited_key_rests_and_the_other_one_works() -> None:
    async def by_key(seen: Seen, writer: asyncio.StreamWriter) -> None:
        limited = seen.headers["authorization"].endswith("one")
        await (say(429, b'{"error":{"message":"x"}}', retry_after="20") if limited else GOOD)(seen, writer)

    with faultline(by_key) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), keys=("key-number-one", "key-number-two"))
        with open_house(spec) as house:
            assert [ask(house).status for _ in range(4)] == [200] * 4
            used = [seen.headers["authorization"][-3:] for seen in line.seen]
            assert used == ["one", "two", "two", "two", "two"]


def test_a_rate_limit_is_waited_for_when_that_is_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = say(429, b'{"error":{"message":"x"}}', retry_after="1")
    with (
        faultline(limited, GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
        held_time(house, monkeypatch) as held,
    ):
        assert ask(house).status == 200
        assert len(held.waits) == 1
        assert 0 < held.waits[0] <= 1.1, "a second from the refusal on, and a tenth at most"
        assert len(line.seen) == 2


def test_an_upstream_that_keeps_failing_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        faultline(say(503, b"{}")) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
        held_time(house, monkeypatch),
    ):
        house.gateway.sender.dice = lambda: 0.0
        state = house.gateway.now.upstream_states["one"]
        for number in range(4):
            ask(house)  # each makes three attempts, and counts once
            assert len(line.seen) == 3 * (number + 1)
            assert state.worst_state() == "closed"
        ask(house)
        before = len(line.seen)
        assert before <= 15
        assert state.worst_state() == "open"
        got = ask(house)
        assert got.status == 503
        assert len(line.seen) <= before + 1  # a probe, at most
        assert 1 <= int(got.headers["retry-after"]) <= 31  # a probe that fails makes it no longer


def test_an_upstream_with_no_queue_is_tried_again_all_the_same() -> None:
    with (
        faultline(say(500, b"{}"), GOOD) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), queue=0)) as house,
        dice(house, 0.0),
    ):
        assert ask(house).status == 200
        assert len(line.seen) == 2


def test_a_request_that_breaks_a_server_is_no_reason_to_leave_it_alone() -> None:
    """llama.cpp answers 500 to a picture it cannot read, and goes on serving everybody else."""

    async def no_pictures(seen: Seen, writer: asyncio.StreamWriter) -> None:
        bad = b"image_url" in seen.body
        await (say(500, b'{"error":{"code":500,"message":"failed to process the image"}}') if bad else GOOD)(
            seen, writer
        )

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    with (
        faultline(no_pictures) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
        dice(house, 0.0),
    ):
        for n in range(8):
            text = {"type": "text", "text": f"what is this? {n // 2}"}
            assert ask(house, messages=[{"role": "user", "content": [text, picture]}]).status == 500
        assert house.gateway.now.upstream_states["one"].worst_state() == "closed"
        assert ask(house).status == 200


@contextmanager
def dice(house: House, value: float) -> Iterator[None]:
    """With 0 nobody waits before the same again."""
    house.gateway.sender.dice = lambda: value
    yield


def test_a_client_fault_does_not_open_the_breaker() -> None:
    with (
        faultline(say(400, b'{"error":{"message":"bad"}}')) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house,
    ):
        assert [ask(house).status for _ in range(12)] == [400] * 12
        assert len(line.seen) == 12


# ---------------------------------------------------------------- limits and the queue


def test_requests_over_the_limit_wait_and_those_over_the_queue_are_refused() -> None:
    async def slow(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await until(release.is_set)
        await GOOD(seen, writer)

    release = threading.Event()
    with faultline(slow) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), at_once=1, queue=2)
        with open_house(spec) as house, ThreadPoolExecutor(5) as pool:
            asked = [pool.submit(ask, house) for _ in range(5)]
            wait_until(lambda: sum(future.done() for future in asked) == 2, "the two that are told")
            release.set()
            got = [future.result() for future in asked]
            assert sorted(g.status for g in got) == [200, 200, 200, 503, 503]
            assert all("retry-after" in g.headers for g in got if g.status == 503)
            wait_until(lambda: house.gateway.now.upstream_states["one"].admission.running == 0)


def test_a_minute_limit_is_never_exceeded_and_says_how_long_it_waited() -> None:
    with faultline(GOOD) as line:
        spec = upstream("one", "openai_chat", line.url, models=("m",), rpm=3)
        with open_house(spec) as house:
            assert [got.status for got in together(3, lambda: ask(house))] == [200] * 3
            set_deadline(house.gateway, 0.5)
            late, later = together(2, lambda: ask(house))
            assert (late.status, later.status) == (429, 429)
            assert len(line.seen) == 3
            assert re.search(r"waited \d+\.", late.json["error"]["message"])
            assert 30 <= int(late.headers["retry-after"]) <= 61


def together(count: int, work: Callable[[], Got]) -> list[Got]:
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(count)]]


# ---------------------------------------------------------------- clients that leave, servers that end


@pytest.mark.parametrize("streamed", [False, True], ids=["F34 before the first byte", "F33 in mid-stream"])
def test_a_client_that_leaves_ends_the_upstream(streamed: bool) -> None:
    script = stream(chunk("fi"), threading.Event()) if streamed else stall
    slow = Timeouts(headers_s=3600, idle_s=3600)
    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=slow, at_once=1)) as house,
    ):
        body = json.dumps({**ASK, "stream": streamed}).encode()
        head = head_of("/v1/chat/completions", body)
        with socket.create_connection(("127.0.0.1", house.port)) as client:
            client.sendall(head + body)
            if streamed:
                assert b"200 OK" in client.recv(1000)
            wait_until(lambda: len(line.seen) == 1)
        assert line.seen[0].left.wait(NEVER_S)
        state = house.gateway.now.upstream_states["one"]
        wait_until(lambda: state.admission.running == 0 and house.gateway.metrics.running == 0)
        wait_until(lambda: state.budget.in_flight == 0)


def test_f39_a_server_that_ends_says_so_in_the_stream() -> None:
    slow = Timeouts(headers_s=3600, idle_s=3600)
    with (
        faultline(stream(chunk("fi"), threading.Event())) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=slow), grace_s=0.3) as house,
    ):
        body = json.dumps({**ASK, "stream": True, "max_tokens": 5}).encode()
        head = head_of("/v1/messages", body)
        with socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S) as client:
            client.sendall(head + body)
            data = client.recv(4000)
            house.server.end()
            while piece := client.recv(4000):
                data += piece
        assert b"event: error" in data
        assert b"shutting down" in data
        assert data.endswith(b"0\r\n\r\n")
        assert line.seen[0].left.wait(NEVER_S)


def test_f39_a_connection_that_was_busy_may_bring_one_more_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of its answer had been written before, without `connection: close`. nginx sent the next request of
    another client on it, and that one failed."""
    monkeypatch.setattr(process_server, "LINGER_S", 0.0)
    go_on, headers = threading.Event(), {"content-type": "application/json"}
    script = stream(chunk("fi"), go_on, chunk("ne"), chunk(finish="stop"), DONE)
    with faultline(script, GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        client = http.client.HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
        with closing(client):
            client.request("POST", "/v1/chat/completions", json.dumps({**ASK, "stream": True}), headers)
            first = client.getresponse()
            house.server.end()
            wait_until(lambda: not accepts(house.port), "the end of listening")
            go_on.set()
            assert first.read().endswith(b"[DONE]\n\n")
            client.request("POST", "/v1/chat/completions", json.dumps(ASK), headers)
            second = client.getresponse()
            assert (second.status, second.headers["connection"]) == (200, "close")


def test_a_draining_server_takes_no_new_work() -> None:
    with open_house() as house:
        house.gateway.drain()
        got = post(house.url, "/v1/messages", {**ASK, "max_tokens": 5})
        assert got.status in (503, 529)
        assert got.json["error"]["type"] == "overloaded_error"
        assert "retry-after" in got.headers


@pytest.mark.parametrize(
    ("path", "ping"),
    [("/v1/messages", "event: ping"), ("/v1/chat/completions", ": keep-alive"), ("/v1/responses", ": keep-alive")],
)
def test_f09_a_quiet_stream_is_kept_alive(path: str, ping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "PING_S", 0.1)
    script = stream(chunk("fi"), 0.8, chunk("ne"), chunk(finish="stop"), DONE)
    with faultline(script) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
        body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 9, "messages": ASK["messages"]}
        got = post(house.url, path, {"model": "m", "stream": True, "input": "hi"} if "resp" in path else body)
        assert got.text.count(ping) >= 2
        assert "ne" in got.text
