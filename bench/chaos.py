"""Everything goes wrong at once: does every request still end in one of its allowed ways? (RELIABILITY 4.4)

    python bench/chaos.py [--minutes 5] [--connections 24] [--seed 1]

Clients of five dialects ask upstreams of five dialects that answer, refuse, stall, reset, cut a stream, and send bodies
that are shorter or longer than they say. Clients leave at random moments. Meanwhile, from a seeded list: good and bad
configurations are loaded, a worker is killed with SIGKILL, the clock of all processes jumps by an hour, the disk
under the gateway's home is full. The run fails when a request ends in another way than its kind allows, or when the
worker that lived through all of it has more files than at its start, or memory that still grows.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from soak import DIALECTS, KINDS, dialect_of, free_port, replies, serve_answers, wait_for

ROOT = Path(__file__).parent.parent
SHUT = {"503", "529"}  # a breaker is open, or a worker ends: said with a time to come again
# What a request meets, how often, and how it may end. "end": a stream with its dialect's last frame; "error": with an
# error in the stream. "cut" is no part of this table: it is allowed to a request during which a worker was killed.
ALLOWED: dict[str, tuple[int, set[str]]] = {
    "whole": (30, {"200"}),
    "stream": (30, {"end"}),
    "left": (10, {"left"}),
    "wrong": (3, {"400"}),
    "limited": (3, {"429", *SHUT}),
    "failed": (3, {"500", *SHUT}),
    "reset": (4, {"502", *SHUT}),
    "short": (4, {"502", *SHUT}),
    "long": (3, {"200"}),
    "stalled": (3, {"504", *SHUT}),
    "stuck": (0, {"504", *SHUT}),  # a whole answer has only the deadline: such requests have connections of their own
    "cut off": (4, {"error", *SHUT}),
    "silent": (3, {"error", *SHUT}),
}
WORKERS = 2
STREAMED = ("stream", "left", "cut off", "silent", "stalled")
MEETS_SILENCE = ("stalled", "silent")
# An upstream that says nothing for so long is given up. The bench's own upstream is late when the machine is busy: only
# streams that are to meet silence are given up soon. Any other request that ends with a timeout is a fault.
SOON_S, LATE_S = 2, 40
STUCK = 4  # connections
# What ends a stream well, and what ends it with an error, at each door.
ENDS = {
    "openai_chat": (b"[DONE]", b'"error"'),
    "openai_responses": (b"response.completed", b"response.failed"),
    "anthropic": (b"message_stop", b"event: error"),
    "gemini": (b'"finishReason"', b'"error"'),
    "ollama": (b'"done":true', b'"error"'),
}
CLOCK = '''
import time, os
_real, _file = time.time, os.environ["CHAOS_CLOCK"]
def _jumped():
    try:
        return _real() + os.stat(_file).st_size  # seconds, as the size of a file: one system call
    except OSError:
        return _real()
time.time = _jumped
'''  # fmt: skip


# ---------------------------------------------------------------- the upstream


async def provide(port: int) -> None:
    table = replies()

    async def answer(path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """True: the connection goes on."""
        whole, stream, kind = table[dialect_of(path)]
        found = re.search(rb"meet ([a-z ]+)!", body)
        meets = found[1].decode() if found else "whole"
        asked = ":streamGenerateContent" in path or re.search(rb'"stream": ?true', body)
        match meets:
            case "reset":
                handle: socket.socket = writer.get_extra_info("socket")
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            case "limited" | "failed":
                said = b'{"error": {"message": "not now", "type": "overloaded_error"}}'
                send(writer, 429 if meets == "limited" else 500, said)
            case "stalled" | "stuck":
                await asyncio.sleep(2 * LATE_S)
                return False
            case "short":
                send(writer, 200, whole, length=len(whole) + 100)
                return False
            case "long":
                send(writer, 200, whole + b"HTTP/1.1 200 OK\r\n\r\n", length=len(whole))
                return False
            case _ if asked:
                ended = await send_stream(writer, stream, kind, meets)
                await writer.drain()
                return ended
            case _:
                send(writer, 200, whole)
        await writer.drain()
        return True

    await serve_answers(port, answer)


def send(writer: asyncio.StreamWriter, status: int, body: bytes, length: int | None = None) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nretry-after-ms: 20\r\n"
    writer.write(f"{head}content-length: {len(body) if length is None else length}\r\n\r\n".encode() + body)


async def send_stream(writer: asyncio.StreamWriter, stream: bytes, kind: str, meets: str) -> bool:
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    until = len(stream) if meets not in ("cut off", "silent") else len(stream) // 2
    for at in range(0, until, 300):
        if writer.is_closing():
            return False
        piece = stream[at : min(at + 300, until)]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await asyncio.sleep(0.005 if meets == "left" else 0)
    if meets == "silent":
        await asyncio.sleep(LATE_S)
    if until < len(stream):
        return False
    writer.write(b"0\r\n\r\n")
    return True


# ---------------------------------------------------------------- a client


def build(dice: random.Random, kind: str, door: str, streamed: bool) -> tuple[str, bytes]:
    target = dice.choice(DIALECTS)
    sound = kind in ("whole", "stream", "left")
    model = f"{'good' if sound else kind.replace(' ', '')}-{target}"  # a breaker that opens is that model's
    text = f"{'lorem ipsum ' * dice.randrange(1, 60)} meet {kind}!"
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": text}], "stream": streamed}
    match door:
        case "gemini":
            verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
            path, body = f"/v1beta/models/{model}:{verb}", {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        case "openai_responses":
            stored = dice.random() < 0.3
            path, body = "/v1/responses", {"model": model, "input": text, "stream": streamed, "store": stored}
        case "anthropic":
            path, body = "/v1/messages", {**body, "max_tokens": 100}
        case "ollama":
            path = "/api/chat"
        case _:
            path = "/v1/chat/completions"
    data = json.dumps(body).encode()
    return path, data if kind != "wrong" else dice.choice((b"{", b"[]", data[: len(data) // 2], b""))


async def ask(port: int, dice: random.Random, kind: str) -> tuple[str, bytes]:
    """How it ended, and what was said."""
    door = dice.choice(DIALECTS)
    streamed = kind in STREAMED
    path, body = build(dice, kind, door, streamed)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return "cut", b"no connection"
    said = b""
    try:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if kind == "left":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(dice.random() * 0.3):
                    await reader.read()
            return "left", b""
        async with asyncio.timeout(3 * LATE_S):
            said = await reader.read()
        return judge_answer(said, door, streamed), said
    except TimeoutError:
        return "no end", b""
    except (ConnectionError, ValueError, IndexError):
        return "cut", said
    finally:
        writer.close()


def judge_answer(said: bytes, door: str, streamed: bool) -> str:
    """The status of a whole answer; how a stream ended. "cut" is an answer without its end."""
    head, _, rest = said.partition(b"\r\n\r\n")
    status, lower = head.split(b" ", 2)[1].decode(), head.lower()
    if found := re.search(rb"content-length: (\d+)", lower):
        if len(rest) < int(found[1]):
            return "cut"
        json.loads(rest)
        return status
    if not rest.endswith(b"0\r\n\r\n"):
        return "cut"
    well, failed = ENDS[door]
    last = rest.partition(b": x-dragoman-notes")[0][-1500:]  # a comment after the last frame
    return status if not streamed else "error" if failed in last else "end" if well in last else "no last frame"


# ---------------------------------------------------------------- what goes wrong


class House:
    """The gateway's processes, and what is done to them."""

    def __init__(self, folder: Path, upstream: str, port: int) -> None:
        self.folder, self.port = folder, port
        self.home, self.clock, self.config = folder / "home", folder / "clock", folder / "dragoman.toml"
        self.good = configure(upstream)
        self.kills: list[float] = []
        self.done: Counter[str] = Counter()
        self.home.mkdir()
        self.clock.touch()
        self.config.write_text(self.good)
        (folder / "sitecustomize.py").write_text(CLOCK)
        disk = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(self.home)]
        self.own_disk = subprocess.run(disk, check=False, capture_output=True).returncode == 0
        env = {**os.environ, "DRAGOMAN_HOME": str(self.home), "DRAGOMAN_NO_PROBE": "1", "CHAOS_CLOCK": str(self.clock)}
        env["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT / "src")])
        serve = [sys.executable, "-m", "dragoman", "serve", "--config", str(self.config), "--port", str(port)]
        log = (folder / "log").open("w")
        self.process = subprocess.Popen([*serve, "--workers", str(WORKERS)], env=env, stdout=log, stderr=log)

    def workers(self) -> list[int]:
        """The oldest first."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = [int(word) for word in task.read_text().split()]
        return sorted(found, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))

    def reload(self) -> None:
        self.config.write_text(self.good)
        self.process.send_signal(signal.SIGHUP)

    def reload_bad(self) -> None:
        self.config.write_text(random.choice(("", "[providers", "port = 'x'", self.good[: len(self.good) // 2] + "=")))  # noqa: S311
        self.process.send_signal(signal.SIGHUP)

    def kill_worker(self) -> None:
        if len(found := self.workers()) > 1:
            self.kills.append(time.monotonic())
            os.kill(found[-1], signal.SIGKILL)

    def jump_clock(self) -> None:
        """An hour ahead, or back."""
        size = 0 if self.clock.stat().st_size else 3600
        with self.clock.open("r+b") as file:
            file.truncate(size)

    def fill_disk(self) -> None:
        if self.own_disk:
            with contextlib.suppress(OSError), (self.home / "full").open("wb") as file:
                for _ in range(400):
                    file.write(bytes(16 * 1024))
                    file.flush()

    def free_disk(self) -> None:
        (self.home / "full").unlink(missing_ok=True)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()
            if self.own_disk:
                subprocess.run(["umount", str(self.home)], check=False)


def configure(upstream: str) -> str:
    patient = ["good", *(kind.replace(" ", "") for kind in ALLOWED if kind not in ("whole", "stream", "left"))]
    patient = [kind for kind in patient if kind not in MEETS_SILENCE]
    rows = [f"deadline_s = {LATE_S}", "store = 500", "grace_s = 5", "ask_models = false", ""]
    for name in DIALECTS:
        for kinds, wait_s in ((patient, LATE_S), (MEETS_SILENCE, SOON_S)):
            rows += [f"[providers.{name}-{wait_s}]", *configure_provider(upstream, name, kinds, wait_s), ""]
    return "\n".join(rows)


def configure_provider(upstream: str, name: str, kinds: Sequence[str], wait_s: int) -> list[str]:
    tail = "/v1" if KINDS.get(name) == "vllm" else ""
    return [
        f'kind = "{KINDS.get(name, name)}"',
        f'dialect = "{name}"',
        f'base_url = "{upstream}{tail}"',
        "queue = 1000",
        f"api_keys = {[f'key-{i}' for i in range(8)]}",
        f"models = {json.dumps([f'{kind}-{name}' for kind in kinds])}",
        f"timeouts = {{ connect_s = {LATE_S}, headers_s = {wait_s}, first_s = {wait_s}, idle_s = {wait_s} }}",
    ]


def measure(pid: int) -> tuple[float, int]:
    """Megabytes and open files of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir(f"/proc/{pid}/fd"))


