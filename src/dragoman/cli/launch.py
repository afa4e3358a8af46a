"""`dragoman launch`: starts a coding agent's program with the gateway as its provider.

What each program listens to, and what in a person's own settings would win over it, was tried with the real ones
(2026-11-16: Claude Code 2.1.325, Codex 0.166.0, Gemini CLI 0.61.0, opencode 1.18.33, Qwen Code 0.15.10);
tests/clients/test_launch.py tries it again.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.cli.local import (
    HOST,
    LOOPBACK,
    PORT,
    GatewayError,
    base_url,
    find_key,
    find_model,
    running_gateway,
)
from dragoman.cli.style import paint
from dragoman.jsontypes import dump_text

NAME = "launch"
HELP = "start Claude Code, Codex, Gemini CLI, opencode or Qwen Code on any model"
EPILOG = """examples:
  dragoman launch claude --model gpt-5.5
  dragoman launch codex --model claude-sonnet-5-5 -- exec "explain this folder"
  eval "$(dragoman launch gemini --model demo --print)"

What stands behind -- is for the program itself. A gateway is started if none
runs, and ends with the program; --print starts none."""
NO_KEY = "dragoman"  # programs want one even where none is needed
GRACE_S = 3.0
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class RunningGateway(Struct, frozen=True):
    url: str
    model: str
    key: str

    @property
    def near(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK


class ProgramSettings(Struct, frozen=True):
    """What a program is told: by variables, by arguments that come first, and by variables it must not see."""

    env: dict[str, str]
    lead: list[str] = []
    unset: tuple[str, ...] = ()


def claude(at: RunningGateway) -> ProgramSettings:
    tiers = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return ProgramSettings(
        {
            "ANTHROPIC_BASE_URL": at.url,
            "ANTHROPIC_AUTH_TOKEN": at.key,
            "ANTHROPIC_API_KEY": "",
            "ANTHROPIC_MODEL": at.model,
            "ANTHROPIC_SMALL_FAST_MODEL": at.model,
            **dict.fromkeys(tiers, at.model),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
    )


def codex(at: RunningGateway) -> ProgramSettings:
    reach = f'name="dragoman", base_url="{at.url}/v1", wire_api="responses", env_key="DRAGOMAN_KEY"'
    provider = f"{{{reach}, supports_websockets=false}}"  # it would try one first, and be refused
    told = [f'model="{at.model}"', 'model_provider="dragoman"', f"model_providers.dragoman={provider}"]
    return ProgramSettings({"DRAGOMAN_KEY": at.key}, [word for setting in told for word in ("-c", setting)])


def gemini(at: RunningGateway) -> ProgramSettings:
    """Which way it logs in stands in its settings only, and a server of one's own needs the way of the key."""
    env = {
        "GEMINI_CLI_HOME": str(gemini_home()),
        "GOOGLE_GEMINI_BASE_URL": at.url,
        "GEMINI_API_KEY": at.key,
        "GEMINI_API_KEY_AUTH_MECHANISM": "x-goog-api-key",
        "GEMINI_MODEL": at.model,
    }
    return ProgramSettings(env, ["--model", at.model])


def qwen(at: RunningGateway) -> ProgramSettings:
    """It may be logged in elsewhere, which only --auth-type changes; and it asks a proxy for this machine too,
    whatever NO_PROXY says."""
    env = {"OPENAI_BASE_URL": f"{at.url}/v1", "OPENAI_API_KEY": at.key, "OPENAI_MODEL": at.model}
    return ProgramSettings(env, ["--auth-type", "openai", "--model", at.model], PROXIES if at.near else ())


def opencode(at: RunningGateway) -> ProgramSettings:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "dragoman",
        "options": {"baseURL": f"{at.url}/v1", "apiKey": "{env:DRAGOMAN_KEY}"},
        "models": {at.model: {"name": at.model}},
    }
    name = f"dragoman/{at.model}"
    config = {"provider": {"dragoman": provider}, "model": name, "small_model": name}
    return ProgramSettings({"OPENCODE_CONFIG_CONTENT": dump_text(config), "DRAGOMAN_KEY": at.key})


