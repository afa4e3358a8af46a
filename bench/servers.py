"""The servers of the bench and how they are driven: a provider, raw, B, dragoman, and the load.

    python bench/servers.py provide PORT | raw PORT PROVIDER | relay PORT PROVIDER | quiet ...     (as children)

Load generator and provider are processes of their own, on the first core; the measured servers are on the second, where
there are two. A server's cost is the processor time of its own threads.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import raw
from samples import anthropic_request

ROOT = Path(__file__).parent.parent
EVENTS = 200
SLOW = b"say it slowly"  # a question whose answer comes event by event, at the pace that its `user` says
MARK = b"#0000000"  # in a body: becomes another number in each request, so that none is known from before
DIALECTS = ("openai_chat", "anthropic", "openai_responses", "gemini", "ollama")
LARGE_BYTES = 300_000
TICKS = 10  # in which the provider's slow streams take turns


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# ---------------------------------------------------------------- the provider


def chat_reply() -> bytes:
    message = {"role": "assistant", "content": "All good. " * 20, "refusal": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }
    ).encode()


def chat_chunk(delta: Any, finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def chat_frames() -> list[bytes]:
    words = [chat_chunk({"content": f"word{i} "}) for i in range(EVENTS)]
    usage = {"prompt_tokens": 100, "completion_tokens": EVENTS, "total_tokens": 100 + EVENTS}
    last = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": usage,
    }
    end = [chat_chunk({}, "stop"), b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n"]
    return [chat_chunk({"role": "assistant", "content": ""}), *words, *end]


def other_answers(name: str) -> tuple[bytes, list[bytes]]:
    """The same answer in another dialect: whole, and its frames."""
    from dragoman.dialects import find_dialect
    from dragoman.jsontypes import dump_json
    from dragoman.model.events import PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
    from dragoman.model.fold import fold
    from dragoman.model.messages import Text
    from dragoman.model.reply import Finish, Reply, Usage
    from dragoman.notes import Notes

    dialect, usage = find_dialect(name), Usage(input=100, output=EVENTS)
    prefix = dialect.reply_id_prefix
    start = [ReplyStart(id=f"{prefix}1", model=name, created=1), PartStart(index=0, part=Text(text=""))]
    end = [PartEnd(index=0), ReplyEnd(finishes=(Finish(reason="stop"),), usage=usage)]
    events = [*start, *[PartDelta(index=0, text=f"word{i} ") for i in range(EVENTS)], *end]
    encoder = dialect.stream_encoder(Notes(), None)
    frames = [frame for frame in [encoder.feed([event]) for event in events] + [encoder.close()] if frame]
    whole = fold([*start, PartDelta(index=0, text="All good. " * 20), *end])
    assert isinstance(whole, Reply)
    return dump_json(dialect.encode_reply(whole, Notes(), None).body), frames


class Answers(NamedTuple):
    whole: bytes
    chunks: list[bytes]  # of a stream: its head, and four events in each


def make_answers(whole: bytes, frames: list[bytes], kind: str = "text/event-stream") -> Answers:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole)
    pieces = [b"".join(frames[i : i + 4]) for i in range(0, len(frames), 4)]
    start = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return Answers(head + whole, [start, *[b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces], b"0\r\n\r\n"])


class Provider(asyncio.Protocol):
    """As little as possible of its own. All connections share the answers, and one clock for all slow streams."""

    answers: dict[str, Answers]
    slow: list[list["Provider"]]
    sent = late = 0  # events of slow streams, and seconds that the clock was late

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.transport, self.data = loop, None, b""
        self.pieces: list[bytes] = []  # of a long body
        self.missing = 0
        self.group: list[Provider] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.group is not None:
            self.group.remove(self)

    def data_received(self, data: bytes) -> None:
        if self.missing > len(data):
            self.pieces.append(data)
            self.missing -= len(data)
            return
        if self.pieces:
            data, self.pieces, self.missing = b"".join([*self.pieces, data]), [], 0
        self.data = self.data + data if self.data else data
        cut = self.data.find(b"\r\n\r\n")
        if cut < 0:
            return
        head = self.data[:cut].lower()
        at = head.find(b"content-length: ")
        if at >= 0:
            end = head.find(b"\r\n", at)
            size = int(head[at + 16 : end if end >= 0 else None])
            if len(self.data) < cut + 4 + size:
                self.missing = cut + 4 + size - len(self.data)
                self.pieces, self.data = [self.data], b""
                return
        elif b"chunked" in head and not self.data.endswith(b"0\r\n\r\n"):
            return
        body, self.data = self.data[cut + 4 :], b""
        self.answer(head[: head.find(b" http/")], body)

    def answer(self, line: bytes, body: bytes) -> None:
        write = self.transport.write  # type: ignore[attr-defined]
        if line.startswith(b"get "):
            said = json.dumps({"sent": Provider.sent, "late": Provider.late}).encode()
            write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
            return
        found = self.answers[find_spoken(line)]
        small = body if len(body) < LARGE_BYTES else body[:1000]  # `in` looks at each byte
        streamed = b'"stream":true' in small or b'"stream": true' in small or b"stream" in line
        if line.endswith(b"/api/chat"):
            streamed = b'"stream":false' not in small and b'"stream": false' not in small
        if not streamed:
            write(found.whole)
        elif SLOW in small:
            write(found.chunks[0] + found.chunks[1])
            self.group = min(self.slow, key=len)
            self.group.append(self)
        else:
            self.write_on(iter(found.chunks))

    def write_on(self, chunks: Iterator[bytes]) -> None:
        """Each chunk by itself, as a server writes them."""
        chunk = next(chunks, None)
        if chunk is not None:
            self.transport.write(chunk)  # type: ignore[attr-defined]
            self.loop.call_soon(self.write_on, chunks)


def find_spoken(line: bytes) -> str:
    for word, name in (
        (b"chat/completions", "openai_chat"),
        (b"messages", "anthropic"),
        (b"responses", "openai_responses"),
    ):
        if word in line:
            return name
    return "ollama" if b"/api/" in line else "gemini"


async def provide(port: int, pace: float) -> None:
    loop = asyncio.get_running_loop()
    Provider.answers = {"openai_chat": make_answers(chat_reply(), chat_frames())}
    for name in DIALECTS[1:]:
        kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"
        Provider.answers[name] = make_answers(*other_answers(name), kind)
    Provider.slow = [[] for _ in range(TICKS)]
    server = await loop.create_server(lambda: Provider(loop), "127.0.0.1", port, backlog=4096)
    event = chat_chunk({"content": "word "})
    chunk, number, due = b"%x\r\n%b\r\n" % (len(event), event), 0, loop.time()
    while server.is_serving():  # each slow stream has `pace` events a second
        number, due = (number + 1) % TICKS, due + 1 / pace / TICKS
        for one in Provider.slow[number]:
            one.transport.write(chunk)  # type: ignore[attr-defined]
        Provider.sent += len(Provider.slow[number])
        Provider.late = round(max(loop.time() - due, 0.0), 3)
        await asyncio.sleep(max(due - loop.time(), 0))


# ---------------------------------------------------------------- B


def relay(port: int, upstream: str) -> None:
    """B: what raw does, between uvicorn and aiohttp."""
    import aiohttp
    import uvicorn

    sessions: list[aiohttp.ClientSession] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        value = raw.load(body)
        way = raw.find_way(scope["path"], value["model"])
        request, answer, events = raw.WAYS[way]
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False))
        headers = {"content-type": "application/json", "authorization": "Bearer x"}
        async with sessions[0].post(upstream + way[1], data=raw.dump(request(value)), headers=headers) as response:
            if not value.get("stream"):
                data = raw.dump(answer(raw.load(await response.read())))
                head = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": data})
                return
            head = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            feed = events()
            async for piece in response.content.iter_any():
                if out := feed(piece):
                    await send({"type": "http.response.body", "body": out, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    uvicorn.run(
        app, host="127.0.0.1", port=port, http="httptools", loop="uvloop", access_log=False, log_level="critical"
    )


# ---------------------------------------------------------------- dragoman


def make_config(provider: int, more: str = "", upstreams: int = len(DIALECTS)) -> str:
    """An upstream of each dialect, with one model that is called as its dialect; Chat's is `m`."""
    lines: list[str] = []
    for name in DIALECTS[:upstreams]:
        version = "" if name in ("gemini", "ollama", "anthropic") else "/v1"
        model = "m" if name == "openai_chat" else name
        lines += [f"[providers.far-{name.replace('_', '-')}]", 'kind = "vllm"', f'dialect = "{name}"']
        lines += [
            f'base_url = "http://127.0.0.1:{provider}{version}"',
            'api_key = "bench-key"',
            f'models = ["{model}"]',
        ]
    return "\n".join([*lines, more, ""])


