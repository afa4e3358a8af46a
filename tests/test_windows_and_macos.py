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
gone = (
    "fork killpg getuid geteuid getgid setsid wait sysconf uname fchmod fchown chown mkfifo nice getpgid setpgid "
    "getsid sched_getaffinity register_at_fork pread pwrite sendfile posix_spawn statvfs getloadavg openpty "
    "pipe2 fdatasync O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK fchdir environb"
)
for name in gone.split():
    vars(os).pop(name, None)
pair, unix_family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *rest, **more: pair(unix_family)  # asyncio on Linux needs one
for name in ("SO_REUSEPORT", "AF_UNIX", "MSG_DONTWAIT", "MSG_NOSIGNAL", "TCP_INFO"):
    vars(socket).pop(name, None)


def missing(*rest, **more):
    raise NotImplementedError


for name in ("add_signal_handler", "create_unix_server", "create_unix_connection", "connect_read_pipe"):
    setattr(asyncio.SelectorEventLoop, name, missing)


class AsPopen(subprocess.Popen):
    def __init__(self, *rest, **more):
        assert more.get("preexec_fn") is None and not more.get("pass_fds"), "Windows has neither"
        super().__init__(*rest, **more)


subprocess.Popen = AsPopen
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
skip = ("dragoman.gateway.process.workers", "dragoman.gateway.process.shared_limits", "dragoman.__main__")
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
COMMAND_LINES = (
    "check", "ask hello", "models", "route demo", "providers", "dialects", "pairs --from gemini --to ollama",
    "keys new --name a", "keys list", "keys show a", "keys revoke a", "teams set web --rpm 5", "teams list",
    "mcp list", "verify --list", "verify --scripted --only anthropic --scenario basic", "init new.toml",
    "check new.toml", "doctor --offline", "launch claude --print", "completion bash", "say hello -o hello.wav",
)
for words in COMMAND_LINES:
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
