"""`dragoman launch`: starts a coding agent's program with the gateway as its provider."""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from dragoman.cli.local import HOST, PORT, GatewayError, base_url, find_key, find_model, running_gateway
from dragoman.cli.style import paint
from dragoman.jsontypes import dump_text

NAME = "launch"
HELP = "start claude, codex, gemini, opencode or qwen with this gateway behind it"
EPILOG = """examples:
  dragoman launch claude --model gpt-5.5
  dragoman launch codex --model claude-sonnet-5-5 -- exec "explain this folder"
  dragoman launch gemini --model demo --print

A gateway is started if none runs, and ends with the program. --print only shows the variables and arguments."""

Settings: TypeAlias = tuple[dict[str, str], list[str]]  # environment, and arguments that come first
NO_KEY = "dragoman"  # programs want one even where none is needed


def claude(url: str, model: str, key: str) -> Settings:
    tiers = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        **dict.fromkeys(tiers, model),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }, []


def codex(url: str, model: str, key: str) -> Settings:
    reach = f'name="dragoman", base_url="{url}/v1", wire_api="responses", env_key="DRAGOMAN_KEY"'
    provider = f"{{{reach}, supports_websockets=false}}"  # it would try one first, and be refused
    told = [f'model="{model}"', 'model_provider="dragoman"', f"model_providers.dragoman={provider}"]
    return {"DRAGOMAN_KEY": key}, [word for setting in told for word in ("-c", setting)]


def gemini(url: str, model: str, key: str) -> Settings:
    return {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
        "GEMINI_API_KEY_AUTH_MECHANISM": "x-goog-api-key",
        "GEMINI_MODEL": model,
        "GEMINI_DEFAULT_AUTH_TYPE": "gemini-api-key",
    }, ["--model", model]


def qwen(url: str, model: str, key: str) -> Settings:
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": model}, []


def opencode(url: str, model: str, key: str) -> Settings:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "dragoman",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {model: {"name": model}},
    }
    config = {"provider": {"dragoman": provider}, "model": f"dragoman/{model}", "small_model": f"dragoman/{model}"}
    return {"OPENCODE_CONFIG_CONTENT": dump_text(config)}, []


PROGRAMS: dict[str, Callable[[str, str, str], Settings]] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "qwen": qwen,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("program", choices=tuple(PROGRAMS), help="which program")
    parser.add_argument("--model", "-m", help="which model (default: the first the gateway has)")
    parser.add_argument("--host", default=HOST, help="of the gateway (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="of the gateway (default: %(default)s)")
    parser.add_argument("--key", help="a client key (default: DRAGOMAN_KEY)")
    parser.add_argument("--print", action="store_true", help="only show what would be set")
    parser.set_defaults(rest=[])
    parser.usage = (
        "dragoman launch PROGRAM [--model MODEL] [--host HOST] [--port PORT] [--key KEY] [--print] [-- ARG...]"
    )
    whole = parser.parse_known_args

    def parse(words: Any = None, namespace: Any = None) -> Any:
        """What stands behind -- is the program's own; argparse would look for options of ours in it."""
        given = list(words or ())
        place = given.index("--") if "--" in given else len(given)
        found, unknown = whole(given[:place], namespace)
        found.rest = given[place + 1 :]
        return found, unknown

    parser.parse_known_args = parse  # type: ignore[method-assign,assignment]


def run(args: argparse.Namespace) -> int:
    url, key = base_url(args.host, args.port), find_key(args.key)
    if args.print:
        show(args.program, *PROGRAMS[args.program](url, args.model or "demo", key or NO_KEY), args.rest)
        return 0
    found = shutil.which(args.program)
    if found is None:
        print(f"{paint('dragoman launch:', 'red', sys.stderr)} {args.program} is not installed", file=sys.stderr)
        return 127
    try:
        with running_gateway(url):
            model = args.model or find_model(url, key)
            env, lead = PROGRAMS[args.program](url, model, key or NO_KEY)
            return follow([found, *lead, *args.rest], env)
    except GatewayError as error:
        print(f"{paint('dragoman launch:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def follow(command: list[str], env: dict[str, str]) -> int:
    """Runs the program in our place: what the terminal sends is for it."""
    process = subprocess.Popen(command, env={**os.environ, **env})  # noqa: S603  # the user named it
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        if process.poll() is None:
            process.terminate()
            process.wait()
    return 128 - code if code < 0 else code


def show(program: str, env: dict[str, str], lead: list[str], rest: list[str]) -> None:
    for name, value in env.items():
        print(f"export {name}={shlex.quote(value)}")
    print(shlex.join([program, *lead, *rest]))
