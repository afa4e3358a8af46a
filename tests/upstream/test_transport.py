"""The HTTP client of upstreams, against raw bytes on loopback: what it reads, what it refuses, what it uses again."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import UpstreamError
from dragoman.upstream.http.dial import dial
from dragoman.upstream.http.request import split_url, write_head
from dragoman.upstream.spec import Timeouts
from dragoman.upstream.transport import Opened, Transport, unreached
from tests.waiting import NEVER_S, until

PATIENT = Timeouts(connect_s=100, headers_s=100, idle_s=100)
QUICK = Timeouts(connect_s=100, headers_s=0.3, first_s=0.3, idle_s=0.3)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origin:
    """A server that plays one script per connection, the last one again and again."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self.scripts, self.tls = scripts, tls
        self.connections = 0
        self.heads: list[bytes] = []

    async def __aenter__(self) -> "Origin":
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1/x"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.scripts[min(self.connections, len(self.scripts) - 1)]
        self.connections += 1
        try:
            await script(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def say(self, data: bytes, *, split: bool = False, close: bool = False) -> Script:
        """Answers each question with these bytes, whole or byte by byte."""

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(4)
                for i in range(0, len(data), 1 if split else len(data)):
                    writer.write(data[i : i + 1] if split else data)
                    if split:
                        await asyncio.sleep(0)
                if close:
                    return

        return script


async def ask(
    transport: Transport, url: str, headers: dict[str, str] | None = None, timeouts: Timeouts = PATIENT, **more: Any
) -> Opened:
    sent: list[bool] = []
    head_s = timeouts.headers_s
    return await transport.open(
        url, headers or {}, b"body", timeouts=timeouts, head_s=head_s, on_sent=lambda: sent.append(True), **more
    )


async def code_of(work: Awaitable[Any]) -> str | None:
    with pytest.raises(UpstreamError) as caught:
        await work
    return caught.value.failure.code


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

READ: dict[str, tuple[bytes, bool, int, bytes, bool]] = {
    # what comes, whether the server then closes -> status, body, whether the connection serves again
    "a length": (OK, False, 200, b"hi", True),
    "chunks": (CHUNKED + b"1\r\nh\r\n1;x=y\r\ni\r\n0\r\n\r\n", False, 200, b"hi", True),
    "a trailer": (CHUNKED + b"2\r\nhi\r\n0\r\nx-late: 1\r\n\r\n", False, 200, b"hi", True),
    "a space after a chunk's size": (CHUNKED + b"2  \r\nhi\r\n0\r\n\r\n", False, 200, b"hi", True),
    "an end that is the connection's": (b"HTTP/1.1 200 OK\r\n\r\nhi", True, 200, b"hi", False),
    "100 first": (b"HTTP/1.1 100 Continue\r\nx-a: 1\r\n\r\n" + OK, False, 200, b"hi", True),
    "103 first": (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, False, 200, b"hi", True),
    "nothing at all": (b"HTTP/1.1 204 No Content\r\n\r\n", False, 204, b"", True),
    "bare line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", False, 200, b"hi", True),
    "a wish to close": (OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), False, 200, b"hi", False),
    "HTTP/1.0": (OK.replace(b"/1.1", b"/1.0"), False, 200, b"hi", False),
    "a status nobody knows": (OK.replace(b"200 OK", b"599 Odd"), False, 599, b"hi", True),
    "an offer to upgrade": (
        OK.replace(b"\r\n\r\n", b"\r\nupgrade: h2c\r\nconnection: upgrade, keep-alive\r\n\r\n"),
        False,
        200,
        b"hi",
        True,
    ),
}


