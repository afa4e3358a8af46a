"""No child of ours has a descriptor but its own: the listening socket, connections and files stay with the gateway."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from dragoman import speech
from dragoman.child_process import _mark_each, keep_standard_files
from tests.cli.test_serve import COMMAND, Running, environment, serving
from tests.ports import free_port
from tests.waiting import NEVER_S, wait_until

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="reads the open files of a process from /proc (Linux)"
)
THREE = ["0", "1", "2"]
LIST_FILES = f"#!{sys.executable} -S\nimport os\nprint(sorted(os.listdir('/proc/self/fd'))[:-1], flush=True)\n"
SERVER = Path(__file__).parent.parent / "mcp" / "bad_server.py"


def open_files(pid: int) -> dict[str, str]:
    """Descriptor -> what it is."""
    folder = Path(f"/proc/{pid}/fd")
    found = {}
    for name in os.listdir(folder):
        try:
            found[name] = os.readlink(folder / name)
        except OSError:  # closed meanwhile
            continue
    return found


def children_of(pid: int) -> list[int]:
    """Of every thread."""
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(word) for words in lists for word in words]


def wait_for_children(pid: int, count: int) -> list[int]:
    wait_until(lambda: len(children_of(pid)) >= count, f"{count} children of {pid}")
    return children_of(pid)


@pytest.fixture
def inherited() -> Iterator[socket.socket]:
    """A descriptor that our own parent left open for us."""
    with socket.socket() as left_open:
        left_open.set_inheritable(True)
        yield left_open


@pytest.fixture
def gateway(tmp_path: Path, inherited: socket.socket) -> Iterator[Running]:
    """Two workers and an MCP server, started by a parent that left a descriptor open."""
    args = json.dumps(["-S", str(SERVER), "fine"])
    server = f'[mcp.servers.tool]\ncommand = "{sys.executable}"\nargs = {args}\n'
    (tmp_path / "dragoman.toml").write_text(f'demo = true\n[mcp]\ndefault = ["tool"]\n{server}')
    with serving(tmp_path, "--workers", "2", pass_fds=(inherited.fileno(),)) as running:
        yield running


def test_workers_share_the_listening_socket_and_mcp_children_nothing(gateway: Running) -> None:
    supervisor = gateway.process.pid
    workers = wait_for_children(supervisor, 2)
    server = ask_until_one_has_started_its_server(gateway, workers)
    assert sorted(open_files(server)) == THREE
    kept = set(open_files(supervisor).values())
    mine, others = (set(open_files(worker).values()) for worker in workers)
    sockets = {name for name in mine & others - kept if name.startswith("socket:")}
    assert not sockets  # no connection of one worker is open in the other


def ask_until_one_has_started_its_server(gateway: Running, workers: list[int]) -> int:
    body = {"model": "demo", "messages": [{"role": "user", "content": "say hi"}]}
    request = urllib.request.Request(  # noqa: S310
        f"{gateway.url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=NEVER_S) as response:  # noqa: S310
        response.read()
    return next(child for worker in workers for child in children_of(worker))


def test_a_launched_program_and_the_gateway_behind_it(tmp_path: Path, inherited: socket.socket) -> None:
    program = tmp_path / "claude"
    lines = "print(os.getppid(), flush=True)\nos.read(0, 1)\n"
    program.write_text(LIST_FILES + lines)
    program.chmod(0o755)
    words = [*COMMAND, "launch", "claude", "--port", str(free_port()), "--model", "demo"]
    env = {**environment(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    kept = (inherited.fileno(),)
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=nowhere, pass_fds=kept) as launch:
        assert launch.stdout is not None
        assert launch.stdout.readline().decode().strip() == str(THREE)
        mine = os.readlink(f"/proc/self/fd/{inherited.fileno()}")
        for child in children_of(int(launch.stdout.readline())):
            assert mine not in open_files(child).values()
        launch.communicate(b"\n", timeout=NEVER_S)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_that_converts_sound(
    new_loop: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: socket.socket
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(LIST_FILES)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        sound = runner.run(speech._convert(speech.Sound(b"", "wav"), "mp3"))
    assert sound.data.decode().strip() == str(THREE)


@pytest.mark.parametrize("close", [keep_standard_files, _mark_each])
def test_both_ways_to_close_leave_three(close: object, inherited: socket.socket) -> None:
    """The second is for systems without close_range."""
    code = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        preexec_fn=close,  # type: ignore[call-overload]
        close_fds=False,
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == str(THREE)
