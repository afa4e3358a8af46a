"""Mission A6: a request in OpenAI's form served by anybody, the answer always in OpenAI's form. Its own types judge."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from dragoman.client.openai_style import make_object
from dragoman.errors import DecodeError, UpstreamError
from dragoman.testing import faults
from tests.client.scripted_clients import DIALECTS, ROOMS, room
from tests.waiting import NEVER_S

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

GONE = "import sys; sys.modules['openai'] = None; "  # as if it were not installed
TWO_ANSWERS = """
print(
    type(client.responses.create(model="demo", input="hi")).__name__,
    type(client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "hi"}])).__name__,
)"""


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be short."}, {"role": "user", "content": text}]


@pytest.mark.parametrize("name", ROOMS)
def test_a_completion(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            made: Any = await client.openai.chat(model=model, messages=ask("say pong"), max_tokens=100)
            ChatCompletion.model_validate(made.model_dump())
            assert made.choices[0].message.content == "pong"
            assert made.choices[0].finish_reason == "stop"
            assert made.usage.total_tokens > 0
            assert made.created > 1_700_000_000
            assert made.choices[0].message.tool_calls is None
            assert made.notes == () or all(note.kind for note in made.notes)

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_tools_there_and_back_in_its_form(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            create: Any = client.openai.chat.completions.create
            messages = ask("get_weather in Oslo")
            first = await create(model=model, messages=messages, tools=TOOLS)
            assert first.choices[0].finish_reason == "tool_calls"
            message = first.choices[0].message
            assert message.tool_calls[0].function.name == "get_weather"
            messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "clear sky"}]
            second = await create(model=model, messages=messages, tools=TOOLS)
            assert "clear sky" in second.choices[0].message.content
            official = ChatCompletion.model_validate(first.model_dump()).choices[0].message
            again = await create(
                model=model, messages=[*ask("get_weather in Oslo"), official, messages[-1]], tools=TOOLS
            )
            assert "clear sky" in again.choices[0].message.content

    asyncio.run(main())


@pytest.mark.parametrize("name", ROOMS)
def test_chunks(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            usage = {"include_usage": True}
            stream: Any = await client.openai.chat(
                model=model, messages=ask("count to 9"), stream=True, stream_options=usage
            )
            chunks = [chunk async for chunk in stream]
            for chunk in chunks:
                ChatCompletionChunk.model_validate(chunk.model_dump())
            said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert said == "1 2 3 4 5 6 7 8 9"
            assert chunks[-1].usage.completion_tokens > 0

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_the_responses_api_too(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, _, model):
            made: Any = await client.openai.responses.create(model=model, input="say pong")
            Response.model_validate(made.model_dump())
            assert made.output[0].content[0].text == made.output_text == "pong"
            assert isinstance(made, Response)
            kinds = [
                event.type async for event in await client.openai.responses(model=model, input="say x", stream=True)
            ]
            assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")

    asyncio.run(main())


def test_errors_are_raised() -> None:
    async def main() -> None:
        async with room("anthropic") as (client, provider, model):
            with pytest.raises(DecodeError):
                await client.openai.chat(model=model, messages="no list")
            provider.next(faults.cut(after=8))
            stream: Any = await client.openai.chat(model=model, messages=ask("count to 30"), stream=True)
            await anext(stream)

            async def drain() -> None:
                async for _ in stream:
                    pass

            with pytest.raises(UpstreamError) as caught:
                await drain()
            assert caught.value.failure.kind == "cut_off"

    asyncio.run(main())


def test_a_request_is_not_changed() -> None:
    async def main() -> None:
        async with room("gemini") as (client, _, model):
            body = {"model": model, "messages": ask("say x"), "tools": TOOLS}
            before = repr(body)
            await client.openai.chat(body)
            assert repr(body) == before

    asyncio.run(main())


def test_without_the_package_an_answer_behaves_alike() -> None:
    content = [{"type": "output_text", "text": "pong", "annotations": []}]
    made = make_object({"id": "r", "output": [{"type": "message", "content": content}], "usage": None})
    assert made.output_text == made["output"][0]["content"][0]["text"] == "pong"
    assert json.loads(made.model_dump_json()) == made.model_dump()
    assert "usage" not in made.model_dump(exclude_none=True)
    assert made.error is None
    with pytest.raises(AttributeError, match="did you mean output"):
        _ = made.outputtext


@pytest.mark.parametrize(("before", "classes"), [("", "Response ChatCompletion"), (GONE, "OpenAIObject OpenAIObject")])
def test_answers_are_of_the_official_classes_where_they_are_installed(before: str, classes: str) -> None:
    """A program need not import `openai` for that."""
    code = f"{before}import dragoman; client = dragoman.Client(env={{}}).openai; {TWO_ANSWERS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=NEVER_S)
    assert (done.stdout.strip(), done.stderr) == (classes, "")
