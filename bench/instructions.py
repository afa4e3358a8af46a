"""Instructions of one request, ours and raw's, without sockets: the same on a busy machine. Needs valgrind.

    python bench/instructions.py [--only WORD] [--pieces 4]      # counted by cachegrind: the difference of two runs
    python bench/instructions.py --cpu                           # processor time instead, in rounds that take turns

Both sides have their own connections, whose transports are stand-ins: a client's request is given to one, the answer
comes in pieces of so many events, each in its own turn of the loop. What the kernel does is not counted.
"""

import argparse
import asyncio
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import raw
import servers
from gateway import Case, make_cases

FEW, MANY = 20, 60  # requests of the two runs
WARM = 10
STREAMED = re.compile(rb'"stream": ?true')
ROUNDS = 15


class Far:
    """The transport of a connection to a provider: what is written to it is answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any, pieces: int) -> None:
        self.loop, self.protocol, self.pieces = loop, protocol, pieces
        self.asked = b""
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.asked += data
        head, _, body = self.asked.partition(b"\r\n\r\n")
        size = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
        if len(body) < size:
            return
        self.asked = b""
        streamed = STREAMED.search(body) is not None or b"stream" in head[:80].lower()
        found = ANSWERS[servers.find_spoken(head[:80].lower())]
        if streamed:
            chunks = found.chunks
            self.loop.call_soon(self.go_on, iter([chunks[0] + chunks[1], *chunks[2:]]))
        else:
            self.loop.call_soon(self.protocol.data_received, found.whole)

    def go_on(self, chunks: Any) -> None:
        chunk = next(chunks, None)
        if chunk is not None:
            self.protocol.data_received(chunk)
            self.loop.call_soon(self.go_on, chunks)

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...

    close = pause_reading = resume_reading = abort


class Near(Far):
    """The transport of a client's connection: it waits for the end of the answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.wrote = b""
        self.streamed = False
        super().__init__(loop, protocol, 0)

    async def ask(self, data: bytes, *, streamed: bool) -> bytes:
        self.done, self.wrote, self.streamed = self.loop.create_future(), b"", streamed
        self.protocol.data_received(data)
        await self.done
        return self.wrote

    def write(self, data: bytes) -> None:
        if not self.wrote:
            if data[:12] != b"HTTP/1.1 200":
                raise RuntimeError(data.decode())
            self.wrote = data
        if not self.streamed or data[-5:] == b"0\r\n\r\n":
            self.done.set_result(None)

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, *_: Any, **__: Any) -> None: ...


ANSWERS: dict[str, servers.Answers] = {}


def make_answers(pieces: int) -> None:
    def grouped(answers: servers.Answers, frames: list[bytes]) -> servers.Answers:
        joined = [b"".join(frames[i : i + pieces]) for i in range(0, len(frames), pieces)]
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in joined]
        return servers.Answers(answers.whole, [answers.chunks[0], *chunks, b"0\r\n\r\n"])

    ANSWERS["openai_chat"] = grouped(
        servers.make_answers(servers.chat_reply(), servers.chat_frames()), servers.chat_frames()
    )
    for name in servers.DIALECTS[1:]:
        whole, frames = servers.other_answers(name)
        kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"
        ANSWERS[name] = grouped(servers.make_answers(whole, frames, kind), frames)


def open_raw(loop: asyncio.AbstractEventLoop) -> Near:
    upstreams = raw.Upstreams(0, loop)
    for _ in range(2):
        one = raw.Upstream(upstreams)
        Far(loop, one, 4)
        upstreams.idle.append(one)
    return Near(loop, raw.Server(upstreams))


def open_ours(loop: asyncio.AbstractEventLoop) -> Near:
    import logging

    from dragoman.gateway.access.auth import Access
    from dragoman.gateway.access.client_keys import ClientKeys
    from dragoman.gateway.app import App
    from dragoman.gateway.client_connection import ClientConnection, OpenConnections
    from dragoman.gateway.config.load import load_settings
    from dragoman.gateway.state import Gateway
    from dragoman.gateway.telemetry.log import Log
    from dragoman.upstream import transport
    from dragoman.upstream.http.connection import HttpConnection

    folder = Path(tempfile.mkdtemp(prefix="dragoman-instructions-"))
    atexit.register(shutil.rmtree, folder)
    config = folder / "dragoman.toml"
    config.write_text(servers.make_config(9))
    config.chmod(0o600)
    logging.getLogger("dragoman").setLevel(logging.WARNING)

    async def dial(self: Any, *_: Any) -> HttpConnection:
        connection = HttpConnection(loop)
        Far(loop, connection, 4)
        return connection

    transport.Transport._dial = dial  # type: ignore[method-assign]
    app = App(Gateway(load_settings(config, {}), Access(ClientKeys(None, ())), log=Log("json")))
    return Near(loop, ClientConnection(app, OpenConnections()))


async def serve(case: Case, sides: dict[str, Any], count: int) -> dict[str, float]:
    loop, used = asyncio.get_running_loop(), {}
    request, streamed = case.request(), case.streamed
    for name, side in sides.items():
        near = side if isinstance(side, Near) else side(loop)
        sides[name] = near
        data = [request.next() for _ in range(count)]
        started = time.process_time()
        for one in data:
            await near.ask(one, streamed=streamed)
        used[name] = (time.process_time() - started) / count * 1e6
    return used


OPEN = {"raw": open_raw, "ours": open_ours}


async def run_child(case: Case, side: str, count: int) -> None:
    await serve(case, {side: OPEN[side]}, WARM + count)


async def compare_cpu(case: Case) -> tuple[float, float, float]:
    sides: dict[str, Any] = dict(OPEN)
    await serve(case, sides, WARM)
    rounds = [await serve(case, sides, 15) for _ in range(ROUNDS)]
    rows = [(one["raw"], one["ours"]) for one in rounds]
    return min(r for r, _ in rows), min(o for _, o in rows), median(o / r for r, o in rows)


def count(case: Case, side: str, pieces: int) -> float:
    found = []
    for requests in (FEW, MANY):
        words = [sys.executable, __file__, "--child", case.name, side, str(requests), "--pieces", str(pieces)]
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        done = subprocess.run([*tool, *words], capture_output=True, text=True, env=servers_env())
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        found.append(int(re.findall(r"I\s+refs:\s+([\d,]+)", done.stderr)[0].replace(",", "")))
    return (found[1] - found[0]) / (MANY - FEW)


def servers_env() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(servers.ROOT / "src"), "DRAGOMAN_NO_PROBE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--pieces", type=int, default=4, help="events that come together")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--child", nargs=3)
    args = parser.parse_args()
    make_answers(args.pieces)
    cases = [case for case in make_cases() if args.only in case.name]
    if args.child:
        name, side, requests = args.child
        case = next(case for case in make_cases() if case.name == name)
        servers.run(run_child(case, side, int(requests)))
        return
    for case in cases:
        if args.cpu:
            base, ours, ratio = servers.run(compare_cpu(case))
            print(f"{case.name:40}{base:10.0f}{ours:10.0f} us {ratio:8.2f} times raw", flush=True)
        else:
            base, ours = (count(case, side, args.pieces) / 1000 for side in OPEN)
            print(f"{case.name:40}{base:10,.0f}{ours:10,.0f} thousand {ours / base:8.2f} times raw", flush=True)


if __name__ == "__main__":
    main()
