"""Other gateways beside ours, for `python bench/gateway.py --peers`: the same load against the same provider.

LiteLLM, llm-rosetta and smg (PyPI), Portkey and claude-code-router (npm) are installed the first time, each in an
environment of its own under $XDG_CACHE_HOME/dragoman-peers, and run as their own documentation says, with one process
each, logs, telemetry and keys off. What cannot be installed here is said and left out.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import servers
from gateway import CHAT, MESSAGES, Case, make_cases
from servers import EVENTS, House, Served, free_port, load, open_house, ratios_of, run

LITELLM = "litellm==1.108.8"
LITELLM_NEEDS = "litellm[proxy]==1.106.2"  # whose dependencies serve it too, where an index lacks the newest ones
PORTKEY = "@portkey-ai/gateway@1.15.2"
HONO = "@hono/node-server@1.14.1"  # with the one that Portkey would choose, its streams fail
ROUTER = "@musistudio/claude-code-router@2.0.0"
ROSETTA = "llm-rosetta==0.13.0"
SMG = "smg==1.13.0"
INSTALL_S, START_S = 900, 120
PAGE = servers.ROOT / "docs" / "speed.md"


class MissingError(Exception):
    """Why a peer is not measured."""


@dataclass
class Peer:
    name: str
    served: Served
    headers: str = ""
    paths: tuple[str, ...] = (CHAT, MESSAGES)  # its doors that have an OpenAI-compatible server behind them
    anthropic: bool = False  # it also serves an Anthropic server to a Chat client
    failed: dict[str, str] = field(default_factory=dict)  # case -> the status line it answered with

    def has(self, case: Case) -> bool:
        return case.path in self.paths and (self.anthropic or "-> anthropic" not in case.name)


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dragoman-peers"


def install_python(package: str, program: str, needs: str = "") -> list[str]:
    """`needs`: another package that is installed first, and the dependencies of which are used."""
    folder = cache() / package
    if not (folder / "done").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        if needs:
            _run([*install, needs])
        _run([*install, "--no-deps", package] if needs else [*install, package])
        (folder / "done").touch()
    return [str(folder / "bin" / program)]


def install_node(packages: tuple[str, ...], script: str) -> list[str]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise MissingError("node and npm are not on PATH")
    folder = cache() / "+".join(packages).replace("/", "-")
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pinned = dict(package.rsplit("@", 1) for package in packages)
        (folder / "package.json").write_text(json.dumps({"dependencies": pinned, "overrides": pinned}))
        _run([npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel", "error"])
        (folder / "done").touch()
    return [node, str(folder / "node_modules" / script)]


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise MissingError(f"{Path(command[0]).name} could not install it ({type(error).__name__})") from error


# ---------------------------------------------------------------- how each is started


def start_litellm(house: House, folder: Path, port: int) -> Peer:
    file = folder / "litellm.yaml"
    upstream = f"http://127.0.0.1:{house.provider}"
    chat = f'{{model: hosted_vllm/m, api_base: "{upstream}/v1", api_key: bench-key}}'
    other = f'{{model: anthropic/anthropic, api_base: "{upstream}", api_key: bench-key}}'
    rows = f"  - model_name: m\n    litellm_params: {chat}\n  - model_name: anthropic\n    litellm_params: {other}\n"
    quiet = "litellm_settings: {telemetry: false}\nrouter_settings: {disable_cooldowns: true}\n"
    file.write_text(f"model_list:\n{rows}{quiet}")
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    words = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    command = install_python(LITELLM, "litellm", LITELLM_NEEDS)
    return Peer("LiteLLM", _start(house, [*command, *words], folder, port, env), anthropic=True)


def start_portkey(house: House, folder: Path, port: int) -> Peer:
    command = install_node((PORTKEY, HONO), "@portkey-ai/gateway/build/start-server.js")
    served = _start(house, [*command, f"--port={port}", "--headless"], folder, port, {"NODE_ENV": "production"})
    said = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{house.provider}/v1",
        "authorization": "Bearer x",
    }
    return Peer("Portkey", served, "".join(f"{name}: {value}\r\n" for name, value in said.items()), (CHAT,))


def start_router(house: House, folder: Path, port: int) -> Peer:
    own = folder / ".claude-code-router"
    own.mkdir()
    url = f"http://127.0.0.1:{house.provider}{CHAT}"
    provider = {"name": "far", "api_base_url": url, "api_key": "k", "models": ["m"]}
    settings = {"PORT": port, "HOST": "127.0.0.1", "LOG": False, "Providers": [provider]}
    (own / "config.json").write_text(json.dumps({**settings, "Router": {"default": "far,m"}}))
    command = install_node((ROUTER,), "@musistudio/claude-code-router/dist/cli.js")
    return Peer("ccr", _start(house, [*command, "start"], folder, port), paths=(MESSAGES,))


def start_rosetta(house: House, folder: Path, port: int) -> Peer:
    base = f"http://127.0.0.1:{house.provider}"
    providers = {
        "far": {"type": "openai_chat", "api_key": "k", "base_url": f"{base}/v1"},
        "claude": {"type": "anthropic", "api_key": "k", "base_url": base},
    }
    settings = {"host": "127.0.0.1", "port": port, "open_on_no_keys": True}
    file = folder / "rosetta.jsonc"
    models = {"m": "far", "anthropic": "claude"}
    file.write_text(json.dumps({"providers": providers, "models": models, "server": settings}))
    words = ["--config", str(file), "--no-banner", "--log-level", "error", "--data-dir", str(folder)]
    command = install_python(ROSETTA, "llm-rosetta-gateway")
    return Peer("llm-rosetta", _start(house, [*command, *words], folder, port), anthropic=True)


def start_smg(house: House, folder: Path, port: int) -> Peer:
    words = ["--worker-urls", f"http://127.0.0.1:{house.provider}", "--backend", "openai", "--policy", "round_robin"]
    words += ["--log-level", "error", "--prometheus-port", str(free_port()), "--host", "127.0.0.1", "--port", str(port)]
    return Peer("smg", _start(house, [*install_python(SMG, "smg"), "launch", *words], folder, port), paths=(CHAT,))


def _start(house: House, command: list[str], folder: Path, port: int, env: dict[str, str] | None = None) -> Served:
    whole = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "NO_PROXY": "*", **(env or {})}
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(
        command, env=whole, cwd=folder, stdout=nothing, stderr=nothing, preexec_fn=house.server_core
    )
    house.children.append(child)
    return Served(child.pid, port)


STARTS: tuple[Callable[[House, Path, int], Peer], ...] = (
    start_smg,
    start_portkey,
    start_router,
    start_rosetta,
    start_litellm,
)


def wait_for(peer: Peer) -> None:
    """Until it answers, not only listens: what it loads on its first request is not what a request costs."""
    until = time.monotonic() + START_S
    case = next(case for case in make_cases() if peer.has(case))
    while True:
        try:
            run(load(peer.served.port, case.request(peer.headers), 1, 0.2))
            return
        except (OSError, RuntimeError, EOFError) as error:
            if time.monotonic() > until:
                raise MissingError(f"it does not answer: {str(error)[:200]}") from error
            time.sleep(0.5)


# ---------------------------------------------------------------- the comparison


def compare(args: Any) -> int:
    began = time.monotonic()
    with open_house() as house:
        peers = [Peer("raw", house.start_raw(), anthropic=True), Peer("B", house.start_relay(), anthropic=True)]
        peers.append(Peer("dragoman", house.start_gateway(), anthropic=True))
        for number, start in enumerate(STARTS):
            folder = house.folder / f"peer-{number}"
            folder.mkdir()
            try:
                peer = start(house, folder, free_port())
                wait_for(peer)
                peers.append(peer)
                print(f"{peer.name} answers", flush=True)
            except MissingError as error:
                print(f"{start.__name__.removeprefix('start_')} is left out: {error}", flush=True)
        costs = measure_all(args, peers)
        text = page(args, costs, peers, time.monotonic() - began)
        print(text)
        if args.write:
            PAGE.write_text(text)
            print(f"written: {PAGE.relative_to(servers.ROOT)}")
    return 0


Costs = dict[str, dict[str, list[float]]]  # case -> server -> microseconds a request, of each round


def measure_all(args: Any, peers: list[Peer]) -> Costs:
    costs: Costs = {}
    for case in make_cases():
        found: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for peer in peers:
                if not peer.has(case) or case.name in peer.failed:
                    continue
                try:
                    used = _measure(args, peer, case)
                except (RuntimeError, OSError, EOFError) as error:  # ours would be a bug; another's is told
                    if peer.name in ("raw", "B", "dragoman"):
                        raise
                    peer.failed[case.name] = str(error).partition("\r\n")[0] or type(error).__name__
                    continue
                found.setdefault(peer.name, []).append(used)
        costs[case.name] = found
        print(case.name, {name: round(median(each)) for name, each in found.items()}, flush=True)
    return costs


def _measure(args: Any, peer: Peer, case: Case) -> float:
    """A peer that takes 300 ms for a request gets fewer connections: a round must end."""
    slow = peer.name in ("LiteLLM", "ccr", "llm-rosetta")
    return servers.measure(peer.served, case.request(peer.headers), 4 if slow else args.connections, args.seconds)


# ---------------------------------------------------------------- the page

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
    "",
    "[Decision 9](decisions/0009-speed.md) says what made it faster, and what did not.",
)


def page(args: Any, costs: Costs, peers: list[Peer], took_s: float) -> str:
    names = [peer.name for peer in peers]
    others = [name for name in names if name != "raw"]
    lines = [
        "# Speed",
        "",
        "<!-- Written by `python bench/gateway.py --peers --write`. -->",
        "",
        "Processor time of one request. *raw* is the smallest server and client in Python that translate the same and",
        "do nothing else. *B* is the same translation between uvicorn and aiohttp. Both are in `bench/`.",
        "All servers run at the same time on one machine, one process each, with the same provider behind them, and",
        f"{args.connections} connections (4 for LiteLLM, llm-rosetta and ccr). Each request is new to them. Rounds",
        f"take turns. A number is the median of {args.rounds} rounds, with the lowest and the highest in brackets.",
        "Ratios carry over to other machines, microseconds do not.",
        "",
        "| times raw, lower is better | " + " | ".join(others) + " |",
        "|---|" + "---:|" * len(others),
        *(_row(case, [_times(found, name) for name in others]) for case, found in costs.items()),
        "",
        "| microseconds a request | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
        *(_row(case, [_micros(found, name) for name in names]) for case, found in costs.items()),
        "",
        f'c, d and s are streamed answers of {EVENTS} events. "again" is the same request sent again and again.',
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}, in {took_s / 60:.0f} minutes, with {LITELLM},",
        f"{PORTKEY} ({HONO}), {ROUTER}, {ROSETTA} and {SMG}.",
        "A dash: that gateway has no such door in front of such a server, or did not answer here.",
        "",
        *[f"- {peer.name}, {case}: `{why}`" for peer in peers for case, why in peer.failed.items()],
        *GROWTH,
        "",
    ]
    return "\n".join(lines)


def _row(case: str, cells: list[str]) -> str:
    return f"| {case} | " + " | ".join(cells) + " |"


def _times(found: dict[str, list[float]], name: str) -> str:
    if name not in found:
        return "-"
    times = ratios_of(found[name], found["raw"])
    form = "{:.2f}" if median(times) < 20 else "{:,.0f}"
    low, middle, high = (form.format(value) for value in (times[0], median(times), times[-1]))
    return f"{middle} ({low}-{high})"


def _micros(found: dict[str, list[float]], name: str) -> str:
    if name not in found:
        return "-"
    return f"{median(found[name]):,.0f} ({min(found[name]):,.0f}-{max(found[name]):,.0f})"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a processor")
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"
