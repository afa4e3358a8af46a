"""`dragoman verify`: plays scenarios against providers, servers and gateways, and prints the results."""

import argparse
import asyncio
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dragoman import __version__
from dragoman.cli.arguments import read_decimal, read_whole
from dragoman.cli.style import Style, paint
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.conformance.runner import VerifyCell, VerifyRun
    from dragoman.conformance.runner_targets import VerifyTarget
    from dragoman.conformance.runner_wire import WireLine
    from dragoman.conformance.scenario import Scenario

NAME = "verify"
HELP = "play scenarios against providers, servers or gateways and show what works"
EPILOG = """Without a target it plays against every provider of the configuration or the environment. Providers without
a key or an answer are SKIP. Keys are read from the environment only. Exit code 0: nothing failed; 1: something failed;
2: bad usage."""
NOTHING_PLAYED = """Nothing was played. Set a key, or name a server: dragoman verify --url URL --dialect openai-chat.
Without either, `dragoman verify --scripted` plays against the built-in scripted providers.
"""
KEY_VARIABLE = "DRAGOMAN_VERIFY_KEY"
PLAIN_WIDTH = 120
TOKENS_EACH = 500  # a guess: tokens of one request of a scenario and its answer
MOST_COLUMNS = 12
STYLES: dict[str, Style] = {"PASS": "green", "FAIL": "red", "SKIP": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    where = parser.add_argument_group("targets")
    where.add_argument("--config", type=Path, metavar="FILE", help="dragoman.toml or config.json with the providers")
    where.add_argument("--url", help="any server that speaks --dialect")
    where.add_argument(
        "--dialect", action="append", default=[], metavar="DIALECT", help="of --url; repeat it for several"
    )
    where.add_argument("--kind", default="", metavar="KIND", help="of --url: a kind of `dragoman providers`")
    where.add_argument("--gateway", metavar="URL", help="a running dragoman (or another gateway), in each dialect")
    where.add_argument("--model", default="", help="the model (default: the first in its list)")
    where.add_argument("--key-env", default=KEY_VARIABLE, metavar="NAME", help="variable with the key for a URL")
    where.add_argument("--scripted", action="store_true", help="the strict scripted providers, in this process")
    where.add_argument("--doors", action="store_true", help="with --scripted: through a gateway")
    where.add_argument("--replay", type=Path, metavar="DIR", help="a recording, without a network")
    what = parser.add_argument_group("scenarios")
    what.add_argument("--only", action="append", default=[], metavar="NAME", help="only these targets (patterns)")
    what.add_argument("--scenario", action="append", default=[], metavar="NAME", help="only these (patterns)")
    what.add_argument(
        "--scenarios", action="append", type=Path, default=[], metavar="FILE", help="scenarios of your own"
    )
    what.add_argument("--form", action="store_true", help="judge only the form of answers, not their content")
    what.add_argument("--repeat", type=read_whole(1), default=1, metavar="N", help="play each N times")
    what.add_argument("--timeout", type=read_decimal, default=60.0, metavar="S", help="seconds a request may take")
    what.add_argument("--parallel", type=read_whole(1), default=4, metavar="N", help="scenarios at once")
    out = parser.add_argument_group("output")
    out.add_argument("--list", action="store_true", help="only show the targets and scenarios")
    out.add_argument("--json", action="store_true", help="the whole result as JSON")
    out.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    out.add_argument("--html", type=Path, metavar="FILE", help="write a page with all requests and replies")
    out.add_argument("--badge", type=Path, metavar="FILE", help="write a picture for a README, as SVG")
    out.add_argument("--baseline", type=Path, metavar="FILE", help="an earlier --json: fail only where it was better")
    out.add_argument("--yes", "-y", action="store_true", help="do not ask before paid requests are made")
    out.add_argument("--record", type=Path, metavar="DIR", help="save the traffic as cases, without secrets")
    out.add_argument("--docs", type=Path, metavar="FILE", help="write the page docs/verification.md")


def run(args: argparse.Namespace) -> int:
    try:
        return asyncio.run(run_command(args))
    except DragomanError as error:
        print(f"dragoman verify: {error}", file=sys.stderr)
        return 2


async def run_command(args: argparse.Namespace) -> int:
    from dragoman.conformance.runner import choose
    from dragoman.conformance.scenario import load_scenarios

    if args.docs is not None:
        from dragoman.conformance.verification import verification_page

        args.docs.write_text(await verification_page(), "utf-8")
        return 0
    scenarios = load_scenarios(*args.scenarios)
    chosen = choose([scenario.name for scenario in scenarios], args.scenario)
    scenarios = tuple(scenario for scenario in scenarios if scenario.name in chosen)
    if not scenarios:
        return misused(f"no scenario is called {' or '.join(args.scenario)}: see `dragoman verify --list`")
    if args.scripted:
        return await run_scripted(args, scenarios)
    targets = await asyncio.to_thread(find_targets, args)
    return await play(args, targets, scenarios)


async def run_scripted(args: argparse.Namespace, scenarios: tuple["Scenario", ...]) -> int:
    from dragoman.conformance.runner import choose
    from dragoman.conformance.verification import first_of_each, gateway_targets, scripted_targets
    from dragoman.upstream.profiles import load_rows

    kinds = choose(load_rows().kinds, args.only)
    if not kinds:
        return misused(f"no kind is called {' or '.join(args.only)}: see `dragoman providers`")
    args.only = []
    async with scripted_targets(kinds) as targets:
        if not args.doors:
            return await play(args, targets, scenarios)
        async with gateway_targets(first_of_each(targets)) as through:
            return await play(args, through, scenarios)


def find_targets(args: argparse.Namespace) -> list["VerifyTarget"]:
    from dragoman.conformance.record import recorded_targets
    from dragoman.conformance.runner_targets import configured_targets, door_targets, url_targets

    key = os.environ.get(args.key_env, "")
    if args.replay is not None:
        return recorded_targets(args.replay)
    found: list[VerifyTarget] = []
    if args.gateway:
        found += door_targets(args.gateway, model=args.model, key=key, name="gateway")
    if args.url:
        if not args.dialect:
            raise DragomanError("--url needs --dialect: the dialect of the server")
        found += url_targets(args.url, args.dialect, model=args.model, key=key, kind=args.kind)
    return found or configured_targets(args.config, os.environ, Path.cwd(), args.dialect)


async def play(args: argparse.Namespace, targets: list["VerifyTarget"], scenarios: tuple["Scenario", ...]) -> int:
    from dragoman.conformance.report import read_baseline
    from dragoman.conformance.runner import VerifyOptions, choose, verify
    from dragoman.read_struct import suggest

    if not targets:
        return misused("there is no target: give --url or --gateway, or set the key of a provider (see --help)")
    known = [target.name for target in targets]
    names = choose(known, args.only)
    targets = [
        must_answer(target) if target.name in args.only else target for target in targets if target.name in names
    ]
    if not targets:
        return misused(f"no target is called {' or '.join(args.only)}; {suggest(args.only[0], known)}")
    if args.list:
        show_list(targets, scenarios)
        return 0
    options = VerifyOptions(repeat=args.repeat, timeout_s=args.timeout, parallel=args.parallel, meaning=not args.form)
    before = read_baseline(args.baseline.read_bytes()) if args.baseline is not None else None
    if not args.scripted and args.replay is None and not agree(args, targets, scenarios):
        return misused("nothing was sent")
    line = make_line(args)
    table = ProgressTable(sys.stderr if args.json else sys.stdout, targets, scenarios)
    try:
        result = await verify(targets, scenarios, options, line=line, watch=table.update)
    finally:
        if line is not None:
            await line.close()
    table.finish(result)
    write_reports(args, result)
    if before is None:
        return 1 if result.count("FAIL") else 0
    return report_worse(before, result)


def report_worse(before: dict[tuple[str, str], str], result: "VerifyRun") -> int:
    """Names each cell that was better in an earlier run; the exit code."""
    from dragoman.conformance.runner import worse_than

    worse = worse_than(before, result)
    down = {target.name for target in result.targets if target.down}
    for name in sorted({cell.target for cell in worse} & down):
        print(f"worse than before: {name}: it answered then", file=sys.stderr)
    for cell in worse:
        if cell.target not in down:
            words = f"{cell.target} · {cell.scenario}: {cell.outcome} {cell.words}"
            print(f"worse than before: {words}", file=sys.stderr)
    return 1 if worse else 0


def must_answer(target: "VerifyTarget") -> "VerifyTarget":
    """A target that the command line names. It fails if it does not answer; without a key it stays a SKIP."""
    from msgspec.structs import replace

    if target.absent:
        return replace(target, named=True, down=target.skip, skip="")
    return replace(target, named=True)


def agree(args: argparse.Namespace, targets: list["VerifyTarget"], scenarios: tuple["Scenario", ...]) -> bool:
    """Says how many requests will be paid for. On a terminal it asks first."""
    from urllib.parse import urlsplit

    from dragoman.conformance.runner import count_requests
    from dragoman.network import is_this_machine

    paid = [t for t in targets if not t.skip and not is_this_machine(urlsplit(t.base_url).hostname or "localhost")]
    if not paid:
        return True
    count = count_requests(paid, scenarios, args.repeat)
    names = ", ".join(sorted({target.name for target in paid}))
    cost = estimate_cost(paid, scenarios, args.repeat) or "at a price that is not known here"
    question = f"This makes about {count} requests to {names}: roughly {count * TOKENS_EACH:,} tokens, {cost}."
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        print(question, file=sys.stderr)
        return True
    print(f"{question} Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def estimate_cost(targets: list["VerifyTarget"], scenarios: tuple["Scenario", ...], repeat: int) -> str:
    """About what all requests cost, by the built-in prices; "" if the price of a model is not known."""
    from dragoman.accounts.prices import Cost, PriceTable, count_cost
    from dragoman.conformance.runner import count_requests
    from dragoman.model.reply import Usage

    prices, sums = PriceTable(), dict[str, int]()
    for target in targets:
        tokens = count_requests([target], scenarios, repeat) * TOKENS_EACH
        usage = Usage(input=tokens * 4 // 5, output=tokens // 5)
        cost = count_cost(prices.find(target.name, target.kind, target.model), usage)
        if cost is None:
            return ""
        sums[cost.currency] = sums.get(cost.currency, 0) + cost.micros
    totals = [Cost(round(micros, -4) or 10_000, currency) for currency, micros in sums.items()]
    return f"about {' and '.join(map(str, totals))}"


def make_line(args: argparse.Namespace) -> "WireLine | None":
    from dragoman.conformance.record import RecordedSender, Recorder
    from dragoman.conformance.runner_wire import LiveSender

    if args.replay is not None:
        return RecordedSender(args.replay)
    return Recorder(LiveSender(), args.record) if args.record is not None else None


def write_reports(args: argparse.Namespace, result: "VerifyRun") -> None:
    from dragoman.conformance.report import as_badge, as_json, as_junit
    from dragoman.conformance.report_html import as_html

    if args.json:
        sys.stdout.buffer.write(as_json(result) + b"\n")
    if args.junit is not None:
        args.junit.write_text(as_junit(result), "utf-8")
    if args.badge is not None:
        args.badge.write_text(as_badge(result), "utf-8")
    if args.html is not None:
        made = f"dragoman {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        args.html.write_text(as_html(result, "dragoman verify", made), "utf-8")


def misused(message: str) -> int:
    print(f"dragoman verify: {message}", file=sys.stderr)
    return 2


def show_list(targets: list["VerifyTarget"], scenarios: tuple["Scenario", ...]) -> None:
    print("targets")
    names = max((len(target.name) for target in targets), default=0)
    dialects = max((len(target.dialect) for target in targets), default=0)
    for target in targets:
        why = paint(f"SKIP: {target.skip}", "dim", sys.stdout) if target.skip else ""
        words = "  ".join(word for word in (target.model, why) if word)
        print(f"  {target.name.ljust(names)}  {target.dialect.ljust(dialects)}  {words}")
    print("scenarios")
    width = max(len(scenario.name) for scenario in scenarios)
    for scenario in scenarios:
        print(f"  {scenario.name.ljust(width)}  {scenario.title}")


class ProgressTable:
    """The results so far. A terminal shows a table that is drawn again; a file gets a line per finished target."""

    def __init__(self, out: TextIO, targets: list["VerifyTarget"], scenarios: tuple["Scenario", ...]) -> None:
        self.out = out
        self._is_terminal = out.isatty()
        self._scenarios = scenarios
        self._names = [target.name for target in targets]
        self._width = max(len(name) for name in self._names)
        self._drawn = 0
        self._printed: set[str] = set()

    def update(self, run: "VerifyRun", cell: "VerifyCell") -> None:
        if self._is_terminal:
            self._draw(run)
            return
        done = sum(1 for target, _ in run.cells if target == cell.target)
        if any(target.down for target in run.targets if target.name == cell.target):
            return  # a file gets one line at the end
        if done == len(self._scenarios) and cell.target not in self._printed:
            self._printed.add(cell.target)
            self.out.write(self._line(run, cell.target) + "\n")
            self.out.flush()

    def _draw(self, run: "VerifyRun") -> None:
        size = shutil.get_terminal_size()
        rows = self._names[: max(1, size.lines - 3)]
        lines = [self._line(run, name) for name in rows]
        if len(rows) < len(self._names):
            lines.append(f"… and {len(self._names) - len(rows)} more targets")
        total = len(self._names) * len(self._scenarios)
        lines.append(f"{len(run.cells)} of {total}, {run.seconds:.0f} s")
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self.out.write(up + "".join(f"\r\x1b[K{line}\n" for line in lines))
        self.out.flush()
        self._drawn = len(lines)

    def _line(self, run: "VerifyRun", name: str) -> str:
        from dragoman.conformance.report import GLYPHS

        marks = []
        for scenario in self._scenarios:
            cell = run.cells.get((name, scenario.name))
            marks.append(" " if cell is None else paint(GLYPHS[cell.outcome], STYLES[cell.outcome], self.out))
        counts = f"{run.count('PASS', name)} PASS {run.count('FAIL', name)} FAIL {run.count('SKIP', name)} SKIP"
        seconds = sum(cell.seconds for cell in run.cells.values() if cell.target == name)
        return f"{name.ljust(self._width)}  {''.join(marks)}  {counts}  {seconds:.1f} s"

    def finish(self, run: "VerifyRun") -> None:
        from dragoman.conformance.report import explain

        width = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if self._is_terminal else PLAIN_WIDTH
        down = {target.name: target.down for target in run.targets if target.down}
        played = run.count("PASS") + run.count("FAIL")
        if played and len(self._names) <= MOST_COLUMNS and len(down) < len(self._names):  # the lines above are a table
            write_table(run, self.out, width)
        for name, why in down.items():
            self.out.write(paint(f"{name}: {why}. No scenario was played.", "red", self.out) + "\n")
        for cell in run.failures():
            if cell.target in down:
                continue
            head, *rest = explain(cell)
            self.out.write("\n" + paint(head, "red", self.out) + "\n" + "".join(f"{line}\n" for line in rest))
        write_reasons(run, self.out)
        totals = "  ".join(
            paint(f"{run.count(word)} {word}", STYLES[word], self.out) for word in ("PASS", "FAIL", "SKIP")
        )
        self.out.write(f"\n{totals}  in {run.seconds:.1f} s\n")
        if not played:
            self.out.write(NOTHING_PLAYED)
        self.out.flush()


def write_table(run: "VerifyRun", out: TextIO, width: int) -> None:
    from dragoman.conformance.report import table_blocks

    for rows in table_blocks(run, width):
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        out.write("\n")
        for row in rows:
            cells = [
                paint(word.ljust(widths[i]), STYLES[word], out) if word in STYLES else word.ljust(widths[i])
                for i, word in enumerate(row)
            ]
            out.write("  ".join(cells).rstrip() + "\n")


def write_reasons(run: "VerifyRun", out: TextIO) -> None:
    """Prints each reason for a SKIP once, with its targets."""
    found: dict[str, list[str]] = {}
    for target in run.targets:
        skipped = [cell for cell in run.cells.values() if cell.target == target.name and cell.outcome == "SKIP"]
        reasons = {cell.words for cell in skipped}
        if len(reasons) == 1 and len(skipped) == len(run.scenarios):
            found.setdefault(reasons.pop(), []).append(target.name)
        else:
            for cell in skipped:
                found.setdefault(f"{cell.scenario}: {cell.words}", []).append(target.name)
    from dragoman.conformance.report import printable

    if found:
        out.write("\nSKIP\n")
    for reason, names in found.items():
        targets = ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
        out.write(paint(printable(f"  {targets}: {reason}"), "dim", out) + "\n")
