"""Many slow streams, latency at a given rate, small requests beside large ones, two workers: for bench/gateway.py."""

import argparse
import asyncio
import json
import time
from statistics import median
from typing import Any, NamedTuple

from goals import Goals
from servers import (
    SLOW,
    House,
    Request,
    Served,
    agent_body,
    cpu_s,
    load,
    measure,
    read_answer,
    rss_mb,
    run,
    small_body,
    used_s,
    workers_of,
)

PACE = 20.0  # events a second of a slow stream
OPENING_S = 60.0  # for all slow streams to begin
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def bench(args: argparse.Namespace, house: House, goals: Goals) -> None:
    print("\nmany streams, and how long requests take\n")
    bench_streams(args, house, goals)
    bench_latency(args, house, goals)
    bench_beside(args, house, goals)
    bench_workers(args, house, goals)


# ---------------------------------------------------------------- slow streams


class Listener(asyncio.Protocol):
    """A client of a slow stream, which only counts."""

    events = 0

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.begun.done() and b"word" in data:
            self.begun.set_result(None)
        Listener.events += data.count(b'"word ')  # of the provider's clock, not of the first piece


async def ask_provider(port: int) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /count HTTP/1.1\r\nhost: h\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    said: dict[str, float] = json.loads(await reader.readexactly(size))
    writer.close()
    return said


class Held(NamedTuple):
    """So many slow streams at once."""

    begun: int  # streams that began in time
    kb_each: float
    event_us: float
    behind_s: float  # the client behind the provider
    late_s: float  # the provider behind its own clock


async def hold(served: Served, provider: int, count: int, seconds: float) -> Held:
    body = json.dumps(
        {"model": "m", "stream": True, "max_tokens": 1000, "messages": [{"role": "user", "content": SLOW.decode()}]}
    )
    request, loop = Request(MESSAGES, body.encode()).data, asyncio.get_running_loop()
    until, open_streams = loop.time() + OPENING_S, list[Listener]()

    async def more(count: int) -> float:
        """Ten at a time, as long as there is time: a server that is behind begins no new stream soon."""
        while count > 0 and loop.time() < until:
            opened = [
                await loop.create_connection(lambda: Listener(request), "127.0.0.1", served.port)
                for _ in range(min(count, 10))
            ]
            streams = [stream for _, stream in opened]
            await asyncio.wait([stream.begun for stream in streams], timeout=max(until - loop.time(), 0))
            open_streams.extend(streams)
            count -= len(streams)
        return rss_mb(served.pid)

    before = await more(20)
    after = await more(count - 20)
    begun = sum(stream.begun.done() for stream in open_streams)
    Listener.events, used, start = 0, cpu_s(served.pid), (await ask_provider(provider))["sent"]
    await asyncio.sleep(seconds)
    said, heard, used = await ask_provider(provider), Listener.events, cpu_s(served.pid) - used
    for one in open_streams:
        one.transport.close()
    await asyncio.sleep(0.5)
    behind = max(said["sent"] - start - heard, 0) / (begun * PACE)
    return Held(begun, (after - before) * 1000 / (count - 20), used / max(heard, 1) * 1e6, behind, said["late"])


def bench_streams(args: argparse.Namespace, house: House, goals: Goals) -> None:
    few, many, seconds = (50, 100, 1.0) if args.quick else (500, 2000, 8.0)
    served = house.start_gateway()
    held = run(hold(served, house.provider, few, seconds))
    goals.add(f"{few} slow streams: an event", held.event_us, 55, "us")
    goals.add(f"{few} slow streams: each holds", held.kb_each, 40, "KB")
    held = run(hold(served, house.provider, many, seconds))
    goals.add(f"{many:,} slow streams at once: begun", held.begun, many, "streams", at_least=True)
    goals.add(f"{many:,} slow streams, {PACE:g} events/s each: behind", held.behind_s, 0.25, "s")
    if held.begun < many:
        print(f"  (it fell behind: {held.begun:,} of {many:,} streams had begun after {OPENING_S:g} s)")
    print(f"  ({held.event_us:.1f} us an event; the provider was {held.late_s:.2f} s behind its own clock)")
    house.stop(served)


# ---------------------------------------------------------------- latency


