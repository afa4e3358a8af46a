"""The limits of RELIABILITY 2.2 (T20), each at the library and at every door, whole and streamed."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import dragoman
from dragoman.agent.steps import CallFinished, Limits, Price, Stopped, TurnFinished
from dragoman.errors import ConfigError
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.mcp import McpSettings, McpTable
from dragoman.mcp.spec import OAuth, ServerSpec
from dragoman.model.messages import Reasoning, Text
from tests.gateway.house import House, open_house
from tests.mcp.misbehaving_model import MisbehavingModel, misbehaving_model
from tests.mcp.servers import bad, words
from tests.mcp.test_doors import DOORS, ask, chat, read

PRICE = Price(input=1000, output=1000)  # a thousand tokens a turn: one of whatever it is


class Case(Struct, frozen=True):
    name: str
    stop: str
    model: str
    turns: int
    calls: int
    limits: Limits = Limits()


CASES = [
    Case("ten turns", "turns", "many", 10, 9),
    Case("the turns that are configured", "turns", "many", 3, 2, Limits(turns=3)),
    Case("thirty-two calls", "calls", "heap", 2, 20),
    Case("three identical calls in a row", "tool_repeat", "same", 4, 3),
    Case("the time of all", "time", "slow", 0, 0, Limits(total_s=1.5)),
    Case("tokens", "tokens", "many", 2, 1, Limits(tokens=2500)),
    Case("cost", "cost", "many", 2, 1, Limits(cost=2.5, price=PRICE)),
]


def names(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


@pytest.fixture(scope="module")
def model() -> Iterator[MisbehavingModel]:
    with misbehaving_model() as made:
        yield made


@pytest.fixture(scope="module", params=CASES, ids=names(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def house(case: Case, model: MisbehavingModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("limits")
    prices = {"*": PRICE} if case.limits.price is not None else {}
    settings = McpSettings(folder=folder, servers={"fine": bad("fine")}, limits=case.limits, prices=prices)
    with open_house(model.upstream(), mcp=settings) as house:
        ask(house, "/mcp/list", method="GET")  # a server that starts takes a part of the time
        yield house


@pytest.mark.parametrize(
    ("door", "stream"), [*((door, True) for door in DOORS), ("openai_chat", False), ("gemini", False)]
)
def test_a_limit_ends_the_loop_with_the_answer_so_far_and_its_name(
    house: House, model: MisbehavingModel, case: Case, door: str, stream: bool
) -> None:
    model.asked.clear()
    path, body = DOORS[door]("go on for ever", stream)
    text = json.dumps(body).replace('"demo"', f'"{case.model}"')
    path = path.replace("models/demo", f"models/{case.model}")
    status, headers, data = ask(house, path, json.loads(text), {"x-dragoman-mcp": "fine"})
    assert status == 200, data
    choice = read(door, data, stream=stream).choices[0]
    assert choice.finish is not None
    assert choice.finish.reason == "length"  # what a client knows as "there would have been more"
    story = find_story(data)
    assert story["stop"] == case.stop
    assert headers.get("x-dragoman-stop") == (None if stream else case.stop)
    told = "".join(part.text for part in choice.parts if isinstance(part, Reasoning))
    assert told.endswith(f"[stopped: {case.stop}]\n")
    assert "Turn 1.\n\n" in "".join(part.text for part in choice.parts if isinstance(part, Text))
    if case.turns:
        assert (story["turns"], story["calls"], len(model.asked)) == (case.turns, case.calls, case.turns)


def find_story(data: bytes) -> dict[str, Any]:
    """`x_dragoman`, wherever the dialect's last frame has it."""
    place = data.rindex(b'"x_dragoman":') + len(b'"x_dragoman":')
    story: dict[str, Any] = json.JSONDecoder().raw_decode(data[place:].decode())[0]
    return story


def test_the_library_stops_at_the_same_limits(case: Case, model: MisbehavingModel) -> None:
    def work(turn: int = 0, number: int = 0) -> str:
        return "done"

    async def run() -> Stopped:
        async with dragoman.AsyncClient(upstreams=[model.upstream()]) as client:
            last = None
            async for step in client.run_steps(case.model, "go on for ever", tools=[work], limits=case.limits):
                last = step
            assert isinstance(last, Stopped)
            return last

    stopped = asyncio.run(run())
    assert stopped.reason == case.stop
    if case.turns:
        assert (stopped.turns, stopped.calls) == (case.turns, case.calls)


def test_each_step_of_the_library_has_the_notes_of_its_turn(model: MisbehavingModel) -> None:
    def work() -> str:
        return "done"

    async def run() -> list[list[str]]:
        async with dragoman.AsyncClient(upstreams=[model.upstream()]) as client:
            steps = client.run_steps("once", "go", tools=[work], options={"top_k": 5})
            return [[n.where for n in step.notes] async for step in steps if isinstance(step, TurnFinished | Stopped)]

    turns = asyncio.run(run())
    assert len(turns) == 3
    assert all("/top_k" in places for places in turns)


