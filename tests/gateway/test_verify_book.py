"""Runs of `verify` from inside a gateway: their progress, their history, and one at a time."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dragoman.conformance.runner import LiveVerifier
from dragoman.gateway.stores.verify import ScenarioView, VerifyBook, VerifyCellView, VerifyTargetView
from dragoman.testing import serve
from dragoman.upstream.spec import Upstream
from tests.gateway.house import CANARY, open_house, upstream
from tests.gateway.web import get, post, send
from tests.waiting import wait_until


class Slow:
    """One target and two scenarios. The second waits."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    def list_scenarios(self) -> list[ScenarioView]:
        return [ScenarioView(name=name, title=name, group="all", requests=1) for name in ("one", "two")]

    def list_targets(self, upstreams: Sequence[Upstream]) -> list[VerifyTargetView]:
        return [VerifyTargetView(name="far", dialect="openai_chat", model="m")]

    async def run(
        self, upstreams: Sequence[Upstream], scenarios: Sequence[str], watch: Callable[[VerifyCellView], None]
    ) -> None:
        watch(VerifyCellView(target="far", scenario="one", outcome="PASS", words="", seconds=0.1))
        await self.go_on.wait()
        watch(VerifyCellView(target="far", scenario="two", outcome="FAIL", words="no", seconds=0.1))


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_tells_its_progress_and_is_kept(tmp_path: Path, kept: bool) -> None:
    async def work() -> None:
        book, verifier = VerifyBook(tmp_path if kept else None), Slow()
        book.start(verifier, (), ["one", "two"], "ada")
        with pytest.raises(ValueError, match="still going on"):
            book.start(verifier, (), ["one"], "bob")
        verifier.go_on.set()
        assert book._task is not None
        await book._task
        (run,) = (VerifyBook(tmp_path) if kept else book).runs()
        assert (run.done, run.total, [cell.outcome for cell in run.cells]) == (True, 2, ["PASS", "FAIL"])

    asyncio.run(work())


def test_a_run_can_be_stopped() -> None:
    async def work() -> None:
        book = VerifyBook(None)
        book.start(Slow(), (), ["one", "two"], "ada")
        await asyncio.sleep(0)
        book.stop()
        await book.close()
        (run,) = book.runs()
        assert (run.done, run.trouble) == (True, "stopped")

    asyncio.run(work())


def test_a_provider_is_verified_over_http(tmp_path: Path) -> None:
    with (
        serve("openai_chat", key=CANARY) as provider,
        open_house(upstream("far", "openai_chat", provider.base_url), store_path=tmp_path / "responses.db") as house,
    ):
        house.gateway.open_verifier = LiveVerifier
        view = get(house.url, "/admin/v1/verify").json
        assert [target["name"] for target in view["targets"]] == ["far"]
        groups = {scenario["group"] for scenario in view["scenarios"]}
        assert {"conversation", "thinking"} <= groups
        assert post(house.url, "/admin/v1/verify", {"providers": ["far"], "groups": ["conversation"]}).status == 200
        wait_until(lambda: all(run["done"] for run in get(house.url, "/admin/v1/verify").json["runs"]))
        (run,) = get(house.url, "/admin/v1/verify").json["runs"]
        assert len(run["cells"]) == run["total"] > 1
        assert {cell["outcome"] for cell in run["cells"]} <= {"PASS", "SKIP"}
        assert post(house.url, "/admin/v1/verify", {"providers": ["nobody"]}).status == 400
        assert send(house.url, "DELETE", "/admin/v1/verify").status == 200


def test_a_gateway_without_scenarios_says_so() -> None:
    with open_house() as house:
        assert get(house.url, "/admin/v1/verify").json["available"] is False
        assert post(house.url, "/admin/v1/verify", {}).status == 400
