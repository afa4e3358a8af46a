"""How each program is run without a person: a clean environment, a home of its own, a key that is none."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RUN_S = 60.0
KEY = "sk-dummy-of-a-test"


@dataclass(frozen=True)
class Place:
    """Where one run happens."""

    bins: Path
    home: Path
    work: Path
    gateway: str
    proxy: str


@dataclass(frozen=True)
class Program:
    name: str
    model: str  # as the program calls it
    command: Callable[[Place, str, str], list[str]]  # place, model, prompt
    resume: Callable[[Place, str, str], list[str]]  # the same, and goes on with the last conversation
    environment: Callable[[Place], dict[str, str]]
    answer: Callable[[str], str]  # what it said to its user, of all it printed
    prepare: Callable[[Place], None] = lambda place: None


@dataclass(frozen=True)
class Run:
    code: int | None  # None: it did not end in time
    out: str
    err: str
    answer: str
    seconds: float


def read_lines(out: str) -> Iterator[dict[str, Any]]:
    """Events, one JSON object a line."""
    for line in out.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def run(program: Program, place: Place, prompt: str, *, resume: bool = False) -> Run:
    program.prepare(place)
    command = program.resume if resume else program.command
    env = {
        "HOME": str(place.home),
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        # whoever wants to leave this machine meets a wall that writes down where they wanted to go
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), place.proxy),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **program.environment(place),
    }
    started = time.monotonic()
    process = subprocess.Popen(
        command(place, program.model, prompt),
        cwd=place.work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=RUN_S)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children too
        out, err = process.communicate()
        code = None
    return Run(code, out, err, program.answer(out), time.monotonic() - started)


# ---- Claude Code


def _claude_command(place: Place, model: str, prompt: str) -> list[str]:
    said = [str(place.bins / "claude"), "-p", prompt, "--model", model]
    return [*said, "--output-format", "stream-json", "--verbose", "--allowedTools", "Read"]


def _claude_resume(place: Place, model: str, prompt: str) -> list[str]:
    return [*_claude_command(place, model, prompt), "--continue"]


def _claude_environment(place: Place) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.gateway,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


# ---- Codex


def _codex_prepare(place: Place) -> None:
    """Its own OpenAI provider, at another address."""
    _write_codex(place, f'openai_base_url = "{place.gateway}/v1"', "")


def _codex_prepare_provider(place: Place) -> None:
    """A provider of its own, told that there is no WebSocket."""
    said = [f'base_url = "{place.gateway}/v1"', 'wire_api = "responses"', "supports_websockets = false"]
    provider = ["[model_providers.dragoman]", 'name = "dragoman"', 'env_key = "OPENAI_API_KEY"', *said]
    _write_codex(place, 'model_provider = "dragoman"', "\n".join(provider))


def _write_codex(place: Place, first: str, last: str) -> None:
    folder = place.home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    quiet = "[analytics]\nenabled = false\n[feedback]\nenabled = false\n"
    (folder / "config.toml").write_text(f"{first}\ncheck_for_update_on_startup = false\n{quiet}{last}\n")


def _codex_command(place: Place, model: str, prompt: str) -> list[str]:
    return [str(place.bins / "codex"), "exec", *_CODEX_SAYS, "-m", model, prompt]


_CODEX_SAYS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def _codex_resume(place: Place, model: str, prompt: str) -> list[str]:
    return [str(place.bins / "codex"), "exec", "resume", "--last", *_CODEX_SAYS, "-m", model, prompt]


def _codex_environment(place: Place) -> dict[str, str]:
    return {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY, "CODEX_HOME": str(place.home / ".codex")}


# ---- Gemini CLI


def _gemini_prepare(place: Place) -> None:
    folder = place.home / ".gemini"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "disableUpdateNag": True},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))


def _gemini_command(place: Place, model: str, prompt: str) -> list[str]:
    said = [str(place.bins / "gemini"), "-p", prompt, "-m", model]
    return [*said, "--approval-mode", "yolo", "--skip-trust", "--output-format", "stream-json"]


def _gemini_resume(place: Place, model: str, prompt: str) -> list[str]:
    return [*_gemini_command(place, model, prompt), "--resume", "latest"]


def _gemini_environment(place: Place) -> dict[str, str]:
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": place.gateway, "GEMINI_TELEMETRY_ENABLED": "false"}


def _claude_answer(out: str) -> str:
    return "".join(str(event.get("result", "")) for event in read_lines(out) if event.get("type") == "result")


def _codex_answer(out: str) -> str:
    items = [event.get("item", {}) for event in read_lines(out)]
    return "".join(item.get("text", "") for item in items if item.get("type") == "agent_message")


def _gemini_answer(out: str) -> str:
    said = [event for event in read_lines(out) if event.get("type") == "message" and event.get("role") == "assistant"]
    return "".join(event.get("content", "") for event in said)


CLAUDE = Program(
    name="claude",
    model="claude-sonnet-4-6",
    command=_claude_command,
    resume=_claude_resume,
    environment=_claude_environment,
    answer=_claude_answer,
)
CODEX = Program(  # all its tools in namespaces, in an item of the input
    name="codex",
    model="gpt-6-sol",
    command=_codex_command,
    resume=_codex_resume,
    environment=_codex_environment,
    answer=_codex_answer,
    prepare=_codex_prepare,
)
CODEX_BEFORE = replace(  # functions, and a patch tool in free text
    CODEX, name="codex-5.5", model="gpt-5.5", prepare=_codex_prepare_provider
)
GEMINI = Program(
    name="gemini",
    model="gemini-2.5-pro",
    command=_gemini_command,
    resume=_gemini_resume,
    environment=_gemini_environment,
    answer=_gemini_answer,
    prepare=_gemini_prepare,
)
PROGRAMS = (CLAUDE, CODEX, CODEX_BEFORE, GEMINI)
