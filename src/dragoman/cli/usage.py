"""`dragoman usage`: what was used and what it cost, by team, key, model and time."""

import argparse
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.style import paint
from dragoman.cli.table import TableColumn, find_width, fit
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.accounts.ledger import Sums
    from dragoman.accounts.usage import ReportLine
    from dragoman.gateway.stores.keys import AuditRow

NAME = "usage"
HELP = "show what was used and what it cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = "columns: team, key, door, upstream, model, day, hour, client, asked, status, tags (default: team,model)"
    parser.add_argument("--by", default="team,model", metavar="team,model", help=words)
    parser.add_argument(
        "--since", default="7d", metavar="7d", help="the start: 7d, 12h or a day like 2026-11-01 (default: 7d)"
    )
    parser.add_argument("--until", metavar="DAY", help="the end: the start of this day (default: now)")
    parser.add_argument(
        "--where", action="append", default=[], metavar="team=web", help="only rows like this; repeat it for more"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV")
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--export", type=Path, metavar="FILE", help="single requests to a .csv, .jsonl or .parquet file")
    parser.add_argument(
        "--audit", action="store_true", help="changes of keys, teams and the configuration; also --json"
    )


def run(args: argparse.Namespace) -> int:
    try:
        return act(args)
    except BrokenPipeError:  # `usage | head`
        raise
    except (ConfigError, OSError, ValueError) as error:
        print(f"{paint('dragoman usage:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def act(args: argparse.Namespace) -> int:
    from dragoman.accounts import usage
    from dragoman.cli.admin import open_reports, open_store

    if args.audit:
        return show_audit(args, open_store().read_audit(1000))
    now = time.time()
    since = usage.read_since(args.since, now)
    until = usage.read_since(args.until, now) if args.until else now
    by = [word.strip() for word in args.by.split(",") if word.strip()]
    where = read_where(args.where)
    store = open_reports()
    try:
        if args.export is not None:
            count = usage.export(usage.all_rows(store, since, until, where), args.export)
            print(f"{count} requests written to {args.export}", file=sys.stderr)
            return 0
        report = usage.make_report(store, by, since, until, where)
    finally:
        store.close()
    if args.csv:
        sys.stdout.write(usage.write_csv(report, by))
    elif args.json:
        import msgspec

        print(msgspec.json.encode([line.sums for line in report]).decode())
    else:
        print("\n".join(write_table(report, by, find_width())) if report else "nothing was used")
    return 0


def show_audit(args: argparse.Namespace, rows: "Sequence[AuditRow]") -> int:
    import msgspec

    if args.csv or args.export is not None:
        raise ValueError("--audit: expected --json beside it, or nothing")
    if args.json:
        print(msgspec.json.encode(rows).decode())
        return 0
    for row in rows:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row.at))
        before, after = (msgspec.json.decode(text) for text in (row.before, row.after))
        if isinstance(before, dict) and isinstance(after, dict):  # only what changed; `--json` has everything
            same = [name for name in before if name in after and before[name] == after[name]]
            before, after = ({name: one[name] for name in one if name not in same} for one in (before, after))
        change = " -> ".join(msgspec.json.encode(one).decode() for one in (before, after))
        print(f"{at}  {row.who}  {row.what}  {row.subject}  {change}")
    return 0


def write_table(report: "Sequence[ReportLine]", by: Sequence[str], width: int | None) -> list[str]:
    """The report as a table. It marks a cost that is unknown for some requests. Days and hours are in their order."""
    from dragoman.accounts.usage import draw

    clock = next((word for word in by if word in ("day", "hour")), None)
    if clock is not None:
        report = sorted(report, key=lambda line: str(line.sums.by[clock]))
    columns = [
        *[TableColumn(word, cut=word != clock) for word in by],
        TableColumn("requests", right=True),
        TableColumn("failed", right=True, drop=2),
        TableColumn("input", right=True, drop=3),
        TableColumn("output", right=True, drop=4),
        TableColumn("cost", right=True),
        TableColumn("", drop=1),
    ]
    rows = []
    for line in report:
        sums = line.sums
        groups = [str(sums.by[word]) or "-" for word in by]
        given, made = sums.input + sums.cache_read + sums.cache_write, sums.output + sums.reasoning
        numbers = [f"{number:,}" for number in (sums.requests, sums.failed, given, made)]
        rows.append([*groups, *numbers, write_cost(sums), draw(line.chart) if clock is None else ""])
    lines = fit(columns, rows, width)
    if unknown := sum(line.sums.unpriced for line in report):
        words = f"The cost of {unknown:,} request{'' if unknown == 1 else 's'} is unknown. It is in no sum."
        lines += [words] if width is None else textwrap.wrap(words, width)
    return lines


def write_cost(sums: "Sums") -> str:
    """Rounded for people: `--csv` and `--json` have every digit."""
    if sums.unpriced == sums.requests:
        return "unknown"
    units = sums.cost / 1_000_000
    digits = 2 if units >= 1 or not sums.cost else 3 if units >= 0.01 else 6
    amount = f"{units:,.{digits}f}"
    return f"{amount} {sums.by.get('currency') or ''}".strip()


def read_where(words: list[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    if "" in found.values():
        raise ValueError("--where: expected NAME=VALUE")
    return found
