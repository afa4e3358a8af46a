"""What the machine does around the gateway: clocks that jump, proxies in the environment."""

import pytest

from tests.gateway.house import faultline, open_house, upstream
from tests.gateway.test_faults import GOOD, ask


def test_f50_a_clock_that_jumps_changes_no_limit_and_no_deadline() -> None:
    with faultline(GOOD) as line, open_house(upstream("one", "openai_chat", line.url, models=("m",), rpm=3)) as house:
        wall = house.gateway.wall
        for hours in (0, 1, -1):
            house.gateway.wall = house.gateway.sender.wall = lambda hours=hours: wall() + 3600 * hours  # type: ignore[misc]
            assert ask(house).status == 200
        assert len(line.seen) == 3


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
def test_f68_a_proxy_of_the_environment_catches_no_local_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with faultline(GOOD) as canary, faultline(GOOD) as line:
        monkeypatch.setenv(name, canary.url)
        with open_house(upstream("one", "openai_chat", line.url, models=("m",))) as house:
            assert ask(house).status == 200
        assert (len(line.seen), len(canary.seen)) == (1, 0)
