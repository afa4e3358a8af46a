"""What keys with limits, the ledger and budgets cost: gateways with and without them, in one run.

    python bench/teams.py [--rounds 5] [--seconds 1] [--connections 32] [--workers 1] [--engines]

"off" needs no key and writes no ledger. "on" checks a key with limits of its own and of its team, and writes a ledger.
"budget" also reserves and settles money. With --engines, limits are in Valkey, the rest is in PostgreSQL.
Rounds take turns; a ratio is the median of theirs. The time of the engines themselves is not in it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from gateway import CASES, EVENTS, ROOT, cores, cpu_s, drive, free_port, requests, wait_for

SECRET = "a-key-for-the-bench-only"  # noqa: S105
TEAM = (
    '[team.web]\nrpm = 100000000\ntpm = 100000000000\n[key.ada]\nsecret = "{secret}"\nteam = "web"\nrpm = 100000000\n'
)
MORE = "tpm = 100000000000\nat_once = 1000\n"
PRICE = '[prices."*"]\ninput = 1\noutput = 1\n'
ENGINES = 'state = "{state}"\ndatabase = "{database}"\n'
KINDS = {"off": "", "on": TEAM + MORE, "budget": TEAM + MORE + 'budget = "1000000 USD/month"\n' + PRICE}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--engines", action="store_true")
    args = parser.parse_args()
    base = Path("/dev/shm" if Path("/dev/shm").is_dir() else ".") / f"dragoman-teams-{os.getpid()}"  # noqa: S108
    provider, ports = free_port(), {kind: free_port() for kind in KINDS}
    load_core, server_core = cores()
    me = [sys.executable, str(Path(__file__).with_name("gateway.py")), "--child", "provide", str(provider)]
    env = {**os.environ, "DRAGOMAN_NO_PROBE": "1", "PYTHONPATH": str(ROOT / "src")}
    children = {"provider": subprocess.Popen(me, env=env, preexec_fn=load_core)}
    stack = ExitStack()
    try:
        engines = start_engines(stack) if args.engines else ""
        for kind, port in ports.items():
            folder = base / kind
            folder.mkdir(parents=True)
            lines = [
                "[providers.far]",
                'kind = "vllm"',
                'dialect = "openai_chat"',
                f'base_url = "http://127.0.0.1:{provider}/v1"',
            ]
            rules = KINDS[kind].format(secret=SECRET)
            head = engines if kind != "off" else ""
            text = "\n".join([head, *lines, 'api_key = "bench"', 'models = ["m"]', rules])
            (folder / "dragoman.toml").write_text(text)
            words = [sys.executable, "-m", "dragoman", "serve", "--config", str(folder / "dragoman.toml")]
            words += ["--port", str(port), "--workers", str(args.workers)]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            own = {**env, "DRAGOMAN_HOME": str(folder)}
            children[kind] = subprocess.Popen(words, env=own, preexec_fn=server_core, **quiet)  # type: ignore[call-overload]
            wait_for(port)
        load_core()
        report(args, children, ports)
    finally:
        for child in children.values():
            child.send_signal(signal.SIGTERM)
        for child in children.values():
            child.wait()
        stack.close()
        shutil.rmtree(base)
    return 0


def start_engines(stack: ExitStack) -> str:
    """Both of them, with empty tables; the lines of a configuration that name them."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DRAGOMAN_REAL", "1")
    from dragoman.postgres.database import Database, migrate
    from tests.engines.servers import postgres_server, valkey_server

    valkey, postgres = stack.enter_context(valkey_server()), stack.enter_context(postgres_server())
    database = Database(postgres.url)
    migrate(database)
    database.close()
    return ENGINES.format(state=valkey.url, database=postgres.url)


def report(args: argparse.Namespace, children: dict[str, subprocess.Popen[bytes]], ports: dict[str, int]) -> None:
    print(f"{'':38}{'off':>10}{'on':>10}{'ratio':>8}{'budget':>10}{'ratio':>8}")
    header = f"authorization: Bearer {SECRET}\r\n"
    for name, dialect, path, stream, turns, tools, model in CASES:
        if args.only not in name:
            continue
        body = requests(dialect, stream=stream, turns=turns, tools=tools, model=model)
        costs: dict[str, list[float]] = {kind: [] for kind in ports}
        for _ in range(args.rounds):
            for kind, port in ports.items():
                drive(port, path, body, args.connections, 0.1, header)
                before = used_s(children[kind].pid)
                count, _ = drive(port, path, body, args.connections, args.seconds, header)
                costs[kind].append((used_s(children[kind].pid) - before) / count * 1e6)
        ratios = {
            kind: median(cost / off for cost, off in zip(costs[kind], costs["off"], strict=True)) for kind in costs
        }
        off, on, budget = (median(costs[kind]) for kind in ("off", "on", "budget"))
        print(f"{name:38}{off:8.0f}us{on:8.0f}us{ratios['on']:8.2f}{budget:8.0f}us{ratios['budget']:8.2f}")
        if stream:
            print(f"{'  per event':38}{off / EVENTS:8.2f}us{on / EVENTS:8.2f}us{'':8}{budget / EVENTS:8.2f}us")


def used_s(pid: int) -> float:
    """Of a process and its workers."""
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(cpu_s(int(worker)) for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
