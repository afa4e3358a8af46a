"""The `dragoman` command: picks a sub-command, runs it, and returns an exit code.

A command is one module of this package: `NAME`, `HELP`, `add_arguments(parser)` and `run(args) -> int`. To add
one, write the module and add its name to `COMMANDS`. Only the command that was asked for is imported.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Protocol, TextIO, cast

from dragoman import __version__
from dragoman.cli.arguments import Parser, make_sentence

COMMANDS = (
    "serve",
    "launch",
    "chat",
    "ask",
    "say",
    "convert",
    "dialects",
    "pairs",
    "providers",
    "models",
    "route",
    "verify",
    "xray",
    "mcp",
    "keys",
    "teams",
    "usage",
    "db",
    "check",
    "init",
    "doctor",
    "mock",
    "completion",
)  # module names, in the order `--help` shows them

EXTRAS = {
    "aiohttp": "testing",
    "mcp": "mcp",
    "asyncpg": "postgres",
    "redis": "valkey",
}  # packages that only an extra installs

DONE = 0
FAILED = 1
MISUSED = 2
INTERRUPTED = 130  # 128 + SIGINT, as a shell counts
PIPE_CLOSED = 141  # 128 + SIGPIPE, as `cat` returns when `head` stops reading


class Command(Protocol):
    """The interface of every module named in `COMMANDS`."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        allow_all_text(stream, os.environ, windows=os.name == "nt")
    try:
        code = run_words(words)
        sys.stdout.flush()  # a closed pipe shows here, not while the interpreter shuts down
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    finally:
        for stream in (sys.stdout, sys.stderr):
            silence_when_closed(stream)


def run_words(words: list[str]) -> int:
    parser = build_parser(find_commands(words))
    try:
        args, rest = parser.parse_known_args(words)
        if rest[:1] == ["--"] and hasattr(args, "program"):
            args.program = rest[1:]  # argparse does not assign the words after an option and `--`
        elif rest:
            find_parser(parser, words).refuse_words(rest)
    except SystemExit as stop:  # argparse has printed the help, the version or an error
        return stop.code if isinstance(stop.code, int) else MISUSED
    if args.command is None:
        parser.print_help(sys.stderr)
        return MISUSED
    command = cast(Command, args.command)
    try:
        return command.run(args)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        missing = f"{error.name} is missing: pip install 'dragoman[{EXTRAS[error.name]}]'"
        print(f"dragoman {command.NAME}: {missing}", file=sys.stderr)
        return FAILED


def find_parser(parser: Parser, words: list[str]) -> Parser:
    """The parser of the command, and of its own command (`keys new`), that these words name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            named = next((at for at, word in enumerate(words) if word in action.choices), None)
            if named is not None:
                return find_parser(cast(Parser, action.choices[words[named]]), words[named + 1 :])
    return parser


def find_commands(words: list[str]) -> tuple[str, ...]:
    match words:
        case ["--version", *_]:
            return ()
        case [name, *_] if name in COMMANDS:
            return (name,)
        case _:
            return COMMANDS  # for the overview, or an error that lists all commands


class _Overview(argparse.HelpFormatter):
    """Every command's line in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=16)
        self._action_max_length = 13  # argparse measures commands without their indent


def build_parser(names: Sequence[str]) -> Parser:
    parser = Parser(
        prog="dragoman",
        description="Any LLM client, any LLM provider: translates between their protocols, and reports every loss.",
        epilog="`dragoman COMMAND --help` explains one command. Try `dragoman ask hello`: it needs no key.",
        formatter_class=_Overview,
    )
    parser.add_argument("--version", action="version", version=f"dragoman {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in names:
        command = load_command(name)
        sub = commands.add_parser(command.NAME, help=command.HELP, description=make_sentence(command.HELP))
        command.add_arguments(sub)
        sub.set_defaults(command=command)
    return parser


def load_command(name: str) -> Command:
    return cast(Command, import_module(f"dragoman.cli.{name}"))


def allow_all_text(stream: object, env: Mapping[str, str], *, windows: bool) -> None:
    """No character ends a command: one that the screen cannot show becomes `?`. Windows gives files and pipes an old
    encoding without most characters, so they get UTF-8 instead."""
    if not isinstance(stream, TextIOWrapper):
        return
    if windows and not stream.isatty() and "PYTHONIOENCODING" not in env:
        stream.reconfigure(encoding="utf-8", errors="replace")
    elif stream.errors == "strict":
        stream.reconfigure(errors="replace")


def silence_when_closed(stream: TextIO) -> None:
    """If the reader of `stream` is gone, drops the buffered text, so that the exit does not fail."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
