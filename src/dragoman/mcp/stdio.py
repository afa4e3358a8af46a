"""A server as a child process: newline-delimited JSON-RPC on its stdin and stdout.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio (read 2026-11-16)

The transport of the mcp package passes HOME and USER on to the child, reads lines of any length, and leaves children
behind when its task is cancelled. This one does not. The child's environment comes from the entry of the server (T23).
The length and the number of lines are limited (F63). The process group ends with the transport, on Linux even when the
gateway is killed (F64).
"""

import asyncio
import functools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from dragoman.child_process import keep_standard_files
from dragoman.errors import DragomanError
from dragoman.jsontypes import has_more_values
from dragoman.mcp.spec import MAX_MESSAGE_VALUES, MAX_MESSAGES_PER_S, ServerSpec

try:
    import resource  # imported before any fork, because the child needs it
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_INVALID_LINES = 500  # in a row that are not JSON-RPC; a few come from a forgotten print()
GRACE_S = 1.0  # for the child to exit after its stdin is closed, and again after SIGTERM
STDERR_TAIL_BYTES = 2000
PROC = Path("/proc")
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL


class ChildError(DragomanError):
    """The child could not be started, or it ended."""


def make_environment(spec: ServerSpec, home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """PATH, the language, a home folder of its own, and `env` of the entry. Nothing else of our environment."""
    base = {"PATH": env.get("PATH", os.defpath), "HOME": str(home), "LANG": env.get("LANG", "C.UTF-8")}
    if sys.platform == "win32":
        base |= {key: env[key] for key in ("SYSTEMROOT", "TEMP", "PATHEXT") if key in env}
    return {**base, **spec.env}


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return prctl


_prctl = _load_prctl()  # before any fork: the child must not load libraries


def _prepare_child(parent: int, children: Path, owner: str) -> None:
    """Runs in the child before the program starts: it dies with us, gains no privileges, writes no core dump, and
    inherits no open file."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, _KILL, 0, 0, 0)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:  # the gateway died before prctl took effect
            os._exit(1)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if owner:
        record_child(children, os.getpid(), owner)
    keep_standard_files()


class Child:
    """One child process and its process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ended = asyncio.Event()
        self.kill_reason = ""  # set if we killed it
        self._tail: deque[bytes] = deque(maxlen=20)

    async def read_stderr(self) -> None:
        """Keeps the end of stderr, because its last lines explain why the program ended."""
        stderr = self.process.stderr
        while stderr is not None and (data := await stderr.read(4096)):
            self._tail.append(data[-STDERR_TAIL_BYTES:])

    def describe_end(self) -> str:
        stderr = b"".join(self._tail)[-STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
        code = self.process.returncode
        reason = self.kill_reason or (
            f"the program ended ({_describe_exit(code)})" if code is not None else "the program does not answer"
        )
        return f"{reason}: {stderr.splitlines()[-1][:300]}" if stderr else reason

    def kill(self, signal_number: int = _KILL) -> None:
        """Kills the whole group, even if its leader has already exited."""
        with suppress(ProcessLookupError, PermissionError):
            if not hasattr(os, "killpg"):  # Windows
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal_number)

    async def stop(self) -> None:
        """Closes stdin, then sends SIGTERM. Waits at most GRACE_S after each."""
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(OSError, RuntimeError):
                stdin.close()
        if not await self.wait_for_exit(GRACE_S):
            self.kill(signal.SIGTERM)
            await self.wait_for_exit(GRACE_S)

    async def wait_for_exit(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.process.returncode is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self.process.returncode is not None


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


async def start_child(spec: ServerSpec, home: Path, env: Mapping[str, str], children: Path) -> Child:
    home.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {}
    if hasattr(os, "fork"):
        prepare = functools.partial(_prepare_child, os.getpid(), children, describe_owner(children))
        options = {"preexec_fn": prepare, "start_new_session": True}
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            spec.command or "",
            *spec.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=make_environment(spec, home, env),
            cwd=spec.cwd or home,
            limit=MAX_LINE_BYTES,
            **options,
        )
    )
    try:
        return Child(await asyncio.shield(spawning))
    except asyncio.CancelledError:
        spawning.add_done_callback(_kill_started)  # the process may start after the cancellation: kill it then
        raise
    except (OSError, ValueError) as error:
        message = error.strerror if isinstance(error, OSError) else str(error)
        raise ChildError(f"{spec.command}: cannot be started: {message}") from error


def _kill_started(spawning: "asyncio.Future[asyncio.subprocess.Process]") -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        Child(spawning.result()).kill()


