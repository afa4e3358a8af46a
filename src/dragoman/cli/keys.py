"""`dragoman keys`: client and admin keys of the gateway. A key is shown once; only its digest is kept."""

import argparse
import os
import sys
from datetime import UTC, datetime

from dragoman.cli.style import paint

NAME = "keys"
HELP = "make, list and revoke the gateway's client keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = parser.add_subparsers(title="what to do", metavar="new|list|revoke", required=True, dest="what")
    new = words.add_parser("new", help="make a key and show it once")
    new.add_argument("--name", default="", help="whose it is")
    new.add_argument("--admin", action="store_true", help="for /metrics and /xray, not for the doors")
    words.add_parser("list", help="list the keys there are, by id")
    revoke = words.add_parser("revoke", help="end a key; a running gateway heeds it within a second")
    revoke.add_argument("id", help="its id, as `list` shows it")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.auth import KeyStore
    from dragoman.gateway.config import state_folder

    store = KeyStore(state_folder(os.environ) / "keys.json")
    match args.what:
        case "new":
            print(store.new(args.name, admin=args.admin))
            print(f"kept as a digest in {store.path}; it is not shown again", file=sys.stderr)
        case "list":
            if not store.rows():
                print("no keys: none is needed on this machine; `dragoman keys new` makes one", file=sys.stderr)
            for row in store.rows():
                made = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d")
                state = paint("revoked", "red", sys.stdout) if row.revoked else "good"
                print(f"{row.id}  {'admin ' if row.admin else 'client'}  {made}  {state}  {row.name}")
        case _:
            if not store.revoke(args.id):
                print(f"{paint('dragoman keys:', 'red', sys.stderr)} no such key: {args.id}", file=sys.stderr)
                return 1
            print(f"{args.id} is revoked")
    return 0
