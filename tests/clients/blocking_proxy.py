"""A proxy that lets nobody through and remembers where they wanted to go."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import NEVER_S


class BlockingProxy(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.wanted: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Refusal(socketserver.StreamRequestHandler):
    server: BlockingProxy

    def handle(self) -> None:
        line = self.rfile.readline(2000).decode("latin-1").split(" ")
        self.server.wanted.append(line[1] if len(line) > 1 else "")
        self.wfile.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


@contextmanager
def blocking_proxy() -> Iterator[BlockingProxy]:
    with BlockingProxy() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(NEVER_S)
