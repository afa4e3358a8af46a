"""`dragoman usage`: what was used and what it cost, by team, key, model and time."""

import argparse
import sys
import time
from pathlib import Path

from dragoman.cli.style import paint
from dragoman.errors import ConfigError

NAME = "usage"
HELP = "show what was used and what it cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = "team, key, door, upstream, model, day, hour; and client, asked, status, tags of single requests"
    parser.add_argument("--by", default="team,model", metavar="team,model", help=words)
    parser.add_argument("--since", default="7d", metavar="7d", help="7d, 12h or a day as 2026-11-01 (7d)")
    parser.add_argument("--until", metavar="DAY", help="the end (now)")
    parser.add_argument("--where", action="append", default=[], metavar="team=web", help="only these; may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV")
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--export", type=Path, metavar="FILE", help="single requests to a .csv, .jsonl or .parquet file")
    form.add_argument("--audit", action="store_true", help="who changed keys, teams and the configuration")


def run(args: argparse.Namespace) -> int:
    try:
        return act(args)
    except (ConfigError, OSError, ValueError) as error:
        print(f"{paint('dragoman usage:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def act(args: argparse.Namespace) -> int:
    from dragoman.accounts import usage
    from dragoman.cli.admin import open_reports, open_store

    if args.audit:
        for row in open_store().read_audit(1000):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row.at))
            change = f"{bytes(row.before).decode()} -> {bytes(row.after).decode()}"
            print(f"{at}  {row.who}  {row.what}  {row.subject}  {change}")
        return 0
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
        print(usage.write_table(report, by) if report else "nothing was used")
    return 0


def read_where(words: list[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    if "" in found.values():
        raise ValueError("--where: expected NAME=VALUE")
    return found
