"""No child is left behind, however we end (F62, F64)."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import dragoman.mcp.connection  # noqa: F401  # loaded before any fork, so that twenty of them cost little
from dragoman.mcp import stdio
from tests.cli.test_serve import serving
from tests.mcp.servers import House, bad, gone, running
from tests.waiting import NEVER_S, wait_until

RUNS, AT_ONCE = 21, 7


async def _use(folder: Path, mark: str) -> None:
    async with House(folder, bad("family", mark, name="family"), bad("fine", mark)) as house:
        await house.servers.make_toolbox().list_tools()
        while True:
            await house.call("family.work")
            await asyncio.sleep(0)  # a call that fails at once does not yield to other tasks


def _begin(folder: Path, mark: str, way: str, after_s: float) -> int:
    """A process of its own that uses servers; it ends itself, or is ended."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `command &` ignores it
        try:
            asyncio.run(asyncio.wait_for(_use(folder, mark), after_s if way == "cancel" else 60.0))
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_no_child_is_left_after_runs_with_random_kills(tmp_path: Path) -> None:
    dice = random.Random(7)  # noqa: S311
    runs = [(f"orphan-{os.getpid()}-{i}", ("kill", "cancel", "interrupt")[i % 3]) for i in range(RUNS)]
    while runs:
        together, runs = runs[:AT_ONCE], runs[AT_ONCE:]
        moments = [dice.uniform(0.0, 0.3) for _ in together]
        pids = [
            _begin(tmp_path / str(place), mark, way, after_s)
            for place, ((mark, way), after_s) in enumerate(zip(together, moments, strict=True))
        ]
        begun = time.monotonic()
        for pid, (_, way), after_s in sorted(zip(pids, together, moments, strict=True), key=lambda run: run[2]):
            time.sleep(max(0.0, begun + after_s - time.monotonic()))
            if way != "cancel":
                os.kill(pid, signal.SIGINT if way == "interrupt" else signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    asyncio.run(_come_after(tmp_path))
    left = asyncio.run(gone(f"orphan-{os.getpid()}"))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


async def _come_after(folder: Path) -> None:
    """A grandchild survives a killed gateway, until the next gateway uses the same folder."""
    for place in range(AT_ONCE):
        async with House(folder / str(place), bad("fine")) as house:
            assert (await house.call("fine.work")).failed is None


def configure(folder: Path, mark: str) -> None:
    rows = {"family": bad("family", mark), "slow": bad("hang_call", mark)}
    tables = [
        f"[mcp.servers.{name}]\ncommand = {json.dumps(spec.command)}\nargs = {json.dumps(list(spec.args))}\n"
        for name, spec in rows.items()
    ]
    (folder / "dragoman.toml").write_text("demo = true\n" + "".join(tables))


def use(url: str, server: str, seconds: float = 60.0) -> str:
    """Has the demo model call a tool of a server."""
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "use work now"}]}).encode()
    headers = {"content-type": "application/json", "x-dragoman-mcp": server}
    asked = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)  # noqa: S310
    with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=seconds) as response:  # noqa: S310
        return str(response.read().decode())
    return ""


def test_f64_a_gateway_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    """The children at once, and what they started themselves when the next gateway comes."""
    mark = f"killed-{os.getpid()}"
    configure(tmp_path, mark)
    with serving(tmp_path) as gateway:
        threading.Thread(target=use, args=(gateway.url, "slow, family"), daemon=True).start()
        wait_until(lambda: len(running(mark)) >= 3)
        gateway.process.kill()
        gateway.process.wait()
        assert asyncio.run(gone(f"bad_server.py\0family\0{mark}")) == []
        assert asyncio.run(gone(f"bad_server.py\0hang_call\0{mark}")) == []
        orphans = running(mark)
    with serving(tmp_path) as gateway:
        use(gateway.url, "family")
        assert not set(orphans) & set(running(mark))
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(NEVER_S) == 0
    assert asyncio.run(gone(mark)) == []


def test_only_our_own_orphans_are_ended(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / str(other.pid)).write_text(
            f"1 999999999 1 {stdio._identify_machine()}"
        )  # the number came again: it started at another time
        (tmp_path / "nonsense").write_text("x")
        (tmp_path / "1").write_text("1 999999999 1 another-machine/pid:[1]")
        assert stdio.end_orphans(tmp_path) == []
        assert other.poll() is None
        stdio.record_child(tmp_path, other.pid, stdio.describe_owner(tmp_path))
        assert stdio.end_orphans(tmp_path) == []  # its owner, this process, lives
        (tmp_path / str(other.pid)).write_text(
            f"{stdio._read_start_time(other.pid)} 999999999 1 {stdio._identify_machine()}"
        )
        assert stdio.end_orphans(tmp_path) == [other.pid]
        assert other.wait(NEVER_S) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()


def test_a_server_that_ignores_signals_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = f"family-{os.getpid()}"

    async def run() -> None:
        async with House(tmp_path, bad("family", mark), bad("stubborn", mark)) as house:
            await house.servers.make_toolbox().list_tools()
            assert len(running(mark)) == 3
        assert not await gone(mark)

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
