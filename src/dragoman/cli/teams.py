"""`dragoman teams`: limits and budgets that the keys of a team share."""

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING

from dragoman.cli.arguments import add_action, add_actions
from dragoman.cli.keys import add_limits, describe_grant, read_change
from dragoman.cli.style import paint
from dragoman.cli.table import TableColumn, find_width, fit, hang
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.gateway.routes.admin_types import KeyView
    from dragoman.gateway.stores.keys import KeyRow, KeyStore

NAME = "teams"
HELP = "make, list, change and delete teams: limits that several keys share"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "`dragoman teams ACTION --help` explains one action. Teams are kept where `dragoman keys` keeps its keys."
    )
    actions = add_actions(parser)
    change = add_action(actions, "set", "make a team, or change it; `none` takes a limit away")
    change.add_argument("name", metavar="NAME", help="the team")
    add_limits(change)
    add_action(actions, "list", "list the teams, with the number of their keys")
    show = add_action(actions, "show", "show one team: what it may use, its keys, and what it has spent")
    show.add_argument("name", metavar="NAME", help="the team")
    drop = add_action(actions, "drop", "delete a team that has no keys")
    drop.add_argument("name", metavar="NAME", help="the team")
    drop.add_argument("--force", action="store_true", help="also with keys: they stay, without its limits")


def run(args: argparse.Namespace) -> int:
    from dragoman.cli.admin import open_store

    try:
        return act(args, open_store())
    except (ConfigError, ValueError) as error:
        print(f"{paint('dragoman teams:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def show_all(store: "KeyStore") -> None:
    from dragoman.cli.admin import list_file_keys, read_teams

    table, teams = store.read(), read_teams(store)
    if not teams:
        print("no teams; `dragoman teams set NAME --budget '500 USD/month'` makes one", file=sys.stderr)
        return
    stored = table.rows if table is not None else ()
    keys = [row.team for row in stored if not row.revoked] + [key.team for key in list_file_keys(store)]
    counts = {name: keys.count(name) for name in teams}
    width = find_width()
    names = [[name, count_keys(count)] for name, count in counts.items()]
    lines = fit([TableColumn("", cut=True), TableColumn("")], names, width)[1:]
    longest = max(map(len, lines))
    for line, grant in zip(lines, teams.values(), strict=True):
        print("\n".join(hang(line.ljust(longest), describe_grant(grant), width)).rstrip())


def show_one(name: str, store: "KeyStore") -> None:
    from dragoman.accounts.grants import NO_GRANT, make_holder
    from dragoman.cli.admin import read_teams, say_spent

    grant = read_teams(store).get(name)
    if grant is None:
        raise ValueError(f"no such team: {name}; `dragoman teams list` shows all")
    print("\n".join(hang(name, describe_grant(grant), find_width())))
    keys = list_keys(name, store)
    words = f"{count_keys(len(keys))}: {', '.join(keys)}" if keys else "no keys"
    print("\n".join(textwrap.wrap(words, find_width() or 1000)))
    for line in say_spent(make_holder("", "", NO_GRANT, team=name, team_grant=grant).budgeted):
        print(line)


def list_keys(team: str, store: "KeyStore") -> list[str]:
    """The names of the keys in a team, and the ids of those without a name."""
    from dragoman.cli.admin import list_file_keys

    table = store.read()
    rows: list[KeyRow | KeyView] = [*(table.rows if table is not None else ()), *list_file_keys(store)]
    return [row.name or row.id for row in rows if row.team == team and not row.revoked]


def count_keys(count: int) -> str:
    return f"{count} key{'' if count == 1 else 's'}"


def act(args: argparse.Namespace, store: "KeyStore") -> int:
    match args.what:
        case "set":
            grant = store.set_team(args.name, read_change(args))
            print("\n".join(hang(args.name, describe_grant(grant), find_width())))
        case "list":
            show_all(store)
        case "show":
            show_one(args.name, store)
        case _:
            keys = list_keys(args.name, store)
            if keys and not args.force:
                names = textwrap.shorten(", ".join(keys), 200, placeholder=" ...")
                words = f"{count_keys(len(keys))} would lose the limits of the team {args.name}: {names}. "
                raise ValueError(f"{words}Move them (`dragoman keys edit ID --team none`), or give --force")
            if not store.drop_team(args.name):
                raise ValueError(f"no such team: {args.name}; `dragoman teams list` shows all")
            print(f"{args.name} is gone")
    return 0