@pytest.mark.parametrize("split", [False, True], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("case", READ)
def test_an_answer_is_read_however_it_is_framed(case: str, split: bool) -> None:
    data, close, status, body, again = READ[case]

    async def main() -> None:
        origin = Origin()
        origin.scripts = (origin.say(data, split=split, close=close),)
        transport = Transport()
        async with origin:
            for _ in range(2):
                opened = await ask(transport, origin.url)
                assert (opened.status, await opened.read()) == (status, body)
                assert "x-late" not in opened.headers
                assert "x-a" not in opened.headers
                opened.close(whole=True)
            assert origin.connections == (1 if again else 2)
            await transport.close()

    asyncio.run(main())


BROKEN: dict[str, tuple[bytes, bool, str]] = {
    "garbage": (b"SSH-2.0-OpenSSH\r\n\r\n", False, "upstream_malformed"),
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        False,
        "upstream_malformed",
    ),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        False,
        "upstream_malformed",
    ),
    "a chunk that is none": (CHUNKED + b"zz\r\nhi\r\n", False, "upstream_malformed"),
    "a head without end": (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000, False, "upstream_malformed"),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        False,
        "upstream_malformed",
    ),
    "a coding that is not chunked alone": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        False,
        "upstream_malformed",
    ),
    "a trailer without end": (CHUNKED + b"2\r\nhi\r\n0\r\nx: " + b"a" * 1_000_000, False, "upstream_malformed"),
    "trailers without end": (CHUNKED + b"2\r\nhi\r\n0\r\n" + b"x: y\r\n" * 200_000, False, "upstream_malformed"),
    "a chunk extension without end": (CHUNKED + b"2;x=" + b"a" * 1_000_000, False, "upstream_malformed"),
    "half a head": (b"HTTP/1.1 200", True, "upstream_disconnected"),
    "nothing": (b"", True, "upstream_disconnected"),
    "half a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", True, "upstream_truncated"),
    "half a chunk": (CHUNKED + b"5\r\nhi", True, "upstream_truncated"),
    "no last chunk": (CHUNKED + b"2\r\nhi\r\n", True, "upstream_truncated"),
    "no head in time": (b"HTTP/1.1 200", False, "upstream_timeout"),
    "no body in time": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", False, "upstream_timeout"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_answer_is_a_failure(case: str) -> None:
    data, close, code = BROKEN[case]

    async def main() -> None:
        origin = Origin()
        origin.scripts = (origin.say(data, close=close),) if data else (origin.say(b"x", close=True),)
        if not data:
            origin.scripts = (_hang_up,)
        transport = Transport()

        async def work() -> None:
            opened = await ask(transport, origin.url, timeouts=QUICK if "in time" in case else PATIENT)
            try:
                await opened.read()
            finally:
                opened.close()

        async with origin:
            assert await code_of(work()) == code

    asyncio.run(main())


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


def test_an_idle_connection_the_server_closed_costs_no_failure() -> None:
    async def main() -> None:
        origin = Origin()
        answer = origin.say(OK)

        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"body")
            writer.write(OK)
            await reader.readuntil(b"body")  # the second question is heard, and not answered (F32)

        origin.scripts = (once, answer)
        transport = Transport()
        async with origin:
            for _ in range(3):
                opened = await ask(transport, origin.url)
                assert await opened.read() == b"hi"
                opened.close(whole=True)
            assert origin.connections == 2

    asyncio.run(main())


@pytest.mark.parametrize("tail", [OK, b"x"], ids=["a second answer", "more bytes"])
def test_a_connection_that_says_more_than_it_was_asked_is_not_used_again(tail: bytes) -> None:
    async def main() -> None:
        origin = Origin()
        origin.scripts = (origin.say(OK + tail), origin.say(OK))
        transport = Transport()
        async with origin:
            for _ in range(2):
                opened = await ask(transport, origin.url)
                assert await opened.read() == b"hi"
                opened.close(whole=True)
            assert origin.connections == 2

    asyncio.run(main())


def test_an_answer_that_is_not_read_to_its_end_ends_the_connection() -> None:
    async def main() -> None:
        left = asyncio.Event()
        origin = Origin()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"body")
            writer.write(CHUNKED + b"2\r\nhi\r\n")
            await reader.read()
            left.set()

        origin.scripts = (drip,)
        transport = Transport()
        async with origin:
            opened = await ask(transport, origin.url)
            assert await opened.next() == b"hi"
            opened.close(whole=True)
            await asyncio.wait_for(left.wait(), NEVER_S)

    asyncio.run(main())


def test_a_cancelled_wait_closes_the_connection() -> None:
    async def main() -> None:
        left, heard = asyncio.Event(), asyncio.Event()
        origin = Origin()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"body")
            heard.set()
            await reader.read()
            left.set()

        origin.scripts = (silent,)
        async with origin:
            task = asyncio.create_task(ask(Transport(), origin.url))
            await asyncio.wait_for(heard.wait(), NEVER_S)
            task.cancel()
            await asyncio.wait_for(left.wait(), NEVER_S)

    asyncio.run(main())


def test_an_upstream_waits_while_its_answer_is_not_read() -> None:
    written = 0

    async def main() -> None:
        origin = Origin()

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            await reader.readuntil(b"body")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
            while True:
                writer.write(b"x" * 100_000)
                await writer.drain()
                written += 100_000

        origin.scripts = (flood,)
        transport = Transport()
        async with origin:
            opened = await ask(transport, origin.url)
            looks: list[int] = []

            def stands_still() -> bool:
                looks.append(written)
                return len(looks) > 20 and looks[-20] == written > 0

            await until(stands_still)
            assert written < 20_000_000, "a fifth of what it would write"
            while written == looks[-1]:
                assert await opened.next()
            opened.close()

    asyncio.run(main())


