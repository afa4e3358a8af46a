"""fetch: one request to an address of the configuration, made in a thread: an identity provider's keys, a webhook.

The timeout of urllib is for each piece that arrives: a server that sends a byte now and then would hold the thread for
ever. Here the whole answer has a deadline and a size, and every failure is an OSError that does not repeat the address,
because the address may hold a secret.
"""

import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

NO_HEADERS: Mapping[str, str] = {}


def fetch(
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    body: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    follow: Callable[[str], str] | None = None,
) -> bytes:
    """The body of the answer; with `most_bytes` 0 it is not read. With a `body` it is a POST.

    `follow` returns the address of a redirect, or raises a ValueError if we may not go there; None: no redirects."""
    try:
        request = Request(url, body, dict(headers))  # noqa: S310  # the opener speaks http and https only
        with _make_opener(time.monotonic() + seconds, follow).open(request, timeout=seconds) as response:
            return _read(response, most_bytes) if most_bytes else b""
    except HTTPError as error:
        error.close()
        raise OSError(f"it answered {error.code}") from None
    except HTTPException as error:
        raise OSError(f"this is no answer over HTTP ({type(error).__name__})") from None
    except ValueError as error:
        raise OSError(f"this address cannot be asked ({type(error).__name__})") from None


def _read(response: Any, most_bytes: int) -> bytes:
    data: bytes = response.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"the answer is larger than {most_bytes} bytes")
    if response.length:
        raise OSError("the answer was cut")
    return data


def _make_opener(until: float, follow: Callable[[str], str] | None) -> OpenerDirector:
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        _Http(until),
        _Https(until),
        _Redirects(follow),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirects(HTTPRedirectHandler):
    def __init__(self, follow: Callable[[str], str] | None) -> None:
        self._follow = follow

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if self._follow is None:
            return None
        return super().redirect_request(req, fp, code, msg, headers, self._follow(newurl))


# ---------------------------------------------------------------- the deadline


class _Http(HTTPHandler):
    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_connect, HTTPConnection, self._until), req)


class _Https(HTTPSHandler):
    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def https_open(self, req: Request) -> HTTPResponse:
        connect = partial(_connect, HTTPSConnection, self._until)
        return self.do_open(connect, req, context=ssl.create_default_context())


def _connect(kind: type[HTTPConnection], until: float, host: str, **more: Any) -> HTTPConnection:
    connection = kind(host, **more)
    connection.response_class = partial(_TimedResponse, until=until)  # type: ignore[assignment]
    return connection


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *more: Any, until: float, **named: Any) -> None:
        super().__init__(sock, *more, **named)
        untimed, self.fp = self.fp, io.BufferedReader(_TimedReader(sock, until))
        untimed.close()


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a moment of the monotonic clock."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._until = sock, until
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it did not answer in time")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
