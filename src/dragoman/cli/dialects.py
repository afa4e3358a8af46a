"""`dragoman dialects`: lists the dialects."""

import argparse
import json
import sys

from dragoman.cli.style import paint
from dragoman.dialects import NAMES, find_dialect

NAME = "dialects"
HELP = "list the protocols that can be converted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    rows = [(d.name.replace("_", "-"), d.title, d.media_type) for d in map(find_dialect, NAMES)]
    if args.json:
        print(json.dumps([{"name": name, "title": title, "stream": media} for name, title, media in rows]))
        return 0
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, title, media in rows:
        print(f"{paint(f'{name:<{widths[0]}}', 'bold', sys.stdout)}  {title:<{widths[1]}}  streams as {media}")
    print("\nEach converts to each: requests, replies, streams and errors.")
    return 0
