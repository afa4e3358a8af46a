"""No child is left behind, however we end (F62, F64)."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

import dragoman.mcp.connection  # noqa: F401  # loaded before any fork, so that fifty of them cost little
from tests.mcp.servers import House, bad, gone, running

RUNS = 50


async def _use(folder: Path, mark: str) -> None:
    async with House(folder, bad("family", mark, name="family"), bad("fine", mark)) as house:
        await house.servers.toolbox().list_tools()
        while True:
            await house.call("family.work")
            await asyncio.sleep(0)  # one that fails at once gives nobody else a turn


def _one_run(folder: Path, mark: str, way: str, after_s: float) -> None:
    """A process of its own that uses servers and is ended in some way."""
    pid = os.fork()
    if pid == 0:
        try:
            if way == "cancel":
                asyncio.run(asyncio.wait_for(_use(folder, mark), after_s))
            asyncio.run(_use(folder, mark))
        except BaseException:
            os._exit(1)
        os._exit(0)
    time.sleep(after_s if way != "cancel" else 0)
    if way != "cancel":
        os.kill(pid, signal.SIGINT if way == "interrupt" else signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_no_child_is_left_after_fifty_runs_with_random_kills(tmp_path: Path) -> None:
    dice = random.Random(7)  # noqa: S311
    marks = [f"orphan-{os.getpid()}-{i}" for i in range(RUNS)]
    for i, mark in enumerate(marks):
        _one_run(tmp_path / str(i % 4), mark, ("kill", "cancel", "interrupt")[i % 3], dice.uniform(0.0, 0.2))
    left = asyncio.run(gone(f"orphan-{os.getpid()}", 3.0))
    killed = [mark for i, mark in enumerate(marks) if i % 3 == 0]
    of_ours = [pid for pid in left if not _is_grandchild(pid, killed)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert of_ours == []


def _is_grandchild(pid: int, marks: list[str]) -> bool:
    """What a child of ours started itself and left behind when we were killed outright: nobody is there to end it."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return "bad_server.py" not in words[2] and any(mark in words for mark in marks)


def test_a_server_that_does_not_want_to_end_is_ended_with_its_family(tmp_path: Path) -> None:
    mark = f"family-{os.getpid()}"

    async def run() -> None:
        async with House(tmp_path, bad("family", mark), bad("stubborn", mark)) as house:
            await house.servers.toolbox().list_tools()
            assert len(running(mark)) == 3
        assert not await gone(mark, 1.0)

    asyncio.run(run())


def test_open_files_do_not_grow(tmp_path: Path) -> None:
    async def run() -> None:
        counts = []
        for _ in range(4):
            async with House(tmp_path, bad("fine")) as house:
                await house.call("fine.work")
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] <= counts[1]

    asyncio.run(run())
