"""`dragoman providers [NAME]`: the servers and model families dragoman knows, and what it knows about them."""

import argparse
import sys
from typing import Any

from msgspec import to_builtins

from dragoman.cli.style import paint
from dragoman.errors import ConfigError
from dragoman.jsontypes import dump_text, format_json
from dragoman.passes.defaults import default_profile
from dragoman.upstream.profiles import Kind, choose_dialect, find_kind, load_rows, plain_model, profile_for

NAME = "providers"
HELP = "show the servers dragoman knows, and what each one takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="one provider, in full")
    parser.add_argument("--model", metavar="MODEL", default="", help="with the rules of this model")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        print_all(as_json=args.json)
        return 0
    try:
        kind = find_kind(args.name)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        shown = {"kind": kind, "profile": profile_for(kind.name, args.model)}
        print(format_json(to_builtins(shown)).decode())
    else:
        print_one(kind, args.model)
    return 0


def print_all(*, as_json: bool) -> None:
    kinds = load_rows().kinds
    if as_json:
        print(format_json(to_builtins(list(kinds.values()))).decode())
        return
    width = max(len(name) for name in kinds)
    for kind in kinds.values():
        name = paint(kind.name.ljust(width), "bold", sys.stdout)
        print(f"{name}  {', '.join(kind.dialects)}  {paint(kind.base_url, 'dim', sys.stdout)}")
    print("\n`dragoman providers NAME [--model MODEL]` tells what one of them takes.")


def print_one(kind: Kind, model: str) -> None:
    print(f"{paint(kind.title, 'bold', sys.stdout)} ({kind.name})")
    _print_rows(
        ("address", kind.base_url),
        ("auth", kind.auth),
        ("key", ", ".join(kind.keys)),
        ("models", ", ".join(f"{prefix}*" for prefix in kind.prefixes)),
        ("note", kind.notes),
    )
    chosen = choose_dialect(kind.name, model) if model else None
    for dialect in kind.dialects if chosen is None else (chosen,):
        print(f"\n{dialect}" + (f" for {model}" if model else ""))
        for field, value in differences(kind.name, model, dialect).items():
            print(f"  {field} = {value if isinstance(value, str) else dump_text(value)}")
    print("\nseen")
    for line in (*kind.seen, *_family_sources(kind.name, model)):
        print(f"  {line}")


def _print_rows(*rows: tuple[str, str]) -> None:
    for name, value in rows:
        if value:
            print(f"  {name.ljust(8)} {value}")


def differences(kind: str, model: str, dialect: str) -> dict[str, Any]:
    """What is not as the dialect's default."""
    usual = to_builtins(default_profile(dialect))
    here = to_builtins(profile_for(kind, model, dialect))
    return {key: value for key, value in here.items() if value != usual.get(key) and key != "kind"}


def _family_sources(kind: str, model: str) -> list[str]:
    if not model:
        return []
    name = plain_model(model)
    return [line for family in load_rows().families if family.fits(kind, name) for line in family.seen]
