"""No child is left behind, however we end (F62, F64)."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dragoman.mcp.connection  # noqa: F401  # loaded before any fork, so that fifty of them cost little
from dragoman.mcp import leash
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
        _one_run(tmp_path / str(i % 4), mark, ("kill", "cancel", "interrupt")[i % 3], dice.uniform(0.0, 0.15))
    asyncio.run(_come_after(tmp_path))
    left = asyncio.run(gone(f"orphan-{os.getpid()}", 3.0))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


async def _come_after(folder: Path) -> None:
    """What a child started itself outlives a kill of ours, until somebody uses that folder again."""
    for place in range(4):
        async with House(folder / str(place), bad("fine")) as house:
            assert (await house.call("fine.work")).failed is None


def test_only_what_was_ours_is_ended(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / str(other.pid)).write_text(
            f"1 999999999 1 {leash._here()}"
        )  # the number came again: it started at another time
        (tmp_path / "nonsense").write_text("x")
        (tmp_path / "1").write_text("1 999999999 1 another-machine/pid:[1]")
        assert leash.sweep(tmp_path) == []
        assert other.poll() is None
        leash.note(tmp_path, other.pid, leash.prepare(tmp_path))
        assert leash.sweep(tmp_path) == []  # its owner, this process, lives
        (tmp_path / str(other.pid)).write_text(f"{leash._started(other.pid)} 999999999 1 {leash._here()}")
        assert leash.sweep(tmp_path) == [other.pid]
        assert other.wait(5) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()


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
