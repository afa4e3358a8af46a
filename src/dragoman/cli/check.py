"""`dragoman check`: reads a configuration and says what is wrong where, without starting anything."""

import argparse
import os
import sys
from pathlib import Path

from dragoman.cli.style import paint
from dragoman.errors import ConfigError

NAME = "check"
HELP = "check a configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, help="dragoman.toml or config.json (default: what serve would use)"
    )


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.run import MISCONFIGURED, Options, check_exposure, make_doorman, settle

    try:
        settings = settle(Options(config=args.file), os.environ)
        doorman = make_doorman(settings, os.environ)
        check_exposure(settings, doorman)
    except ConfigError as error:
        print(f"{paint('dragoman check:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return MISCONFIGURED
    print(f"{settings.source or 'no file'}: good")
    needed = "needed" if doorman.keys.configured else "not needed"
    print(f"  listens on {settings.host}:{settings.port}, client keys {needed}")
    for upstream in settings.upstreams:
        limits = ", ".join(
            f"{name} {value}"
            for name, value in (("rpm", upstream.rpm), ("tpm", upstream.tpm), ("at once", upstream.at_once))
            if value is not None
        )
        keys = f"{len(upstream.keys)} key{'s' if len(upstream.keys) != 1 else ''}"
        rest = f", {limits}" if limits else ""
        print(f"  {upstream.name}: {upstream.kind}, {upstream.dialect}, {len(upstream.models)} models, {keys}{rest}")
    for alias, meant in settings.aliases.items():
        print(f"  {alias} -> {', then '.join(meant)}")
    return 0
