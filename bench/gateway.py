"""The gateway against a bare relay, in one run: CPU time per request and per streamed event.

    python bench/gateway.py [--rounds 5] [--seconds 1] [--connections 32] [--only NAME] [--streams 500]

"B" is uvicorn + aiohttp that parses and encodes every body and every event once and does nothing else. A server's cost
is the processor time of its own threads; load generator and provider are other processes, on the other core where there
is one. Rounds of B and of dragoman take turns, and the ratio is the median of theirs: what else the machine does, it
does to both.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
EVENTS = 200
SLOW = b"say it slowly"  # a question whose answer begins and does not end
TOOLS = [
    {
        "name": f"tool_{i}",
        "description": "Reads a file and returns its contents with line numbers, starting at an offset." * 2,
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "An absolute path"},
                "offset": {"type": "integer", "minimum": 0},
                "limit": {"type": "integer"},
            },
            "required": ["path"],
        },
    }
    for i in range(12)
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# ---------------------------------------------------------------- the provider and the relay (children)


def chat_reply() -> bytes:
    message = {"role": "assistant", "content": "All good. " * 20}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
    ).encode()


def chat_stream() -> bytes:
    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    words = b"".join(chunk({"content": f"word{i} "}) for i in range(EVENTS))
    return chunk({"role": "assistant", "content": ""}) + words + chunk({}, "stop") + b"data: [DONE]\n\n"


async def provide(port: int) -> None:
    """A provider in raw asyncio: as little as possible of its own."""
    whole, frames = chat_reply(), chat_stream().split(b"\n\n")[:-1]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole)
    stream_head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = [b"".join(f + b"\n\n" for f in frames[i : i + 4]) for i in range(0, len(frames), 4)]
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                body = await read_body(reader, request.lower())
                if b'"stream":true' in body or b'"stream": true' in body:
                    writer.write(stream_head)
                    if SLOW in body:
                        writer.write(chunks[0])
                        await reader.read()  # until the gateway hangs up
                        return
                    for chunk in chunks:
                        writer.write(chunk)
                        await asyncio.sleep(0)
                    writer.write(b"0\r\n\r\n")
                else:
                    writer.write(head + whole)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


async def read_body(reader: asyncio.StreamReader, lower: bytes) -> bytes:
    if b"content-length: " in lower:
        at = lower.index(b"content-length: ") + 16
        return await reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
    body = b""
    while b"chunked" in lower and (size := int(await reader.readline(), 16)) > 0:
        body += (await reader.readexactly(size + 2))[:-2]
    if b"chunked" in lower:
        await reader.readline()
    return body


def relay(port: int, upstream: str) -> None:
    """B: parse and encode once each way, nothing else."""
    import aiohttp
    import msgspec
    import uvicorn

    load, dump = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    sessions: list[aiohttp.ClientSession] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        value = load(body)
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False))
        headers = {"content-type": "application/json", "authorization": "Bearer x"}
        async with sessions[0].post(upstream + "/v1/chat/completions", data=dump(value), headers=headers) as response:
            if not value.get("stream"):
                data = dump(load(await response.read()))
                head = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": data})
                return
            head = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            rest = b""
            async for piece in response.content.iter_any():
                *frames, rest = (rest + piece).split(b"\n\n")
                out = [
                    b"data: " + dump(load(frame[6:])) + b"\n\n" if frame[6:7] == b"{" else frame + b"\n\n"
                    for frame in frames
                ]
                await send({"type": "http.response.body", "body": b"".join(out), "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    uvicorn.run(
        app, host="127.0.0.1", port=port, http="httptools", loop="uvloop", access_log=False, log_level="critical"
    )


# ---------------------------------------------------------------- the load


def requests(dialect: str, *, stream: bool, turns: int, tools: bool, model: str) -> bytes:
    text = "Please have a look at this file and tell me what it does, in a few words. " * 4
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"{i} {text}"} for i in range(turns | 1)]
    body: dict[str, Any] = {"model": model, "messages": messages}
    if dialect == "anthropic":
        body["max_tokens"] = 1000
        body["system"] = "You are a careful assistant. " * 20
        if tools:
            body["tools"] = [
                {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in TOOLS
            ]
    elif tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in TOOLS]
    if stream:
        body["stream"] = True
    return json.dumps(body).encode()


async def load(
    port: int, path: str, body: bytes, connections: int, seconds: float, headers: str = ""
) -> tuple[int, list[float]]:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError((answer + await reader.read(500)).decode())
            lower = answer.lower()
            if b"content-length: " in lower:
                at = lower.index(b"content-length: ") + 16
                await reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
            else:
                while (size := int(await reader.readline(), 16)) > 0:
                    await reader.readexactly(size + 2)
                await reader.readline()
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return len(times), times


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond where the kernel tells: a tick of /proc/PID/stat is a hundredth."""
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def wait_for(port: int) -> None:
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError("a server did not start")


