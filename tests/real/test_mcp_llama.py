"""The loop with a real model behind it and a real MCP server beside it, through each of the six doors.

What the tiny model can do: offered tools it always calls one, with arguments that fit the schema because llama.cpp's
grammar makes them fit; after a result it says some English and ends. In words (react) it always writes the one call
its weights know, `get_weather` in a `<tool_call>` tag. It understands nothing; the loop, both protocols and the server
are real.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dragoman.gateway.config.mcp import McpSettings
from dragoman.model.messages import Reasoning, Text, ToolCall
from tests.gateway.house import House, open_house, upstream
from tests.mcp.servers import HERE, everything, spec
from tests.mcp.test_doors import DOORS, ask, read, rpc
from tests.mcp.test_limits import find_story
from tests.real.llama import UnavailableError, llama_server
from tests.real.playing import ENDPOINTS, KEY

SERVERS = {"native": "every", "react": "weather"}
# llama.cpp's Responses endpoint takes no assistant text in a history (test_llama.py: KNOWN), and react is made of it
PAIRS = [
    (endpoint, mode) for endpoint in ENDPOINTS for mode in SERVERS if (endpoint, mode) != ("openai_responses", "react")
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(llama_server(KEY))
        except UnavailableError as reason:
            pytest.skip(str(reason))
        paths = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": ""}
        upstreams = [
            upstream(name, name, url + paths[name], kind="llamacpp", models=(f"tiny-{name}",), keys=(KEY,))
            for name in ENDPOINTS
        ]
        servers = {
            "every": spec("every", command=everything(), tools=["echo"]),
            "weather": spec("weather", command=sys.executable, args=[str(HERE / "weather_server.py")]),
        }
        settings = McpSettings(folder=tmp_path_factory.mktemp("llama"), servers=servers)
        yield stack.enter_context(open_house(*upstreams, mcp=settings))


def aim(door: str, model: str, stream: bool) -> tuple[str, Any]:
    path, body = DOORS[door]("Do something.", stream)
    return path.replace("models/demo", f"models/{model}"), json.loads(json.dumps(body).replace('"demo"', f'"{model}"'))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("endpoint", "mode"), PAIRS)
@pytest.mark.parametrize("door", list(DOORS))
def test_a_real_model_finishes_a_task_with_a_real_server(
    house: House, door: str, endpoint: str, mode: str, stream: bool
) -> None:
    path, body = aim(door, f"tiny-{endpoint}", stream)
    headers = {"x-dragoman-mcp": SERVERS[mode], "x-dragoman-mcp-mode": mode}
    status, _, data = ask(house, path, body, headers)
    assert status == 200, data
    choice = read(door, data, stream=stream).choices[0]
    told = "".join(part.text for part in choice.parts if isinstance(part, Reasoning))
    if mode == "native":
        assert "[every.echo answered: Echo: " in told
    else:
        assert '[weather.get_weather {"city":"Paris","unit":"c"}]\n' in told
        assert "[weather.get_weather answered: It is raining in Paris, at 11 C.]" in told
    said = "".join(part.text for part in choice.parts if isinstance(part, Text))
    assert said.strip()
    assert "tool_call" not in said
    assert not [part for part in choice.parts if isinstance(part, ToolCall)]
    assert choice.finish is not None
    assert choice.finish.reason == "stop"
    assert find_story(data) == {"stop": "done", "turns": 2, "calls": 1}


@pytest.mark.parametrize("mode", ["native", "react"])
def test_generate_with_mcp_with_a_real_model(house: House, mode: str) -> None:
    body = rpc("Do something.", False, mcp_servers=[SERVERS[mode]], mode=mode)
    body["params"]["model"] = "tiny-openai_chat"
    result = json.loads(ask(house, "/generate_with_mcp", body)[2])["result"]
    assert (result["iterations"], result["finish_reason"]) == (2, "STOP")
    assert [call["failed"] for call in result["mcp_calls"]] == [False]
