"""`dragoman launch`: starts a coding agent's program with the gateway as its provider.

Each program reads other variables, and the user's own settings may override them. We tried it with the real programs
(2026-11-16: Claude Code 2.1.325, Codex 0.166.0, Gemini CLI 0.61.0, opencode 1.18.33, Qwen Code 0.15.10);
tests/clients/test_launch.py repeats this.
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

from dragoman.cli.arguments import add_gateway
from dragoman.cli.local_gateway import (
    LOOPBACK,
    GatewayError,
    base_url,
    default_without_gateway,
    find_key,
    find_limits,
    find_model,
    is_answering,
    running_gateway,
)
from dragoman.cli.style import paint
from dragoman.errors import ConfigError
from dragoman.jsontypes import dump_text

NAME = "launch"
HELP = "start Claude Code, Codex, Gemini CLI, opencode or Qwen Code on any model"
EPILOG = """examples:
  dragoman launch claude --model gpt-5.5
  dragoman launch codex --model claude-sonnet-5-5 -- exec "explain this folder"
  eval "$(dragoman launch gemini --model demo --print)"

Words after -- go to the program itself. If no gateway runs, one is started, and
it ends with the program; --print starts none."""
PLACEHOLDER_KEY = "dragoman"  # programs demand a key even where none is needed
GRACE_S = 3.0
OUTPUT = 8_192  # tokens of one answer, for a program that must be told a number where none is known
CLAUDE_LEAST = 100_000  # Claude Code complains of a smaller window to compact for, and takes this one
GEMINI_WINDOW = 1_048_576  # what Gemini CLI takes for the window of a model it does not know
GEMINI_COMPRESSES_AT = 0.5  # of that window, unless it is told
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class RunningGateway(Struct, frozen=True):
    url: str
    model: str
    key: str
    window: int | None = None  # tokens that the model reads, if the gateway knows
    max_output: int | None = None

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK


class ProgramSettings(Struct, frozen=True):
    """The settings of a program: variables to set, arguments to put first, and variables to unset."""

    env: dict[str, str]
    arguments: list[str] = []
    unset: tuple[str, ...] = ()


def claude(gateway: RunningGateway) -> ProgramSettings:
    compact = gateway.window if (gateway.window or 0) >= CLAUDE_LEAST else None
    tiers = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return ProgramSettings(
        {
            "ANTHROPIC_BASE_URL": gateway.url,
            "ANTHROPIC_AUTH_TOKEN": gateway.key,
            "ANTHROPIC_API_KEY": "",
            "ANTHROPIC_MODEL": gateway.model,
            "ANTHROPIC_SMALL_FAST_MODEL": gateway.model,
            **dict.fromkeys(tiers, gateway.model),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # else it takes the window of a model it does not know for a million tokens
            **_said("CLAUDE_CODE_MAX_CONTEXT_TOKENS", gateway.window),
            **_said("CLAUDE_CODE_AUTO_COMPACT_WINDOW", compact),
            **_said("CLAUDE_CODE_MAX_OUTPUT_TOKENS", gateway.max_output),
        }
    )


def _said(name: str, number: int | None) -> dict[str, str]:
    return {} if number is None else {name: str(number)}


def codex(gateway: RunningGateway) -> ProgramSettings:
    address = f'name="dragoman", base_url="{gateway.url}/v1", wire_api="responses", env_key="DRAGOMAN_KEY"'
    provider = f"{{{address}, supports_websockets=false}}"  # otherwise it tries a websocket first and is refused
    settings = [f'model="{gateway.model}"', 'model_provider="dragoman"', f"model_providers.dragoman={provider}"]
    if gateway.window is not None:
        settings.append(f"model_context_window={gateway.window}")
    return ProgramSettings({"DRAGOMAN_KEY": gateway.key}, [word for setting in settings for word in ("-c", setting)])


def gemini(gateway: RunningGateway) -> ProgramSettings:
    """Only its settings file selects the login, and another server needs the login by key."""
    env = {
        "GEMINI_CLI_HOME": str(gemini_home(gateway.window)),
        "GOOGLE_GEMINI_BASE_URL": gateway.url,
        "GEMINI_API_KEY": gateway.key,
        "GEMINI_API_KEY_AUTH_MECHANISM": "x-goog-api-key",
        "GEMINI_MODEL": gateway.model,
    }
    return ProgramSettings(env, ["--model", gateway.model])


def qwen(gateway: RunningGateway) -> ProgramSettings:
    """Only --auth-type overrides an existing login. It uses a proxy for this machine too, even with NO_PROXY, so the
    proxies are unset."""
    env = {
        "OPENAI_BASE_URL": f"{gateway.url}/v1",
        "OPENAI_API_KEY": gateway.key,
        "OPENAI_MODEL": gateway.model,
        **_said("QWEN_CODE_MAX_OUTPUT_TOKENS", gateway.max_output),
    }
    if gateway.window is not None and "QWEN_CODE_SYSTEM_DEFAULTS_PATH" not in os.environ:
        env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"] = str(qwen_defaults(gateway.window))
    return ProgramSettings(
        env, ["--auth-type", "openai", "--model", gateway.model], PROXIES if gateway.is_local else ()
    )


def opencode(gateway: RunningGateway) -> ProgramSettings:
    model: dict[str, Any] = {"name": gateway.model}
    if gateway.window is not None:  # it wants both; a server that tells its window alone leaves the rest to the program
        output = gateway.max_output or min(OUTPUT, gateway.window // 4)
        model["limit"] = {"context": gateway.window, "output": output}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "dragoman",
        "options": {"baseURL": f"{gateway.url}/v1", "apiKey": "{env:DRAGOMAN_KEY}"},
        "models": {gateway.model: model},
    }
    name = f"dragoman/{gateway.model}"
    config = {"provider": {"dragoman": provider}, "model": name, "small_model": name}
    return ProgramSettings({"OPENCODE_CONFIG_CONTENT": dump_text(config), "DRAGOMAN_KEY": gateway.key})


PROGRAMS: dict[str, Callable[[RunningGateway], ProgramSettings]] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "qwen": qwen,
}
_ON_NPM = ("@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli", "opencode-ai", "@qwen-code/qwen-code")
PACKAGES = dict(zip(PROGRAMS, _ON_NPM, strict=True))  # in the same order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("program", choices=tuple(PROGRAMS), metavar="PROGRAM", help=", ".join(PROGRAMS))
    add_gateway(parser)
    parser.add_argument("--print", action="store_true", help="only print the settings, as shell commands")
    parser.set_defaults(rest=[])
    parser.usage = "dragoman launch PROGRAM [options] [-- ARG...]"
    parse_own = parser.parse_known_args

    def parse(words: Any = None, namespace: Any = None) -> Any:
        """Words after -- belong to the program. argparse would look for our options in them."""
        words = list(words or ())
        place = words.index("--") if "--" in words else len(words)
        found, unknown = parse_own(words[:place], namespace)
        found.rest = words[place + 1 :]
        return found, unknown

    parser.parse_known_args = parse  # type: ignore[method-assign,assignment]


def run(args: argparse.Namespace) -> int:
    url, key = base_url(args.host, args.port), find_key(args.key)
    if args.print:
        try:
            gateway = describe_gateway(url, key, args.model)
        except (GatewayError, ConfigError) as error:
            return complain(str(error), 1)
        if not is_answering(url):
            print(f"# no gateway answers at {url} yet: start one with `dragoman serve`", file=sys.stderr)
        powershell = os.name == "nt" and "MSYSTEM" not in os.environ  # Git Bash sets it
        show(args.program, PROGRAMS[args.program](gateway), args.rest, powershell=powershell)
        return 0
    found = shutil.which(args.program)
    if found is None:
        return complain(f"{args.program} is not installed: npm install -g {PACKAGES[args.program]}", 127)
    try:
        with running_gateway(url):
            gateway = describe_gateway(url, key, args.model)
            settings = PROGRAMS[args.program](gateway)
            with override_settings(args.program, settings, args.rest) as more:
                return run_program([found, *settings.arguments, *more, *args.rest], settings)
    except GatewayError as error:
        return complain(str(error), 1)


def describe_gateway(url: str, key: str | None, model: str | None) -> RunningGateway:
    """What we know about the gateway. If none answers, the limits of the model are unknown."""
    if not is_answering(url):
        return RunningGateway(url, model or default_without_gateway(), key or PLACEHOLDER_KEY)
    model = model or find_model(url, key)
    window, max_output = find_limits(url, key, model)
    return RunningGateway(url, model, key or PLACEHOLDER_KEY, window, max_output)


def complain(text: str, code: int) -> int:
    print(f"{paint('dragoman launch:', 'red', sys.stderr)} {text}", file=sys.stderr)
    return code


# ---------------------------------------------------------------- settings of the user that would override ours


def _launch_folder() -> Path:
    from dragoman.gateway.config.source import state_folder

    return state_folder(os.environ) / "launch"


def qwen_defaults(window: int) -> Path:
    """Qwen Code is told a window by a file only. The user's own settings override these defaults."""
    path = _launch_folder() / "qwen" / "defaults.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_text({"model": {"generationConfig": {"contextWindowSize": window}}}), "utf-8")
    return path


