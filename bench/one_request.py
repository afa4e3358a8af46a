"""One request without sockets, again and again: what it costs, and which functions it calls.

    python bench/one_request.py [a|b|...] [--kind on]      microseconds of processor time, beside raw: the best of many
    python bench/one_request.py a --instructions [--raw]   by valgrind: the same on a busy machine
    python bench/one_request.py a --calls | --profile      by function

The connections are real, their transports are not: an answer is there at the next turn of the loop. So the kernel is
not in it, which makes about half of raw's cost with sockets.
"""

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import raw
import servers
from gateway import make_cases
from servers import ROOT, chat_frames, chat_reply, make_answers, make_config, other_answers
from teams import KINDS, SECRET

sys.path.insert(0, str(ROOT / "src"))


class FakeTransport:
    """Of one connection. `heard` gets what is written to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: Any) -> None:
        self.loop, self.heard = loop, heard

    def write(self, data: bytes) -> None:
        self.heard(data)

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Client:
    """Sends a request when the answer before has ended."""

    def __init__(self, connection: Any, request: servers.Request, count: int, streamed: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self.connection, self.request, self.left, self.streamed = connection, request, count, streamed
        self.done = self.loop.create_future()

    def hear(self, data: bytes) -> None:
        if not self.streamed and not data.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(data.decode()))
        if self.streamed and not data.endswith(b"0\r\n\r\n"):
            return
        self.left -= 1
        if self.left > 0:
            self.loop.call_soon(self.send)
        elif not self.done.done():
            self.done.set_result(None)

    def send(self) -> None:
        self.connection.data_received(self.request.next())


class Provider:
    """The far end of one connection to the upstream."""

    answers: dict[str, servers.Answers]

    def __init__(self, protocol: Any) -> None:
        self.loop, self.protocol = asyncio.get_running_loop(), protocol
        protocol.connection_made(FakeTransport(self.loop, self.answer))

    def answer(self, data: bytes) -> None:
        found = self.answers[servers.find_spoken(data[: data.find(b" HTTP/")].lower())]
        streamed = b'"stream":true' in data or b'"stream": true' in data
        for piece in found.chunks if streamed else [found.whole]:
            self.loop.call_soon(self.protocol.data_received, piece)


def make_answerer() -> None:
    Provider.answers = {"openai_chat": make_answers(chat_reply(), chat_frames())}
    Provider.answers["anthropic"] = make_answers(*other_answers("anthropic"))


def open_ours(folder: Path, kind: str, xray: int = 0) -> Any:
    """One client's connection to a gateway that is not there for anybody else."""
    from dragoman.gateway.app import App
    from dragoman.gateway.client_connection import ClientConnection, OpenConnections
    from dragoman.gateway.process.startup import ServeOptions, make_access, settle
    from dragoman.gateway.state import Gateway
    from dragoman.gateway.telemetry.log import Log
    from dragoman.upstream.http.connection import HttpConnection
    from dragoman.upstream.transport import Transport

    config, env = folder / "dragoman.toml", {"DRAGOMAN_HOME": str(folder), "DRAGOMAN_NO_PROBE": "1"}
    config.write_text(make_config(9, KINDS[kind].format(secret=SECRET)))
    config.chmod(0o600)

    async def dial(self: Transport, *_: Any) -> HttpConnection:
        made = HttpConnection(asyncio.get_running_loop())
        Provider(made)
        return made

    Transport._dial = dial  # type: ignore[method-assign]
    settings, log = settle(ServeOptions(config=config, xray=xray), env), Log()
    log.to_stderr()
    gateway = Gateway(settings, make_access(settings, env, "127.0.0.1"), log=log)
    return ClientConnection(App(gateway), OpenConnections())


def hold_back() -> None:
    """Rows and lines are written together, at the end. Else it would depend on the clock how often."""
    from dragoman.accounts import bookkeeper
    from dragoman.gateway.telemetry import log, traffic

    traffic.FLUSH_S = log.FLUSH_S = bookkeeper.WRITE_S = bookkeeper.SETTLE_S = 3600.0


class RawUpstreams(raw.Upstreams):
    async def take(self) -> raw.Upstream:
        if not self.idle:
            Provider(made := raw.Upstream(self))
            return made
        return self.idle.pop()


def open_raw() -> Any:
    return raw.Server(RawUpstreams(0, asyncio.get_running_loop()))