CASES = [
    # name, dialect, path, stream, turns, tools, model
    ("same dialect, 1 turn", "openai_chat", "/v1/chat/completions", False, 1, False, "m"),
    ("same dialect, tools, 20 turns", "openai_chat", "/v1/chat/completions", False, 20, True, "m"),
    ("anthropic -> chat, 1 turn", "anthropic", "/v1/messages", False, 1, False, "m"),
    ("anthropic -> chat, tools, 20 turns", "anthropic", "/v1/messages", False, 20, True, "m"),
    ("same dialect, stream", "openai_chat", "/v1/chat/completions", True, 1, False, "m"),
    ("anthropic -> chat, stream", "anthropic", "/v1/messages", True, 1, False, "m"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", default="")
    parser.add_argument("--streams", type=int, default=500, help="slow streams at once, for their memory")
    parser.add_argument("--peers", action="store_true", help="compare with LiteLLM and Portkey instead (peers.py)")
    parser.add_argument("--write", action="store_true", help="with --peers: write docs/speed.md")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_child(args.child)
        return 0
    provider_port, relay_port, gateway_port = free_port(), free_port(), free_port()
    upstream = f"http://127.0.0.1:{provider_port}"
    state = Path("/dev/shm" if Path("/dev/shm").is_dir() else ".") / f"dragoman-bench-{os.getpid()}"  # noqa: S108
    state.mkdir()
    config = state / "dragoman.toml"
    lines = ["[providers.far]", 'kind = "vllm"', 'dialect = "openai_chat"', f'base_url = "{upstream}/v1"']
    config.write_text("\n".join([*lines, 'api_key = "bench-key"', 'models = ["m"]', ""]))
    me = [sys.executable, __file__, "--child"]
    gateway = [sys.executable, "-m", "dragoman", "serve", "--config", str(config), "--port", str(gateway_port)]
    env = {**os.environ, "DRAGOMAN_HOME": str(state), "DRAGOMAN_NO_PROBE": "1", "PYTHONPATH": str(ROOT / "src")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    load_core, server_core = cores()
    children = [
        subprocess.Popen([*me, "provide", str(provider_port)], env=env, preexec_fn=load_core),
        subprocess.Popen([*me, "relay", str(relay_port), upstream], env=env, preexec_fn=server_core),
    ]
    began = time.perf_counter()
    children.append(subprocess.Popen(gateway, env=env, preexec_fn=server_core, **quiet))  # type: ignore[call-overload]
    try:
        wait_for(gateway_port)
        ready, used = time.perf_counter() - began, cpu_s(children[2].pid)
        print(f"ready after {ready:.2f} s, {used:.2f} s of them at work")
        wait_for(relay_port)
        wait_for(provider_port)
        load_core()
        if args.peers:
            import peers  # installs and starts other people's programs: only when asked

            peers.compare(args, state, upstream, (children[2].pid, gateway_port), (children[1].pid, relay_port))
        else:
            report(args, children[1].pid, relay_port, children[2].pid, gateway_port)
    finally:
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.wait()
        shutil.rmtree(state)
    return 0


def cores() -> tuple[Callable[[], None], Callable[[], None]]:
    """How a process goes to the core of the load, and to that of the servers."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return (lambda: None), (lambda: None)
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return (lambda: os.sched_setaffinity(0, {first})), (lambda: os.sched_setaffinity(0, {second}))


def run_child(words: list[str]) -> None:
    import uvloop

    if words[0] == "provide":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(provide(int(words[1])))
    else:
        relay(int(words[1]), words[2])


def report(args: argparse.Namespace, relay_pid: int, relay_port: int, gateway_pid: int, gateway_port: int) -> None:
    if args.streams:
        for pid, port, path, who in (
            (relay_pid, relay_port, "/v1/chat/completions", "B"),
            (gateway_pid, gateway_port, "/v1/messages", "dragoman, anthropic -> chat"),
        ):
            each = asyncio.run(hold(pid, port, path, args.streams))
            print(f"{args.streams} slow streams at once: {each:.1f} KB each ({who})")
    print(f"{'':38}{'B':>10}{'dragoman':>12}{'ratio':>8}{'(from-to)':>13}{'p50 ms':>9}{'p99 ms':>9}")
    for name, dialect, path, stream, turns, tools, model in CASES:
        if args.only not in name:
            continue
        same = requests("openai_chat", stream=stream, turns=turns, tools=tools, model=model)
        body = requests(dialect, stream=stream, turns=turns, tools=tools, model=model)
        floor, costs, times = [], [], [0.0]
        for _ in range(args.rounds):
            floor.append(measure(relay_pid, relay_port, "/v1/chat/completions", same, args)[0])
            used, times = measure(gateway_pid, gateway_port, path, body, args)
            costs.append(used)
        ratios = sorted(cost / base for cost, base in zip(costs, floor, strict=True))
        times.sort()
        p50, p99 = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
        between = f"({ratios[0]:.2f}-{ratios[-1]:.2f})"
        base, cost, ratio = median(floor), median(costs), median(ratios)
        print(f"{name:38}{base:8.0f}us{cost:10.0f}us{ratio:8.2f}{between:>13}{p50:9.2f}{p99:9.2f}")
        if stream:
            print(f"{'  per event':38}{base / EVENTS:8.2f}us{cost / EVENTS:10.2f}us")
    print(f"memory of the gateway: {rss_mb(gateway_pid):.1f} MB")


def measure(
    pid: int, port: int, path: str, body: bytes, args: argparse.Namespace, headers: str = ""
) -> tuple[float, list[float]]:
    drive(port, path, body, args.connections, 0.1, headers)
    before = cpu_s(pid)
    count, times = drive(port, path, body, args.connections, args.seconds, headers)
    return (cpu_s(pid) - before) / count * 1e6, times


def drive(
    port: int, path: str, body: bytes, connections: int, seconds: float, headers: str = ""
) -> tuple[int, list[float]]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load(port, path, body, connections, seconds, headers))


async def hold(pid: int, port: int, path: str, count: int) -> float:
    """KB a stream, with so many open at once whose answers have begun. Asked of a fresh server: later, memory that
    earlier work has left free would hide what they take."""
    message = {"role": "user", "content": SLOW.decode()}
    body = json.dumps({"model": "m", "stream": True, "max_tokens": 1000, "messages": [message]}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    writers: list[asyncio.StreamWriter] = []

    async def more(count: int) -> float:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await reader.readuntil(b"word0")
            writers.append(writer)
        return rss_mb(pid)

    before = await more(20)
    after = await more(count)
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.5)
    return (after - before) * 1000 / count


if __name__ == "__main__":
    raise SystemExit(main())