async def paced(port: int, request: Request, rate: float, seconds: float) -> list[float]:
    """Requests at fixed times, whatever becomes of those before; how long each took from its time on."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    times: list[float] = []

    async def one(due: float) -> None:
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(request.next())
        await read_answer(reader)
        times.append(time.perf_counter() - due)
        idle.append((reader, writer))

    started, running = time.perf_counter() + 0.05, []
    for number in range(int(rate * seconds)):
        due = started + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        running.append(asyncio.ensure_future(one(due)))
    await asyncio.gather(*running)
    for _, writer in idle:
        writer.close()
    return sorted(times[int(rate * 0.2) :])  # without the first, which open connections


def percentile(times: list[float], share: float) -> float:
    return times[min(int(len(times) * share), len(times) - 1)] * 1000


def bench_latency(args: argparse.Namespace, house: House, goals: Goals) -> None:
    rate, seconds = (100.0, 1.0) if args.quick else (500.0, 4.0)
    served = house.start_gateway()
    for name, path, body, wanted in (
        ("a", CHAT, small_body("m"), 0.4),
        ("b", MESSAGES, agent_body(20, 45), 0.7),
    ):
        request = Request(path, body, fresh=True)
        run(paced(served.port, request, rate, 0.5))
        rounds = [
            [run(paced(port, request, rate, seconds)) for port in (house.provider, served.port)]
            for _ in range(max(1, args.rounds // 2))
        ]
        added = {
            share: median(percentile(ours, share) - percentile(bare, share) for bare, ours in rounds)
            for share in (0.5, 0.99)
        }
        goals.add(f"added at {rate:g} requests/s, {name}: p50", added[0.5], wanted, "ms")
        goals.add(f"added at {rate:g} requests/s, {name}: p99", added[0.99], 4.0, "ms")
    house.stop(served)


def bench_beside(args: argparse.Namespace, house: House, goals: Goals) -> None:
    """Small requests while two clients send histories of 1 MB, each of which is new to the gateway."""
    seconds = 1.0 if args.quick else 5.0
    served = house.start_gateway()
    small = Request(CHAT, small_body("m"), fresh=True)
    large = Request(MESSAGES, agent_body(1000, 170), fresh=True)

    async def both(to: int) -> list[float]:
        others = asyncio.ensure_future(paced(to, large, 8.0, seconds))
        times = await paced(served.port, small, 100.0, seconds)
        await others
        return times

    run(paced(served.port, small, 100.0, 0.5))
    rounds = [
        [
            percentile(times, 0.99)
            for times in (
                run(paced(served.port, small, 100.0, seconds)),
                run(both(house.provider)),
                run(both(served.port)),
            )
        ]
        for _ in range(max(1, args.rounds // 2))
    ]
    alone, past, beside = (median(side) for side in zip(*rounds, strict=True))
    size = len(large.data) / 1e6
    goals.add(f"p99 of small requests beside {size:.1f} MB histories (8/s)", beside / alone, 2.0)
    print(f"  (alone {alone:.2f} ms, beside {beside:.2f} ms, beside histories that go past the gateway {past:.2f} ms:")
    print("  load generator and provider are busy with these, too)")
    house.stop(served)


# ---------------------------------------------------------------- workers


def bench_workers(args: argparse.Namespace, house: House, goals: Goals) -> None:
    """How much two workers can do. Load generator and provider need the same two cores, so the rate that they see says
    little. Instead: what a request costs if each of two workers has as many a second as one alone (an idle worker pays
    more for each, because it goes to sleep in between), and how evenly 32 busy connections are spread over them."""
    one, two = house.start_gateway(pinned=False), house.start_gateway("--workers", "2", pinned=False)
    request, rate = Request(CHAT, small_body("m"), fresh=True), 100.0 if args.quick else 500.0
    found, full = [], []
    for _ in range(args.rounds):
        alone = _cost_at(one, request, rate, args.seconds)
        each = _cost_at(two, request, 2 * rate, args.seconds)
        busy = measure(one, request, args.connections, args.seconds)
        run(load(two.port, request, args.connections, 0.1))
        workers = workers_of(two.pid)
        before, all_before = [cpu_s(pid) for pid in workers], used_s(two.pid)
        count = len(run(load(two.port, request, args.connections, args.seconds)))
        shares = [cpu_s(pid) - used for pid, used in zip(workers, before, strict=True)]
        share = max(shares) / sum(shares)
        found.append(min(alone / each, 1.0) / share)
        full.append(busy / ((used_s(two.pid) - all_before) / count * 1e6) / share)
    goals.add("2 workers do as much as", median(found), 1.9, "workers", at_least=True)
    print(f"  (with the load generator on the same cores, as fast as it can: {median(full):.2f})")
    house.stop(one)
    house.stop(two)


def _cost_at(served: Served, request: Request, rate: float, seconds: float) -> float:
    """Microseconds of processor time for one request, at so many a second."""
    run(paced(served.port, request, rate, 0.2))
    before = used_s(served.pid)
    run(paced(served.port, request, rate, seconds))
    return (used_s(served.pid) - before) / int(rate * seconds) * 1e6
