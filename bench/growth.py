"""What each turn of a growing conversation costs the gateway: read, and written for a server of another dialect. Then
what it costs a client of the library, whose caller gives all turns again as objects.

    python bench/growth.py [--turns 400] [--write]      # --write: docs/growth.svg

An agent sends its whole conversation with every turn. CPU time with known turns and without (decision 8), best of
several runs that take turns. Nothing is sent: the HTTP server costs the same either way.
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from goals import Goals
from msgspec.structs import replace
from samples import anthropic_request, tool

from dragoman.client import AsyncClient
from dragoman.client.prompts import build
from dragoman.convert import convert
from dragoman.dialects import CANONICAL, USUAL, find_dialect
from dragoman.exchange import ClientRequest
from dragoman.gateway.config.settings import RequestLimits
from dragoman.gateway.http import HeadFacts
from dragoman.gateway.scope import Scope
from dragoman.gateway.take_in import decode, decode_all_turns, decode_turns
from dragoman.jsontypes import dump_json
from dragoman.known_turns.history import KnownTurns, find_later
from dragoman.known_turns.read import find_cuts
from dragoman.known_turns.settings import KnownSettings
from dragoman.known_turns.tools import MOST_BYTES, KnownTools
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target, Upstream
from dragoman.upstream.upstream_state import UpstreamState

PICTURE = Path(__file__).parent.parent / "docs" / "growth.svg"
OWNER, PATH = ("key", "anthropic"), "/v1/messages"
ROUNDS = 5
SHOWN = (2, 10, 50, 100, 200, 400)


def bodies(turns: int, tools: int = 10) -> list[bytes]:
    """The requests of one conversation: each has two messages more than the one before, about 2 KB."""
    whole = json.loads(anthropic_request(4 * turns, 170, 10))
    whole["tools"] = [tool(i) for i in range(tools)]
    said = whole["messages"]
    return [json.dumps({**whole, "messages": said[: 2 * i + 1]}, separators=(",", ":")).encode() for i in range(turns)]


def run(requests: list[bytes], most_bytes: int) -> list[float]:
    """CPU microseconds of each request."""
    http = SimpleNamespace(headers={}, unique_id="u", key_id="key", facts=HeadFacts())
    now = SimpleNamespace(settings=SimpleNamespace(limits=RequestLimits(entries=100_000)))
    stub: Any = SimpleNamespace(dialect=find_dialect("anthropic"), http=http, refuse=frozenset(), now=now)
    most = MOST_BYTES if most_bytes else 0
    stub.gateway = SimpleNamespace(known_tools=KnownTools(most), known_settings=KnownSettings(most))
    scope = cast("Scope", stub)
    known, state = (
        KnownTurns(most_bytes),
        UpstreamState(Upstream(name="far", kind="vllm", dialect="openai_chat", dialects=("openai_chat",)), lambda: 0.0),
    )
    costs = []
    for raw in requests:
        started = time.process_time()
        asked = take_in(scope, known, raw) if most_bytes else decode(scope, raw, PATH)
        render(asked, state, Target(state.spec, "m"), stream=True, refuse=frozenset())
        costs.append((time.process_time() - started) * 1e6)
    return costs


def take_in(scope: Scope, known: KnownTurns, raw: bytes) -> ClientRequest:
    alike = known.find_alike(OWNER, raw)
    later = find_later(alike, raw)
    if later is not None:
        find_cuts(later)
    hit = known.find(alike, raw, 0.0)
    found = None if hit is None else decode_turns(scope, raw, PATH, hit)
    asked, history = found or decode_all_turns(scope, raw, PATH)
    if history is not None:
        known.keep(OWNER, history, 0.0, instead=None if hit is None else hit.history)
    return asked


def compare(requests: list[bytes]) -> tuple[list[float], list[float]]:
    """Without known turns, and with them."""
    gc.collect()
    gc.disable()
    runs = [(run(requests, 0), run(requests, 10**9)) for _ in range(ROUNDS)]
    gc.enable()
    without, known = ([min(costs) for costs in zip(*side, strict=True)] for side in zip(*runs, strict=True))
    return without, known


def prompts(turns: int) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The same conversation as the prompts of a client, and its tools."""
    whole = convert(bodies(turns)[-1], source="anthropic", to=USUAL).body
    said = [turn for turn in whole["messages"] if turn["role"] != "system"]
    return [said[: 2 * i + 1] for i in range(turns)], whole["tools"]


