"""A server nobody here wrote: llama.cpp's, directly over each of its endpoints and through each door of a gateway."""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dragoman.conformance.runner import Options, Run, compare, verify
from dragoman.conformance.runner_targets import DOORS, Target, url_targets
from dragoman.conformance.scenario import load_scenarios
from dragoman.conformance.verification import gateway_targets
from tests.real.llama import UnavailableError, llama_server

KEY = "llama-key-0123456789"
FORM = Options(timeout_s=20.0, parallel=4, meaning=False)  # the model says nothing sensible
ENDPOINTS = ("openai_chat", "openai_responses", "anthropic")
# The model sees no pictures, which its owner would say in the configuration.
BLIND: dict[str, object] = {"media": {"images": [], "documents": [], "audio": [], "video": []}}

# What llama.cpp (b11549) cannot do over each endpoint. A cell that turns green fails here until its line is gone.
KNOWN = {
    ("llama.cpp (openai_responses)", "long_history"): "Cannot determine type of 'item'",
    ("llama.cpp (openai_responses)", "orphans"): "Cannot determine type of 'item'",
    ("llama.cpp (openai_responses)", "structured"): "not JSON",
    ("llama.cpp (anthropic)", "structured"): "not JSON",
    ("llama.cpp (anthropic)", "choice_none"): "which was forbidden",
}


async def play(url: str) -> tuple[Run, Run]:
    direct = url_targets(url, ENDPOINTS, model="tiny", key=KEY, kind="llamacpp", name="llama.cpp")
    front: Target = replace(direct[0], name="llama.cpp", overrides=BLIND)
    async with gateway_targets([front]) as doors:
        return await verify(direct, load_scenarios(), FORM), await verify(doors, load_scenarios(), FORM)


@pytest.fixture
def runs() -> Iterator[tuple[Run, Run]]:
    try:
        with llama_server(KEY) as url:
            yield asyncio.run(play(url))
    except UnavailableError as reason:
        pytest.skip(str(reason))


def test_nothing_is_worse_through_dragoman_than_at_llama_cpp_itself(runs: tuple[Run, Run]) -> None:
    """One test, because two workers would play everything twice."""
    direct, through = runs
    check_direct(direct)
    assert [(cell.target, cell.scenario, cell.words) for cell in through.failures()] == []
    assert len(through.targets) == len(DOORS)
    assert through.count("PASS") > 145
    assert compare(direct, through) == []
    for target, scenario in KNOWN:  # a client gets through its door what the same endpoint does not give it
        dialect = target.partition("(")[2].rstrip(")")
        assert through.cells[f"{dialect} to llama.cpp", scenario].outcome == "PASS"


def check_direct(direct: Run) -> None:
    failed = {(cell.target, cell.scenario): cell.words for cell in direct.failures()}
    assert set(failed) == set(KNOWN), failed
    for place, words in KNOWN.items():
        assert words in failed[place]
    assert direct.count("PASS") > 70