# ---------------------------------------------------------------- the run


def steps(house: House, dice: random.Random) -> Iterator[Callable[[], None]]:
    """Every fault once, in a random order, and again."""
    faults = [house.reload, house.reload_bad, house.kill_worker, house.jump_clock, house.fill_disk, house.free_disk]
    while True:
        dice.shuffle(faults)
        yield from faults


async def run(args: argparse.Namespace, house: House) -> int:
    dice = random.Random(args.seed)  # noqa: S311
    until, seen, wrong = time.monotonic() + args.minutes * 60, Counter[str](), Counter[str]()
    first = house.workers()[0]
    samples: list[float] = []

    async def work(number: int, only: str = "") -> None:
        own = random.Random(args.seed * 1000 + number)  # noqa: S311
        kinds, weights = list(ALLOWED), [weight for weight, _ in ALLOWED.values()]
        while time.monotonic() < until:
            kind = only or own.choices(kinds, weights)[0]
            began = time.monotonic()
            ended, said = await ask(args.port, own, kind)
            seen[f"{kind}: {ended}"] += 1
            killed = ended == "cut" and any(at >= began for at in house.kills)
            if ended not in ALLOWED[kind][1] and not killed:
                wrong[f"{kind}: {ended}"] += 1
                print(f"{kind} ended as {ended} after {time.monotonic() - began:.2f} s: {said[-500:]!r}", flush=True)

    async def disturb() -> None:
        for fault in steps(house, dice):
            await asyncio.sleep(dice.uniform(1, 4))
            if time.monotonic() > until - 10:
                return
            house.done[fault.__name__] += 1
            fault()

    async def watch() -> None:
        while time.monotonic() < until:
            await asyncio.sleep(5)
            size, files = measure(first)
            samples.append(size)
            print(f"{until - time.monotonic():5.0f} s left  {size:7.1f} MB  {files} files", flush=True)

    tasks: list[Awaitable[None]] = [work(i) for i in range(args.connections)]
    tasks += [work(args.connections + i, "stuck") for i in range(STUCK)]
    await asyncio.gather(disturb(), watch(), *tasks)
    house.free_disk()
    for _ in range(90):
        await asyncio.sleep(1)
        if measure(first)[1] <= args.files + 2:
            break
    return report(seen, wrong, house, samples, measure(first)[1] - args.files, first)


