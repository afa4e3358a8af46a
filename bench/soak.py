"""A long run of mixed requests: does the gateway's memory stay where it was? (RELIABILITY F54, G8)

    python bench/soak.py [--requests 100000] [--connections 64] [--seed 1]

Of the requests 40 % are whole, 40 % streamed, 10 % streamed and left at a random moment, 5 % meet a 429 with a hint,
3 % a 500 or a reset connection, and 2 % are no request at all; five doors, five upstream dialects, each with each. The
gateway's memory, open files, tasks and collections are read from its own /metrics. The run fails when memory grows by
more than 1 MB in 100,000 requests after the first half, or when files or tasks do not come back.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "vllm", "openai_responses": "openai", "anthropic": "anthropic"}
MIX = {"whole": 40, "stream": 40, "left": 10, "limited": 5, "failed": 2, "reset": 1, "wrong": 2}
WORDS = 40
KEYS = [f"soak-key-{i}" for i in range(8)]  # while one rests, the others are used
SLOPE_MB = 1.0  # in 100,000 requests
REST_S = 90
BACK = 2  # files and tasks may differ from the beginning by so many


# ---------------------------------------------------------------- the upstream: every dialect at one address


def replies() -> dict[str, tuple[bytes, bytes, str]]:
    """For each dialect a whole answer, a streamed one and the type of its stream."""
    from dragoman.dialects import find_dialect
    from dragoman.jsontypes import dump_json
    from dragoman.model.fold import unfold
    from dragoman.model.messages import Text
    from dragoman.model.reply import Choice, Finish, Reply, Usage
    from dragoman.notes import Notes

    text = Text(text=" ".join(f"word{i}" for i in range(WORDS)))
    choice = Choice(parts=(text,), finish=Finish(reason="stop"))
    reply = Reply(id="r1", model="m", choices=(choice,), usage=Usage(input=10, output=WORDS), created=1.0)
    found = {}
    for name in DIALECTS:
        dialect = find_dialect(name)
        whole = dump_json(dialect.encode_reply(reply, Notes(), None).body)
        encoder = dialect.stream_encoder(Notes(), None)
        frames = [encoder.feed(word_by_word(event)) for event in unfold(reply)] + [encoder.close()]
        found[name] = (whole, b"".join(frames), dialect.media_type)
    return found


def word_by_word(event: Any) -> list[Any]:
    text = getattr(event, "text", None)
    words = text.split(" ") if isinstance(text, str) else []
    return [replace(event, text=f"{word} ") for word in words] or [event]


def dialect_of(path: str) -> str:
    marks = {"/chat/completions": "openai_chat", "/responses": "openai_responses", "/messages": "anthropic"}
    found = next((name for mark, name in marks.items() if path.startswith(f"/v1{mark}")), None)
    return found or ("gemini" if ":" in path else "ollama")


async def provide(port: int) -> None:
    table = replies()

    def head(status: int, kind: str, more: str = "") -> bytes:
        return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}\r\n".encode()

    async def answer(path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        whole, stream, kind = table[dialect_of(path)]
        status = 429 if b"meet limited" in body else 500 if b"meet failed" in body else 200
        if b"meet reset" in body:
            handle: socket.socket = writer.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if status != 200:
            said = b'{"error": {"message": "not now", "type": "overloaded_error"}}'
            writer.write(
                head(status, "application/json", f"retry-after-ms: 20\r\ncontent-length: {len(said)}\r\n") + said
            )
        elif ":streamGenerateContent" in path or re.search(rb'"stream": ?true', body):
            writer.write(head(200, kind, "transfer-encoding: chunked\r\n"))
            for at in range(0, len(stream), 300):
                if writer.is_closing():
                    return False
                piece = stream[at : at + 300]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(0.005 if b"meet left" in body else 0)
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(head(200, "application/json", f"content-length: {len(whole)}\r\n") + whole)
        await writer.drain()
        return True

    await serve_answers(port, answer)


async def serve_answers(port: int, answer: Callable[[str, bytes, asyncio.StreamWriter], Awaitable[bool]]) -> None:
    """An HTTP server. `answer` gets the path and the body of each request; False: the connection ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = re.search(r"content-length: (\d+)", request.lower())
                body = await reader.readexactly(int(size[1]) if size else 0)
                if not await answer(request.split(" ", 2)[1], body, writer):
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


