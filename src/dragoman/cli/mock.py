"""`dragoman mock`: a strict scripted provider as a server, for tests in any language."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.arguments import read_port
from dragoman.errors import DragomanError
from dragoman.jsontypes import load_json
from dragoman.read_struct import suggest

if TYPE_CHECKING:
    from dragoman.testing.faults import ScriptedFault
    from dragoman.testing.provider import Provider

NAME = "mock"
DIALECTS = {"openai-chat": "openai", "openai-responses": "openai"}  # names of protocols that one provider speaks
HELP = "run a scripted provider that refuses what the real one refuses"
EPILOG = """examples:
  dragoman mock anthropic --port 9100
  dragoman mock openai --script answers.json --faults rate_limited,cut

--script is a JSON list. Each text, or each whole reply in the provider's form,
is the next answer. --faults are given to the first requests, one each; after
them answers are good again. It needs no key unless --key names one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "kind", metavar="KIND", help="openai, anthropic, gemini, ollama, groq, ... (`dragoman providers`)"
    )
    parser.add_argument("--port", type=read_port, default=9100, help="port on this machine (default: 9100; 0: any)")
    parser.add_argument("--key", help="the key that requests must have")
    parser.add_argument("--model", action="append", default=[], help="the only model that exists; repeat it for more")
    parser.add_argument("--script", type=Path, metavar="FILE", help="the next answers, as a JSON list")
    parser.add_argument("--faults", default="", metavar="NAMES", help="faults for the first requests; `list` shows all")
    parser.add_argument("--lenient", action="store_true", help="refuse nothing")


def run(args: argparse.Namespace) -> int:
    from dragoman.testing.provider import Provider
    from dragoman.upstream.profiles import load_rows

    if args.faults == "list":
        print("\n".join(fault_names()))
        return 0
    kind = DIALECTS.get(args.kind.replace("_", "-"), args.kind)
    if kind not in load_rows().kinds:
        print(f"dragoman mock: no provider is called {kind}; {suggest(kind, load_rows().kinds)}", file=sys.stderr)
        return 1
    try:
        provider = Provider(kind, key=args.key, models=tuple(args.model) or None, strict=not args.lenient)
        for fault in read_faults(args.faults):
            provider.next(fault)
        if args.script is not None:
            provider.say(*read_script(args.script))
        asyncio.run(serve(provider, args.port))
    except (DragomanError, OSError) as error:
        words = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        print(f"dragoman mock: {words}", file=sys.stderr)
        return 1
    return 0


async def serve(provider: "Provider", port: int) -> None:
    await provider.start(port)
    print(f"{provider.kind} listens on {provider.base_url}", flush=True)
    shown = 0
    try:
        while True:
            await asyncio.sleep(0.2)
            shown = show_requests(provider, shown)
    finally:
        show_requests(provider, shown)
        await provider.stop()


def show_requests(provider: "Provider", shown: int) -> int:
    """Prints the requests that are answered and were not shown yet. Returns how many have been shown."""
    for seen in provider.requests[shown:]:
        if not seen.status:
            break
        words = f"  refused: {seen.refused}" if seen.refused else ""
        print(f"{seen.method} {seen.path} {seen.status}{words}", flush=True)
        shown += 1
    return shown


def fault_names() -> list[str]:
    """The faults that need no argument."""
    from dragoman.testing import faults

    needing = {"failing", "redirect", "raw"}
    found = [name for name, value in vars(faults).items() if callable(value) and value.__module__ == faults.__name__]
    return sorted(name for name in found if name.islower() and not name.startswith("_") and name not in needing)


def read_faults(words: str) -> list["ScriptedFault"]:
    """`rate_limited,overloaded,503`: names, or any error status."""
    from dragoman.testing import faults

    found: list[ScriptedFault] = []
    for word in [word.strip() for word in words.split(",") if word.strip()]:
        if word.isdecimal():
            found.append(faults.failing(int(word)))
        elif word in fault_names():
            found.append(getattr(faults, word)())
        else:
            raise DragomanError(f"no such fault {word}: see `dragoman mock openai --faults list`")
    return found


def read_script(path: Path) -> list[str | bytes]:
    """Texts as they are, objects as the bytes of a whole reply."""
    rows = load_json(path.read_bytes())
    if not isinstance(rows, list):
        raise DragomanError(f"{path}: expected a JSON list of answers")
    from dragoman.jsontypes import dump_json

    return [row if isinstance(row, str) else dump_json(row) for row in rows]