def gemini_home(window: int | None = None) -> Path:
    """Makes a second home for Gemini CLI: a copy of the user's settings with our login, and links to the rest.

    It cannot be told a window, but which part of a million tokens it fills before it compresses a conversation."""
    own = Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini"
    home = _launch_folder() / "gemini"
    copy = home / ".gemini"
    copy.mkdir(parents=True, exist_ok=True)
    for entry in own.iterdir() if own.is_dir() else ():
        if entry.name != "settings.json" and not (copy / entry.name).exists():
            with suppress(OSError):
                (copy / entry.name).symlink_to(entry)
    settings = _table(read_setting(own / "settings.json"))
    settings["security"] = {**_table(settings.get("security")), "auth": {"selectedType": "gemini-api-key"}}
    if window is not None and window < GEMINI_WINDOW:
        part = round(GEMINI_COMPRESSES_AT * window / GEMINI_WINDOW, 6)
        settings["model"] = {"compressionThreshold": part, **_table(settings.get("model"))}
    (copy / "settings.json").write_text(dump_text(settings), "utf-8")
    return home


@contextmanager
def override_settings(program: str, settings: ProgramSettings, rest: list[str]) -> Iterator[list[str]]:
    """Variables in Claude Code's settings files override its environment, and --settings overrides the files. Our file
    holds the key: only the user can read it, and it is deleted when the program ends."""
    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    files = (folder / "settings.json", Path(".claude/settings.json"), Path(".claude/settings.local.json"))
    overridden = {name for path in files for name in read_setting(path, "env") or ()} & set(settings.env)
    if program != "claude" or not overridden or "--settings" in rest:
        yield []
        return
    with TemporaryDirectory(prefix="dragoman-") as scratch:
        path = Path(scratch, "settings.json")
        path.write_text(dump_text({"env": settings.env}), "utf-8")
        yield ["--settings", str(path)]


