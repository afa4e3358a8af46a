"""Runs of `verify` that the console starts: one at a time, with their progress, and the runs before.

The scenarios and the runner are in `conformance`, which this package does not know: the process that starts the gateway
passes a Verifier in.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Protocol

import msgspec
from msgspec import Struct

from dragoman.upstream.spec import Upstream

FOLDER = "verify"
MOST_RUNS = 30
SAVE_S = 0.3
SILENT_S = 180.0  # a run whose file has not changed for so long has ended with its process


class ScenarioView(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    group: str
    requests: int  # about so many are made for each provider


class VerifyCellView(Struct, frozen=True, kw_only=True):
    target: str
    scenario: str
    outcome: str  # PASS, FAIL or SKIP
    words: str
    seconds: float


class VerifyTargetView(Struct, frozen=True, kw_only=True):
    name: str
    dialect: str
    model: str
    skip: str = ""


class VerifyRunView(Struct, kw_only=True):
    id: int  # when it began, in milliseconds
    who: str
    scenarios: list[str]
    targets: list[VerifyTargetView]
    cells: list[VerifyCellView]
    total: int  # cells there will be
    seconds: float = 0.0
    done: bool = False
    trouble: str = ""  # why it ended early


class Verifier(Protocol):
    def list_scenarios(self) -> list[ScenarioView]: ...

    def list_targets(self, upstreams: Sequence[Upstream]) -> list[VerifyTargetView]: ...

    async def run(
        self, upstreams: Sequence[Upstream], scenarios: Sequence[str], watch: Callable[[VerifyCellView], None]
    ) -> None:
        """Calls `watch` for each finished cell."""


class VerifyBook:
    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder / FOLDER
        self._runs: list[VerifyRunView] = []  # without a folder
        self._task: asyncio.Task[None] | None = None
        self._saved = 0.0

    def runs(self) -> list[VerifyRunView]:
        """The newest first. All workers read the same files."""
        if self._folder is None or not self._folder.is_dir():
            return list(reversed(self._runs))
        found: list[VerifyRunView] = []
        for path in sorted(self._folder.glob("*.json"), reverse=True)[:MOST_RUNS]:
            with suppress(OSError, msgspec.DecodeError):
                run = msgspec.json.decode(path.read_bytes(), type=VerifyRunView)
                if not run.done and time() - path.stat().st_mtime > SILENT_S:
                    run.done, run.trouble = True, "the process that ran it has ended"
                found.append(run)
        return found

    def start(self, verifier: Verifier, upstreams: Sequence[Upstream], scenarios: Sequence[str], who: str) -> int:
        """A ValueError while another one runs."""
        if any(not run.done for run in self.runs()):
            raise ValueError("a run is still going on: wait for its end")
        targets = verifier.list_targets(upstreams)
        run = VerifyRunView(
            id=int(time() * 1000),
            who=who,
            scenarios=list(scenarios),
            targets=targets,
            cells=[],
            total=len(targets) * len(scenarios),
        )
        self._runs = [*self._runs[-MOST_RUNS:], run]
        self._save(run, at_once=True)
        self._task = asyncio.ensure_future(self._run(run, verifier, upstreams))
        return run.id

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, run: VerifyRunView, verifier: Verifier, upstreams: Sequence[Upstream]) -> None:
        began = time()

        def watch(cell: VerifyCellView) -> None:
            run.cells.append(cell)
            run.seconds = round(time() - began, 2)
            self._save(run)

        try:
            await verifier.run(upstreams, run.scenarios, watch)
        except asyncio.CancelledError:
            run.trouble = "stopped"
        except Exception as error:  # the run must be marked as ended, whatever happens
            run.trouble = f"{type(error).__name__}: {error}"
        run.done, run.seconds = True, round(time() - began, 2)
        self._save(run, at_once=True)

    def _save(self, run: VerifyRunView, *, at_once: bool = False) -> None:
        if self._folder is None or (not at_once and time() - self._saved < SAVE_S):
            return
        self._saved = time()
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._folder / f".{run.id}.new"
            draft.write_bytes(msgspec.json.encode(run))
            os.replace(draft, self._folder / f"{run.id}.json")
            for old in sorted(self._folder.glob("*.json"))[:-MOST_RUNS]:
                old.unlink()
