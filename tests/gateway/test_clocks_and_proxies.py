"""What the machine does around the gateway: clocks that jump, proxies in the environment."""

import asyncio
import time

import pytest

from tests.gateway.house import Seen, faultline, open_house, upstream
from tests.gateway.test_faults import GOOD, ask

HOUR_S = 3600.0


def test_f50_a_clock_that_jumps_changes_no_limit_and_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It jumps while an answer is awaited, there and back. A limit that is full stays full."""
    read, jump = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: read() + jump[0])

    async def answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
        jump[0] = HOUR_S - jump[0]
        await GOOD(seen, writer)

    with (
        faultline(answer) as line,
        open_house(upstream("one", "openai_chat", line.url, models=("m",), rpm=3, queue=0)) as house,
    ):
        assert [ask(house).status for _ in range(3)] == [200, 200, 200]
        for jump[0] in (HOUR_S, 0.0, -HOUR_S):
            assert ask(house).status == 503
        assert len(line.seen) == 3


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
def test_f68_a_proxy_of_the_environment_catches_no_local_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with faultline(GOOD) as canary, faultline(GOOD) as line:
        monkeypatch.setenv(name, canary.url)
        with open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
            assert ask(house).status == 200
        assert (len(line.seen), len(canary.seen)) == (1, 0)
