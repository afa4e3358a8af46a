"""`dragoman launch` with the real programs: each reads a file through a gateway that launch itself has started, with a
person's own settings in its home that point it elsewhere; and through `eval "$(dragoman launch ... --print)"`."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dragoman.upstream.discovery import demo_upstream, make_upstream
from dragoman.upstream.profiles import find_kind
from tests.clients.blocking_proxy import blocking_proxy
from tests.clients.programs import CLAUDE, CODEX, GEMINI, read_lines
from tests.clients.test_programs import bins, scratch
from tests.gateway.house import open_house
from tests.gateway.web import send
from tests.ports import free_port

__all__ = ["bins"]  # the fixture

SECRET = "nougat-2250"
ELSEWHERE = "http://127.0.0.1:1"
AT_ONCE = 2
RUN_S = 90


@dataclass(frozen=True)
class Launched:
    """How a program is asked one question without a person, what it said, and whose settings could lead it astray."""

    words: Callable[[str], list[str]]
    answer: Callable[[str], str]
    astray: dict[str, str]  # a file in its home -> what is in it


def _qwen_answer(out: str) -> str:
    return "".join(str(event.get("result", "")) for event in read_lines(out) if event.get("type") == "result")


def _opencode_answer(out: str) -> str:
    return "".join(event["part"]["text"] for event in read_lines(out) if event.get("type") == "text")


_QUIET = {
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "disableUpdateNag": True},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}
PROGRAMS = {
    "claude": Launched(
        lambda prompt: ["-p", prompt, "--output-format", "stream-json", "--verbose", "--allowedTools", "Read"],
        CLAUDE.answer,
        {".claude/settings.json": json.dumps({"env": {"ANTHROPIC_BASE_URL": ELSEWHERE, "ANTHROPIC_MODEL": "glm"}})},
    ),
    "codex": Launched(
        lambda prompt: ["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", prompt],
        CODEX.answer,
        {".codex/config.toml": f'model_provider = "x"\n[model_providers.x]\nname = "x"\nbase_url = "{ELSEWHERE}"\n'},
    ),
    "gemini": Launched(
        lambda prompt: ["-p", prompt, "--approval-mode", "yolo", "--skip-trust", "--output-format", "stream-json"],
        GEMINI.answer,
        {".gemini/settings.json": json.dumps(_QUIET | {"security": {"auth": {"selectedType": "oauth-personal"}}})},
    ),
    "opencode": Launched(
        lambda prompt: ["run", prompt, "--format", "json"],
        _opencode_answer,
        {".config/opencode/opencode.json": '{"model": "anthropic/claude-sonnet-4-6", "autoupdate": false}'},
    ),
    "qwen": Launched(
        lambda prompt: ["-p", prompt, "--yolo", "--output-format", "stream-json"],
        _qwen_answer,
        {".qwen/settings.json": json.dumps(_QUIET | {"security": {"auth": {"selectedType": "qwen-oauth"}}})},
    ),
}


# Each is started with a model, with the one that launch chooses; and, where the variables, the home or the arguments
# differ most, by what --print says.
STARTED, CHOSEN, PRINTED = "started", "without --model", "eval"
RUNS = [
    *((name, way) for way in (STARTED, CHOSEN) for name in PROGRAMS),
    *((name, PRINTED) for name in ("claude", "gemini", "qwen")),
]
REAL = "qwen3"  # a provider's model; the demo model, which does the work here, stands behind it


@dataclass(frozen=True)
class Told:
    code: int
    out: str
    err: str
    answer: str
    left: bool  # a gateway is still there
    wanted: list[str]  # where it wanted to go, besides the gateway
    served: list[str]  # models that a running gateway was asked for

    def __str__(self) -> str:
        return f"exit {self.code}, wall {self.wanted}\n\n{self.out}\n\n{self.err}"


@contextmanager
def at_home(bins: Path, proxy: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with a home in it, and a clean environment; a proxy lets nobody out."""
    with TemporaryDirectory(prefix="dragoman-", dir=scratch(), ignore_cleanup_errors=True) as folder:
        home = Path(folder, "home")
        home.mkdir()
        Path(folder, "work").mkdir()
        yield (
            Path(folder),
            {
                "HOME": str(home),
                "PATH": os.pathsep.join([str(bins), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                "NO_COLOR": "1",
                "DRAGOMAN_NO_PROBE": "1",
                **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
                "NO_PROXY": "127.0.0.1,localhost",
                "no_proxy": "127.0.0.1,localhost",
            },
        )


@contextmanager
def open_gateway(way: str) -> Iterator[int]:
    """The port of a gateway that runs, or of none: then launch starts one."""
    if way == STARTED:
        yield free_port()
    elif way == PRINTED:
        with open_house() as house:
            yield house.port
    else:
        with open_house(aliases={REAL: ("demo",)}) as behind:
            near = make_upstream("near", find_kind("compatible"), base_url=f"{behind.url}/v1", models=(REAL,))
            with open_house(near, demo_upstream()) as house:
                yield house.port


def ask(name: str, bins: Path, way: str) -> Told:
    program = PROGRAMS[name]
    with blocking_proxy() as proxy, at_home(bins, proxy.url) as (folder, env):
        for path, text in program.astray.items() if way != PRINTED or name in ("gemini", "qwen") else ():
            (folder / "home" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "home" / path).write_text(text)
        note = folder / "work" / "note.txt"
        note.write_text(f"The password is {SECRET}.\n")
        words = program.words(f"Read the file {note} and tell me what it says.")
        with open_gateway(way) as port:
            done = launch(name, port, words, folder, env, way)
            left = way == STARTED and answers(port)
            served = list_served(port) if way == CHOSEN else []
        return Told(done.returncode, done.stdout, done.stderr, program.answer(done.stdout), left, proxy.wanted, served)


def launch(
    name: str, port: int, words: list[str], folder: Path, env: dict[str, str], way: str
) -> "subprocess.CompletedProcess[str]":
    launching = ["dragoman", "launch", name, "--port", str(port), *([] if way == CHOSEN else ["--model", "demo"])]
    command = [*launching, "--", *words]
    if way == PRINTED:
        printed = shlex.join([*launching, "--print", "--", *words])
        command = ["bash", "-c", f'eval "$({printed})"']
    return subprocess.run(
        command, cwd=folder / "work", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S
    )


def list_served(port: int) -> list[str]:
    metrics = send(f"http://127.0.0.1:{port}", "GET", "/metrics").body.decode()
    return sorted(set(re.findall(r'^dragoman_answers_total\{.*?model="([^"]+)"', metrics, re.M)))


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def runs(bins: Path) -> Iterator[dict[tuple[str, str], Future[Told]]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {(name, way): pool.submit(ask, name, bins, way) for name, way in RUNS}


@pytest.mark.parametrize(("name", "way"), RUNS, ids=[" ".join(run) for run in RUNS])
def test_a_launched_program_answers_through_the_gateway(
    name: str, way: str, runs: dict[tuple[str, str], Future[Told]]
) -> None:
    told = runs[name, way].result()
    assert told.code == 0, told
    assert SECRET in told.answer, told
    assert not told.left, "the gateway ends with the program"
    assert not [place for place in told.wanted if "127.0.0.1" in place], told
    assert way != STARTED or "started a gateway" in told.err, told
    assert way != CHOSEN or told.served == [REAL], told


def test_the_programs_are_those_of_launch() -> None:
    from dragoman.cli.launch import PROGRAMS as known

    assert set(PROGRAMS) == set(known)
    assert shutil.which("bash")
