"""Several answers from a target that gives one, in the library."""

import asyncio
import json
from typing import Any

import dragoman
from dragoman.upstream.spec import Upstream
from tests.gateway.house import faultline, upstream
from tests.gateway.test_emulated import pieces, whole
from tests.waiting import until


def _groq(url: str) -> Upstream:
    return upstream("groq", "openai_chat", url, kind="groq", models=("m",))


def test_the_client_asks_as_often_as_answers_are_wanted() -> None:
    with faultline(whole("one"), whole("two")) as line, dragoman.Client(upstreams=[_groq(line.url)]) as client:
        made: Any = client.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}], n=2)
    assert sorted(choice.message.content for choice in made.choices) == ["one", "two"]
    assert made.usage.total_tokens == 10
    assert all("n" not in json.loads(seen.body) for seen in line.seen)


def test_the_client_joins_streams() -> None:
    with faultline(pieces("on", "e"), pieces("two")) as line, dragoman.Client(upstreams=[_groq(line.url)]) as client:
        said: dict[int, str] = {}
        for chunk in client.openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], n=2, stream=True
        ):
            for choice in chunk.choices:
                said[choice.index] = said.get(choice.index, "") + (choice.delta.content or "")
    assert sorted(said.values()) == ["one", "two"]


def test_a_client_that_hangs_up_leaves_nothing_behind() -> None:
    async def run(url: str) -> int:
        client = dragoman.AsyncClient(upstreams=[_groq(url)])
        stream = await client.openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], n=3, stream=True
        )
        async for _ in stream:
            break
        await stream.close()
        (state,) = client.upstreams.upstream_states.values()
        await until(lambda: state.budget.in_flight == 0)
        await client.close()
        return state.budget.in_flight

    with faultline(pieces("one", "more")) as line:
        assert asyncio.run(run(line.url)) == 0