PROGRAMS: dict[str, Callable[[RunningGateway], ProgramSettings]] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "qwen": qwen,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("program", choices=tuple(PROGRAMS), metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--model", "-m", help="which model (default: the first the gateway has)")
    parser.add_argument("--host", default=HOST, help="of the gateway (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="of the gateway (default: %(default)s)")
    parser.add_argument("--key", help="a client key (default: DRAGOMAN_KEY)")
    parser.add_argument("--print", action="store_true", help="only show what would be set, as shell commands")
    parser.set_defaults(rest=[])
    parser.usage = "dragoman launch PROGRAM [options] [-- ARG...]"
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
        show(args.program, PROGRAMS[args.program](RunningGateway(url, args.model or "demo", key or NO_KEY)), args.rest)
        return 0
    found = shutil.which(args.program)
    if found is None:
        return complain(f"{args.program} is not installed", 127)
    try:
        with running_gateway(url):
            at = RunningGateway(url, args.model or find_model(url, key), key or NO_KEY)
            settings = PROGRAMS[args.program](at)
            with overriding(args.program, settings, args.rest) as more:
                return follow([found, *settings.lead, *more, *args.rest], settings)
    except GatewayError as error:
        return complain(str(error), 1)


def complain(text: str, code: int) -> int:
    print(f"{paint('dragoman launch:', 'red', sys.stderr)} {text}", file=sys.stderr)
    return code


# ---------------------------------------------------------------- what a person's own settings would win over


def gemini_home() -> Path:
    """A home beside the person's own: its settings but for the login, everything else by links."""
    from dragoman.gateway.config import state_folder

    own = Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini"
    home = state_folder(os.environ) / "launch" / "gemini"
    here = home / ".gemini"
    here.mkdir(parents=True, exist_ok=True)
    for entry in own.iterdir() if own.is_dir() else ():
        if entry.name != "settings.json" and not (here / entry.name).exists():
            with suppress(OSError):
                (here / entry.name).symlink_to(entry)
    settings, security = read_setting(own / "settings.json"), read_setting(own / "settings.json", "security")
    told = {**_table(security), "auth": {"selectedType": "gemini-api-key"}}
    (here / "settings.json").write_text(dump_text({**_table(settings), "security": told}), "utf-8")
    return home


@contextmanager
def overriding(program: str, settings: ProgramSettings, rest: list[str]) -> Iterator[list[str]]:
    """Variables in Claude Code's own settings files win over those it is started with; those of --settings win over
    them. The file holds the key, so it is nobody else's to read, and goes with the program."""
    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    files = (folder / "settings.json", Path(".claude/settings.json"), Path(".claude/settings.local.json"))
    taken = {name for path in files for name in read_setting(path, "env") or ()} & set(settings.env)
    if program != "claude" or not taken or "--settings" in rest:
        yield []
        return
    with TemporaryDirectory(prefix="dragoman-") as scratch:
        path = Path(scratch, "settings.json")
        path.write_text(dump_text({"env": settings.env}), "utf-8")
        yield ["--settings", str(path)]


def _table(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def read_setting(path: Path, *steps: str) -> Any:
    """A value in another program's settings file; None where there is none, or no such file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    for step in steps:
        found = _table(found).get(step)
    return found


# ---------------------------------------------------------------- running it


def follow(command: list[str], settings: ProgramSettings) -> int:
    """Runs the program in our place: what the terminal sends is for it, and what ends us ends it first."""
    env = {name: value for name, value in os.environ.items() if name not in settings.unset}
    process = subprocess.Popen(command, env={**env, **settings.env})  # noqa: S603  # the user named it
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: end(process)),
    }
    try:
        code = process.wait()
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
        if process.poll() is None:
            end(process)
            process.wait()
    return 128 - code if code < 0 else code


def end(process: "subprocess.Popen[bytes]") -> None:
    """Asks it to end; a program that does not is ended."""
    process.terminate()
    late = threading.Timer(GRACE_S, process.kill)
    late.daemon = True
    late.start()


def show(program: str, settings: ProgramSettings, rest: list[str]) -> None:
    if settings.unset:
        print(f"unset {' '.join(settings.unset)}")
    for name, value in settings.env.items():
        print(f"export {name}={shlex.quote(value)}")
    print(shlex.join([program, *settings.lead, *rest]))
