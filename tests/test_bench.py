"""A bench that only people run must not break unseen: it takes private ways through the gateway."""

import subprocess
import sys
from pathlib import Path

from tests.waiting import NEVER_S

ROOT = Path(__file__).parent.parent


def test_the_bench_of_a_growing_conversation_runs() -> None:
    command = [sys.executable, "bench/growth.py", "--turns", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=NEVER_S)
    assert "200 tools sent again" in done.stdout, done.stderr


def test_the_bench_of_streams_runs() -> None:
    command = [sys.executable, "bench/streams.py", "--rounds", "1", "--batch", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=NEVER_S)
    assert done.stdout.count("slowest") == 3, done.stderr[-2000:]
