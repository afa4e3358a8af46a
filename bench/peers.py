"""Other gateways beside ours, for `python bench/gateway.py --peers`: the same load against the same provider.

LiteLLM (PyPI) and Portkey (npm) are installed the first time, each in an environment of its own under
$XDG_CACHE_HOME/dragoman-peers, and run as their own documentation says, with one process each, logs, telemetry and keys
off. What cannot be installed here is said and left out.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import gateway as bench

LITELLM = "litellm[proxy]==1.106.2"
PORTKEY = "@portkey-ai/gateway@1.15.2"
INSTALL_S, START_S = 900, 120
PAGE = bench.ROOT / "docs" / "speed.md"


class MissingError(Exception):
    """Why a peer is not measured."""


@dataclass
class Server:
    name: str
    pid: int
    port: int
    headers: str = ""
    doors: tuple[str, ...] = ("openai_chat", "anthropic")  # those with an OpenAI upstream behind them
    always: str | None = None  # the one door that is measured whatever the case says
    failed: dict[str, str] = field(default_factory=dict)  # case -> the status line it answered with


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dragoman-peers"


def install_litellm() -> list[str]:
    folder = cache() / LITELLM.replace("[", "-").replace("]", "")
    program = folder / "bin" / "litellm"
    if not (folder / "done").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", LITELLM])
        (folder / "done").touch()
    return [str(program)]


def install_portkey() -> list[str]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise MissingError("node and npm are not on PATH")
    folder = cache() / PORTKEY.replace("/", "-")
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel", "error", PORTKEY])
        (folder / "done").touch()
    return [node, str(folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js")]


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise MissingError(f"{Path(command[0]).name} could not install it ({type(error).__name__})") from error


def start_litellm(state: Path, upstream: str, core: Callable[[], None]) -> tuple[Server, "subprocess.Popen[bytes]"]:
    command, port = install_litellm(), bench.free_port()
    file = state / "litellm.yaml"
    row = f'{{model: hosted_vllm/m, api_base: "{upstream}/v1", api_key: bench-key}}'
    quiet = "litellm_settings: {telemetry: false}\nrouter_settings: {disable_cooldowns: true}\n"
    file.write_text(f"model_list:\n  - model_name: m\n    litellm_params: {row}\n{quiet}")
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    words = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    process = _start([*command, *words], state, env, core)
    return Server("LiteLLM", process.pid, port), process


def start_portkey(state: Path, upstream: str, core: Callable[[], None]) -> tuple[Server, "subprocess.Popen[bytes]"]:
    command, port = install_portkey(), bench.free_port()
    process = _start([*command, f"--port={port}", "--headless"], state, {"NODE_ENV": "production"}, core)
    said = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{upstream}/v1", "authorization": "Bearer x"}
    headers = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return Server("Portkey", process.pid, port, headers, doors=("openai_chat",)), process


def _start(command: list[str], state: Path, env: dict[str, str], core: Callable[[], None]) -> "subprocess.Popen[bytes]":
    whole = {"PATH": os.environ.get("PATH", ""), "HOME": str(state), "NO_PROXY": "*", **env}
    nobody = subprocess.DEVNULL
    return subprocess.Popen(command, env=whole, cwd=state, stdout=nobody, stderr=nobody, preexec_fn=core)


STARTS = {"LiteLLM": start_litellm, "Portkey": start_portkey}


def compare(args: Any, state: Path, upstream: str, ours: tuple[int, int], relay: tuple[int, int]) -> None:
    """B, dragoman and whoever else can be had, in turns; `ours` and `relay` are process and port."""
    servers = [Server("B", *relay, always="openai_chat"), Server("dragoman", *ours)]
    started = []
    _, core = bench.cores()
    try:
        for name, start in STARTS.items():
            try:
                server, process = start(state, upstream, core)
            except MissingError as error:
                print(f"{name} is left out: {error}")
                continue
            started.append(process)
            _wait(server)
            servers.append(server)
        rows = measure(args, servers)
        print_rows(rows, servers)
        if args.write:
            PAGE.write_text(page(args, rows, servers))
            print(f"written: {PAGE.relative_to(bench.ROOT)}")
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _wait(server: Server) -> None:
    """Until it answers, not only listens: what it loads on its first request is not what a request costs."""
    until = time.monotonic() + START_S
    body = bench.requests("openai_chat", stream=False, turns=1, tools=False, model="m")
    while True:
        try:
            bench.drive(server.port, "/v1/chat/completions", body, 1, 0.2, server.headers)
            return
        except (OSError, RuntimeError, EOFError) as error:
            if time.monotonic() > until:
                raise RuntimeError(f"{server.name} does not answer: {error}") from error
            time.sleep(0.5)


Rows = dict[str, dict[str, float]]  # case -> server -> microseconds a request


def measure(args: Any, servers: list[Server]) -> Rows:
    rows: Rows = {}
    for name, dialect, path, stream, turns, tools, model in bench.CASES:
        if args.only not in name:
            continue
        costs: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for server in servers:
                door = server.always or dialect
                if door not in server.doors:
                    continue
                body = bench.requests(door, stream=stream, turns=turns, tools=tools, model=model)
                where = path if door == dialect else "/v1/chat/completions"
                try:
                    used, _ = bench.measure(server.pid, server.port, where, body, args, server.headers)
                except RuntimeError as error:  # not 200: ours would be a bug, another's is told
                    if server.name in ("B", "dragoman"):
                        raise
                    server.failed[name] = str(error).partition("\r\n")[0]
                    continue
                costs.setdefault(server.name, []).append(used)
        rows[name] = {server: median(found) for server, found in costs.items()}
    return rows


def print_rows(rows: Rows, servers: list[Server]) -> None:
    names = [server.name for server in servers]
    print(f"\n{'CPU a request; in brackets, times B':38}" + "".join(f"{name:>20}" for name in names))
    for case, found in rows.items():
        cells = [f"{found[n]:9.0f}us ({found[n] / found['B']:.2f})" if n in found else "-" for n in names]
        print(f"{case:38}" + "".join(f"{cell:>20}" for cell in cells))
        if "stream" in case:
            cells = [f"{found[n] / bench.EVENTS:9.2f}us" if n in found else "-" for n in names]
            print(f"{'  per event':38}" + "".join(f"{cell:>20}" for cell in cells))
    for server in servers:
        for case, why in server.failed.items():
            print(f"{server.name} fails at {case}: {why}")


GROWTH = (
    "",
    "## A growing conversation",
    "",
    (
        "![CPU time by turn: a line that rises with each turn if all of it is read anew, and one that stays flat with"
        " known turns](growth.svg)"
    ),
    "",
    "Agents send their whole conversation with every turn. Turns that came before are neither read nor written again",
    "([decision 8](decisions/0008-known-turns.md)); `python bench/growth.py --write` measures and draws it.",
)


def page(args: Any, rows: Rows, servers: list[Server]) -> str:
    names = [server.name for server in servers if server.name != "B"]
    lines = [
        "# Speed",
        "",
        "<!-- Written by `python bench/gateway.py --peers --write`. -->",
        "",
        "Processor time of one request, as a multiple of B: a bare relay (uvicorn and aiohttp) that parses and encodes",
        "every body and every event once and does nothing else. All servers run at the same time on one machine, one",
        f"process each, {args.connections} connections, the same provider behind them; rounds take turns and each",
        f"number is the median of {args.rounds}. Ratios carry over to other machines, microseconds do not.",
        "",
        "| times B, lower is better | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
        *(_row(case, found, names, lambda cost, base: f"{cost / base:.2f}") for case, found in rows.items()),
        "",
        "| microseconds a request | B | " + " | ".join(names) + " |",
        "|---|" + "---:|" * (len(names) + 1),
        *(_row(case, found, ["B", *names], lambda cost, _: f"{cost:,.0f}") for case, found in rows.items()),
        "",
        f"A streamed answer has {bench.EVENTS} events; microseconds an event:",
        "",
        "| | B | " + " | ".join(names) + " |",
        "|---|" + "---:|" * (len(names) + 1),
        *(
            _row(case, found, ["B", *names], lambda cost, _: f"{cost / bench.EVENTS:.1f}")
            for case, found in rows.items()
            if "stream" in case
        ),
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}, with {LITELLM} and {PORTKEY}.",
        "A dash: that gateway has no such door in front of an OpenAI-compatible server, or did not answer here.",
        "",
        *[f"- {server.name}, {case}: `{why}`" for server in servers for case, why in server.failed.items()],
        *GROWTH,
        "",
    ]
    return "\n".join(lines)


def _row(case: str, found: dict[str, float], names: list[str], form: Callable[[float, float], str]) -> str:
    cells = [form(found[name], found["B"]) if name in found else "-" for name in names]
    return f"| {case} | " + " | ".join(cells) + " |"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a processor")
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"
