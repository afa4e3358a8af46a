"""A server as a child process: newline-delimited JSON-RPC on its stdin and stdout.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio (read 2026-11-16)

The mcp package's own transport gives the child HOME and USER of ours, reads lines of any length and leaves children
behind when its task is cancelled natively. This one does not: the environment is what the entry says and no more
(T23), a line has a limit and so has their number (F63), and the process group is gone when this is, on Linux even
when we are killed (F64).
"""

import asyncio
import functools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from dragoman.errors import DragomanError
from dragoman.mcp import orphans
from dragoman.mcp.spec import ServerSpec

if sys.platform != "win32":
    import resource  # before any fork, as everything the child needs

MAX_LINE = 4 * 1024 * 1024
MAX_PER_S = 2000  # messages: ten thousand notifications a second are no conversation
MAX_NOISE = 500  # lines that are no JSON-RPC, one after another; a few are a careless print()
GRACE_S = 1.0  # to end by itself when its stdin closes, and again when it is asked to
TAIL = 2000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


class ChildError(DragomanError):
    """The child cannot be started, ended by itself, or had to be ended."""


def child_environment(spec: ServerSpec, home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """PATH and the language, a home of its own, and what the entry says. Nothing else gets in."""
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


_prctl = _load_prctl()  # before any fork: nothing may be loaded in the child


def _settle_in(parent: int, children: Path, owner: str) -> None:
    """In the child, before the program: it dies with us, gains no rights and leaves no core."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:  # we died before it could be told to die with us
            os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if owner:
        orphans.note(children, os.getpid(), owner)


class Child:
    """One process and its group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ended = asyncio.Event()
        self.why = ""  # we ended it
        self._tail: deque[bytes] = deque(maxlen=20)

    async def listen(self) -> None:
        """Its stderr, the last of it: what it says before it dies is what a person needs."""
        stderr = self.process.stderr
        while stderr is not None and (data := await stderr.read(4096)):
            self._tail.append(data[-TAIL:])

    def tell(self) -> str:
        said = b"".join(self._tail)[-TAIL:].decode("utf-8", "replace").strip()
        code = self.process.returncode
        words = self.why or (f"the program ended ({_say_code(code)})" if code is not None else "the program is silent")
        return f"{words}: {said.splitlines()[-1][:300]}" if said else words

    def kill(self, number: int = signal.SIGKILL) -> None:
        """The whole group, whether or not its leader still lives."""
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, number)

    async def end(self) -> None:
        """stdin closed, then asked, then killed; never longer than twice the grace."""
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(OSError, RuntimeError):
                stdin.close()
        if not await self.gone(GRACE_S):
            self.kill(signal.SIGTERM)
            await self.gone(GRACE_S)

    async def gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.process.returncode is None and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return self.process.returncode is not None


def _say_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


async def start(spec: ServerSpec, home: Path, env: Mapping[str, str], children: Path) -> Child:
    home.mkdir(parents=True, exist_ok=True)
    more: dict[str, Any] = {}
    if sys.platform != "win32":
        settle_in = functools.partial(_settle_in, os.getpid(), children, orphans.prepare(children))
        more = {"preexec_fn": settle_in, "start_new_session": True}
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            spec.command or "",
            *spec.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(spec, home, env),
            cwd=spec.cwd or home,
            limit=MAX_LINE,
            **more,
        )
    )
    try:
        return Child(await asyncio.shield(spawning))
    except asyncio.CancelledError:
        spawning.add_done_callback(_kill_newborn)  # a process begun is a process ended
        raise
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise ChildError(f"{spec.command}: cannot be started: {words}") from error


def _kill_newborn(spawning: "asyncio.Future[asyncio.subprocess.Process]") -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        Child(spawning.result()).kill()


@asynccontextmanager
async def open_stdio(child: Child) -> AsyncGenerator[tuple[Any, Any], None]:
    """A transport for the mcp package's Client over a child that runs. When it ends, so has the child's group."""
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](16)
    tasks = [
        asyncio.ensure_future(_read(child, to_us)),
        asyncio.ensure_future(_write(child, from_us)),
        asyncio.ensure_future(child.listen()),
    ]
    cleanly = False
    try:
        yield incoming, outgoing
        cleanly = True
    finally:
        try:
            if cleanly:
                await child.end()
        finally:
            child.kill()
            for stream in (to_us, incoming, outgoing, from_us):
                stream.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait([*tasks, asyncio.ensure_future(child.process.wait())], timeout=GRACE_S)
            _close_pipes(child.process)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """A grandchild in a group of its own may hold them open; we do not."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _read(child: Child, to_us: Any) -> None:
    stdout = child.process.stdout
    noise, second, count = 0, 0.0, 0
    try:
        while stdout is not None:
            try:
                line = await stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                break
            except (asyncio.LimitOverrunError, ValueError):
                child.why = f"ended: it wrote a line of more than {MAX_LINE} bytes"
                break
            now = time.monotonic()
            second, count = (now, 1) if now - second >= 1.0 else (second, count + 1)
            message = _parse(line)
            noise = 0 if message is not None else noise + bool(line.strip())
            if count > MAX_PER_S or noise > MAX_NOISE:
                much = "messages a second" if count > MAX_PER_S else "lines that are no JSON-RPC"
                child.why = f"ended: it wrote more than {MAX_PER_S if count > MAX_PER_S else MAX_NOISE} {much}"
                break
            if message is not None:
                await to_us.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
    finally:
        if child.why:
            child.kill()
        child.ended.set()
        to_us.close()


def _parse(line: bytes) -> Any:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):
        return None


async def _write(child: Child, from_us: Any) -> None:
    stdin = child.process.stdin
    with suppress(OSError, RuntimeError, anyio.ClosedResourceError):
        async for message in from_us:
            if stdin is None:
                return
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