# ---------------------------------------------------------------- the clients


def build(dice: random.Random, kind: str) -> tuple[str, bytes]:
    """A path and a body: any door to any upstream."""
    door, model = dice.choice(DIALECTS), f"model-{dice.choice(DIALECTS)}"
    text = f"Look at this, please. {'lorem ipsum ' * dice.randrange(1, 60)} meet {kind}"
    stream = kind in ("stream", "left") or (kind not in ("whole", "wrong") and dice.random() < 0.5)
    turns: list[Any] = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"model": model, "messages": turns, "stream": stream}
    match door:
        case "gemini":
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            path = f"/v1beta/models/{model}:{verb}"
            body = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        case "openai_responses":
            path, body = (
                "/v1/responses",
                {"model": model, "input": text, "stream": stream, "store": dice.random() < 0.2},
            )
        case "anthropic":
            path, body = "/v1/messages", {**body, "max_tokens": 100}
        case "ollama":
            path = "/api/chat"
        case _:
            path = "/v1/chat/completions"
    data = json.dumps(body).encode()
    return path, data if kind != "wrong" else dice.choice((b"{", b"[]", b'{"model": 3}', data[: len(data) // 2], b""))


class Client:
    def __init__(self, port: int, dice: random.Random, seen: Counter[str]) -> None:
        self._port, self._dice, self._seen = port, dice, seen
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self) -> None:
        kind = self._dice.choices(list(MIX), list(MIX.values()))[0]
        path, body = build(self._dice, kind)
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._reader, self._writer
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        leave = self._dice.randrange(0, 20) if kind == "left" else -1
        try:
            status, closed = await read_answer(reader, leave)
        except (asyncio.IncompleteReadError, ConnectionError):
            status, closed = "cut", True
        self._seen[f"{kind} {status}"] += 1
        if closed:
            writer.close()
            self._reader = self._writer = None


async def read_answer(reader: asyncio.StreamReader, leave: int) -> tuple[str, bool]:
    """Its status, and whether the connection is over; `leave` is after how many pieces to go."""
    if leave == 0:
        await asyncio.sleep(0.001)
        return "left", True
    head = await reader.readuntil(b"\r\n\r\n")
    status, lower = head.split(b" ", 2)[1].decode(), head.lower()
    closed = b"connection: close" in lower
    if found := re.search(rb"content-length: (\d+)", lower):
        await reader.readexactly(int(found[1]))
        return status, closed
    while (size := int(await reader.readline(), 16)) > 0:
        await reader.readexactly(size + 2)
        leave -= 1
        if leave == 0:
            return "left", True
    await reader.readline()
    return status, closed


# ---------------------------------------------------------------- the run


def look(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:  # noqa: S310
        text = response.read().decode()
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
    return {
        "rss": float(rows["process_resident_memory_bytes"]) / 1e6,
        "fds": float(rows["process_open_fds"]),
        "tasks": float(rows["dragoman_tasks"]),
        "running": float(rows["dragoman_running"]),
        "gc2": float(rows['python_gc_collections{generation="2"}']),
    }


def warm_up(url: str) -> None:
    """A response that is stored: its database has three files, from now on."""
    body = json.dumps({"model": f"model-{DIALECTS[0]}", "input": "hello"}).encode()
    request = urllib.request.Request(f"{url}/v1/responses", body, {"content-type": "application/json"})  # noqa: S310
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


async def soak(args: argparse.Namespace, port: int) -> list[tuple[int, dict[str, float]]]:
    url, seen, left = f"http://127.0.0.1:{port}", Counter[str](), args.requests
    samples: list[tuple[int, dict[str, float]]] = []
    step = max(1, args.requests // 20)
    began = time.monotonic()

    async def work(number: int) -> None:
        nonlocal left
        client = Client(port, random.Random(args.seed * 1000 + number), seen)  # noqa: S311
        while left > 0:
            left -= 1
            await client.ask()

    async def watch() -> None:
        at = step
        while at <= args.requests:
            if args.requests - left >= at:
                found = await asyncio.to_thread(look, url)
                samples.append((args.requests - left, found))
                print(line(args.requests - left, found, time.monotonic() - began), flush=True)
                at += step
            await asyncio.sleep(0.05)

    await asyncio.to_thread(warm_up, url)
    start = await asyncio.to_thread(look, url)
    print(line(0, start, 0.0), flush=True)
    watcher = asyncio.ensure_future(watch())
    await asyncio.gather(*(work(i) for i in range(args.connections)))
    await watcher
    for _ in range(REST_S):  # what was left ends, and connections nobody uses are closed
        await asyncio.sleep(1)
        end = await asyncio.to_thread(look, url)
        if end["fds"] - start["fds"] <= BACK:
            break
    print(line(args.requests, end, time.monotonic() - began, "after a rest"), flush=True)
    print("\nanswers:", ", ".join(f"{name}: {count}" for name, count in sorted(seen.items())))
    return [(0, start), *samples, (args.requests, end)]


def line(count: int, found: dict[str, float], seconds: float, words: str = "") -> str:
    numbers = f"{found['rss']:8.2f} MB {found['fds']:5.0f} files {found['tasks']:5.0f} tasks"
    return f"{count:>8} requests {seconds:7.1f} s {numbers} {found['gc2']:4.0f} full collections  {words}"


def judge(samples: list[tuple[int, dict[str, float]]]) -> int:
    """Memory by a straight line through the second half; files and tasks by the end."""
    (_, start), *middle, (total, end) = samples
    half = [(count, row["rss"]) for count, row in middle if count >= total / 2]
    mean_x = sum(x for x, _ in half) / len(half)
    mean_y = sum(y for _, y in half) / len(half)
    square = sum((x - mean_x) ** 2 for x, _ in half) or 1.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in half) / square * 100_000
    files, tasks = end["fds"] - start["fds"], end["tasks"] - start["tasks"]
    print(f"\nslope after the first half: {slope:+.2f} MB in 100,000 requests (goal: at most {SLOPE_MB})")
    print(f"at the end: files {files:+.0f}, tasks {tasks:+.0f} (goal: {BACK} more or less)")
    print(f"requests still running: {end['running']:.0f}")
    return int(slope > SLOPE_MB or files > BACK or tasks > BACK or end["running"] > 0)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def configure(folder: Path, upstream: str) -> Path:
    rows = []
    for name in DIALECTS:
        tail = "/v1" if KINDS.get(name) == "vllm" else ""
        row = [f"[providers.{name}]", f'kind = "{KINDS.get(name, name)}"', f'dialect = "{name}"']
        rows += [*row, f'base_url = "{upstream}{tail}"', f"api_keys = {KEYS}", f'models = ["model-{name}"]', ""]
    file = folder / "dragoman.toml"
    file.write_text("store = 500\n" + "\n".join(rows))
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        asyncio.run(provide(args.child))
        return 0
    provider_port, port = free_port(), free_port()
    with TemporaryDirectory(prefix="dragoman-soak-") as folder:
        config = configure(Path(folder), f"http://127.0.0.1:{provider_port}")
        env = {**os.environ, "DRAGOMAN_HOME": folder, "DRAGOMAN_NO_PROBE": "1", "PYTHONPATH": str(ROOT / "src")}
        gateway = [sys.executable, "-m", "dragoman", "serve", "--config", str(config), "--port", str(port)]
        children = [
            subprocess.Popen([sys.executable, __file__, "--child", str(provider_port)], env=env),
            subprocess.Popen(gateway, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        ]
        try:
            for each in (provider_port, port):
                wait_for(each)
            return judge(asyncio.run(soak(args, port)))
        finally:
            for child in children:
                child.kill()
                child.wait()


def wait_for(port: int) -> None:
    for _ in range(1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError("a server did not start")


if __name__ == "__main__":
    raise SystemExit(main())
