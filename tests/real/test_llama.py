"""A server nobody here wrote: llama.cpp's, directly over each of its endpoints and through each door of a gateway."""

import asyncio
from collections.abc import Iterator

import pytest

from dragoman.conformance.runner import VerifyRun, compare
from dragoman.conformance.runner_targets import DOORS
from tests.real.llama import UnavailableError, llama_server
from tests.real.page import PAGE, make_page
from tests.real.playing import KEY, play

# What llama.cpp (b11549) cannot do over each endpoint. A cell that turns green fails here until its line is gone.
KNOWN = {
    ("llama.cpp (openai_responses)", "structured"): "not JSON",
    ("llama.cpp (anthropic)", "structured"): "not JSON",
    ("llama.cpp (anthropic)", "choice_none"): "which was forbidden",
}


@pytest.fixture
def runs() -> Iterator[tuple[VerifyRun, VerifyRun]]:
    try:
        with llama_server(KEY) as url:
            yield asyncio.run(play(url))
    except UnavailableError as reason:
        pytest.skip(str(reason))


def test_nothing_is_worse_through_dragoman_than_at_llama_cpp_itself(runs: tuple[VerifyRun, VerifyRun]) -> None:
    """One test, because two workers would play everything twice."""
    direct, through = runs
    check_direct(direct)
    assert [(cell.target, cell.scenario, cell.words) for cell in through.failures()] == []
    assert len(through.targets) == len(DOORS)
    assert through.count("PASS") > 145
    assert compare(direct, through) == []
    assert make_page(direct, through) == PAGE.read_text("utf-8"), "run `python -m tests.real.page`"
    for target, scenario in KNOWN:  # a client gets through its door what the same endpoint does not give it
        dialect = target.partition("(")[2].rstrip(")")
        assert through.cells[f"{dialect} to llama.cpp", scenario].outcome == "PASS"


def check_direct(direct: VerifyRun) -> None:
    failed = {(cell.target, cell.scenario): cell.words for cell in direct.failures()}
    assert set(failed) == set(KNOWN), failed
    for place, words in KNOWN.items():
        assert words in failed[place]
    assert direct.count("PASS") > 70