def test_what_goes_out_is_what_was_said_and_nothing_else() -> None:
    async def main() -> None:
        origin = Origin()
        origin.scripts = (origin.say(OK),)
        async with origin:
            opened = await ask(Transport(), f"{origin.url}?a=b", {"x-one": "1"})
            opened.close()
            said = f"POST /v1/x?a=b HTTP/1.1\r\nhost: 127.0.0.1:{origin.port}\r\nx-one: 1\r\ncontent-length: 4\r\n\r\n"
            assert origin.heads == [said.encode()]

    asyncio.run(main())


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\x00b", "\r\n\r\nGET /"])
def test_a_header_cannot_end_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="control"):
        write_head("POST / HTTP/1.1", {"x": value})
    with pytest.raises(ValueError, match="control"):
        write_head("POST / HTTP/1.1", {value: "x"})


@pytest.mark.parametrize(
    ("url", "origin", "target", "host"),
    [
        ("http://h/v1?a=b", (False, "h", 80), "/v1?a=b", "h"),
        ("https://h:8443", (True, "h", 8443), "/", "h:8443"),
        ("https://[::1]:80/x", (True, "::1", 80), "/x", "[::1]:80"),
        ("http://bücher.example/ü x", (False, "xn--bcher-kva.example", 80), "/%C3%BC%20x", "xn--bcher-kva.example"),
        ("http://h/a%2Fb:verb#c", (False, "h", 80), "/a%2Fb:verb", "h"),
    ],
)
def test_a_url_leads_somewhere(url: str, origin: tuple[bool, str, int], target: str, host: str) -> None:
    assert split_url(url) == (origin, target, host)


@pytest.mark.parametrize("url", ["", "h/x", "ftp://h/", "http://", "http://u:p@h/", "http://h:x/", "http://h:99999/"])
def test_a_url_that_leads_nowhere_is_a_failure(url: str) -> None:
    assert asyncio.run(code_of(ask(Transport(), url))) == "upstream_url"


def test_a_closed_port_and_an_unknown_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert asyncio.run(code_of(ask(Transport(), f"http://127.0.0.1:{port}/"))) == "upstream_unreachable"
    assert asyncio.run(code_of(ask(Transport(), "http://nobody.invalid/"))) == "upstream_unreachable"


def test_an_address_that_does_not_answer_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        origin = Origin()
        origin.scripts = (origin.say(OK),)
        async with origin:
            loop = asyncio.get_running_loop()
            silent, refused = ("silent", 1), ("127.0.0.1", 1)
            there = ("127.0.0.1", origin.port)
            found = [
                (family, socket.SOCK_STREAM, 6, "", where)
                for family, where in [
                    (socket.AF_INET6, silent),
                    (socket.AF_INET, refused),
                    (socket.AF_INET6, silent),
                    (socket.AF_INET, there),
                ]
            ]
            connect = loop.sock_connect

            async def slow(sock: socket.socket, where: Any) -> None:
                await (asyncio.sleep(60) if where == silent else connect(sock, where))

            monkeypatch.setattr("dragoman.upstream.http.dial.HEAD_START_S", 0.02)
            monkeypatch.setattr(loop, "sock_connect", slow)
            protocol = await dial("h", found, asyncio.Protocol, tls=None, connect_s=100)
            assert isinstance(protocol, asyncio.Protocol)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) <= 2  # this one and the server's: no attempt is left behind

    asyncio.run(main())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, and it makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    file = folder / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(file), "-out", str(folder / "c.pem")]
    subprocess.run([openssl, *words.split(), *files], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (folder / "c.pem").read_bytes())
    return file


def test_tls_is_spoken_to_trusted_servers_only(certificate: Path) -> None:
    async def main() -> None:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(certificate)
        origin = Origin(tls=server)
        origin.scripts = (origin.say(OK),)
        trusting = Transport(ssl.create_default_context(cafile=str(certificate)))
        async with origin:
            for _ in range(2):
                opened = await ask(trusting, origin.url)
                assert await opened.read() == b"hi"
                opened.close(whole=True)
            assert origin.connections == 1
            assert await code_of(ask(Transport(), origin.url)) == "upstream_tls"
            await trusting.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "words", ["[SSL] tlsv1 alert no application protocol", "[SSL: NO_APPLICATION_PROTOCOL] refused"]
)
def test_a_handshake_without_a_common_protocol_is_an_http2_only_server(words: str) -> None:
    """Python 3.11 gives such an error no `reason`: only the words of OpenSSL tell."""
    assert unreached(ssl.SSLError(1, words)).code == "upstream_http2_only"
    assert unreached(ssl.SSLError(1, "[SSL] certificate verify failed")).code == "upstream_tls"
