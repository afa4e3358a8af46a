"""The gateway beside raw and B, in one run: processor time a request, slow streams, latency, and what features cost.

    python bench/gateway.py [--rounds 5] [--seconds 1] [--connections 32] [--only WORD] [--quick]
    python bench/gateway.py --peers --write      # beside other gateways, to docs/speed.md (peers.py)

"raw" is the smallest server and client in Python that translate the same (raw.py). "B" is the same translation between
uvicorn and aiohttp. Rounds of all three take turns, and a ratio is the median of the rounds': what else the machine
does, it does to all. Each request has a text of its own at its beginning, so that nothing of it is known from before;
"again" is the same request sent again and again. What is measured, and how, is said in servers.py.
"""

import argparse
import sys
from collections.abc import Callable
from statistics import median

import servers
from goals import Goals
from servers import EVENTS, House, Request, Served, agent_body, measure, open_house, ratios_of, rss_mb, small_body

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


class Case:
    def __init__(self, name: str, path: str, body: bytes, wanted: float | None, *, fresh: bool = True) -> None:
        """`wanted`: times raw, at most."""
        self.name, self.path, self.body, self.wanted, self.fresh = name, path, body, wanted, fresh

    @property
    def streamed(self) -> bool:
        return "200 events" in self.name

    def request(self, headers: str = "") -> Request:
        return Request(self.path, self.body, headers, fresh=self.fresh)


def make_cases() -> list[Case]:
    tools, long = agent_body(20, 45), agent_body(160, 170)
    return [
        Case("a: chat -> chat, small", CHAT, small_body("m"), 3.0),
        Case("b: anthropic -> chat, 10 KB, tools", MESSAGES, tools, 3.0),
        Case("b again", MESSAGES, tools, None, fresh=False),
        Case("c: the same, 200 events", MESSAGES, agent_body(20, 45, stream=True), 1.4),
        Case("d: chat -> anthropic, 200 events", CHAT, small_body("anthropic", stream=True), 1.4),
        Case("s: chat -> chat, 200 events", CHAT, small_body("m", stream=True), None),
        Case("e: anthropic -> chat, 160 KB history", MESSAGES, long, 2.0),
        Case("e again", MESSAGES, long, None, fresh=False),
    ]


def compare(
    cases: list[Case], sides: dict[str, Served], args: argparse.Namespace, show: Callable[[str, str, list[float]], None]
) -> dict[str, dict[str, list[float]]]:
    """Microseconds a request: by case and server, of each round."""
    costs: dict[str, dict[str, list[float]]] = {}
    for case in cases:
        costs[case.name] = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, served in sides.items():
                costs[case.name][name].append(measure(served, case.request(), args.connections, args.seconds))
        for name in sides:
            show(case.name, name, costs[case.name][name])
    return costs


def bench_cases(args: argparse.Namespace, house: House, ours: Served, goals: Goals) -> None:
    sides = {"raw": house.start_raw(), "B": house.start_relay(), "dragoman": ours}
    print(f"\nCPU us a request {'':21}{'raw':>9}{'B':>9}{'dragoman':>10}{'x raw (from-to)':>21}{'x B':>7}\n")
    cases = [case for case in make_cases() if args.only in case.name]
    found = compare(cases, sides, args, lambda *_: None)
    for case in cases:
        costs = found[case.name]
        raw, b, mine = (median(costs[name]) for name in ("raw", "B", "dragoman"))
        to_raw, to_b = ratios_of(costs["dragoman"], costs["raw"]), ratios_of(costs["dragoman"], costs["B"])
        span = f"{median(to_raw):.2f} ({to_raw[0]:.2f}-{to_raw[-1]:.2f})"
        print(f"{case.name:38}{raw:>9.0f}{b:>9.0f}{mine:>10.0f}{span:>21}{median(to_b):>7.2f}")
        if case.streamed:
            print(f"{'  an event':38}{raw / EVENTS:>9.2f}{b / EVENTS:>9.2f}{mine / EVENTS:>10.2f}")
    print()
    for case in cases:
        if case.wanted is not None:
            costs = found[case.name]
            goals.add(f"{case.name}, times raw", median(ratios_of(costs["dragoman"], costs["raw"])), case.wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", default="", help="of the cases, those with this word; nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer streams and shorter: to see that it works")
    parser.add_argument("--peers", action="store_true", help="beside other gateways instead (peers.py)")
    parser.add_argument("--write", action="store_true", help="with --peers: write docs/speed.md")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 1, 0.2
    if args.peers:
        import peers  # installs and starts other people's programs: only when asked

        return peers.compare(args)
    goals = Goals()
    with open_house() as house:
        ours = house.start_gateway()
        if not args.only:
            bench_start(house, goals)
        bench_cases(args, house, ours, goals)
        if not args.only:
            import features
            import loads

            loads.bench(args, house, goals)
            features.bench(args, house, goals)
    return goals.end()


def bench_start(house: House, goals: Goals) -> None:
    """How soon it answers, and what it holds when it has nothing to do."""
    print("the start\n")
    house.stop(house.start_gateway(upstreams=1))  # compiles
    started = [house.start_gateway(upstreams=1) for _ in range(5)]
    goals.add("ready after (best of 5)", min(one.ready_s for one in started), 0.35, "s")
    print(f"  ({min(one.used_s for one in started):.2f} s of processor time)")
    goals.add("memory with nothing to do", median(rss_mb(one.pid) for one in started), 42, "MB")
    for one in started:
        house.stop(one)


if __name__ == "__main__":
    sys.path.insert(0, str(servers.ROOT / "src"))
    raise SystemExit(main())