# ---------------------------------------------------------------- one call


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("server", "limits", "said"),
    [
        ("hang_call", Limits(tool_s=0.2), "took longer than 0.2 s"),
        ("big", Limits(result_bytes=1000), "[cut: the result has 300000 bytes, 1000 are shown]"),
        ("big", Limits(), "[cut: the result has 300000 bytes, 262144 are shown]"),
    ],
)
def test_a_call_that_takes_too_long_or_says_too_much_is_cut_and_the_loop_goes_on(
    server: str, limits: Limits, said: str, stream: bool, model: MisbehavingModel, tmp_path: Path
) -> None:
    servers = {"hang_call": bad("hang_call"), "big": bad("big", "300000")}
    model.asked.clear()
    with open_house(model.upstream(), mcp=McpSettings(folder=tmp_path, servers=servers, limits=limits)) as house:
        body = chat("go", stream) | {"model": "once"}
        _, _, data = ask(house, "/v1/chat/completions", body, {"x-dragoman-mcp": server})
    result = model.asked[-1]["messages"][-1]
    assert result["role"] == "tool"
    assert said in result["content"]
    assert len(result["content"]) < limits.result_bytes + 100
    assert find_story(data)["stop"] == "done"


def test_the_library_cuts_them_too(model: MisbehavingModel) -> None:
    async def slow() -> str:
        await asyncio.sleep(3600)
        return ""

    def big() -> str:
        return "a" * 300_000

    async def run(tool: Any, limits: Limits) -> str:
        async with dragoman.AsyncClient(upstreams=[model.upstream()]) as client:
            steps = client.run_steps("once", "go", tools=[tool], limits=limits)
            (result,) = [step.result async for step in steps if isinstance(step, CallFinished)]
            return words(result)

    assert "took longer than 0.1 s" in asyncio.run(run(slow, Limits(tool_s=0.1)))
    assert "[cut: the result has 300000 bytes, 262144 are shown]" in asyncio.run(run(big, Limits()))


# ---------------------------------------------------------------- the configuration


def test_a_cost_without_a_price_of_the_model_spends_nothing(model: MisbehavingModel, tmp_path: Path) -> None:
    settings = McpSettings(
        folder=tmp_path, servers={"fine": bad("fine")}, limits=Limits(cost=1.0), prices={"other": PRICE}
    )
    model.asked.clear()
    with open_house(model.upstream(), mcp=settings) as house:
        status, _, data = ask(
            house, "/v1/chat/completions", chat("go", False) | {"model": "many"}, {"x-dragoman-mcp": "fine"}
        )
    assert (status, json.loads(data)["error"]["code"]) == (500, "mcp_no_price")
    assert model.asked == []


def configure(text: str, folder: Path) -> McpSettings:
    path = folder / "dragoman.toml"
    path.write_text(f"demo = true\n{text}")
    return load_settings(path, {}).mcp


def test_every_limit_is_configured(tmp_path: Path) -> None:
    text = """
[mcp]
turns = 3
calls = 4
repeats = 2
tool_s = 5
total_s = 6.5
result_bytes = 1000
tokens = 50000
cost = 0.5
[mcp.prices."gpt-5"]
input = 1.25
output = 10
cache_read = 0.125
"""
    settings = configure(text, tmp_path)
    assert settings.limits == Limits(
        turns=3, calls=4, repeats=2, tool_s=5.0, total_s=6.5, result_bytes=1000, tokens=50000, cost=0.5
    )
    assert settings.prices == {"gpt-5": Price(input=1.25, output=10, cache_read=0.125)}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("turns = 0", "mcp.turns"),
        ("turns = 2.5", "mcp.turns"),
        ("tokens = -1", "mcp.tokens"),
        ("tokens = true", "mcp.tokens"),
        ("cost = 1", "mcp.cost"),
        ('cost = "1"\n[mcp.prices.a]\ninput = 1\noutput = 1', "mcp.cost"),
        ("prices = 3", "mcp.prices"),
        ("[mcp.prices.a]\ninput = 1", "mcp.prices.a"),
        ("[mcp.prices.a]\ninput = 1\noutput = 1\nimage = 3", "mcp.prices.a.image"),
        ("[mcp.prices.a]\ninput = 1\noutput = -1", "mcp.prices.a.output"),
    ],
)
def test_an_invalid_limit_names_its_key(text: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(f"[mcp]\n{text}", tmp_path)
    assert caught.value.key == key


def test_the_examples_of_the_page_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "mcp.md").read_text("utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M)
    assert len(examples) >= 2
    path = tmp_path / "dragoman.toml"
    for example in examples:
        path.write_text(f"demo = true\n{example}")
        settings = load_settings(path, {"WEATHER_KEY": "k", "ROBOT_SECRET": "s"}).mcp
        assert settings.servers


def test_every_key_of_the_table_is_on_the_page() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "mcp.md").read_text("utf-8")
    own = set(ServerSpec.__struct_fields__) - {"name", "problem"} | {"bearer", "strict", *OAuth.__struct_fields__}
    assert [key for key in sorted(own | set(McpTable.__struct_fields__)) if not re.search(rf"\b{key}\b", page)] == []
