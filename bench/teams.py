"""What keys with limits, the ledger and budgets cost: gateways with and without them, in one run.

    python bench/teams.py [--rounds 5] [--seconds 1] [--connections 32] [--workers 1] [--engines]

"off" needs no key and writes no ledger. "on" checks a key with limits of its own and of its team, and writes a ledger.
"budget" also reserves and settles money. With --engines, limits are in Valkey, the rest is in PostgreSQL.
Rounds take turns; a ratio is the median of theirs. The time of the engines themselves is not in it.
"""

import argparse
import os
import sys
from contextlib import ExitStack
from statistics import median

from gateway import make_cases
from servers import EVENTS, ROOT, Served, measure, open_house, ratios_of

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
    with ExitStack() as stack, open_house() as house:
        words, engines = ("--workers", str(args.workers)), start_engines(stack) if args.engines else ""
        sides = {
            kind: house.start_gateway(*words, more=rules.format(secret=SECRET), head=engines if kind != "off" else "")
            for kind, rules in KINDS.items()
        }
        report(args, sides)
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


def report(args: argparse.Namespace, sides: dict[str, Served]) -> None:
    print(f"{'':38}{'off':>10}{'on':>10}{'ratio':>8}{'budget':>10}{'ratio':>8}")
    header = f"authorization: Bearer {SECRET}\r\n"
    for case in [case for case in make_cases() if args.only in case.name]:
        costs: dict[str, list[float]] = {kind: [] for kind in sides}
        for _ in range(args.rounds):
            for kind, served in sides.items():
                costs[kind].append(measure(served, case.request(header), args.connections, args.seconds))
        ratios = {kind: median(ratios_of(costs[kind], costs["off"])) for kind in costs}
        off, on, budget = (median(costs[kind]) for kind in ("off", "on", "budget"))
        print(f"{case.name:38}{off:8.0f}us{on:8.0f}us{ratios['on']:8.2f}{budget:8.0f}us{ratios['budget']:8.2f}")
        if case.streamed:
            print(f"{'  an event':38}{off / EVENTS:8.2f}us{on / EVENTS:8.2f}us{'':8}{budget / EVENTS:8.2f}us")


if __name__ == "__main__":
    sys.exit(main())
