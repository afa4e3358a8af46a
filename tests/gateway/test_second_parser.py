"""h11 as a second opinion on HTTP: what it refuses, we refuse; what we send, it reads. httptools is our own parser."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import h11
import httpx
import pytest

from dragoman.gateway.config.settings import RequestLimits
from tests.gateway.house import House, open_house
from tests.gateway.test_client_connection import ASK, CHAT, GET, LAST, STREAM
from tests.gateway.web import head_of, raw

EXAMPLES = 250
SEEDS = (
    GET,
    head_of(CHAT, ASK) + ASK,
    head_of(CHAT, STREAM) + STREAM,
    head_of(CHAT, ASK).replace(b"content-length: %d" % len(ASK), b"transfer-encoding: chunked")
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(ASK), ASK),
)
ODD = (
    *(b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"\x7f", b"\xff", b"0", b"-1", b"+1", b"x", b"\r\n "),
    *(b"content-length: 5\r\n", b"content-length: 6\r\n", b"transfer-encoding: chunked\r\n", b"host: a\r\n"),
    *(b"transfer-encoding: gzip\r\n", b"HTTP/1.0", b"HTTP/3.1", b"content-length: 5, 5\r\n", b"0\r\n\r\n", b";x=y"),
)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    limits = RequestLimits(head_s=0.3, body_s=0.3, keep_alive_s=0.3)  # it closes soon, whatever was sent
    with open_house(limits=limits) as house:
        yield house


def bend(data: bytes, dice: Random) -> bytes:
    """Something odd put into the head, or in the place of a piece of it."""
    end = data.index(b"\r\n\r\n") + 4
    at = dice.randrange(end)
    if dice.random() < 0.5:
        at = dice.choice([place for place in range(end) if data[place - 2 : place] == b"\r\n" or place == 0])
    return data[:at] + dice.choice(ODD) + data[at + dice.choice((0, 0, 1, 4)) :]


def h11_refuses(data: bytes) -> bool:
    """Whether h11 says that the first request is none. We skip blank lines before a request (RFC 9112, 2.2)."""
    data = data.lstrip(b"\r\n")
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
    server.receive_data(data)
    try:
        while True:
            event = server.next_event()
            if event is h11.NEED_DATA or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return False
    except h11.RemoteProtocolError:
        return True


def answers(data: bytes) -> list[int]:
    """The statuses of what we sent, as h11 reads it. It raises for anything that is not HTTP."""
    found: list[int] = []
    while data:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                found.append(event.status_code)
            if event is h11.NEED_DATA:
                client.receive_data(b"")  # the body ends with the connection
        data = client.trailing_data[0]
    return found


def test_what_h11_refuses_we_refuse_and_what_we_send_it_reads(house: House) -> None:
    dice = Random("h11")  # noqa: S311  # the same examples in every run
    bent = [bend(dice.choice(SEEDS), dice) for _ in range(EXAMPLES)]
    with ThreadPoolExecutor(25) as pool:
        sent = list(pool.map(lambda data: raw(house.url, data), bent))
    refused = 0
    for data, got in zip(bent, sent, strict=True):
        statuses = answers(got)
        if h11_refuses(data):
            refused += 1
            assert not statuses or statuses[0] >= 400, (data, got)
    assert refused > EXAMPLES // 5


@pytest.mark.parametrize("data", [*SEEDS, LAST])
def test_good_requests_are_good_for_both(data: bytes, house: House) -> None:
    assert not h11_refuses(data)
    assert answers(raw(house.url, data.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))) == [200]


def test_a_second_client_reads_our_streams_to_their_end(house: House) -> None:
    """httpx reads by h11: every chunk, and one end."""
    with httpx.Client(headers={"content-type": "application/json"}) as client:
        for _ in range(3):  # on one connection
            with client.stream("POST", house.url + CHAT, content=STREAM) as got:
                assert [line for line in got.iter_lines() if line][-1] == "data: [DONE]"
