"""Coverage-guided fuzzing of everything that reads foreign bytes.

python bench/fuzz.py [--minutes 10] [--only NAME] [--corpus FOLDER]

Inputs are changed at random. One that runs a line of ours that no input ran before is kept in the corpus folder, and is
changed further, now and in later runs. Anything but an answer or one of our own errors is printed with its input.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.fuzz.targets import Read, make_targets, mutate, try_read  # noqa: E402

SOURCE = str(ROOT / "src")


class Coverage:
    """The lines of our own code that have run."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def run(self, read: Read, data: bytes) -> bool:
        """Whether the input runs a new line."""
        before = len(self.lines)
        sys.settrace(self._trace)
        try:
            try_read(read, data)
        finally:
            sys.settrace(None)
        return len(self.lines) > before

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCE):
            return None
        if event == "line":
            self.lines.add((name, frame.f_lineno))
        return self._trace


def fuzz(name: str, read: Read, seed: bytes, seconds: float, corpus: Path) -> tuple[int, list[str]]:
    """How many inputs were tried, and what went wrong."""
    folder = corpus / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    kept = [seed, *(path.read_bytes() for path in sorted(folder.iterdir()))]
    coverage, dice, count, wrong = Coverage(), Random(), 0, {}  # noqa: S311
    for data in kept:
        coverage.run(read, data)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutate(dice.choice(kept), dice)[:20_000]
        count += 1
        if fault := try_read(read, data):
            wrong.setdefault(fault[:60], f"{fault} for {data!r}")
        elif count % 4 == 0 and coverage.run(read, data):  # tracing is slow: every fourth is looked at
            kept.append(data)
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return count, list(wrong.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz")
    options = parser.parse_args()
    targets = {name: target for name, target in make_targets().items() if options.only in name}
    failed = False
    for name, (read, seed) in targets.items():
        count, wrong = fuzz(name, read, seed, options.minutes * 60 / len(targets), options.corpus)
        print(f"{name:28} {count:>8,} inputs  {len(wrong)} wrong", flush=True)
        for line in wrong:
            print("   ", line[:1000])
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