class Served(NamedTuple):
    pid: int
    port: int
    ready_s: float = 0.0
    used_s: float = 0.0  # processor time until it was ready


class House:
    """All servers of one run. They end with it."""

    def __init__(self) -> None:
        base = Path("/dev/shm" if Path("/dev/shm").is_dir() else ".")  # noqa: S108
        self.folder = base / f"dragoman-bench-{os.getpid()}"
        self.folder.mkdir()
        self.load_core, self.server_core = cores()
        self.children: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "DRAGOMAN_NO_PROBE": "1", "PYTHONPATH": str(ROOT / "src")}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # as at a user's: only the first start compiles
        self.env["PYTHONPYCACHEPREFIX"] = str(self.folder / "bytecode")
        self.provider = 0

    def start_provider(self, pace: float = 20.0) -> None:
        self.provider = free_port()
        self._start(["provide", str(self.provider), str(pace)], self.load_core)
        wait_for(self.provider)

    def start_raw(self) -> Served:
        return self._serve("raw", str(self.provider))

    def start_relay(self) -> Served:
        return self._serve("relay", f"http://127.0.0.1:{self.provider}")

    def _serve(self, kind: str, upstream: str) -> Served:
        port = free_port()
        child = self._start([kind, str(port), upstream], self.server_core)
        wait_for(port)
        return Served(child.pid, port)

    def _start(self, words: list[str], core: Callable[[], None] | None) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen([sys.executable, __file__, *words], env=self.env, preexec_fn=core)
        self.children.append(child)
        return child

    def start_gateway(
        self,
        *words: str,
        more: str = "",
        head: str = "",
        quiet: bool = False,
        pinned: bool = True,
        upstreams: int = len(DIALECTS),
    ) -> Served:
        """`head`, `more`: of its configuration, before and behind the upstreams. `quiet`: without a line in the log for
        each request. `pinned`: on the servers' core."""
        port, folder = free_port(), self.folder / str(len(self.children))
        folder.mkdir()
        config = folder / "dragoman.toml"
        config.write_text(head + make_config(self.provider, more, upstreams))
        config.chmod(0o600)
        program = [__file__, "quiet"] if quiet else ["-m", "dragoman"]
        command = [sys.executable, *program, "serve", "--config", str(config), "--port", str(port), *words]
        began = time.perf_counter()
        child = subprocess.Popen(
            command,
            env={**self.env, "DRAGOMAN_HOME": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self.server_core if pinned else None,
        )
        self.children.append(child)
        wait_for(port)
        return Served(child.pid, port, time.perf_counter() - began, cpu_s(child.pid))

    def stop(self, served: Served) -> None:
        for child in self.children:
            if child.pid == served.pid and child.poll() is None:
                child.send_signal(signal.SIGTERM)
                child.wait()

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.folder)