async def drive(connection: Any, request: servers.Request, count: int, *, streamed: bool) -> None:
    client = Client(connection, request, count, streamed)
    if connection.transport is None:
        connection.connection_made(FakeTransport(client.loop, client.hear))
    connection.transport.heard = client.hear
    client.send()
    await client.done


async def main(args: argparse.Namespace, folder: Path) -> None:
    make_answerer()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # as in process/run.py
    (case,) = [case for case in make_cases() if case.name.startswith(args.case) and "again" not in case.name]
    request = case.request(f"authorization: Bearer {SECRET}\r\n" if args.kind != "off" else "")
    ours = open_ours(folder, args.kind, args.xray)
    if args.kind == "budget":  # as two seconds later: a part of the budget is in hand
        await drive(ours, request, 1, streamed=case.streamed)
        ours.app.gateway.books._renew_standby()
    if args.count and args.raw:
        await drive(open_raw(), request, args.count, streamed=case.streamed)
        return
    if args.count:
        await drive_for_count(ours, request, args.count, streamed=case.streamed)
        return
    sides = {"raw": open_raw(), "dragoman": ours}
    for side in sides.values():
        await drive(side, request, 200, streamed=case.streamed)
    if args.calls:
        await tell_calls(ours, request, args, streamed=case.streamed)
    elif args.profile:
        await tell_profile(ours, request, streamed=case.streamed)
    else:
        await tell_cost(sides, request, args, streamed=case.streamed)


async def tell_cost(sides: dict[str, Any], request: servers.Request, args: argparse.Namespace, streamed: bool) -> None:
    best = dict.fromkeys(sides, inf)
    for _ in range(args.rounds):
        for name, side in sides.items():
            began = time.process_time()
            await drive(side, request, args.batch, streamed=streamed)
            best[name] = min(best[name], (time.process_time() - began) / args.batch * 1e6)
    print("  ".join(f"{name} {us:.1f} us" for name, us in best.items()))


async def tell_calls(connection: Any, request: servers.Request, args: argparse.Namespace, streamed: bool) -> None:
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            calls[f"{Path(code.co_filename).parent.name}/{Path(code.co_filename).name}:{code.co_qualname}"] += 1
        elif event == "c_call":
            calls["(C) " + getattr(arg, "__qualname__", str(arg))] += 1

    sys.setprofile(count)
    await drive(connection, request, 100, streamed=streamed)
    sys.setprofile(None)
    python = sum(n for name, n in calls.items() if not name.startswith("(C)"))
    print(f"{python / 100:.0f} calls of Python, {(calls.total() - python) / 100:.0f} of C")
    for name, n in calls.most_common(args.most):
        print(f"{n / 100:8.2f}  {name}")


async def tell_profile(connection: Any, request: servers.Request, streamed: bool) -> None:
    profile = cProfile.Profile()
    profile.enable()
    await drive(connection, request, 2000, streamed=streamed)
    profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("cumtime").print_stats(130)


def count_instructions(*words: str, counts: tuple[int, int] = (60, 160)) -> float:
    """Thousands for one request, by valgrind. `words`: a script of ours that makes as many requests as `--count` says.
    The difference of two runs is without what a start costs."""
    found = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}"]
            command = [*valgrind, sys.executable, *words, "--count", str(count)]
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"})
            found.append(int(out.read_text().rpartition("summary: ")[2]))
    return (found[1] - found[0]) / (counts[1] - counts[0]) / 1000


async def drive_for_count(ours: Any, request: servers.Request, count: int, *, streamed: bool) -> None:
    """For valgrind: so many, and nothing is told."""
    hold_back()
    await drive(ours, request, count, streamed=streamed)
    ours.app.gateway.traffic.write()
    ours.app.gateway.log.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="a", help="the first letter of one of bench/gateway.py's")
    parser.add_argument("--kind", choices=KINDS, default="off", help="of bench/teams.py")
    parser.add_argument("--raw", action="store_true", help="raw instead, with --instructions")
    parser.add_argument("--xray", type=int, default=0, help="requests that X-ray keeps")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.instructions:
        more = ["--raw"] if words.raw else ["--xray", str(words.xray)]
        thousands = count_instructions(__file__, words.case, "--kind", words.kind, *more)
        print(f"{words.case} {words.kind}: {thousands:,.0f} thousand instructions")
    else:
        with tempfile.TemporaryDirectory() as place:
            servers.run(main(words, Path(place)))
