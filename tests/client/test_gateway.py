"""Through a running gateway: the same API and the same answers, signatures and notes included."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

import dragoman
from dragoman.agent import Limits
from dragoman.client import AsyncClient
from dragoman.client.answers import notes_of
from dragoman.errors import UpstreamError
from dragoman.jsontypes import load_json
from dragoman.model.messages import Cache, Image, Message, Reasoning, Seal, Text, ToolCall, ToolResult
from dragoman.model.request import ReasoningSetting, Request, Tool
from dragoman.testing import Provider, faults, serve
from tests.client.scripted_clients import ROOMS
from tests.client.test_providers import City, get_weather
from tests.gateway.house import open_house, upstream

NAMES = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
CANARY = "sk-canary-7f3a91c2d4e5f6"


@contextmanager
def behind(name: str) -> Iterator[tuple[dragoman.Client, Provider, str]]:
    """A client, a gateway, a scripted provider."""
    kind, model = ROOMS[name]
    with serve(kind, key=CANARY) as provider:
        spec = upstream("up", name, provider.base_url, kind=kind, models=(model,))
        with open_house(spec) as house, dragoman.Client(base_url=house.url, env={}) as client:
            yield client, provider, model
        assert provider.refusals == []


@pytest.mark.parametrize("name", NAMES)
def test_chat_streams_tools_and_types(name: str) -> None:
    with behind(name) as (client, provider, model):
        assert client.chat(model, "say pong").text == "pong"
        assert "".join(client.chat(model, "count to 5", stream=True).texts()) == "1 2 3 4 5"
        answer = client.run(model, "get_weather in Oslo and Paris, both please", tools=[get_weather])
        assert (answer.stopped, answer.calls_run) == ("done", 2)
        assert "Oslo" in answer.text
        assert client.chat(model, "Tell me about 'Oslo' with 7 people", output=City).parsed == City("Oslo", 7)
        assert {seen.dialect for seen in provider.requests if seen.dialect} == {name}
        assert model in [row.name for row in client.models()]
        assert client.count_tokens(model, "one two three").tokens >= 3


@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai_responses"])
def test_a_thinking_models_seals_survive_the_gateway(name: str) -> None:
    with behind(name) as (client, _, model):
        answer = client.run(model, "get_weather in Oslo", tools=[get_weather], effort="high")
        assert answer.stopped == "done"


def test_the_gateways_notes_are_shown() -> None:
    with serve("anthropic", key=CANARY) as provider:
        spec = upstream("up", "anthropic", provider.base_url, models=("some-alias",))
        with open_house(spec) as house, dragoman.Client(base_url=house.url, env={}) as client:
            answer = client.chat("some-alias", "say x", options={"seed": 7})
            assert "/seed" in [note.where for note in answer.notes]


def test_what_a_gateway_has_tried_again_is_not_tried_again_here() -> None:
    """Three attempts times three would be nine, at a provider that has enough already."""
    with behind("anthropic") as (client, provider, model):
        provider.always(faults.overloaded(529))
        with pytest.raises(UpstreamError) as caught:
            client.chat(model, "say x", timeout_s=30)
        assert caught.value.failure.kind == "overloaded"
        assert len([seen for seen in provider.requests if seen.dialect]) <= 3


def test_the_demo_model_of_a_gateway() -> None:
    with open_house() as house, dragoman.Client(base_url=house.url, env={}) as client:
        assert client.chat("demo", "say hello").text == "hello"
        answer = client.run("demo", "get_weather in Oslo", tools=[get_weather], limits=Limits(turns=3))
        assert "clear" in answer.text


def test_a_gateway_that_wants_a_key() -> None:
    key = "dk-0123456789abcdef0123456789abcdef"
    with open_house(client_keys=(key,)) as house:
        with dragoman.Client(base_url=house.url, api_key=key, env={}) as client:
            assert client.chat("demo", "say hello").text == "hello"
        with dragoman.Client(base_url=house.url, env={"DRAGOMAN_KEY": key}) as client:
            assert client.chat("demo", "say hello").text == "hello"
        with dragoman.Client(base_url=house.url, env={}) as client, pytest.raises(UpstreamError) as caught:
            client.chat("demo", "say hello")
        assert caught.value.failure.kind == "unauthenticated"


def test_a_gateway_that_is_not_there() -> None:
    async def main() -> None:
        async with AsyncClient(base_url="http://127.0.0.1:9", env={}, timeout_s=1.0) as client:
            with pytest.raises(UpstreamError, match="accepts no connection") as caught:
                await client.chat("demo", "x")
            assert caught.value.failure.code == "upstream_unreachable"

    asyncio.run(main())


def test_nothing_is_lost_at_the_gateways_own_door() -> None:
    """Ollama takes top_k, min_p and keys of its own; the model's name does not say that Ollama serves it."""
    with serve("ollama") as provider:
        spec = upstream("up", "ollama", provider.base_url, kind="ollama", models=("qwen3",))
        with open_house(spec) as house, dragoman.Client(base_url=house.url, env={}) as client:
            own = {"top_k": 5, "min_p": 0.1, "ollama": {"options": {"mirostat": 1}, "keep_alive": "5m"}}
            answer = client.chat("qwen3", "say x", options=own)
    sent = load_json(provider.requests[-1].body)
    assert (sent["options"]["top_k"], sent["options"]["min_p"], sent["options"]["mirostat"]) == (5, 0.1, 1)
    assert sent["keep_alive"] == "5m"
    assert answer.notes == ()


