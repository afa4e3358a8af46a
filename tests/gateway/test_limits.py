"""Every limit of RELIABILITY.md 2.2: it holds, it has the value written there, and it can be set."""

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dragoman.gateway import conversation, stream_writer, take_in
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.settings import RequestLimits, Settings
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from dragoman.upstream.render import render
from dragoman.upstream.spec import Caps, Timeouts, Upstream
from tests.gateway.house import House, faultline, open_house, say, stream, upstream
from tests.gateway.test_faults import ASK, GOOD, WHOLE, ask, chunk
from tests.gateway.web import get, head_of, post, raw, send
from tests.waiting import NEVER_S, wait_until

MIB = 1024 * 1024
CHAT = "/v1/chat/completions"

# What it is, as RELIABILITY.md 2.2 and 3.2 write it down.
DEFAULTS: dict[Any, dict[str, Any]] = {
    RequestLimits(): {
        "head_bytes": 32 * 1024,
        "headers": 100,
        "line_bytes": 8 * 1024,
        "head_s": 10,
        "body_s": 30,
        "body_s_per_mib": 1,
        "keep_alive_s": 60,
        "write_s": 60,
        "inflate_ratio": 100,
        "entries": 10_000,
        "choices": 8,
        "wrong_keys": 20,
        "connections": 0,
    },
    Caps(): {"reply_bytes": 64 * MIB, "stream_bytes": 256 * MIB},
    Timeouts(): {"connect_s": 5, "headers_s": 60, "first_s": 300, "idle_s": 120, "stream_s": 3600},
}


@pytest.mark.parametrize("what", DEFAULTS, ids=lambda what: type(what).__name__)
def test_a_limit_is_what_is_written_down_unless_it_is_set(what: Any, tmp_path: Path) -> None:
    assert {name: getattr(what, name) for name in what.__struct_fields__} == DEFAULTS[what]
    said = {name: value + 3 for name, value in DEFAULTS[what].items()}
    kind = type(what).__name__
    table = {"RequestLimits": "limits", "Caps": "providers.x.caps", "Timeouts": "providers.x.timeouts"}[kind]
    file = tmp_path / "dragoman.toml"
    head = '[providers.x]\nbase_url = "http://x.test/v1"\n'
    file.write_text(head + f"[{table}]\n" + "".join(f"{name} = {value}\n" for name, value in said.items()))
    settings = load_settings(file, {})
    one = settings.upstreams[0]
    read: Any = {"RequestLimits": settings.limits, "Caps": one.caps, "Timeouts": one.timeouts}[kind]
    assert {name: getattr(read, name) for name in what.__struct_fields__} == said


def test_the_other_limits_are_what_is_written_down() -> None:
    settings, one = Settings(), Upstream(name="x", dialect="openai_chat")
    assert (settings.max_body_bytes, settings.deadline_s, settings.grace_s) == (32 * MIB, 600, 30)
    assert (settings.host, one.queue) == ("127.0.0.1", 100)


# ---------------------------------------------------------------- one row a limit


