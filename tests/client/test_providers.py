"""The same code with every provider: chat, streams, tools, types, pictures, in each one's own dialect."""

import asyncio
import base64
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from dragoman.agent import CallFinished, Stopped, TurnEvent
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.request import Tool
from dragoman.tools import tool
from tests.client.scripted_clients import DIALECTS, ROOMS, room, talks
from tests.client.test_prompts import Tree

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool
async def get_weather(city: str, unit: Literal["c", "f"] = "c") -> dict[str, str]:
    """The weather of a city.

    Args:
        city: its name
        unit: of the temperature
    """
    return {"city": city, "sky": "clear"}


@tool
def get_current_time() -> str:
    """What time it is."""
    return "noon"


@dataclass
class City:
    name: str
    people: int


@pytest.mark.parametrize("name", ROOMS)
def test_one_answer(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            answer = await client.chat(model, "say pong", system="Be short.")
            assert (answer.text, answer.finish, answer.calls) == ("pong", "stop", ())
            assert answer.usage.input is not None
            assert answer.upstream == ROOMS[name][0]
            assert [note for note in answer.notes if note.kind == "dropped"] == []
            if name in DIALECTS:
                assert talks(provider) == [name]

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
def test_a_stream_says_the_same_as_it_comes(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            stream = await client.chat(model, "count to 12", stream=True)
            texts = [text async for text in stream.texts()]
            assert len(texts) > 3
            streamed = await stream.answer()
            whole = await client.chat(model, "count to 12")
            assert "".join(texts) == streamed.text == whole.text == "1 2 3 4 5 6 7 8 9 10 11 12"
            assert streamed.usage.output == whole.usage.output
            assert streamed.finish == whole.finish

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_tool_call_is_asked_for(name: str, stream: bool) -> None:
    """Seed 001: a tool without arguments; the done reason says tool call."""

    async def main() -> None:
        async with room(name) as (client, _, model):
            if stream:
                heard = await client.chat(model, "get_current_time now", tools=[get_current_time], stream=True)
                calls = [event.call async for event in heard if event.call is not None]
                answer = await heard.answer()
                assert tuple(calls) == answer.calls
            else:
                answer = await client.chat(model, "get_current_time now", tools=[get_current_time])
            assert [call.name for call in answer.calls] == ["get_current_time"]
            assert answer.finish == "tool_call"

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_tool_loop_goes_round(name: str, stream: bool) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            asked: Any = (model, "get_weather in Oslo and Paris, both please")
            if stream:
                steps = [step async for step in client.run_steps(*asked, tools=[get_weather, get_current_time])]
                assert [type(step) for step in steps].count(CallFinished) == 2
                stopped = steps[-1]
                assert isinstance(stopped, Stopped)
                assert stopped.reason == "done"
                assert any(isinstance(step, TurnEvent) and step.turn == 2 for step in steps)
            else:
                answer = await client.run(*asked, tools=[get_weather, get_current_time])
                assert (answer.stopped, answer.turns, answer.calls_run, answer.finish) == ("done", 2, 2, "stop")
                assert "Oslo" in answer.text
                assert "Paris" in answer.text
                assert [message.role for message in answer.messages] == ["user", "assistant", "user", "assistant"]
            assert len(talks(provider)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("name", ["openai_responses", "anthropic", "gemini", "ollama", "deepseek", "vllm"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_loop_of_a_thinking_model_gives_its_seals_back(name: str, stream: bool) -> None:
    """The scripted provider refuses a thought whose signature was lost or changed."""

    async def main() -> None:
        async with room(name) as (client, provider, model):
            asked: Any = (model, "get_weather in Oslo")
            if stream:
                steps = [step async for step in client.run_steps(*asked, tools=[get_weather], effort="high")]
                stopped = steps[-1]
                assert isinstance(stopped, Stopped)
                messages, reason = stopped.messages, stopped.reason
            else:
                answer = await client.run(*asked, tools=[get_weather], effort="high")
                messages, reason = answer.messages, answer.stopped
            assert reason == "done"
            thoughts = [part for message in messages for part in message.parts if isinstance(part, Reasoning)]
            assert thoughts
            assert len(talks(provider)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("name", [name for name in ROOMS if name != "deepseek"])  # it knows no schemas
def test_an_answer_in_a_type(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            answer = await client.chat(model, "Tell me about 'Oslo' with 7 people", output=City)
            assert answer.parsed == City("Oslo", 7)
            many = await client.chat(model, "Give me 3", output=list[int])
            assert many.parsed == [3]
            tree = await client.chat(model, "A tree called 'Oak'", output=Tree)
            assert tree.parsed.name == "Oak"

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_picture_is_seen(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            answer = await client.chat(model, "What is in it?", images=[PNG])
            assert "image" in answer.text or "picture" in answer.text

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_conversation_goes_on_with_the_answers_given(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            first = await client.chat(model, "my name is Ada")
            second = await client.chat(model, ["my name is Ada", first, "what is my name?"])
            assert "Ada" in second.text

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
def test_a_tool_that_shows_a_picture(name: str) -> None:
    @tool
    def look() -> list[Any]:
        """Looks at the screen."""
        return ["the screen:", PNG]

    async def main() -> None:
        async with room(name) as (client, _, model):
            answer = await client.run(model, "look please", tools=[look])
            assert "the screen:" in answer.text

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_failing_tool_is_told_to_the_model_as_failed(name: str) -> None:
    @tool
    def breaks() -> None:
        """Breaks."""
        raise ValueError("no paper")

    async def main() -> None:
        async with room(name) as (client, _, model):
            answer = await client.run(model, "breaks now", tools=[breaks])
            assert "The breaks tool failed" in answer.text
            assert "no paper" in answer.text

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_tool_that_is_only_declared_is_the_callers_to_run(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            mine = Tool(name="mine", parameters={"type": "object", "properties": {"x": {"type": "string"}}})
            answer = await client.run(model, "mine 'a'", tools=[mine, get_current_time])
            assert answer.stopped == "caller"
            assert [call.name for call in answer.calls] == ["mine"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
def test_models_and_tokens_are_listed_and_counted(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            listed = await client.models(ROOMS[name][0])
            assert [row.name for row in listed] == list(provider.models)
            count = await client.count_tokens(model, "one two three")
            assert count.tokens >= 3
            if name in ("anthropic", "gemini", "openai_responses"):
                assert (int(count), count.estimated) == (3, False)

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_options_of_every_kind_arrive(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            own: dict[str, dict[str, Any]] = {
                "openai_chat": {"openai_chat": {"prediction": {"type": "content", "content": "x"}}},
                "openai_responses": {"openai_responses": {"truncation": "auto"}},
                "anthropic": {"anthropic": {"inference_geo": "us"}},
                "gemini": {"gemini": {"labels": {"a": "b"}}},
                "ollama": {"ollama": {"keep_alive": "5m"}},
            }
            await client.chat(model, "say x", max_output=2000, options=own[name])
            body = provider.requests[-1].json
            assert next(iter(own[name][name])) in body

    asyncio.run(main())


def test_forced_and_forbidden_calls() -> None:
    async def main() -> None:
        async with room("anthropic") as (client, _, model):
            forced = await client.chat(model, "hello", tools=[get_weather, get_current_time], tool_choice="get_weather")
            assert isinstance(forced.parts[0], ToolCall)
            assert forced.calls[0].name == "get_weather"
            none = await client.chat(model, "get_weather in Oslo", tools=[get_weather], tool_choice="none")
            assert none.calls == ()
            assert isinstance(none.parts[0], Text)

    asyncio.run(main())