@contextmanager
def open_house(pace: float = 20.0) -> Iterator[House]:
    house = House()
    try:
        house.start_provider(pace)
        house.load_core()
        yield house
    finally:
        house.close()


def cores() -> tuple[Callable[[], None], Callable[[], None]]:
    """How a process goes to the core of the load, and to that of the servers."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return (lambda: None), (lambda: None)
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return (lambda: os.sched_setaffinity(0, {first})), (lambda: os.sched_setaffinity(0, {second}))


def wait_for(port: int) -> None:
    for _ in range(1500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError("a server did not start")


# ---------------------------------------------------------------- what a process used


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond where the kernel tells: a tick of /proc/PID/stat is a hundredth."""
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers_of(pid: int) -> list[int]:
    return [int(worker) for worker in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def used_s(pid: int) -> float:
    """Of a process and its workers."""
    return cpu_s(pid) + sum(cpu_s(worker) for worker in workers_of(pid))


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# ---------------------------------------------------------------- the load

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:{verb}",
    "ollama": "/api/chat",
}


def path_of(dialect: str, model: str, *, stream: bool) -> str:
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return PATHS[dialect].format(model=model, verb=verb)


def small_body(model: str, *, stream: bool = False) -> bytes:
    """A Chat request of one turn."""
    text = MARK.decode() + " Please have a look at this file and tell me what it does, in a few words. " * 4
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}]}
    if stream:
        body["stream"] = True
    return json.dumps(body).encode()