async def warm_up(args: argparse.Namespace) -> None:
    """Files that a worker opens once and keeps open are open when the run begins."""
    dice = random.Random(0)  # noqa: S311
    await asyncio.gather(*[ask(args.port, dice, "whole") for _ in range(60)])
    await asyncio.sleep(1)


def report(seen: Counter[str], wrong: Counter[str], house: House, samples: list[float], files: int, first: int) -> int:
    print(f"\n{sum(seen.values())} requests:", ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    print("done to it:", ", ".join(f"{name} {count}" for name, count in sorted(house.done.items())))
    print("full disk:", "its home was a disk of 4 MB" if house.own_disk else "not tried: this machine mounts none")
    print("ended in a way that is not allowed:", dict(wrong) or "none")
    half = samples[len(samples) // 2 :]
    print(f"the worker that lived through it: {samples[0]:.1f} MB, then {half[0]:.1f}, at the end {half[-1]:.1f} MB")
    print(f"files at the end: {files:+d}; still the first worker: {first in house.workers()}")
    return int(bool(wrong) or files > 2 or half[-1] > half[0] * 1.05 or first not in house.workers())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        asyncio.run(provide(args.child))
        return 0
    upstream_port, args.port = free_port(), free_port()
    provider = subprocess.Popen([sys.executable, __file__, "--child", str(upstream_port)])
    with TemporaryDirectory(prefix="dragoman-chaos-") as folder:
        house = House(Path(folder), f"http://127.0.0.1:{upstream_port}", args.port)
        try:
            wait_for(upstream_port)
            wait_for(args.port)
            while len(house.workers()) < WORKERS:
                time.sleep(0.05)
            asyncio.run(warm_up(args))
            args.files = measure(house.workers()[0])[1]
            return asyncio.run(run(args, house))
        finally:
            provider.kill()
            house.end()


if __name__ == "__main__":
    raise SystemExit(main())