def _table(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def read_setting(path: Path, *steps: str) -> Any:
    """A value in another program's settings file, or None."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    for step in steps:
        found = _table(found).get(step)
    return found


# ---------------------------------------------------------------- running the program


def run_program(command: list[str], settings: ProgramSettings) -> int:
    """Runs the program. It gets the terminal's Ctrl-C. A signal that ends us ends the program first."""
    env = {name: value for name, value in os.environ.items() if name not in settings.unset}
    process = subprocess.Popen(command, env={**env, **settings.env})  # noqa: S603  # the user named it
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: stop_program(process)),
    }
    try:
        code = process.wait()
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
        if process.poll() is None:
            stop_program(process)
            process.wait()
    return 128 - code if code < 0 else code


def stop_program(process: "subprocess.Popen[bytes]") -> None:
    """Asks the program to end, and kills it after a grace period."""
    process.terminate()
    timer = threading.Timer(GRACE_S, process.kill)
    timer.daemon = True
    timer.start()


def show(program: str, settings: ProgramSettings, rest: list[str], *, powershell: bool) -> None:
    """Prints the settings as lines for a shell: that of Unix (also in Git Bash), or PowerShell."""
    words = [program, *settings.arguments, *rest]
    if powershell:
        for name in settings.unset:
            print(f"Remove-Item Env:{name} -ErrorAction SilentlyContinue")
        for name, value in settings.env.items():
            print(f"$env:{name} = {quote_for_powershell(value)}")
        print(f"& {' '.join(map(quote_for_powershell, words))}")
        return
    if settings.unset:
        print(f"unset {' '.join(settings.unset)}")
    for name, value in settings.env.items():
        print(f"export {name}={shlex.quote(value)}")
    print(shlex.join(words))


def quote_for_powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
