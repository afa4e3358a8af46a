"""What the vendors' own clients see of a loop, with strict providers of every dialect behind it."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dragoman.gateway.config.mcp import McpSettings
from dragoman.model.messages import Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request, Tool
from dragoman.testing import Provider, serve
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.gateway.sdks import DOORS
from tests.mcp.servers import bad

UPSTREAMS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
TOLD = "[fine.work {}]\n[fine.work answered: done]\n"


def think(request: Request) -> Reply:
    """Says something, calls the tool, and says something else about its result."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    if results and isinstance(request.messages[-1].parts[-1], ToolResult):
        parts: Any = (Text(text="It is done."),)
    elif request.tools:
        (tool,) = request.tools
        assert isinstance(tool, Tool)
        parts = (Text(text="Let me see."), ToolCall(id="call_1", name=tool.name, arguments="{}"))
    else:
        parts = (Text(text="There is nothing to do it with."),)
    finish = Finish(reason="tool_call" if len(parts) > 1 else "stop")
    return Reply(
        id="r1", model=request.model, choices=(Choice(parts=parts, finish=finish),), usage=Usage(input=7, output=3)
    )


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, dict[str, Provider]]]:
    with ExitStack() as stack:
        providers = {name: stack.enter_context(serve(name, key=CANARY, brain=think)) for name in UPSTREAMS}
        specs = [
            upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=(f"{name}-model",))
            for name, provider in providers.items()
        ]
        settings = McpSettings(folder=tmp_path_factory.mktemp("sdks"), servers={"fine": bad("fine")}, default=("fine",))
        yield stack.enter_context(open_house(*specs, mcp=settings)), providers


@pytest.fixture(scope="module")
def doors(court: tuple[House, dict[str, Provider]]) -> Iterator[dict[str, Any]]:
    made = {name: door(court[0].url) for name, door in DOORS.items()}
    yield made
    for door in made.values():
        door.close()


CELLS = [(door, provider, True) for door in DOORS for provider in UPSTREAMS] + [(door, door, False) for door in DOORS]


@pytest.mark.parametrize(("name", "provider", "stream"), CELLS)
def test_a_client_sees_one_answer_the_calls_told_as_thoughts_and_can_go_on(
    court: tuple[House, dict[str, Provider]], doors: dict[str, Any], name: str, provider: str, stream: bool
) -> None:
    door, model = doors[name], f"{provider}-model"
    said = door.ask(model, "do it", stream=stream)
    assert said.text.split("\n\n", 1)[0] == "Let me see."
    assert said.text.endswith("\nIt is done.")
    assert said.thought == TOLD
    assert said.calls == []
    assert said.finish == "stop"
    assert said.tokens is not None
    assert said.tokens[0] >= 14  # both turns
    again = door.ask(model, "and again", after=said.raw, stream=stream)  # what it was told may come back
    assert again.text.endswith("\nIt is done.")