def head(house: House, extra: str, path: str = "/healthz") -> int:
    got = raw(house.url, f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{extra}\r\n".encode())
    return int(got.split(b" ", 2)[1])


def closes_after(house: House, data: bytes) -> float:
    """How many seconds. A machine that is busy makes it more, and the limits that are not meant are far more."""
    began = time.monotonic()
    raw(house.url, data)
    return time.monotonic() - began


def head_bytes(house: House) -> None:
    assert head(house, "x-a: " + "x" * 1000 + "\r\n") == 200
    assert head(house, "x-a: " + "x" * 2100 + "\r\n") == 431
    assert head(house, ("x-a: " + "x" * 500 + "\r\n") * 5) == 431, "the same name again counts too"


def headers(house: House) -> None:
    assert head(house, "".join(f"x-{n}: 1\r\n" for n in range(6))) == 200
    assert head(house, "".join(f"x-{n}: 1\r\n" for n in range(9))) == 431
    assert head(house, "x-a: 1\r\n" * 9) == 431, "the same name again counts too"


def line_bytes(house: House) -> None:
    assert head(house, "", "/healthz?" + "x" * 200) == 200
    assert head(house, "", "/healthz?" + "x" * 300) == 431


def head_s(house: House) -> None:
    assert closes_after(house, b"GET / HTTP/1.1\r\nhost: loc") > 0.15
    assert closes_after(house, b"") > 0.15


def body_s(house: House) -> None:
    assert closes_after(house, head_of(CHAT, b"x" * 50) + b"xx") > 0.15


def body_s_per_mib(house: House) -> None:
    big = head_of(CHAT, b"x" * (2 * MIB)) + b"xx"
    assert closes_after(house, big) > 0.3, "0.05 s, and 0.2 s for each of two MiB"


def keep_alive_s(house: House) -> None:
    asked = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert closes_after(house, asked) > 0.15


def write_s(house: House) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", house.port))
        body = json.dumps({**ASK, "stream": True}).encode()
        client.sendall(head_of(CHAT, body) + body)
        wait_until(lambda: house.gateway.metrics.running == 1)
        wait_until(lambda: house.gateway.metrics.running == 0)


def inflate_ratio(house: House) -> None:
    fits = {**ASK, "padding": "x" * 3000}
    assert send_zipped(house, fits) == 200, "the first MiB is free"
    assert send_zipped(house, {**ASK, "padding": "x" * (2 * MIB)}) == 413


def send_zipped(house: House, body: Any) -> int:
    return post(house.url, CHAT, gzip.compress(json.dumps(body).encode()), {"content-encoding": "gzip"}).status


def entries(house: House) -> None:
    turn = {"role": "user", "content": "hi"}
    assert post(house.url, CHAT, {**ASK, "messages": [turn] * 5}).status == 200
    got = post(house.url, CHAT, {**ASK, "messages": [turn] * 6})
    assert (got.status, "more than 5 entries" in got.text) == (400, True)


def choices(house: House) -> None:
    assert post(house.url, CHAT, {**ASK, "n": 2}).status == 200
    assert post(house.url, CHAT, {**ASK, "n": 3}).status == 400
    assert post(house.url, CHAT, {**ASK, "n": 100_000}).status == 400


def wrong_keys(house: House) -> None:
    assert [get(house.url, "/v1/models", {"x-api-key": "no"}).status for _ in range(5)] == [401, 401, 401, 429, 429]


def connections(house: House) -> None:
    kept = []
    try:
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=NEVER_S)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            kept.append(connection)
        fourth = raw(house.url, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert fourth.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in fourth
    finally:
        for connection in kept:
            connection.close()
    wait_until(lambda: head_or_0(house) == 200)


def head_or_0(house: House) -> int:
    try:
        return head(house, "")
    except (OSError, IndexError):
        return 0


ROWS: dict[str, tuple[Any, Callable[[House], None]]] = {
    "head_bytes": (2048, head_bytes),
    "headers": (8, headers),
    "line_bytes": (256, line_bytes),
    "head_s": (0.2, head_s),
    "body_s": (0.2, body_s),
    "body_s_per_mib": (0.2, body_s_per_mib),
    "keep_alive_s": (0.2, keep_alive_s),
    "write_s": (0.2, write_s),
    "inflate_ratio": (20, inflate_ratio),
    "entries": (5, entries),
    "choices": (2, choices),
    "wrong_keys": (3, wrong_keys),
    "connections": (3, connections),
}


def test_every_limit_has_a_row() -> None:
    assert set(ROWS) == set(RequestLimits.__struct_fields__)


@pytest.mark.parametrize("name", ROWS)
def test_a_limit_holds(name: str, tmp_path: Path) -> None:
    value, check = ROWS[name]
    set_ = {name: value, **({"body_s": 0.05} if name == "body_s_per_mib" else {})}
    keys = SqliteKeyStore(tmp_path / "keys.db")
    if name == "wrong_keys":
        keys.new("a", admin=False)
    script = stream(*[chunk("x" * 50_000)] * 400) if name == "write_s" else GOOD
    with faultline(script) as line:
        one = upstream("one", "openai_chat", line.url, models=("m",))
        with open_house(one, keys=keys, limits=RequestLimits(**set_)) as house:
            check(house)


# ---------------------------------------------------------------- of upstreams


def test_an_upstreams_reply_is_read_up_to_its_cap() -> None:
    with faultline(say(200, WHOLE + b" " * 5000)) as line:
        one = upstream("one", "openai_chat", line.url, models=("m",), caps=Caps(reply_bytes=2000))
        with open_house(one) as house:
            got = ask(house)
            assert (got.status, got.json["error"]["code"]) == (502, "upstream_response_too_large")
            assert len(line.seen) <= 2


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat"])
def test_an_upstreams_stream_is_read_up_to_its_cap(path: str) -> None:
    pieces: list[bytes | float] = [part for n in range(50) for part in (chunk("x" * 200), 0.01)]
    with faultline(stream(*pieces)) as line:
        one = upstream("one", "openai_chat", line.url, models=("m",), caps=Caps(stream_bytes=5000))
        with open_house(one) as house:
            got = ask(house, streamed=True, path=path, max_tokens=50)
            assert "larger than 5000 bytes" in got.text
            assert "[DONE]" not in got.text
            assert line.seen[0].left.wait(NEVER_S)


def test_a_stream_ends_when_it_has_taken_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "PING_S", 0.1)  # it is looked at as often
    slow = Timeouts(headers_s=100, idle_s=100, stream_s=2.0)
    pieces: list[bytes | float] = [part for n in range(40) for part in (chunk("x"), 0.1)]
    with (
        faultline(stream(*pieces)) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), timeouts=slow)) as house,
    ):
        got = ask(house, streamed=True)
        assert "the stream took too long" in got.text
        assert "[DONE]" not in got.text
        assert line.seen[0].left.wait(NEVER_S)


