"""Coverage-guided fuzzing of everything that reads foreign bytes.

python bench/fuzz.py [--minutes 10] [--only NAME] [--corpus FOLDER] [--atheris]

Inputs are changed at random. One that runs a line of ours that no input ran before is kept in the corpus folder, and is
changed further, now and in later runs. Anything but an answer or one of our own errors is printed with its input.
With `--atheris` (`pip install atheris`) Google's libFuzzer changes the inputs instead, in a process for each reader.
"""

import argparse
import hashlib
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

CHILD = sys.argv[1:2] == ["--child"]  # a process of libFuzzer, which sees the code that is imported under it
if CHILD:
    import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["dragoman"]) if CHILD else nullcontext():
    from tests.fuzz.targets import Read, make_targets, mutate, try_read

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


def fuzz_with_atheris(name: str, seed: bytes, seconds: float, corpus: Path) -> tuple[int, list[str]]:
    """libFuzzer ends its process with the first fault, and writes its input into the corpus."""
    folder = corpus / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seed").write_bytes(seed)
    words = [f"-max_total_time={max(round(seconds), 1)}", "-max_len=20000", f"-artifact_prefix={folder}/", str(folder)]
    child = [sys.executable, __file__, "--child", name, *words]
    said = subprocess.run(child, check=False, capture_output=True, text=True, errors="replace")
    count = next((int(line.split()[1]) for line in said.stderr.splitlines() if line.startswith("Done ")), 0)
    return count, [] if said.returncode == 0 else [said.stdout[-500:] + said.stderr[-2000:]]


def run_atheris(name: str, words: list[str]) -> None:
    read, seed = make_targets()[name]

    def try_one(data: bytes) -> None:
        fault = try_read(read, data) and try_read(read, data)  # twice: a busy machine may take long once
        if fault:
            raise AssertionError(f"{fault} for {data!r}")

    try_one(seed)
    atheris.Setup([name, *words], try_one)
    atheris.Fuzz()


def main() -> None:
    if CHILD:
        run_atheris(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz")
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    targets = {name: target for name, target in make_targets().items() if options.only in name}
    failed = False
    for name, (read, seed) in targets.items():
        seconds = options.minutes * 60 / len(targets)
        if options.atheris:
            count, wrong = fuzz_with_atheris(name, seed, seconds, options.corpus)
        else:
            count, wrong = fuzz(name, read, seed, seconds, options.corpus)
        print(f"{name:28} {count:>8,} inputs  {len(wrong)} wrong", flush=True)
        for line in wrong:
            print("   ", line[:1000])
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
