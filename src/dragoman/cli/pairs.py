"""`dragoman pairs`: measures every pair of dialects, with recorded traffic or with our own probes."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from dragoman.cli.style import paint
from dragoman.conformance.pages import KINDS
from dragoman.conformance.pairs import DIALECTS, measure_pairs
from dragoman.conformance.recorded import Tally, is_corpus, tally_pairs

NAME = "pairs"
HELP = "measure what each pair of dialects carries"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", nargs="?", help="a folder with cases/<dialect>/<case>/; without it, our own probes")
    parser.add_argument("--from", dest="source", metavar="DIALECT", choices=DIALECTS, help="only from this dialect")
    parser.add_argument("--to", metavar="DIALECT", choices=DIALECTS, help="only to this dialect")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--failures", action="store_true", help="name each case that failed, and why")


def run(args: argparse.Namespace) -> int:
    sources = (args.source,) if args.source else DIALECTS
    targets = (args.to,) if args.to else DIALECTS
    if args.corpus is None:
        return show_probes(sources, targets, as_json=args.json)
    root = Path(args.corpus)
    if not is_corpus(root):
        print(f"dragoman pairs: {root}: expected a folder with cases/<dialect>/<case>/ in it", file=sys.stderr)
        return 2
    tallies = tally_pairs(root, sources, targets)
    print(json.dumps([as_row(tally) for tally in tallies]) if args.json else table(tallies))
    if args.failures:
        for tally in tallies:
            for failure in tally.failed:
                print(f"{tally.source} -> {tally.target}: {failure}")
    return 1 if any(tally.failed for tally in tallies) else 0


def as_row(tally: Tally) -> dict[str, object]:
    counts = {kind: tally.notes.get(kind, 0) for kind in KINDS}
    return {
        "from": tally.source,
        "to": tally.target,
        "cases": tally.cases,
        **counts,
        "failures": len(tally.failed),
        "score": round(tally.score, 3),
    }


def table(tallies: list[Tally]) -> str:
    lines = [f"{'from':<17} {'to':<17} {'cases':>6} " + " ".join(f"{kind:>8}" for kind in KINDS) + "  failures  score"]
    for tally in tallies:
        counts = " ".join(f"{tally.notes.get(kind, 0):>8}" for kind in KINDS)
        failures = f"{len(tally.failed):>8}"
        shown = paint(failures, "red" if tally.failed else "green", sys.stdout)
        lines.append(f"{tally.source:<17} {tally.target:<17} {tally.cases:>6} {counts}  {shown}  {tally.score:>5.0%}")
    cases, failed = sum(tally.cases for tally in tallies), sum(len(tally.failed) for tally in tallies)
    return "\n".join(lines) + f"\n{len(tallies)} pairs, {cases} conversions, {failed} failures"


def show_probes(sources: tuple[str, ...], targets: tuple[str, ...], *, as_json: bool) -> int:
    """Counts the features that each pair carries. docs/pairs.md has the details."""
    rows = measure_pairs(tuple(dict.fromkeys((*sources, *targets))))
    found = []
    for source in sources:
        for target in targets:
            counts = Counter(row.cells[source, target].outcome for row in rows)
            found.append({"from": source, "to": target, **{o: counts[o] for o in ("carried", "adapted", "lost")}})
    if as_json:
        print(json.dumps(found))
        return 0
    print(f"{'from':<17} {'to':<17} {'carried':>8} {'adapted':>8} {'lost':>8}")
    for row in found:
        print(f"{row['from']:<17} {row['to']:<17} {row['carried']:>8} {row['adapted']:>8} {row['lost']:>8}")
    return 0