def agent_body(turns: int, words: int, *, stream: bool = False) -> bytes:
    """An Anthropic request of an agent with ten tools, for the model `m`."""
    body = json.loads(anthropic_request(turns, words, 10))
    system = [{"type": "text", "text": MARK.decode()}, *body.pop("system")]
    body = {"system": system, **body, "model": "m"}
    if not stream:
        del body["stream"]
    return json.dumps(body, separators=(",", ":")).encode()


def converted(dialect: str, model: str, *, stream: bool) -> bytes:
    """The small agent's request in any dialect."""
    from dragoman import convert
    from dragoman.jsontypes import dump_json

    body = json.loads(agent_body(20, 45, stream=stream))
    body["model"] = model
    for block in body["system"]:
        block.pop("cache_control", None)
    made = body if dialect == "anthropic" else convert(body, source="anthropic", to=dialect).body
    if dialect == "gemini":
        made.pop("model", None)
    elif stream or dialect == "ollama":
        made["stream"] = stream
    return dump_json(made)


class Request:
    """One that is sent again and again. With `fresh`, each has another number where MARK stands."""

    def __init__(self, path: str, body: bytes, headers: str = "", *, fresh: bool = False) -> None:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
        self.data = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self._at = self.data.find(MARK) if fresh else -1
        self._number = 0

    def next(self) -> bytes:
        if self._at < 0:
            return self.data
        self._number += 1
        return b"%b#%07d%b" % (self.data[: self._at], self._number, self.data[self._at + len(MARK) :])


async def read_answer(reader: asyncio.StreamReader) -> bool:
    """Whether the connection may be used again."""
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError((answer + await reader.read(500)).decode())
    lower = answer.lower()
    keeps = b"connection: close" not in lower
    if b"content-length: " in lower:
        at = lower.index(b"content-length: ") + 16
        await reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        return keeps
    if b"chunked" not in lower:
        await reader.read()
        return False
    while (size := int(await reader.readline(), 16)) > 0:
        await reader.readexactly(size + 2)
    await reader.readline()
    return keeps


async def load(port: int, request: Request, connections: int, seconds: float) -> list[float]:
    """As fast as the server answers, on so many connections; how long each request took."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(request.next())
            keeps = await read_answer(reader)
            times.append(time.perf_counter() - began)
            if not keeps:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return times


def run(main: Any) -> Any:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def measure(served: Served, request: Request, connections: int, seconds: float) -> float:
    """Microseconds of processor time for one request."""
    run(load(served.port, request, connections, 0.1))
    before = used_s(served.pid)
    times = run(load(served.port, request, connections, seconds))
    return (used_s(served.pid) - before) / len(times) * 1e6


def ratios_of(ours: list[float], base: list[float]) -> list[float]:
    """Of the rounds, from the lowest to the highest."""
    return sorted(one / other for one, other in zip(ours, base, strict=False))


def main(words: list[str]) -> None:
    match words:
        case ["provide", port, pace]:
            run(provide(int(port), float(pace)))
        case ["raw", port, provider]:
            run(raw.serve(int(port), int(provider)))
        case ["relay", port, upstream]:
            relay(int(port), upstream)
        case ["quiet", *rest]:
            import logging

            from dragoman.cli import main as serve

            logging.getLogger("dragoman.gateway.scope").setLevel(logging.WARNING)
            raise SystemExit(serve(rest))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(sys.argv[1:])
