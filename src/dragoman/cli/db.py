"""`dragoman db`: brings the tables of PostgreSQL to this version, and says which version they are."""

import argparse
import os
import sys
from contextlib import closing

from dragoman.cli.style import paint
from dragoman.errors import ConfigError

NAME = "db"
HELP = "bring the tables of PostgreSQL up to date"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("migrate", "status"), metavar="ACTION", help="migrate applies what is missing, status shows it"
    )
    parser.add_argument("--database", help="postgresql://user@host/name (default: as serve finds it)")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.stores.engines import find_database

    try:
        url = args.database or find_database(os.environ)
        if not url:
            raise ConfigError("dragoman.toml", "database", "is not set: set it, or give --database postgresql://...")
        return _migrate(url) if args.what == "migrate" else _show(url)
    except (ConfigError, OSError) as error:
        print(f"{paint('dragoman db:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def _migrate(url: str) -> int:
    from dragoman.postgres.database import Database, migrate

    with closing(Database(url)) as database:
        done = migrate(database)
    for one in done:
        print(f"applied {one.number:04d} {one.name}")
    if not done:
        print("nothing to do")
    return 0


def _show(url: str) -> int:
    """1 if something is missing."""
    from dragoman.postgres.database import Database, find_mismatch, list_migrations, read_applied

    with closing(Database(url)) as database:
        applied = read_applied(database)
    for one in list_migrations():
        print(f"{one.number:04d} {one.name}: {'applied' if one.number in applied else 'missing'}")
    return 1 if find_mismatch(applied) else 0