@pytest.mark.parametrize("stream", [False, True])
def test_the_notes_of_a_stream_are_those_of_a_whole_answer(stream: bool) -> None:
    with serve("openai_chat", key=CANARY) as provider:
        spec = upstream("up", "openai_chat", provider.base_url, models=("m",))
        with open_house(spec) as house, dragoman.Client(base_url=house.url, env={}) as client:
            if stream:
                with client.chat("m", "say x", options={"top_k": 5}, stream=True) as answering:
                    answer = answering.answer()
            else:
                answer = client.chat("m", "say x", options={"top_k": 5})
    assert [note.where for note in answer.notes] == ["/top_k"]


def test_a_server_that_is_no_gateway_of_ours_is_asked_in_its_own_dialect() -> None:
    with (
        serve("openai_chat", key=CANARY) as provider,
        dragoman.Client(base_url=provider.base_url, api_key=CANARY, env={}) as client,
    ):
        assert client.chat("m", "say pong").text == "pong"
        assert client.chat("m", "say ping").text == "ping"
    assert [seen.path for seen in provider.requests].count("/dragoman/v1/chat") <= 1


SEALED = Message(
    role="assistant",
    parts=(
        Reasoning(text="I look"),
        ToolCall(id="c1", name="f", arguments="{}", seal=Seal(origin="gemini", value="c2ln", form="thought_signature")),
    ),
)
RICH = Request(
    model="m",
    messages=(
        Message(role="system", parts=(Text(text="be brief", cache=Cache()),)),
        Message(role="user", parts=(Text(text="hi"), Image(data="iVBORw0KGgo=", media_type="image/png"))),
        SEALED,
        Message(role="user", parts=(ToolResult(call_id="c1", parts=(Text(text="done"),)),)),
    ),
    tools=(Tool(name="f", parameters={"type": "object", "properties": {"a": {"type": "integer"}}}, strict=True),),
    reasoning=ReasoningSetting(effort="high", show=True),
    max_output=100,
    top_k=5,
    min_p=0.1,
    seed=7,
    stop=("END",),
    metadata={"a": "b"},
    user="u-1",
    extras={"anthropic": {"container": "x"}, "ollama": {"keep_alive": "5m"}, "openai_chat": {"logit_bias": {"1": 2}}},
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", NAMES)
def test_a_provider_gets_the_same_bytes_with_and_without_a_gateway(name: str, stream: bool) -> None:
    kind, model = ROOMS[name]
    request = replace(RICH, model=model)

    async def send(client: AsyncClient) -> tuple[str, ...]:
        async with client:
            opened = await client.send(request, stream=stream)
            while stream and await opened.next() is not None:
                pass
            notes = tuple(sorted(f"{note.kind} {note.canonical}" for note in notes_of(opened)))
            client.close_answer(opened)
            return notes

    with serve(kind, key=CANARY) as provider:
        spec = upstream("up", name, provider.base_url, kind=kind, models=(model,))
        plain = asyncio.run(send(AsyncClient(upstreams=[spec], env={})))
        direct = [seen.body for seen in provider.requests if seen.dialect]
        with open_house(spec) as house:
            through = asyncio.run(send(AsyncClient(base_url=house.url, env={})))
        behind_gateway = [seen.body for seen in provider.requests if seen.dialect][len(direct) :]
    assert behind_gateway == direct
    assert through == plain
