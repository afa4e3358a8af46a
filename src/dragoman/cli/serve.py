"""`dragoman serve`: runs the gateway."""

import argparse
import sys

NAME = "serve"
HELP = "run the gateway"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None yet: they come with the gateway."""


def run(args: argparse.Namespace) -> int:
    print("no gateway yet: this version converts (see `dragoman convert --help`)", file=sys.stderr)
    return 1
