"""A head that came before on a connection is not parsed again: what is read is what the parser reads."""

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.gateway.client_connection import ClientConnection, OpenConnections
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.http import HttpRequest
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import open_house
from tests.gateway.test_client_connection import ASK, CHAT, connect
from tests.gateway.test_second_parser import bend
from tests.gateway.web import head_of

LONG = ASK.replace(b"hello", b"hello, " * 30)
FIRST = head_of(CHAT, ASK) + ASK
NEXT = head_of(CHAT, LONG) + LONG


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written.append(data.split(b"\r\n")[0])  # an id differs

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...


def open_connection(monkeypatch: pytest.MonkeyPatch) -> ClientConnection:
    """One whose requests wait for ever."""
    monkeypatch.setattr(ClientConnection, "_answer_next", lambda self: None)
    gateway = SimpleNamespace(now=SimpleNamespace(settings=Settings()))
    app = SimpleNamespace(gateway=gateway, new_id=lambda: "id")
    made = ClientConnection(app, OpenConnections())  # type: ignore[arg-type]
    made.connection_made(Transport())  # type: ignore[arg-type]
    return made


def show(http: HttpRequest) -> object:
    headers = {name: value for name, value in http.headers.items() if name != "content-length"}
    return http.method, http.path, http.query, headers, http.repeated


def read(connection: ClientConnection, pieces: list[bytes]) -> object:
    for piece in pieces:
        if not connection.transport.is_closing():
            connection.data_received(piece)
    found = [
        (show(one.http), b"".join(one._pieces), one.length, one.done, one.keep, one.chunked, one.expects)
        for one in connection._queue
    ]
    return (
        found,
        connection.transport.written,
        connection.transport.closing,
        connection._ignores_input,
        connection._in_head,
    )


async def read_both(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> ClientConnection:
    fast, slow = open_connection(monkeypatch), open_connection(monkeypatch)
    slow._heads_left = 0
    assert read(fast, pieces) == read(slow, pieces), pieces
    return fast


NEAR = {
    "longer": NEXT,
    "equal": FIRST,
    "two": NEXT + NEXT,
    "more than its body": NEXT + b"x",
    "less than its body": NEXT[:-1],
    "no digits": NEXT.replace(b"content-length: ", b"content-length: +"),
    "no size": NEXT.replace(b"content-length: %d" % len(LONG), b"content-length: "),
    "a blank": NEXT.replace(b"content-length: ", b"content-length:  "),
    "many digits": NEXT.replace(b"content-length: ", b"content-length: 00000000000"),
    "zeros": NEXT.replace(b"content-length: ", b"content-length: 000"),
    "empty": head_of(CHAT, b""),
    "another header": NEXT.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n", 1),
    "two sizes": NEXT.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n", 1),
    "chunks too": NEXT.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n", 1),
    "a blank line first": b"\r\n" + NEXT,
    "another path": NEXT.replace(b"/v1/", b"/v2/"),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_head_that_came_before_is_read_as_the_parser_reads_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for pieces in ([FIRST, NEAR[name]], [FIRST, NEAR[name], FIRST], [NEAR[name], NEAR[name], NEXT]):
        asyncio.run(read_both(monkeypatch, pieces))


def test_bent_heads_are_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random("known heads")  # noqa: S311  # the same examples in every run

    async def main() -> None:
        for _ in range(400):
            bent = bend(dice.choice((FIRST, NEXT)), dice)
            await read_both(monkeypatch, dice.choice(([FIRST, bent, NEXT], [bent, bent, NEXT], [bent, NEXT, bent])))

    asyncio.run(main())


def test_the_second_request_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        connection = await read_both(monkeypatch, [FIRST])
        connection._parser = None
        connection.data_received(NEXT)
        assert [one.length for one in connection._queue] == [len(ASK), len(LONG)]

    asyncio.run(main())


def test_heads_that_are_all_different_are_remembered_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        connection = open_connection(monkeypatch)
        for number in range(20):
            connection.data_received(NEXT.replace(b"\r\n\r\n", b"\r\nx-number: %d\r\n\r\n" % number, 1))
        assert len(connection._queue) == 20
        assert connection._known is not None
        assert b"x-number: 7\r" in connection._known.after

    asyncio.run(main())


def test_a_key_is_checked_with_each_request_of_a_connection(tmp_path: Path) -> None:
    store = SqliteKeyStore(tmp_path / "keys.db")
    key, other = store.new("a", admin=False).encode(), store.new("b", admin=False).encode()
    good, wrong = (
        FIRST.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer %b\r\n\r\n" % one, 1) for one in (key, key[:-1] + b"!")
    )
    with open_house(keys=store) as house, connect(house) as client:
        for data, status in (
            *((good, b"200"), (good, b"200"), (good.replace(key, other), b"200")),
            *((wrong, b"401"), (good, b"200")),
        ):
            client.sendall(data)
            assert client.recv(65536).startswith(b"HTTP/1.1 " + status)
        store.revoke(key.decode().split("-")[1])
        house.gateway.now.access.keys.look_again()
        client.sendall(good)
        assert client.recv(65536).startswith(b"HTTP/1.1 401")
