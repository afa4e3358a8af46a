"""`dragoman check`: reads a configuration and reports errors with their places. It starts nothing."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.style import paint
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.gateway.access.client_keys import ClientKeys
    from dragoman.gateway.config.settings import Settings
    from dragoman.upstream.profiles import Rows
    from dragoman.upstream.spec import Upstream

NAME = "check"
HELP = "check a configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, help="dragoman.toml or config.json (default: the file that serve would use)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the same file, with the option of `serve`")
    parser.add_argument("--schema", action="store_true", help="print a JSON Schema of dragoman.toml, for editors")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from dragoman.gateway.config.schema import config_schema
        from dragoman.jsontypes import format_json

        print(format_json(config_schema()).decode())
        return 0
    from dragoman.gateway.process.banner import missing_key
    from dragoman.gateway.process.run import MISCONFIGURED
    from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, settle
    from dragoman.gateway.stores.engines import open_database, probe_engines

    try:
        settings = settle(ServeOptions(config=args.file or args.config), os.environ)
        if (database := open_database(settings)) is not None:
            database.close()
        access = make_access(settings, os.environ)
        check_exposure(settings, access)
    except ConfigError as error:
        print(f"{paint('dragoman check:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return MISCONFIGURED
    print(f"{settings.source}: good" if settings.source else "good: there is no file, so the defaults are used")
    needed = "needed" if access.keys.needed else "not needed"
    print(f"  listens on {settings.host}:{settings.port}, client keys {needed}")
    for upstream in settings.upstreams:
        print(f"  {upstream.name}: {', '.join(describe(upstream))}")
        if missing := missing_key(upstream):
            print(f"    {paint(missing, 'yellow', sys.stdout)}")
    for line in describe_rows(settings.rows):
        print(f"  {line}")
    engines = asyncio.run(probe_engines(settings))
    for place, away in engines:
        print(f"  {place}: {paint(away, 'red', sys.stdout) if away else 'answers'}")
    print_routes(settings)
    print_lost_teams(settings, access.keys)
    return 1 if any(away for _, away in engines) else 0


def print_lost_teams(settings: "Settings", keys: "ClientKeys") -> None:
    """Keys of the file, and tokens, whose team is neither in the file nor in the store."""
    known = {*settings.teams.teams, *keys.table.teams}
    if settings.oidc is not None and settings.oidc.team and settings.oidc.team not in known:
        doubt = f"oidc.team: there is no team {settings.oidc.team}, so tokens without a team are refused: "
        print(f"  {paint(f'{doubt}add [team.{settings.oidc.team}]', 'yellow', sys.stdout)}")
    for key in settings.teams.keys:
        if key.team and key.team not in known:
            doubt = f"key.{key.name}: there is no team {key.team}, so it limits nothing: add [team.{key.team}]"
            print(f"  {paint(doubt, 'yellow', sys.stdout)}")


def print_routes(settings: "Settings") -> None:
    """The models that each alias and each rule stands for, with a doubt about those that no provider lists."""
    from dragoman.upstream.routing import choose

    routes = settings.routes()
    rules = {f"rule {number}": rule.to for number, rule in enumerate(routes.rules, 1)}
    for name, models in [*settings.aliases.items(), *rules.items()]:
        print(f"  {name} -> {', then '.join(models)}")
        for model in models:
            if not choose(routes, model, lambda: 0.0).targets:
                doubt = f"no provider of the file lists {model}: `dragoman route {model}` asks them"
                print(f"    {paint(doubt, 'yellow', sys.stdout)}")


def describe(upstream: "Upstream") -> Iterator[str]:
    """A short description of an upstream."""
    article = "an" if upstream.kind[:1] in ("a", "e", "i", "o", "u") else "a"
    yield upstream.kind if upstream.kind == upstream.name else f"{article} {upstream.kind} server"
    if upstream.base_url:
        from dragoman.upstream.keys import show_url

        yield f"{upstream.dialect.replace('_', '-')} at {show_url(upstream.base_url)}"
    yield _count(len(upstream.models), "model") if upstream.models else "any model"
    if upstream.keys:
        yield _count(len(upstream.keys), "key")
    limits = (("requests a minute", upstream.rpm), ("tokens a minute", upstream.tpm), ("at once", upstream.at_once))
    for name, value in limits:
        if value is not None:
            yield f"{value} {name}"


def describe_rows(rows: "Rows | None") -> Iterator[str]:
    """The kinds of servers and model families that the file adds or changes."""
    from dragoman.upstream.profiles import load_rows, own_families, own_kinds

    if rows is None:
        return
    for kind in own_kinds(rows):
        yield f"kind {kind.name}: {'changed' if kind.name in load_rows().kinds else 'new'}, {', '.join(kind.dialects)}"
    for family in own_families(rows):
        yield f"models {', '.join(family.models)}: rules of their own"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number != 1 else ''}"
