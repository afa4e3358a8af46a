"""What features and dialects cost, as multiples of a gateway without them: for bench/gateway.py."""

import argparse
import asyncio
import subprocess
import sys
import time
from statistics import median

from goals import Goals
from servers import House, Request, agent_body, converted, cpu_s, load, measure, path_of, run, small_body

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
SECRET = "a-key-for-the-bench-only"  # noqa: S105
WITH_KEY = f"authorization: Bearer {SECRET}\r\n"


def bench(args: argparse.Namespace, house: House, goals: Goals) -> None:
    print("\nwhat features and dialects cost\n")
    bench_log(args, house, goals)
    bench_xray(args, house, goals)
    bench_window(args, house, goals)
    bench_dialects(args, house, goals)
    bench_import(goals)


def bench_log(args: argparse.Namespace, house: House, goals: Goals) -> None:
    """A line in the log for each request, a client key, and a scrape of /metrics every second."""
    key = f'[key.ada]\nsecret = "{SECRET}"\n[ledger]\non = false\n'
    bare, full = house.start_gateway(quiet=True), house.start_gateway(more=key)
    for name, path, body in (("a", CHAT, small_body("m")), ("b", MESSAGES, agent_body(20, 45))):
        plain, with_key = Request(path, body, fresh=True), Request(path, body, WITH_KEY, fresh=True)
        found = []
        for _ in range(args.rounds):
            off = measure(bare, plain, args.connections, args.seconds)
            run(load(full.port, with_key, args.connections, 0.1))
            before = cpu_s(full.pid)
            count = run(_with_scrape(full.port, with_key, args))
            found.append((cpu_s(full.pid) - before) / count * 1e6 / off)
        goals.add(f"log line, client key, scrape, {name}", median(found), 1.05)
    house.stop(bare)
    house.stop(full)


async def _with_scrape(port: int, request: Request, args: argparse.Namespace) -> int:
    async def scrape() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /metrics HTTP/1.1\r\nhost: localhost\r\n{WITH_KEY}connection: close\r\n\r\n".encode())
        await reader.read()
        writer.close()

    scraped = asyncio.ensure_future(scrape())
    times = await load(port, request, args.connections, args.seconds)
    await scraped
    return len(times)


def bench_xray(args: argparse.Namespace, house: House, goals: Goals) -> None:
    bare, full = house.start_gateway(), house.start_gateway("--xray", "50")
    for name, path, body in (
        ("a", CHAT, small_body("m")),
        ("b", MESSAGES, agent_body(20, 45)),
        ("c", MESSAGES, agent_body(20, 45, stream=True)),
    ):
        request, found = Request(path, body, fresh=True), []
        for _ in range(args.rounds):
            off = measure(bare, request, args.connections, args.seconds)
            found.append(measure(full, request, args.connections, args.seconds) / off)
        goals.add(f"X-ray of all requests, {name}", median(found), 1.2)
    house.stop(bare)
    house.stop(full)


def bench_window(args: argparse.Namespace, house: House, goals: Goals) -> None:
    """Limits by the minute: when the window is empty, and when it holds what came in the last minute."""
    bare, full = house.start_gateway(), house.start_gateway(more=make_limited(house.provider))
    plain, limited = Request(CHAT, small_body("m"), fresh=True), Request(CHAT, small_body("limited"), fresh=True)

    def beside() -> float:
        off = measure(bare, plain, args.connections, args.seconds)
        return measure(full, limited, args.connections, args.seconds) / off

    first = median(beside() for _ in range(min(args.rounds, 3)))
    wanted, sent, until = 2_000 if args.quick else 60_000, 0, time.monotonic() + 40
    while sent < wanted and time.monotonic() < until:
        sent += len(run(load(full.port, limited, args.connections, 2.0)))
    last = median(beside() for _ in range(min(args.rounds, 3)))
    goals.add(f"limits by the minute with {sent:,} in the minute", last / first, 1.1)
    house.stop(bare)
    house.stop(full)


def make_limited(provider: int) -> str:
    lines = ["[providers.limited]", 'kind = "vllm"', 'dialect = "openai_chat"', 'api_key = "k"', 'models = ["limited"]']
    limits = ["rpm = 10000000", "tpm = 100000000000"]
    return "\n".join([*lines, f'base_url = "http://127.0.0.1:{provider}/v1"', *limits])


def bench_dialects(args: argparse.Namespace, house: House, goals: Goals) -> None:
    """Each dialect as a target (of Anthropic's clients) and as a source (for an Anthropic server), beside Chat."""
    served = house.start_gateway()
    for stream in (False, True):
        what = "stream" if stream else "whole"
        costs: dict[str, list[float]] = {}
        sides = {}
        for name in ("openai_chat", "openai_responses", "gemini", "ollama"):
            model = "m" if name == "openai_chat" else name
            sides[f"to {name}"] = Request(MESSAGES, converted("anthropic", model, stream=stream), fresh=True)
            body = converted(name, "anthropic", stream=stream)
            sides[f"from {name}"] = Request(path_of(name, "anthropic", stream=stream), body, fresh=True)
        for _ in range(args.rounds):
            for name, request in sides.items():
                costs.setdefault(name, []).append(measure(served, request, args.connections, args.seconds))
        for way in ("to", "from"):
            base = costs[f"{way} openai_chat"]
            for name in ("openai_responses", "gemini", "ollama"):
                ratio = median(one / other for one, other in zip(costs[f"{way} {name}"], base, strict=True))
                goals.add(f"{way} {name}, {what}, times Chat", ratio, 1.3)
    house.stop(served)


def bench_import(goals: Goals) -> None:
    """Processor time of `import dragoman`, without that of Python itself."""
    code = "import time; t = time.process_time(); import dragoman; print(time.process_time() - t)"
    run_once = [sys.executable, "-c", code]
    found = min(float(subprocess.run(run_once, check=True, capture_output=True).stdout) for _ in range(7))
    goals.add("import dragoman", found * 1000, 60, "ms CPU")
