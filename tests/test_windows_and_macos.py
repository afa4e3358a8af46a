"""Windows and macOS: every command runs where the names of Unix are missing. A subprocess takes them away first."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dragoman.cli import COMMANDS
from tests.waiting import NEVER_S

# What Windows lacks. asyncio and subprocess are loaded first: on Linux they need some of it themselves.
AS_ON_WINDOWS = """
import asyncio, socket, ssl, subprocess, tempfile, shutil, pathlib, os, signal, sys
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGPIPE", "SIGCHLD", "SIGALRM", "pthread_sigmask", "sigwait"):
    vars(signal).pop(name, None)
for name in ("fork", "killpg", "getuid", "geteuid", "setsid", "wait", "sysconf", "uname", "fchmod", "mkfifo", "nice"):
    vars(os).pop(name, None)
vars(socket).pop("SO_REUSEPORT", None)
unix = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "uvloop")
for name in unix:
    sys.modules[name] = None
"""
RUN = AS_ON_WINDOWS + "from dragoman.cli import main; sys.exit(main(sys.argv[1:]))"


def run(words: list[str], folder: Path, code: str = RUN) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "DRAGOMAN_HOME": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NEVER_S,
    )


def test_every_module_is_imported_and_commands_run_without_the_names_of_unix(tmp_path: Path) -> None:
    """`workers` and `shared_limits` are the exception: only `serve --workers` loads them."""
    code = """
import importlib, pkgutil, dragoman
skip = ("dragoman.gateway.process.workers", "dragoman.upstream.shared_limits", "dragoman.__main__")
for found in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
    if found.name not in skip:
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name in unix or error.name.startswith("dragoman"):
                raise  # any other package belongs to an extra that is not installed
from dragoman.cli import COMMANDS, main
for name in COMMANDS:
    assert main([name, "--help"]) == 0, name
for words in ("check", "ask hello", "keys list", "mcp list", "verify --list", "providers", "dialects"):
    assert main(words.split()) == 0, words
"""
    done = run([], tmp_path, "import aiohttp, mcp" + AS_ON_WINDOWS + code)  # they too look at the system first
    assert done.returncode == 0, done.stderr
    assert all(f"dragoman {name}" in done.stdout for name in COMMANDS)


def test_the_gateway_answers_without_the_names_of_unix(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", RUN, "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None
        while "curl " not in process.stdout.readline():
            pass
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hello"}]}).encode()
        request = urllib.request.Request(f"{url[0]}/v1/chat/completions", body, {"content-type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=NEVER_S) as response:  # noqa: S310
            assert json.load(response)["choices"]
        process.terminate()
        assert process.wait(NEVER_S) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("words", [["--workers", "2"], ["--reuse-port"]], ids=lambda words: words[0])
def test_what_the_system_cannot_do_is_said_in_a_line(words: list[str], tmp_path: Path) -> None:
    done = run(["serve", "--port", "0", *words], tmp_path)
    assert done.returncode == 78
    assert "leave the option out" in done.stderr
    assert len(done.stderr.splitlines()) == 1
