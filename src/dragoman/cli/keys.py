"""`dragoman keys`: client and admin keys of the gateway. A key is shown once; only its digest is stored."""

import argparse
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dragoman.cli.style import paint
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.gateway.key_store import KeyStore

NAME = "keys"
HELP = "make, list and revoke the gateway's client keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="new|list|revoke", required=True, dest="what")
    new = actions.add_parser("new", help="make a key and show it once")
    new.add_argument("--name", default="", help="a name, to find it in the list")
    new.add_argument("--admin", action="store_true", help="for /metrics and /xray, not for models")
    actions.add_parser("list", help="list the keys by id")
    revoke = actions.add_parser("revoke", help="revoke a key; a running gateway refuses it within a second")
    revoke.add_argument("id", help="its id, as `list` shows it")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.config import state_folder
    from dragoman.gateway.key_store import open_key_store

    try:
        return act(args, open_key_store(state_folder(os.environ)))
    except ConfigError as error:
        print(f"{paint('dragoman keys:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def act(args: argparse.Namespace, store: "KeyStore") -> int:
    match args.what:
        case "new":
            print(store.new(args.name, admin=args.admin), flush=True)
            print(f"stored as a digest in {store.name}; it is not shown again", file=sys.stderr)
        case "list":
            show(store)
        case _:
            if not store.revoke(args.id):
                print(f"{paint('dragoman keys:', 'red', sys.stderr)} no such key: {args.id}", file=sys.stderr)
                return 1
            print(f"{args.id} is revoked")
            table = store.read()
            if table is not None and all(row.revoked for row in table.rows):
                print("no key is left; keys stay needed: `dragoman keys new` makes one", file=sys.stderr)
    return 0


def show(store: "KeyStore") -> None:
    table = store.read()
    if table is None or not table.rows:
        print("no keys. On this machine none is needed; `dragoman keys new` makes one", file=sys.stderr)
        return
    for row in table.rows:
        made = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d")
        state = paint("revoked", "red", sys.stdout) if row.revoked else "good"
        print(f"{row.id}  {'admin ' if row.admin else 'client'}  {made}  {state}  {row.name}")
