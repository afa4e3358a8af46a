"""`dragoman init`: writes a configuration from what this machine offers, with a comment on each line to change."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.gateway.config.settings import Settings

NAME = "init"
HELP = "write a commented dragoman.toml from what is found here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, default=Path("dragoman.toml"), help="where to write it (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file")
    parser.add_argument("--print", dest="show", action="store_true", help="print it and write nothing")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.config.discover import discover

    text = "\n".join(write_config(discover(os.environ))) + "\n"
    if args.show:
        print(text, end="")
        return 0
    if args.file.exists() and not args.force:
        print(f"dragoman init: {args.file} exists: --force replaces it, --print shows the new one", file=sys.stderr)
        return 1
    args.file.write_text(text, "utf-8")
    print(f"wrote {args.file}")
    print("  dragoman check     checks it")
    print("  dragoman serve     runs the gateway with it")
    return 0


def write_config(found: "Settings") -> Iterator[str]:
    from dragoman.upstream.profiles import load_rows
    from dragoman.upstream.spec import DEMO

    kinds = load_rows().kinds
    yield "# Written by `dragoman init`. Every key: docs/configuration.md. `dragoman check` checks it."
    yield "# Keys stay in the environment: ${NAME} is filled in when the file is read."
    yield ""
    yield f'host = "{found.host}"      # "0.0.0.0" lets other machines in; they need a key (`dragoman keys new`)'
    yield f"port = {found.port}"
    yield 'log = "human"           # or "json"'
    yield "# xray = 50             # keep the last 50 requests for /xray"
    yield "# proxy = false         # ignore HTTPS_PROXY and the like"
    yield ""
    yield "# [aliases]"
    yield '# fast = ["ollama/qwen3", "gemini-2.5-flash"]     # the first that works'
    real = [upstream for upstream in found.upstreams if upstream.kind != DEMO]
    if not real:
        yield ""
        yield "# No key and no local server was found. Fill in one of these, then remove the next line."
        yield "demo = true"
        yield ""
        yield "# [providers.openai]"
        yield '# api_key = "${OPENAI_API_KEY}"'
    for upstream in real:
        kind = kinds[upstream.kind]
        variable = next((name for name in kind.keys if os.environ.get(name)), None)
        yield ""
        yield f"[providers.{upstream.name}]"
        if upstream.keys and variable is not None:
            yield f'api_key = "${{{variable}}}"'
        else:
            yield f'base_url = "{upstream.base_url}"'
        yield "# models = []           # only these; left out, the server is asked for its list"
        yield "# rpm = 60              # requests a minute"