@asynccontextmanager
async def open_stdio(child: Child) -> AsyncGenerator[tuple[Any, Any], None]:
    """A transport for the Client of the mcp package over a running child. At its end the child has ended too."""
    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](16)
    tasks = [
        asyncio.ensure_future(_read_stdout(child, to_client)),
        asyncio.ensure_future(_write_stdin(child, from_client)),
        asyncio.ensure_future(child.read_stderr()),
    ]
    clean_exit = False
    try:
        yield incoming, outgoing
        clean_exit = True
    finally:
        try:
            if clean_exit:
                await child.stop()
        finally:
            child.kill()
            for stream in (to_client, incoming, outgoing, from_client):
                stream.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait([*tasks, asyncio.ensure_future(child.process.wait())], timeout=GRACE_S)
            _close_pipes(child.process)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Closes our side of the pipes: a grandchild in another process group may still have the other side open."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _read_stdout(child: Child, to_client: Any) -> None:
    stdout = child.process.stdout
    invalid_lines, second, count = 0, 0.0, 0
    try:
        while stdout is not None:
            try:
                line = await stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                break
            except (asyncio.LimitOverrunError, ValueError):
                child.kill_reason = f"ended: it wrote a line of more than {MAX_LINE_BYTES} bytes"
                break
            if len(line) > MAX_MESSAGE_VALUES and has_more_values(line, MAX_MESSAGE_VALUES):
                child.kill_reason = f"ended: it wrote a message of more than {MAX_MESSAGE_VALUES} values"
                break
            now = time.monotonic()
            second, count = (now, 1) if now - second >= 1.0 else (second, count + 1)
            message = _parse(line)
            invalid_lines = 0 if message is not None else invalid_lines + bool(line.strip())
            if count > MAX_MESSAGES_PER_S or invalid_lines > MAX_INVALID_LINES:
                limit, unit = MAX_INVALID_LINES, "lines that are not JSON-RPC"
                if count > MAX_MESSAGES_PER_S:
                    limit, unit = MAX_MESSAGES_PER_S, "messages a second"
                child.kill_reason = f"ended: it wrote more than {limit} {unit}"
                break
            if message is not None:
                await to_client.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
    finally:
        if child.kill_reason:
            child.kill()
        child.ended.set()
        to_client.close()


def _parse(line: bytes) -> Any:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):
        return None


async def _write_stdin(child: Child, from_client: Any) -> None:
    stdin = child.process.stdin
    with suppress(OSError, RuntimeError, anyio.ClosedResourceError):
        async for message in from_client:
            if stdin is None:
                return
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


# ---------------------------------------------------------------- children of a gateway that was killed
#
# A direct child dies with the gateway, but the processes that it started may not. So every child is recorded in a file
# while it runs. The next gateway ends the processes whose owner is gone. Each child leads its own session, and all
# processes of that session are ended. A process id can be used again, so a record also has the start time of the
# process, the boot of the machine and the process namespace.


def describe_owner(folder: Path) -> str:
    """The text that identifies this process as the owner of a child."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return f"{os.getpid()} {_read_start_time(os.getpid())} {_identify_machine()}"
    return ""


def record_child(folder: Path, pid: int, owner: str) -> None:
    """The child writes its own record before its program starts: afterwards the gateway may already be dead."""
    with suppress(OSError):
        fd = os.open(folder / str(pid), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, f"{_read_start_time(pid)} {owner}".encode())
        os.close(fd)


def forget_child(folder: Path, pid: int) -> None:
    with suppress(OSError):
        (folder / str(pid)).unlink()


def end_orphans(folder: Path) -> list[int]:
    """Ends the processes whose owner is gone, and returns their ids."""
    ended: list[int] = []
    with suppress(OSError):
        for file in list(folder.iterdir()):
            with suppress(OSError, ValueError):
                start_time, owner_pid, owner_start_time, machine = file.read_text().split()
                if machine == _identify_machine() and _read_start_time(int(owner_pid)) == owner_start_time:
                    continue
                if machine == _identify_machine() and _read_start_time(int(file.name)) in ("", start_time):
                    ended += _end_session(int(file.name))
                file.unlink()
    return ended


def _identify_machine() -> str:
    """Identifies the boot of this machine and the process namespace."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"


def _end_session(leader: int) -> list[int]:
    members = [pid for pid, session in _list_sessions() if session == leader]
    for pid in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, _KILL)
    return members


def _list_sessions() -> Iterator[tuple[int, int]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and len(fields := _read_stat(int(entry.name))) > 3:
            yield int(entry.name), int(fields[3])


def _read_start_time(pid: int) -> str:
    """The start time of a process, in clock ticks since boot; "" if there is no such process."""
    fields = _read_stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def _read_stat(pid: int) -> list[str]:
    """The fields after the process name, which may contain any character (proc_pid_stat(5))."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []
