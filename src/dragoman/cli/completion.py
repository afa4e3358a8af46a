"""`dragoman completion`: a script that completes commands and options in a shell."""

import argparse
from collections.abc import Iterator

NAME = "completion"
HELP = "print a completion script for bash, zsh or fish"
EPILOG = """examples:
  eval "$(dragoman completion bash)"     # in ~/.bashrc
  eval "$(dragoman completion zsh)"      # in ~/.zshrc
  dragoman completion fish > ~/.config/fish/completions/dragoman.fish"""

BASH = """_dragoman() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" = 1 ]; then words="{commands} --help --version"; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _dragoman dragoman"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    from dragoman.cli import COMMANDS, build_parser

    parsers = find_parsers(build_parser(COMMANDS))
    if args.shell == "fish":
        print("\n".join(write_fish(parsers)))
        return 0
    cases = "\n".join(f'      {name}) words="{" ".join(list_words(p))}" ;;' for name, p in parsers.items())
    start = "autoload -U +X bashcompinit && bashcompinit\n" if args.shell == "zsh" else ""
    print(start + BASH.format(commands=" ".join(parsers), cases=cases))
    return 0


def find_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each sub-command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def list_words(parser: argparse.ArgumentParser) -> list[str]:
    """Options, the words of positional arguments, and sub-commands of the sub-command."""
    words: list[str] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        if not action.option_strings and action.choices is not None:
            words += [str(choice) for choice in action.choices]
    return words


def write_fish(parsers: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield "complete -c dragoman -f -n __fish_use_subcommand -a '--help --version'"
    for name, parser in parsers.items():
        about = (parser.description or "").replace("'", "")
        yield f"complete -c dragoman -f -n __fish_use_subcommand -a {name} -d '{about}'"
        for word in list_words(parser):
            way = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c dragoman -n '__fish_seen_subcommand_from {name}' {way}"
