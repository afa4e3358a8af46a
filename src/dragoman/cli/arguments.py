"""Parsing of command lines: options that several commands have, numbers with limits, and helpful errors."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from dragoman.gateway import HOST, PORT

MOST_PORT = 65_535


class Parser(argparse.ArgumentParser):
    """Says what was expected and what was found, and where the help is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})  # also for the actions of a command, as in `keys new`

    def error(self, message: str) -> NoReturn:
        for action in self._actions:
            if action.choices and isinstance(action.metavar, str) and message.endswith(f"required: {action.metavar}"):
                message = f"expected {action.metavar}: one of {', '.join(map(str, action.choices))}"
            elif action.help and message.endswith(f"required: {action.metavar or action.dest}"):
                message = f"expected {action.metavar or action.dest}: {action.help % vars(action)}"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` explains it.\n")

    def refuse_words(self, words: list[str]) -> NoReturn:
        """An error about words that no option and no argument takes."""
        option = next((word for word in words if word.startswith("-")), "").partition("=")[0]
        if not option:
            self.error(f"there is no place for {' '.join(map(repr, words))}")
        from difflib import get_close_matches  # only for an error

        near = get_close_matches(option, self._option_string_actions, n=1)
        self.error(f"there is no option {option}" + (f"; did you mean {near[0]}?" if near else ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches  # only for an error

        known = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"expected one of {', '.join(known)}, found {value!r}{hint}")


def add_actions(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    """For a command with actions of its own, as in `dragoman keys new`."""
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="what")


def add_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, words: str
) -> argparse.ArgumentParser:
    """`words` say what it does, in the list of actions and at the head of its own help."""
    return actions.add_parser(name, help=words, description=make_sentence(words))


def make_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def read_port(text: str) -> int:
    return read_whole(0, MOST_PORT)(text)


def read_whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers, for `type=`."""
    limits = f"of {least} or more" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.removeprefix("-").isdigit() else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"expected a whole number {limits}, found {text!r}")
        return number

    return read


def read_decimal(text: str) -> float:
    """A number of 0 or more, for `type=`."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, found {text!r}")
    return number


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """For commands that ask a model through the gateway of this machine."""
    parser.add_argument("--model", "-m", help="the model (default: the gateway's first)")
    parser.add_argument("--host", default=HOST, help="of the gateway (default: %(default)s)")
    parser.add_argument("--port", type=read_port, default=PORT, help="of the gateway (default: %(default)s)")
    parser.add_argument("--key", help="a client key (default: DRAGOMAN_KEY)")


def add_config(parser: argparse.ArgumentParser) -> None:
    """For commands that read the configuration which `serve` would read."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="dragoman.toml or config.json (default: as serve)")


def add_refuse(parser: argparse.ArgumentParser) -> None:
    from dragoman.note_ranks import KINDS, RANKS  # most commands do not need it

    parser.add_argument(
        "--refuse",
        action="append",
        choices=(*RANKS, *KINDS),
        default=[],
        metavar="WORD",
        help=f"fail on notes of this rank ({', '.join(RANKS)}) or kind ({', '.join(KINDS)})",
    )
