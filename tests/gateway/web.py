"""A plain HTTP client for tests: what was asked is what goes over the wire."""

import http.client
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.waiting import NEVER_S


@dataclass
class Got:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def frames(self) -> str:
        """A stream without its comments."""
        lines = self.text.replace("\r\n", "\n").split("\n")
        return "\n".join(line for line in lines if not line.startswith(":")).strip("\n")


def send(url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Got:
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=NEVER_S)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body, ensure_ascii=False).encode()
    said = {"content-type": "application/json"} if data is not None else {}
    try:
        connection.request(method, path, data, {**said, **(headers or {})})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Got(response.status, found, response.read())
    finally:
        connection.close()


def status_of(url: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> int:
    """The status alone: a stream that never ends is not read."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=NEVER_S)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def post(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Got:
    return send(url, "POST", path, body, headers)


def get(url: str, path: str, headers: dict[str, str] | None = None) -> Got:
    return send(url, "GET", path, None, headers)


def raw(url: str, data: bytes) -> bytes:
    """Bytes in, all bytes until the server closes out. A server that does not close is an error."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=NEVER_S) as connection, suppress(ConnectionError):
        pieces = []
        connection.sendall(data)
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def head_of(path: str, body: bytes) -> bytes:
    """The head of a POST, for tests that write to the socket themselves."""
    lines = (
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()
