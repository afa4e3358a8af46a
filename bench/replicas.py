"""Three gateways behind nginx with Valkey and PostgreSQL: each is killed, stopped and cut off, under load.

    python bench/replicas.py [--minutes 10] [--clients 24] [--seed 1]

It needs nginx, and installs the two engines where they are missing. The run fails when a request failed and no killed
gateway explains it, when in some 60 seconds a limit was exceeded, when a row of the ledger is missing or there twice,
or when a budget is not the sum of its rows.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DRAGOMAN_REAL", "1")

from tests.engines.replicas import TIA, Chaos, Load, Street, judge, open_street, show  # noqa: E402


async def run(street: Street, minutes: float, clients: int, seed: int) -> int:
    async with Load(street, clients, seed) as load:
        passed = [one.status for one in await asyncio.gather(*(load.ask("tia") for _ in range(2 * TIA)))].count(200)
        print(f"of {2 * TIA} requests at once, {passed} passed a budget for {TIA}", flush=True)
        load.begin()
        chaos = Chaos(street, load, asyncio.sleep)
        began, end = time.monotonic(), time.monotonic() + 60 * minutes
        rounds = 0
        while time.monotonic() < end:
            rounds += 1
            await one_round(chaos, street, began)
        await load.stop()
        verdict = await judge(street, load)
    print(show(verdict))
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s; {len(verdict.faults)} faults")
    return 1 if verdict.faults or passed != TIA else 0


async def one_round(chaos: Chaos, street: Street, began: float) -> None:
    steps = [
        *[chaos.kill(replica) for replica in street.replicas],
        chaos.restart_valkey(),
        chaos.stop_postgres(30),
        chaos.cut("valkey", 15),
        chaos.cut("postgres", 15),
        chaos.cut("valkey", 10, street.replicas[0]),
        chaos.cut("postgres", 10, street.replicas[1]),
        *[chaos.restart(replica) for replica in street.replicas],
    ]
    for step in steps:
        await step
        print(f"{time.monotonic() - began:6.0f} s  {chaos.did[-1]}", flush=True)
        await asyncio.sleep(3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="copy the gateways' logs there")
    args = parser.parse_args()
    with open_street(lease_s=60) as street:
        try:
            return asyncio.run(run(street, args.minutes, args.clients, args.seed))
        finally:
            if args.keep is not None:
                args.keep.mkdir(parents=True, exist_ok=True)
                for replica in street.replicas:
                    (args.keep / f"gateway-{replica.number}.log").write_bytes((replica.folder / "log").read_bytes())


if __name__ == "__main__":
    sys.exit(main())
