"""fetch: whatever a server does, it ends in time with the bytes or an OSError."""

from collections.abc import Callable

import pytest

from dragoman.fetch import fetch
from tests.raw_server import raw_server

OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = {
    "no HTTP": b"\x00\xff what\r\n\r\n",
    "nothing": b"",
    "a chunk that is cut": OK + b"transfer-encoding: chunked\r\n\r\nff\r\nabc",
    "a chunk without a length": OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nabc",
    "a body that is cut": OK + b"content-length: 500\r\n\r\n{}",
    "a line without an end": OK + b"x: " + b"a" * 70_000 + b"\r\n\r\n",
    "too many headers": OK + b"x: a\r\n" * 200 + b"\r\n",
    "too much": OK + b"\r\n" + b"a" * 1001,
    "an error": b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
    "a redirect to nowhere": b"HTTP/1.1 302 x\r\nlocation: http://[::1/\r\ncontent-length: 0\r\n\r\n",
    "a redirect to no port": b"HTTP/1.1 302 x\r\nlocation: http://127.0.0.1:abc/\r\ncontent-length: 0\r\n\r\n",
    "a redirect without a place": b"HTTP/1.1 302 x\r\ncontent-length: 0\r\n\r\n",
    "a redirect to a file": b"HTTP/1.1 302 x\r\nlocation: file:///etc/hostname\r\ncontent-length: 0\r\n\r\n",
    "a redirect to FTP": b"HTTP/1.1 302 x\r\nlocation: ftp://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n",
}


def anything(url: str) -> str:
    return url


def refuse(url: str) -> str:
    raise ValueError(f"not to {url}")


@pytest.mark.parametrize("follow", [None, anything, refuse], ids=["none", "anything", "refuse"])
@pytest.mark.parametrize("answer", BROKEN.values(), ids=list(BROKEN))
def test_an_answer_that_is_none_is_an_os_error(answer: bytes, follow: Callable[[str], str] | None) -> None:
    with raw_server(answer) as server, pytest.raises(OSError, match=r"."):
        fetch(server.url, seconds=60.0, most_bytes=1000, follow=follow)


DRIPS = {
    "the first line": b"HTTP/1.1 200 ",
    "a header": OK + b"x: ",
    "the body": OK + b"\r\n",
    "a chunk": OK + b"transfer-encoding: chunked\r\n\r\nffffff\r\n",
}


@pytest.mark.parametrize("answer", DRIPS.values(), ids=list(DRIPS))
def test_an_answer_that_comes_byte_by_byte_ends_at_the_deadline(answer: bytes) -> None:
    with raw_server(answer, drips=True) as server, pytest.raises(TimeoutError):
        fetch(server.url, seconds=0.2, most_bytes=10**9)


def test_an_answer_that_says_for_ever_to_go_on_ends_at_the_deadline() -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" * 100 + b"HTTP/1.1 100 "
    with raw_server(answer, drips=True) as server, pytest.raises(TimeoutError):
        fetch(server.url, seconds=0.2, most_bytes=10)


@pytest.mark.parametrize(
    "url",
    ["http://me:pass@127.0.0.1:1/", "http://127.0.0.1/a\x01pass", "http://127.0.0.1:pass/", "http://h/\r\nx: pass",
     "http:///pass", "http://[pass/", "http://127.0.0.1:1/pass-ü"],
)  # fmt: skip
def test_no_error_repeats_the_address(url: str) -> None:
    with pytest.raises(OSError, match=r".") as raised:
        fetch(url, seconds=60.0, most_bytes=10)
    assert "pass" not in str(raised.value)


def test_a_whole_answer_comes_back_also_over_a_redirect_that_is_allowed() -> None:
    with raw_server(OK + b"content-length: 2\r\n\r\nhi") as server:
        assert fetch(server.url, seconds=60.0, most_bytes=10) == b"hi"
        assert fetch(server.url, seconds=60.0, most_bytes=0, body=b"{}") == b"", "its answer is not read"
        moved = b"HTTP/1.1 302 x\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n" % server.url.encode()
        with raw_server(moved) as first:
            assert fetch(first.url, seconds=60.0, most_bytes=10, follow=anything) == b"hi"
            with pytest.raises(OSError, match="302"):
                fetch(first.url, seconds=60.0, most_bytes=10)
