"""`dragoman verify`: plays every scenario at every target. The outcomes are a matrix."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from dragoman.conformance.runner_play import Player, ScenarioOutcome, Try, model_names
from dragoman.conformance.runner_targets import VerifyTarget, targets_of
from dragoman.conformance.runner_wire import LiveSender, WireExchange, WireLine, WireRequestToSend
from dragoman.conformance.scenario import Scenario, load_scenarios
from dragoman.dialects import find_dialect
from dragoman.errors import DecodeError
from dragoman.gateway.stores.verify import ScenarioView, VerifyCellView, VerifyTargetView
from dragoman.jsontypes import load_json
from dragoman.upstream.spec import DEMO, Upstream

UNREACHABLE = ("upstream_unreachable", "upstream_connect", "upstream_disconnected", "upstream_url", "upstream_tls")
PROBE_S = 10.0
USUAL_LIST = "/v1/models"


class VerifyOptions(Struct, frozen=True, kw_only=True):
    repeat: int = 1
    timeout_s: float = 60.0
    parallel: int = 4  # scenarios at once
    meaning: bool = True  # judge the words of answers too


class VerifyCell(Struct, kw_only=True):
    """One scenario at one target: all its tries."""

    target: str
    scenario: str
    outcome: ScenarioOutcome
    words: str = ""
    tries: list[Try] = []
    seconds: float = 0.0


class VerifyRun(Struct, kw_only=True):
    """The whole matrix."""

    targets: tuple[VerifyTarget, ...]
    scenarios: tuple[Scenario, ...]
    cells: dict[tuple[str, str], VerifyCell] = {}
    seconds: float = 0.0

    def count(self, outcome: ScenarioOutcome, target: str | None = None) -> int:
        cells = (cell for cell in self.cells.values() if target is None or cell.target == target)
        return sum(cell.outcome == outcome for cell in cells)

    def failures(self) -> list[VerifyCell]:
        return [cell for cell in self.cells.values() if cell.outcome == "FAIL"]


Watch = Callable[[VerifyRun, VerifyCell], None]


async def verify(
    targets: Sequence[VerifyTarget],
    scenarios: Sequence[Scenario],
    options: VerifyOptions,
    *,
    line: WireLine | None = None,
    watch: Watch | None = None,
) -> VerifyRun:
    """Plays all scenarios. `watch` is called with each finished cell."""
    own = line if line is not None else LiveSender()
    gate = asyncio.Semaphore(max(1, options.parallel))
    started = time.monotonic()
    run = VerifyRun(targets=tuple(targets), scenarios=tuple(scenarios), cells={})
    try:
        ready = await asyncio.gather(*(probe(target, own, options) for target in targets))
        run.targets = tuple(ready)

        async def one(target: VerifyTarget, scenario: Scenario) -> None:
            async with gate:
                cell = await play_cell(scenario, target, own, options)
            run.cells[target.name, scenario.name] = cell
            run.seconds = time.monotonic() - started
            if watch is not None:
                watch(run, cell)

        # by scenario, then target: this spreads the load over all servers
        await asyncio.gather(*(one(target, scenario) for scenario in scenarios for target in ready))
    finally:
        if line is None:
            await own.close()
    order = {(t.name, s.name): None for t in run.targets for s in run.scenarios}
    run.cells = {place: run.cells[place] for place in order}
    run.seconds = time.monotonic() - started
    return run


async def probe(target: VerifyTarget, line: WireLine, options: VerifyOptions) -> VerifyTarget:
    """Whether the server answers, and the model to ask if none was named."""
    if target.skip or line.offline:
        return target
    dialect = find_dialect(target.dialect)
    path = dialect.models.path if dialect.models is not None else USUAL_LIST
    ask = WireRequestToSend(place="probe", path=path, method="GET", headers=dialect.default_headers)
    exchange = await line.send(target, ask, min(PROBE_S, options.timeout_s))
    if exchange.failure is not None and exchange.failure.code in UNREACHABLE:
        words = f"not reachable: {exchange.failure.message}"
        return replace(target, down=words) if target.named else replace(target, skip=words)
    if target.model:
        return target
    names = _listed(exchange)
    if not names:
        words = "no model was named, and the server lists none"
        return replace(target, down=words) if target.named else replace(target, skip=words)
    return replace(target, model=names[0].removeprefix("models/"))


def _listed(exchange: WireExchange) -> list[str]:
    try:
        body = load_json(exchange.reply)
    except DecodeError:
        return []
    return model_names(body) if type(body) is dict else []


async def play_cell(scenario: Scenario, target: VerifyTarget, line: WireLine, options: VerifyOptions) -> VerifyCell:
    if target.down:
        return VerifyCell(target=target.name, scenario=scenario.name, outcome="FAIL", words=target.down)
    tries = []
    for mode in scenario.modes:
        for _ in range(max(1, options.repeat)):
            player = Player(scenario, target, mode, line, meaning=options.meaning, timeout_s=options.timeout_s)
            tries.append(await player.play())
    return judge(scenario.name, target.name, tries)


def judge(scenario: str, target: str, tries: list[Try]) -> VerifyCell:
    """Failed if any try failed, skipped if all were skipped."""
    failed = [one for one in tries if one.outcome == "FAIL"]
    skipped = [one for one in tries if one.outcome == "SKIP"]
    outcome: ScenarioOutcome = "FAIL" if failed else "SKIP" if len(skipped) == len(tries) else "PASS"
    words = ""
    if failed:
        share = f"{len(failed)} of {len(tries)}, " if len(failed) < len(tries) else ""
        words = f"{share}{failed[0].mode}: {failed[0].words}"
    elif skipped:
        words = skipped[0].words if outcome == "SKIP" else f"{skipped[0].mode}: {skipped[0].words}"
    seconds = sum(one.seconds for one in tries)
    return VerifyCell(target=target, scenario=scenario, outcome=outcome, words=words, tries=tries, seconds=seconds)


def choose(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The names that a list of shell patterns means; an empty list means all."""
    return [name for name in names if not patterns or any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    plain = name.partition(" ")[0]
    return fnmatchcase(name.lower(), pattern.lower()) or fnmatchcase(plain.lower(), pattern.lower())


class Worse(Struct, frozen=True):
    """A scenario that works directly and not through a gateway."""

    scenario: str
    through: str
    words: str


def count_requests(targets: Iterable[VerifyTarget], scenarios: Iterable[Scenario], repeat: int) -> int:
    """About how many requests a run makes: one for each turn of each scenario in each mode."""
    each = sum(len(scenario.modes) * max(1, len(scenario.turn)) for scenario in scenarios)
    return each * max(1, repeat) * sum(1 for target in targets if not target.skip)


def worse_than(before: Mapping[tuple[str, str], str], run: VerifyRun) -> list[VerifyCell]:
    """Cells that passed in an earlier run and do not pass now."""
    return [cell for place, cell in run.cells.items() if before.get(place) == "PASS" and cell.outcome != "PASS"]


RANK: dict[ScenarioOutcome, int] = {"FAIL": 0, "SKIP": 1, "PASS": 2}


def compare(direct: VerifyRun, through: VerifyRun) -> list[Worse]:
    """Scenarios that work directly but not through a gateway. There must be none."""
    found = []
    for scenario in through.scenarios:
        ways = [cell for (_, name), cell in direct.cells.items() if name == scenario.name]
        best = max((RANK[cell.outcome] for cell in ways), default=0)
        for target in through.targets:
            cell = through.cells[target.name, scenario.name]
            if RANK[cell.outcome] < best and cell.outcome == "FAIL":
                found.append(Worse(scenario.name, target.name, cell.words))
    return found


# ---------------------------------------------------------------- for the console

_ANY_TARGET = VerifyTarget(name="one", dialect="")


class LiveVerifier:
    """`verify` inside a running gateway, for its console."""

    def list_scenarios(self) -> list[ScenarioView]:
        return [
            ScenarioView(name=s.name, title=s.title, group=s.group, requests=count_requests([_ANY_TARGET], [s], 1))
            for s in load_scenarios()
        ]

    def list_targets(self, upstreams: Sequence[Upstream]) -> list[VerifyTargetView]:
        return [
            VerifyTargetView(name=target.name, dialect=target.dialect, model=target.model, skip=target.skip)
            for target in self._targets(upstreams)
        ]

    async def run(
        self, upstreams: Sequence[Upstream], scenarios: Sequence[str], watch: Callable[[VerifyCellView], None]
    ) -> None:
        def tell(run: VerifyRun, cell: VerifyCell) -> None:
            watch(
                VerifyCellView(
                    target=cell.target,
                    scenario=cell.scenario,
                    outcome=cell.outcome,
                    words=cell.words,
                    seconds=round(cell.seconds, 3),
                )
            )

        chosen = [scenario for scenario in load_scenarios() if scenario.name in scenarios]
        await verify(self._targets(upstreams), chosen, VerifyOptions(), watch=tell)

    @staticmethod
    def _targets(upstreams: Sequence[Upstream]) -> list[VerifyTarget]:
        return [target for upstream in upstreams if upstream.kind != DEMO for target in targets_of(upstream, ())]
