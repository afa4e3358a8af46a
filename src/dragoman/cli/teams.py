"""`dragoman teams`: limits and budgets that the keys of a team share."""

import argparse
import sys
from typing import TYPE_CHECKING

from dragoman.cli.keys import add_limits, describe_grant, read_change
from dragoman.cli.style import paint
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.gateway.stores.keys import KeyStore

NAME = "teams"
HELP = "limits and budgets that several keys share"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="what")
    change = actions.add_parser("set", help="make a team, or change it; `none` takes a limit away")
    change.add_argument("name")
    add_limits(change)
    actions.add_parser("list", help="list the teams, with the number of their keys")
    drop = actions.add_parser("drop", help="delete a team; its keys stay, without its limits")
    drop.add_argument("name")


def run(args: argparse.Namespace) -> int:
    from dragoman.cli.admin import open_store

    try:
        return act(args, open_store())
    except (ConfigError, ValueError) as error:
        print(f"{paint('dragoman teams:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def act(args: argparse.Namespace, store: "KeyStore") -> int:
    match args.what:
        case "set":
            grant = store.set_team(args.name, read_change(args))
            print("  ".join([args.name, *describe_grant(grant)]))
        case "list":
            table = store.read()
            for name, grant in (table.teams if table is not None else {}).items():
                count = sum(row.team == name and not row.revoked for row in table.rows) if table is not None else 0
                print("  ".join([name, f"{count} key{'' if count == 1 else 's'}", *describe_grant(grant)]))
        case _:
            if not store.drop_team(args.name):
                print(f"{paint('dragoman teams:', 'red', sys.stderr)} no such team: {args.name}", file=sys.stderr)
                return 1
            print(f"{args.name} is gone")
    return 0