def run_client(asked: list[list[dict[str, Any]]], tools: list[dict[str, Any]], known_turns_mb: int) -> list[float]:
    """CPU microseconds that a client needs to build and to write each request."""
    client = AsyncClient("anthropic", api_key="k", known_turns_mb=known_turns_mb)
    state, target = client.upstreams.targets("m")[0]
    costs = []
    for prompt in asked:
        started = time.process_time()
        built = build("m", prompt, {"tools": tools}, known=client._prompts)
        request = replace(built.request, stream=True)
        asks = ClientRequest(dialect=find_dialect(CANONICAL), request=request, same_wire=False, known=built.known)
        render(asks, state, target, stream=True, refuse=frozenset())
        costs.append((time.process_time() - started) * 1e6)
    return costs


def bench_client(goals: Goals, turns: int = 80) -> None:
    asked, tools = prompts(turns)
    gc.collect()
    gc.disable()
    rounds = [(run_client(asked, tools, 0), run_client(asked, tools, 32)) for _ in range(3 * ROUNDS)]
    gc.enable()
    without, known = ([min(costs) for costs in zip(*side, strict=True)] for side in zip(*rounds, strict=True))
    last, size = min(known[-5:]), len(dump_json(asked[-1])) // 1000
    print(f"a client, turn 2: {min(without[1:4]):.0f} us, with known turns {min(known[1:4]):.0f}")
    print(f"a client, turn {turns} ({size} KB): {min(without[-5:]):.0f} us, with known turns {last:.0f}\n")
    goals.add(f"a client's turn of {size} KB, times its turn 2", last / min(known[1:4]), 1.5)


def draw(turns: int, without: list[float], known: list[float]) -> str:
    """The costs by turn, as a picture."""
    width, height, left, top = 720, 320, 60, 30
    most = max(without)

    def line(costs: list[float]) -> str:
        step = max(1, turns // 180)
        points = [
            f"{left + i / turns * width:.1f},{top + height - min(costs[i : i + step]) / most * height:.1f}"
            for i in range(0, turns - step + 1, step)
        ]
        return " ".join(points)

    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 90} {height + 80}" font-family="sans-serif">'
    ]
    rows.append(f'<rect width="{width + 90}" height="{height + 80}" fill="white"/>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = top + height * (1 - share)
        rows.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#ddd"/>')
        rows.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{most * share / 1000:.1f}</text>')
    for turn in range(0, turns + 1, max(1, turns // 8)):
        x = left + turn / turns * width
        rows.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">{turn}</text>')
    for words, costs, colour, y in (
        ("each read anew", without, "#b3402c", 20),
        ("turns known", known, "#2c6fb3", 38),
    ):
        rows.append(f'<polyline points="{line(costs)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        rows.append(f'<text x="{left + 12}" y="{top + y}" fill="{colour}">{words}</text>')
    words = "turn of a conversation (2 KB each); CPU milliseconds to read and write it"
    rows.append(f'<text x="{left}" y="{top + height + 42}">{words}</text></svg>')
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    requests, goals = bodies(args.turns), Goals()
    without, known = compare(requests)
    print("a growing conversation, Anthropic -> Chat: CPU us to read and write one request\n")
    print(f"{'turn':>6}{'bytes':>10}{'read anew':>12}{'turns known':>13}")
    for turn in [turn for turn in SHOWN if turn <= args.turns]:
        near = slice(max(turn - 3, 1), turn + 2)  # of the neighbours: one alone may be disturbed
        costs = min(without[near]), min(known[near])
        print(f"{turn:>6}{len(requests[turn - 1]):>10}{costs[0]:>12.0f}{costs[1]:>13.0f}")
    print()
    if args.turns > 100:
        goals.add("turn 100, times turn 2", min(known[96:101]) / min(without[1:4]), 1.5)
    bench_client(goals)
    goals.add("200 tools sent again", min(compare(bodies(12, 200))[1][4:]) / 1000, 0.3, "ms")
    long = compare(bodies(600)[-4:])[1]  # the first is new, the others go on
    goals.add(f"{len(bodies(600)[-1]) / 1e6:.1f} MB of history, the next turn", min(long[2:]) / 1000, 3.0, "ms")
    if args.write:
        PICTURE.write_text(draw(args.turns, without, known))
    return goals.end()


if __name__ == "__main__":
    sys.exit(main())
