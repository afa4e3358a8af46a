"""`verify` inside a running gateway, for its console: plays scenarios at the configured providers."""

from collections.abc import Callable, Sequence

from dragoman.conformance.runner import VerifyCell, VerifyOptions, VerifyRun, count_requests, verify
from dragoman.conformance.runner_targets import VerifyTarget, targets_of
from dragoman.conformance.scenario import load_scenarios
from dragoman.gateway.stores.verify import ScenarioView, VerifyCellView, VerifyTargetView
from dragoman.upstream.spec import DEMO, Upstream

ONE = VerifyTarget(name="one", dialect="")


class LiveVerifier:
    def list_scenarios(self) -> list[ScenarioView]:
        return [
            ScenarioView(name=s.name, title=s.title, group=s.group, requests=count_requests([ONE], [s], 1))
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
