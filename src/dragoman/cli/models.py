"""`dragoman models`: the models that this machine's configuration or keys reach, and what is known about each."""

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from msgspec import to_builtins

from dragoman.cli.arguments import add_config
from dragoman.cli.style import paint
from dragoman.errors import ConfigError
from dragoman.jsontypes import JsonObject, format_json
from dragoman.log_line import plain

if TYPE_CHECKING:
    from dragoman.dialects._services import ListedModel
    from dragoman.gateway.config.settings import Settings
    from dragoman.upstream.routing import Routes
    from dragoman.upstream.upstream_state import UpstreamState

NAME = "models"
HELP = "list the models that can be asked for"
EPILOG = """examples:
  dragoman models
  dragoman models --only ollama
  dragoman models --json | jq '.models[] | select(.window > 100000) | .name'

Every upstream is asked for its own list. READS and WRITES are the most
tokens of a question and of an answer. A dash means: not known."""
ANSWER_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_config(parser)
    parser.add_argument("--only", metavar="UPSTREAM", help="the models of one upstream")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.process.startup import ServeOptions, settle

    try:
        settings = settle(ServeOptions(config=args.config), os.environ)
    except ConfigError as error:
        print(f"{paint('dragoman models:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 2
    names = [upstream.name for upstream in settings.upstreams]
    if args.only and args.only not in names:
        print(
            f"dragoman models: there is no upstream {args.only}; the upstreams are: {', '.join(names)}", file=sys.stderr
        )
        return 2
    cards, failures = asyncio.run(collect(settings, args.only))
    if args.json:
        sys.stdout.buffer.write(
            format_json({"models": [write_card(card) for card in cards], "failed": failures}) + b"\n"
        )
    else:
        for line in write_table(cards):
            print(line)
    for name, why in failures.items():
        print(paint(f"{name} did not list its models: {why}", "yellow", sys.stderr), file=sys.stderr)
    return 0 if cards else 1


async def collect(settings: "Settings", only: str | None) -> tuple[list["ListedModel"], dict[str, str]]:
    """The models by the names that requests use, with the upstream as owner; and which upstreams did not tell."""
    from msgspec.structs import replace

    from dragoman.upstream.model_lists import describe
    from dragoman.upstream.routing import find_targets, list_models

    states, routes = await ask_upstreams(settings)
    cards = []
    for name, upstream in list_models(routes).items():
        targets = find_targets(routes, name, lambda: 0.0)
        if targets and only in (None, upstream):
            card = describe(states[targets[0].upstream.name], targets[0].model)
            cards.append(replace(card, name=name, owner=upstream))
    failed = {name: state.list_failure for name, state in states.items() if state.list_failure and only in (None, name)}
    return cards, failed


async def ask_upstreams(settings: "Settings") -> tuple[dict[str, "UpstreamState"], "Routes"]:
    """Asks every upstream for its models, as a gateway does."""
    from msgspec.structs import replace

    from dragoman.upstream.model_lists import NAME as FILE
    from dragoman.upstream.model_lists import ModelLists
    from dragoman.upstream.transport import Transport
    from dragoman.upstream.upstream_state import UpstreamState

    loop, transport = asyncio.get_running_loop(), Transport()
    states = {upstream.name: UpstreamState(upstream, loop.time) for upstream in settings.upstreams}
    path = settings.store_path.parent / FILE if settings.store_path is not None else None
    lists = ModelLists(transport, loop.time, path=path)
    try:
        lists.recall(states.values())
        await lists.refresh(states.values(), 0.0, ANSWER_S)
    finally:
        await lists.close()
        await transport.close()
    listed = {u.name: states[u.name].listed for u in settings.upstreams if u.lists_own and states[u.name].listed}
    return states, replace(settings.routes(), listed=listed)


def write_card(card: "ListedModel") -> JsonObject:
    row: JsonObject = to_builtins(card)
    row["upstream"] = row.pop("owner")
    return row


def write_table(cards: list["ListedModel"]) -> list[str]:
    rows = [("MODEL", "UPSTREAM", "READS", "WRITES", "CAN")]
    rows += [
        (plain(card.name), card.owner, write_number(card.reads), write_number(card.max_output), write_abilities(card))
        for card in cards
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]


def write_number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def write_abilities(card: "ListedModel") -> str:
    abilities = (("tools", card.tools), ("pictures", card.vision), ("thinking", card.thinking))
    return ", ".join(name for name, has in abilities if has) or "-"
