"""The vendors' own npm clients through every door to every upstream dialect: whole, streamed, a tool call, an error.

`make test-clients` runs it; the Python ones are in tests/gateway/test_sdk.py, with far more to do.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing import Provider, serve
from tests.clients.install import UnavailableError, install
from tests.clients.test_programs import WISH
from tests.gateway.house import CANARY, House, faultline, open_house, say, upstream

HERE = Path(__file__).parent
DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
MODELS = {f"{name}-model": name for name in DIALECTS}
BUSY = "busy"
RUN_S = 60
SAID = {"whole": "안녕 🌍", "stream": "안녕 🌍", "call": ["get_weather", {"city": "Seoul"}]}
# door -> the name of the exception its client raises for a 429
ERRORS = {
    "chat": "RateLimitError",
    "responses": "RateLimitError",
    "messages": "RateLimitError",
    "gemini": "ApiError",
    "ollama": "ResponseError",
}


@pytest.fixture(scope="module")
def packages() -> Path:
    if not os.environ.get(WISH):
        pytest.skip(f"{WISH} is not set: `make test-clients` runs the npm clients")
    try:
        return install(HERE / "sdks.txt").parent
    except UnavailableError as error:
        pytest.skip(f"the packages cannot be installed: {error}")


@pytest.fixture(scope="module")
def providers() -> Iterator[dict[str, Provider]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(serve(name, key=CANARY)) for name in DIALECTS}


@pytest.fixture(scope="module")
def house(providers: dict[str, Provider]) -> Iterator[House]:
    limited = say(429, b'{"error": {"message": "slow down, and here is why"}}', retry_after="99")
    with faultline(limited) as line:
        specs = [
            upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=(f"{name}-model",))
            for name, provider in providers.items()
        ]
        with open_house(*specs, upstream(BUSY, "openai_chat", line.url, models=(BUSY,))) as house:
            yield house


@pytest.fixture(scope="module")
def rows(packages: Path, house: House) -> dict[tuple[str, str, str], dict[str, Any]]:
    """What each client said to each model, by door, model and what was asked."""

    def run(door: str) -> list[dict[str, Any]]:
        command = ["node", str(HERE / "sdks.mjs"), str(packages), door, house.url, *MODELS, BUSY]
        env = {"PATH": os.environ.get("PATH", ""), "NO_PROXY": "*"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=True, env=env)
        return [json.loads(line) for line in done.stdout.splitlines()]

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(ERRORS, pool.map(run, ERRORS), strict=True))
    return {(door, row["model"], row["what"]): row for door, said in found.items() for row in said}


@pytest.mark.parametrize("what", SAID)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("door", ERRORS)
def test_an_npm_client_is_answered(
    door: str, model: str, what: str, rows: dict[tuple[str, str, str], dict[str, Any]], providers: dict[str, Provider]
) -> None:
    row = rows[door, model, what]
    said = row.get("said")
    assert (said.strip() if isinstance(said, str) else said) == SAID[what], row
    assert providers[MODELS[model]].refusals == []


@pytest.mark.parametrize("door", ERRORS)
def test_an_npm_client_raises_its_own_exception(door: str, rows: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    for what in SAID:
        row = rows[door, BUSY, what]
        assert (row.get("error"), row.get("status")) == (ERRORS[door], 429), row
        assert "slow down, and here is why" in row["message"] or "may be used" in row["message"], row
