"""A server that answers each connection with the same bytes, whatever they are, and notes what it was sent."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DRIP_S = 0.01  # between two bytes


class RawServer:
    def __init__(self, answer: bytes, *, drips: bool) -> None:
        self._answer, self._drips = answer, drips
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = threading.Event()
        self.seen: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer_one, args=(client,), daemon=True).start()

    def _answer_one(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self.seen.append(client.recv(65536))
            client.sendall(self._answer)
            while self._drips and not self._closing.wait(DRIP_S):
                client.sendall(b"a")

    def close(self) -> None:
        self._closing.set()
        self._listener.close()


@contextmanager
def raw_server(answer: bytes, *, drips: bool = False) -> Iterator[RawServer]:
    """`drips`: after the answer, a byte follows every hundredth of a second, without end."""
    server = RawServer(answer, drips=drips)
    try:
        yield server
    finally:
        server.close()