def test_a_body_is_counted_plain_and_inflated() -> None:
    with open_house(max_body_bytes=50_000) as house:
        assert send(house.url, "POST", CHAT, b"x" * 50_001).status == 413
        packed = gzip.compress(json.dumps({**ASK, "padding": "x" * 60_000}).encode())
        assert len(packed) < 1000
        assert post(house.url, CHAT, packed, {"content-encoding": "gzip"}).status == 413


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 31_000}]}, "30000 parts"),
        (
            {
                "messages": [{"role": "user", "content": "x"}],
                "tools": [{"type": "function", "function": {"name": "f"}}] * 10_001,
            },
            "10000 tools",
        ),
        ({"messages": [{"role": "user", "content": "x"}], "x": [1] * 500_000}, "400000 values"),
    ],
)
def test_a_request_in_too_many_pieces_is_refused(body: Any, words: str) -> None:
    with open_house() as house:
        got = post(house.url, "/v1/chat/completions", {"model": "demo", **body})
        assert got.status == 400
        assert words in got.text


def test_a_large_request_is_worked_on_off_the_loop() -> None:
    """Ten thousand calls are read, made legal and written in a thread; the loop is free to serve others."""
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(10_000)]
    asked = {"role": "user", "content": "x"}
    talk = [asked, {"role": "assistant", "tool_calls": calls}, asked]
    threads: set[str] = set()
    with faultline(GOOD) as line, open_house(upstream("one", "anthropic", line.url, models=("m",))) as house:

        def watch(name: str, work: Any) -> Any:
            def run(*args: Any, **named: Any) -> Any:
                threads.add(f"{name} {threading.current_thread() is house.loop._thread}")
                return work(*args, **named)

            return run

        with (
            patch.object(take_in, "decode", watch("decode", take_in.decode)),
            patch.object(conversation, "render", watch("render", render)),
        ):
            post(house.url, "/v1/chat/completions", {"model": "m", "messages": talk})
    assert threads == {"decode False", "render False"}
