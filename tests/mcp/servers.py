"""MCP servers for the tests: ours, and real ones started as their makers say."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.mcp.registry import Registry
from dragoman.mcp.servers import ServerPool
from dragoman.mcp.spec import ServerSpec, read_spec
from dragoman.model.messages import Text, ToolCall, ToolResult
from tests.cli.terminal import answers
from tests.ports import free_port
from tests.waiting import NEVER_S, until, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NPM = Path(os.environ.get("DRAGOMAN_MCP_NPM", ROOT / ".venv" / "mcp-npm"))


def spec(name: str, **row: Any) -> ServerSpec:
    return read_spec(name, row, "a test", name)


def bad(mode: str, *more: str, name: str | None = None, **row: Any) -> ServerSpec:
    args = ["-S", str(HERE / "bad_server.py"), mode, *more]
    return spec(name or mode, command=sys.executable, args=args, **row)


def time_server(name: str = "time") -> ServerSpec:
    program = shutil.which("mcp-server-time", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("mcp-server-time is not installed (requirements/dev.txt has it)")
    return spec(name, command=program)


def everything() -> str:
    """The reference server of the protocol's makers, from npm; installed once."""
    program = NPM / "node_modules" / ".bin" / "mcp-server-everything"
    if program.exists():
        return str(program)
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and the reference server comes from there")
    NPM.mkdir(parents=True, exist_ok=True)
    with (NPM / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            for file in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "npm" / file, NPM / file)
            done = subprocess.run(
                ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=NPM, timeout=NEVER_S
            )
            if done.returncode:
                pytest.skip("npm could not install the reference server")
    return str(program)


@contextlib.contextmanager
def listening(kind: str, port: int | None = None) -> Iterator[str]:
    """The reference server over HTTP; the address."""
    program = everything()
    port = port or free_port()
    env = {"PATH": os.environ["PATH"], "PORT": str(port), "NODE_OPTIONS": f"--require {HERE / 'npm' / 'loopback.cjs'}"}
    process = subprocess.Popen(
        [program, kind], env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(port), "the start of the reference server")
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class House:
    """Servers in a folder of their own, and what they reported."""

    def __init__(self, folder: Path, *specs: ServerSpec) -> None:
        self.reports: list[tuple[str, dict[str, Any]]] = []
        registry = Registry(folder / "mcp.json")
        self.servers = ServerPool(
            registry, {s.name: s for s in specs}, folder=folder, report=lambda e, f: self.reports.append((e, f))
        )

    async def __aenter__(self) -> "House":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.servers.close()

    async def call(self, name: str, arguments: str = "{}") -> ToolResult:
        return await self.servers.make_toolbox().run(ToolCall(id="c1", name=name, arguments=arguments))

    def health(self) -> dict[str, str]:
        return {row["name"]: row["health"] for row in self.servers.describe()}

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.servers.describe() if row["name"] == name)


def words(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))


def running(mark: str) -> list[int]:
    """Processes with a word in their command line, other than this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if mark in (entry / "cmdline").read_bytes().decode("utf-8", "replace") and state != "Z":
                    found.append(int(entry.name))
    return found


async def gone(mark: str) -> list[int]:
    """What is left when nothing more ends."""
    with contextlib.suppress(AssertionError):
        await until(lambda: not running(mark))
    return running(mark)
