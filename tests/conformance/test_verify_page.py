"""The matrix over scripted providers has no red cell, and docs/verification.md is what it says."""

import asyncio
from pathlib import Path

from dragoman.conformance.runner import VerifyRun
from dragoman.conformance.runner_targets import DOORS, EIGHT
from dragoman.conformance.verification import FRONTS, page, verify_scripted
from dragoman.upstream.profiles import load_rows

PAGE = Path(__file__).parent.parent.parent / "docs" / "verification.md"


async def play() -> tuple[VerifyRun, VerifyRun, VerifyRun]:
    eight = await verify_scripted(EIGHT)
    others = await verify_scripted([name for name in load_rows().kinds if name not in EIGHT])
    return eight, others, await verify_scripted(FRONTS, doors=True)


def test_no_provider_fails_any_scenario_and_the_page_says_so() -> None:
    """One test, because each of the three runs takes seconds and the page needs them all."""
    runs = asyncio.run(play())
    assert [(cell.target, cell.scenario, cell.words) for run in runs for cell in run.failures()] == []
    assert {target.kind for target in runs[0].targets} == set(EIGHT)
    assert len(runs[2].targets) == len(DOORS) * len(FRONTS)
    assert page(*runs) == PAGE.read_text("utf-8"), "run `dragoman verify --docs docs/verification.md`"
