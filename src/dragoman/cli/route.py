"""`dragoman route`: says which upstream a model's name, or a whole request, goes to, and why."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from dragoman.cli.arguments import add_config
from dragoman.cli.models import ask_upstreams
from dragoman.cli.style import paint
from dragoman.dialects import SPOKEN, USUAL, find_dialect
from dragoman.errors import ConfigError, DragomanError
from dragoman.jsontypes import JsonObject, load_json
from dragoman.model.request import Request

NAME = "route"
HELP = "say which upstream a model or a request goes to, and why"
EPILOG = """examples:
  dragoman route claude-sonnet-5-5
  dragoman route claude-haiku-5 --body request.json --dialect anthropic

Rules of the configuration look at the whole request: --body is one, as a client
sends it. Nothing is sent to a model."""
ANTHROPIC_KEYS = {"system", "stop_sequences", "thinking", "anthropic_version"}
OLLAMA_KEYS = {"options", "keep_alive", "think"}
NOT_SERVED = 1
MISUSED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL", help="the name that a client asks for")
    parser.add_argument("--body", type=Path, metavar="FILE", help="a request, as JSON")
    parser.add_argument("--dialect", choices=SPOKEN, metavar="NAME", help="of --body (default: by its keys)")
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.process.startup import ServeOptions, settle
    from dragoman.upstream.routing import choose, choose_by_rule, find_nearest, find_rule, hint_key

    try:
        settings = settle(ServeOptions(config=args.config), os.environ)
        request = Request(model=args.model) if args.body is None else read_body(args.body, args.model, args.dialect)
    except (ConfigError, DragomanError) as error:
        print(f"{paint('dragoman route:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return MISUSED
    _, routes = asyncio.run(ask_upstreams(settings))
    number = find_rule(routes, request)
    found = choose(routes, args.model, lambda: 0.0) if number is None else choose_by_rule(routes, number, lambda: 0.0)
    if routes.rules and number is None:
        print(f"no rule fits, of {len(routes.rules)}" + ("" if args.body else " (rules look at --body)"))
    print(found.why)
    for i, target in enumerate(found.targets):
        effort = f", effort {target.effort}" if target.effort else ""
        print(f"  {'goes to' if i == 0 else 'if that fails,'} {target.upstream.name}/{target.model}{effort}")
    if not found.targets:
        nearest = find_nearest(routes, args.model)
        advice = [f"did you mean {' or '.join(nearest)}?"] if nearest else []
        advice += [*filter(None, [hint_key(routes, args.model)]), "`dragoman models` lists what there is"]
        for line in advice:
            print(f"  {line}")
    return 0 if found.targets else NOT_SERVED


def read_body(path: Path, model: str, dialect: str | None) -> Request:
    from msgspec.structs import replace

    from dragoman.exchange import read_request
    from dragoman.notes import Notes
    from dragoman.wire import WireRequest

    try:
        body = load_json(path.read_bytes())
    except OSError as error:
        raise DragomanError(f"--body: {path}: {error.strerror}") from error
    except DragomanError as error:
        raise DragomanError(f"--body: {path}: {error}") from error
    if not isinstance(body, dict):
        raise DragomanError(f"--body: {path}: expected an object")
    spoken = find_dialect(dialect or guess_dialect(body))
    body.setdefault("model", model)
    wire = WireRequest(body=body, path=f"/v1beta/models/{model}:generateContent")
    return replace(read_request(spoken, wire, Notes()), model=model)


def guess_dialect(body: JsonObject) -> str:
    """By the key of its messages. Three dialects call it `messages`: there, by keys that only one of them has."""
    if "messages" not in body:
        return next((name for name in SPOKEN if find_dialect(name).messages_key in body), USUAL)
    tools = body.get("tools")
    rows = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    if ANTHROPIC_KEYS & body.keys() or any("input_schema" in row or ("name" in row and "type" in row) for row in rows):
        return "anthropic"
    return "ollama" if OLLAMA_KEYS & body.keys() else USUAL
