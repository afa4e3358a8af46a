"""Peers: the workers of one gateway answer for each other, so that /metrics, X-ray and /health cover all of them.

Each worker listens on a Unix socket in a folder that only its user can enter, and answers GET requests as if it were
alone. It also writes its counters into a file there, always before it reports a number. So a sum never falls: the
counts of a dead worker stay, and the worker that replaces it goes on counting from them.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from dragoman.accounts.grants import Holder
from dragoman.gateway.access.auth import PEER
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.telemetry.metrics import Counts, Metrics

ASK_S = 2.0  # a worker that is busy for longer is left out
SAVE_S = 1.0
MOST_BYTES = 64 * 1024 * 1024
Handle = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Question(Struct):
    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""


class PeerAnswer(Struct):
    status: int
    headers: dict[str, str]
    body: bytes


class Peers:
    def __init__(self, folder: Path, number: int, count: int) -> None:
        self.folder, self.number, self.count = folder, number, count
        self._server: asyncio.Server | None = None
        self._saver: asyncio.Task[None] | None = None
        self._saved = b""

    async def start(self, handle: Handle, metrics: Metrics) -> None:
        """Counts on from where the worker before this one stopped."""
        self._metrics = metrics
        with suppress(OSError, msgspec.DecodeError):
            metrics.add(msgspec.json.decode(self._file.read_bytes(), type=Counts))
        path = self.folder / f"{self.number}.sock"
        path.unlink(missing_ok=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                await answer(reader, writer, handle, PEER)
            writer.close()

        self._server = await asyncio.start_unix_server(serve, path)
        self._saver = asyncio.create_task(self._keep_saving())

    async def ask_all(self, http: HttpRequest) -> list[PeerAnswer]:
        """What the other workers say to a request; those that are starting or gone say nothing."""
        if http.client == PEER:
            return []  # another worker asks, and adds up the answers itself
        headers = {name: value for name, value in http.headers.items() if name == "accept"}
        question = Question(http.method, http.path, http.query, headers)
        others = [number for number in range(self.count) if number != self.number]
        found = await asyncio.gather(*(self._ask(number, question) for number in others), return_exceptions=True)
        return [answer for answer in found if isinstance(answer, PeerAnswer)]

    def save(self) -> None:
        """A file is always whole: it gets its name when it is written."""
        data = msgspec.json.encode(self._metrics.dump())
        if data != self._saved:
            draft = self._file.with_suffix(".new")
            draft.write_bytes(data)
            os.replace(draft, self._file)
            self._saved = data

    def dead_counts(self, alive: set[int]) -> list[Counts]:
        """The last saved counters of workers that did not answer."""
        found = []
        for number in range(self.count):
            if number not in alive and number != self.number:
                with suppress(OSError, msgspec.DecodeError):
                    found.append(msgspec.json.decode((self.folder / f"{number}.counts").read_bytes(), type=Counts))
        return found

    async def close(self) -> None:
        if self._saver is not None:
            self._saver.cancel()
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            self.save()

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.number}.counts"

    async def _keep_saving(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            with suppress(OSError):
                self.save()

    async def _ask(self, number: int, question: Question) -> PeerAnswer:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_unix_connection(self.folder / f"{number}.sock", limit=MOST_BYTES)
            try:
                writer.write(msgspec.json.encode(question) + b"\n")
                return msgspec.json.decode(await reader.readline(), type=PeerAnswer)
            finally:
                writer.close()


async def answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handle: Handle,
    client: str,
    holder: Holder | None = None,
) -> None:
    """Reads one Question and writes its PeerAnswer, each a line of JSON."""
    question = msgspec.json.decode(await reader.readline(), type=Question)
    headers = {"host": "localhost", **question.headers}
    http = HttpRequest(
        question.method, question.path, query=question.query, headers=headers, client=client, body=question.body
    )
    http.holder = holder
    response = await handle(http)
    writer.write(msgspec.json.encode(PeerAnswer(response.status, response.headers, response.body)) + b"\n")
    await writer.drain()
