"""`dragoman serve`: runs the gateway."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.arguments import read_port, read_whole
from dragoman.gateway import HOST, PORT

if TYPE_CHECKING:
    from dragoman.gateway.stores.verify import Verifier

NAME = "serve"
HELP = "run the gateway"
EPILOG = """Without a configuration file it serves every provider whose key is in the environment, local servers that
answer, and the built-in demo model. Exit code 78: the configuration is wrong. On SIGHUP it is read again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="dragoman.toml or config.json (default: DRAGOMAN_CONFIG, else in this folder)",
    )
    parser.add_argument("--host", help=f"address to listen on (default: {HOST}; others need a client key)")
    parser.add_argument("--port", type=read_port, help=f"port to listen on (default: {PORT})")
    parser.add_argument(
        "--workers", type=read_whole(1), default=1, metavar="N", help="processes (default: 1); they share all limits"
    )
    parser.add_argument(
        "--reuse-port", action="store_true", help="share the port with other gateways, to replace them without a gap"
    )
    parser.add_argument("--watch", action="store_true", help="read the configuration again when it changes")
    parser.add_argument("--log", choices=("human", "json"), help="form of the log")
    parser.add_argument("--xray", type=read_whole(0), metavar="N", help="keep the last N requests for `dragoman xray`")
    parser.add_argument("--verbose", "-v", action="store_true", help="log more (or set DRAGOMAN_VERBOSE)")


def open_verifier() -> "Verifier":
    """For the console's "verify now": the scenarios are loaded when they are asked for."""
    from dragoman.conformance.runner import LiveVerifier

    return LiveVerifier()


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.process.run import serve
    from dragoman.gateway.process.startup import ServeOptions

    options = ServeOptions(
        config=args.config,
        host=args.host,
        port=args.port,
        workers=args.workers,
        reuse_port=args.reuse_port,
        watch=args.watch,
        log=args.log,
        xray=args.xray,
        verbose=args.verbose,
        open_verifier=open_verifier,
    )
    return serve(options, os.environ, sys.stdout, sys.stderr)
