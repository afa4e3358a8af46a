"""Children are written down while they run, so that who comes after a gateway that was killed can end what it left.

A direct child dies with us (stdio.py); what it started itself may not. Each child leads a session of its own, and all
of a session whose owner is gone are ended. A process is known by its number, the time it started, and the boot and the
namespace it belongs to: numbers come again.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def prepare(folder: Path) -> str:
    """What a child has to write down about its owner."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return f"{os.getpid()} {_started(os.getpid())} {_here()}"
    return ""


def note(folder: Path, pid: int, owner: str) -> None:
    """Written by the child itself before it becomes its program: later would be too late for one of a thousand."""
    with suppress(OSError):
        fd = os.open(folder / str(pid), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, f"{_started(pid)} {owner}".encode())
        os.close(fd)


def drop(folder: Path, pid: int) -> None:
    with suppress(OSError):
        (folder / str(pid)).unlink()


def sweep(folder: Path) -> list[int]:
    """Ends what owners that are gone left behind; who that was."""
    ended: list[int] = []
    with suppress(OSError):
        for file in list(folder.iterdir()):
            with suppress(OSError, ValueError):
                started, owner, owner_started, here = file.read_text().split()
                if here == _here() and _started(int(owner)) == owner_started:
                    continue
                if here == _here() and _started(int(file.name)) in ("", started):
                    ended += _end_session(int(file.name))
                file.unlink()
    return ended


def _here() -> str:
    """This boot of this machine, and who can see whom on it."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"


def _end_session(leader: int) -> list[int]:
    members = [pid for pid, session in _sessions() if session == leader]
    for pid in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return members


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and len(fields := _stat(int(entry.name))) > 3:
            yield int(entry.name), int(fields[3])


def _started(pid: int) -> str:
    """When a process started, in the system's own count; "" when there is none."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything (proc_pid_stat(5))."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []
