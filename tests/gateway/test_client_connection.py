"""One connection after the other, byte by byte: what a client may do with it and what it gets."""

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from dragoman.gateway import client_connection
from dragoman.gateway.client_connection import MOST_AHEAD
from dragoman.gateway.client_exchange import UNREAD_BYTES, ClientExchange
from dragoman.gateway.config.settings import RequestLimits
from tests.gateway.house import House, Seen, faultline, open_house, say, stream, upstream
from tests.gateway.stalls import PROMISE_S, Meter
from tests.gateway.web import head_of, raw
from tests.waiting import NEVER_S, wait_until

CHAT = "/v1/chat/completions"
ASK = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hello"}]}).encode()
STREAM = json.dumps({"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with open_house() as house:
        yield house


def connect(house: House) -> socket.socket:
    return socket.create_connection(("127.0.0.1", house.port), timeout=NEVER_S)


def test_several_questions_at_once_are_answered_in_their_order(house: House) -> None:
    got = raw(house.url, head_of(CHAT, ASK) + ASK + GET + head_of(CHAT, STREAM) + STREAM + LAST)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 4
    places = [got.index(word) for word in (b'"chat.completion"', b'{"status":"ok"}', b"[DONE]")]
    assert places == sorted(places)
    assert got.endswith(b'{"status":"ok"}')


def test_a_request_may_come_byte_by_byte(house: House) -> None:
    with connect(house) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head_of(CHAT, ASK) + ASK:
            client.sendall(bytes([byte]))
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_who_waits_for_a_100_gets_one(house: House) -> None:
    with connect(house) as client:
        client.sendall(head_of(CHAT, ASK).replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(ASK)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_in_chunks_is_one_body(house: House) -> None:
    head = head_of(CHAT, ASK).replace(b"content-length: %d" % len(ASK), b"transfer-encoding: chunked")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in ASK) + b"0\r\n\r\n"
    assert raw(house.url, head + chunks + LAST).count(b"HTTP/1.1 200 OK\r\n") == 2


@pytest.mark.parametrize("size", [1, 2, 900])
def test_a_body_in_small_chunks_takes_no_more_memory_than_its_bytes(size: int) -> None:
    """Each chunk of two bytes was an object of its own: 10 MB took 280, and to join them took a quarter second."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 1_000_000}]}).encode()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    head = head_of(CHAT, body).replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
    keep, most = ClientExchange._keep, [0]

    def measure(exchange: ClientExchange, data: bytes) -> None:
        keep(exchange, data)
        most[0] = max(most[0], len(exchange._pieces))

    with pytest.MonkeyPatch.context() as patch, faultline(say(200, b"{}")) as line:
        patch.setattr(ClientExchange, "_keep", measure)
        with open_house(upstream("up", "openai_chat", line.url, models=("m",))) as house:
            sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
            raw(house.url, head + sent + b"0\r\n\r\n" + LAST)
        assert line.seen[0].body == body
    assert 0 < most[0] <= 2 + len(body) // UNREAD_BYTES


def test_http_1_0_gets_a_stream_without_chunks_and_a_close(house: House) -> None:
    got = raw(house.url, (head_of(CHAT, STREAM) + STREAM).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


def test_an_offer_of_h2c_is_ignored_and_the_body_is_read(house: House) -> None:
    offer = b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    head = head_of(CHAT, ASK).replace(b"\r\n\r\n", offer)
    assert raw(house.url, head + ASK + head + ASK + LAST).count(b"HTTP/1.1 200 OK\r\n") == 3
    with connect(house) as client:
        client.sendall(head)
        client.sendall(ASK)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_many_offers_in_one_piece_cost_little(house: House) -> None:
    """Each was parsed inside the one before it: the loop stood still for 0.4 seconds, then the stack was full."""
    offer = LAST.replace(b"connection: close", b"connection: upgrade\r\nupgrade: h2c")
    assert offer != LAST
    meter = Meter()
    with meter.watch(house):
        got = raw(house.url, offer * 1_000)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == MOST_AHEAD + 1
    assert got.count(b"HTTP/1.1 400 ") == 1
    assert meter.worst_s < 3 * PROMISE_S


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"host: evil.test\r\n", b"400"),
        (b"transfer-encoding: chunked\r\n", b"400"),
        (b"".join(b"x%d: y\r\n" % i for i in range(101)), b"431"),
    ],
)
def test_an_offer_hides_nothing(house: House, more: bytes, status: bytes) -> None:
    offer = b"\r\n" + more + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
    got = raw(house.url, head_of(CHAT, ASK).replace(b"\r\n\r\n", offer) + ASK)
    assert got.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "line", [b"CONNECT localhost:80 HTTP/1.1", b"GET / HTTP/1.1\r\nupgrade: x\r\nconnection: upgrade"]
)
def test_after_another_offer_there_is_one_answer_and_no_more(house: House, line: bytes) -> None:
    got = raw(house.url, line + b"\r\nhost: localhost\r\n\r\n" + GET)
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_head_says_nothing_about_its_body(house: House) -> None:
    got = raw(house.url, LAST.replace(b"GET", b"HEAD"))
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("junk", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"{}\r\n\r\n"])
def test_what_is_not_http_is_a_400(house: House, junk: bytes) -> None:
    assert raw(house.url, junk).startswith(b"HTTP/1.1 400")


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(house: House) -> None:
    with connect(house) as client:
        client.sendall(head_of(CHAT, ASK) + ASK[:10])
        wait_until(lambda: house.gateway.metrics.running == 1)
    wait_until(lambda: house.gateway.metrics.running == 0)
    assert not house.server.open.connections


LONG = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 100_000}]}).encode()
DELTA = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\n'


def read_all(client: socket.socket) -> bytes:
    got = b""
    with suppress(ConnectionError):
        while piece := client.recv(65536):
            got += piece
    return got


@contextmanager
def running_stream(
    *pieces: bytes | float | threading.Event, limits: RequestLimits | None = None
) -> Iterator[tuple[House, socket.socket, Seen]]:
    """A stream whose client has seen its beginning."""
    with (
        faultline(stream(*(pieces or (DELTA, threading.Event())))) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",)), limits=limits or RequestLimits()) as house,
        connect(house) as client,
    ):
        client.sendall(head_of(CHAT, LONG) + LONG)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        wait_until(lambda: len(house.gateway.live) == 1)
        yield house, client, line.seen[0]


def test_what_is_not_http_gets_its_answer_after_the_one_before_it() -> None:
    release = threading.Event()
    with running_stream(DELTA, release) as (_, client, _):
        client.sendall(b"\x00\x01\r\n\r\n")
        release.set()
        got = read_all(client)
        assert got.count(b"HTTP/1.1") == 1
        assert b"0\r\n\r\nHTTP/1.1 400" in got


def test_a_valid_request_is_answered_whatever_follows_it(house: House) -> None:
    got = raw(house.url, head_of(CHAT, ASK) + ASK + b"\x00\x01\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 400" in got
    many = raw(house.url, GET * 3 + b"nonsense\r\n\r\n")
    assert (many.count(b"HTTP/1.1 200"), many.count(b"HTTP/1.1 400")) == (3, 1)


def test_a_body_that_breaks_off_into_junk_is_refused_at_its_door(house: House) -> None:
    head = head_of("/v1/messages", ASK).replace(b"content-length: %d" % len(ASK), b"transfer-encoding: chunked")
    got = raw(house.url, head + b'5\r\n{"mod\r\nzz\r\n')
    assert got.startswith(b"HTTP/1.1 400")
    assert b'"type":"invalid_request_error"' in got
    assert b"connection: close" in got


def test_half_a_head_behind_a_running_stream_does_not_cut_it() -> None:
    limits = RequestLimits(head_s=0.2, body_s=0.2)
    ahead = (b"POST / HTTP/1.1\r\nhost: x", head_of(CHAT, ASK) + ASK[:9])
    for half in ahead:
        with running_stream(DELTA, 0.8, b"data: [DONE]\n\n", limits=limits) as (_, client, _):
            client.sendall(half)
            got = read_all(client)
            assert b"data: [DONE]" in got
            assert b"HTTP/1.1 408" in got.partition(b"0\r\n\r\n")[2]  # and then its own time is up


CHUNKED = head_of(CHAT, ASK).replace(b"content-length: %d" % len(ASK), b"transfer-encoding: chunked")
KEY = b"authorization: Bearer sk-right-key-0123456789\r\n"


@pytest.mark.parametrize("trailer", [KEY, b"x-dragoman-refuse: nonsense\r\n", b"host: evil.test\r\n"])
def test_trailers_are_dropped(trailer: bytes) -> None:
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(ASK), ASK)
    with open_house(client_keys=("sk-right-key-0123456789",)) as house:
        assert raw(house.url, CHUNKED + chunks + trailer + b"\r\n" + LAST).startswith(b"HTTP/1.1 401")
        known = CHUNKED.replace(b"\r\n\r\n", b"\r\n" + KEY + b"\r\n")
        assert raw(house.url, known + chunks + trailer + b"\r\n" + LAST).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("way", ["one trailer", "many trailers", "an extension", "many extensions"])
def test_what_frames_a_body_is_bounded(way: str, house: House) -> None:
    """A client that sends framing for ever is refused, and its bytes are not kept."""
    start = {
        "one trailer": b"0\r\nx: ",
        "many trailers": b"0\r\n",
        "an extension": b"1;x=",
        "many extensions": b"",
    }[way]
    more = {"many trailers": b"x: y\r\n" * 4000, "many extensions": b"1;" + b"x" * 4000 + b"\r\n{\r\n"}
    with connect(house) as client:
        client.sendall(CHUNKED + start)
        sent = 0
        with suppress(ConnectionError):
            while sent < 4_000_000 and not select.select([client], [], [], 0)[0]:
                sent += client.send(more.get(way, b"x" * 16_000))
        assert client.recv(65536).startswith(b"HTTP/1.1 431")
        assert sent < 4_000_000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET.replace(b"HTTP/1.1", b"HTTP/2.0"), b"505"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
        (GET.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), b"501"),
        (GET.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: identity\r\n\r\n"), b"501"),
        (GET.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n"), b"501"),
    ],
)
def test_what_is_not_served_is_said(head: bytes, status: bytes, house: House) -> None:
    got = raw(house.url, head + LAST)
    assert got.startswith((b"HTTP/1.1 " + status, b"HTTP/1.1 400"))
    assert got.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("framed", [True, False])
def test_a_client_that_is_still_sending_can_read_its_413(framed: bool) -> None:
    """It sends everything before it reads, as most do. A reset would take the answer away from it."""
    size = 20_000_000
    body = b"x" * size if framed else b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size)
    head = CHUNKED if not framed else head_of(CHAT, b"").replace(b"content-length: 0", b"content-length: %d" % size)
    with open_house(max_body_bytes=1000) as house, connect(house) as client:
        client.settimeout(NEVER_S)
        client.sendall(head + body)
        got = read_all(client)
    assert got.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in got


def test_a_client_that_never_stops_sending_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "UNWANTED_BYTES", 1_000_000)
    with open_house(max_body_bytes=1000) as house, connect(house) as client:
        client.sendall(head_of(CHAT, b"").replace(b"content-length: 0", b"content-length: 900000000"))
        with pytest.raises(ConnectionError):
            client.sendall(b"x" * 100_000_000)
    wait_until(lambda: not house.server.open.connections)


def test_a_client_that_reads_slowly_but_steadily_is_not_cut() -> None:
    """The answer takes longer than a client may stand still."""
    limits = RequestLimits(write_s=3.0)
    words = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"%b"}}]}' % (b"x" * 6_000_000)
    with faultline(say(200, words)) as line, open_house(upstream("m", "openai_chat", line.url), limits=limits) as house:
        ask = ASK.replace(b'"demo"', b'"m-model"')
        with connect(house) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.sendall(head_of(CHAT, ask) + ask)
            got, began = 0, time.monotonic()
            while got < len(words):
                piece = client.recv(65536)
                assert piece, f"cut after {got} bytes and {time.monotonic() - began:.1f} s"
                got += len(piece)
                time.sleep(0.04)
            assert time.monotonic() - began > 3.2


def test_a_client_with_a_long_question_that_leaves_is_noticed() -> None:
    with running_stream() as (_, client, asked):
        client.close()
        assert asked.left.wait(NEVER_S / 2)  # before the upstream's own silence ends it


def test_while_a_stream_runs_what_it_answers_is_not_kept() -> None:
    with running_stream() as (house, _, _):
        (stop,) = house.gateway.live
        scope = stop.__self__.scope  # type: ignore[attr-defined]
        kept = scope.client_request
        assert (kept.raw, kept.request.messages, scope.answer.call.body) == (b"", (), b"")
