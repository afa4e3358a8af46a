"""What goes wrong is an UpstreamError with its Failure; retries are the gateway's own; nothing is left behind."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.agent import Limits
from dragoman.client import AsyncClient
from dragoman.errors import DecodeError, DragomanError, LossError, UpstreamError
from dragoman.testing import Provider, ScriptedFault, faults
from dragoman.tools import tool
from tests.client.scripted_clients import DIALECTS, KEY, PATIENT, ROOMS, room, talks
from tests.waiting import NEVER_S, until


async def fails(client: AsyncClient, model: str, **more: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await client.chat(model, "say x", **more)
    return caught.value


@pytest.mark.parametrize(("name", "stream"), [("openai_chat", False), ("anthropic", True)])
def test_a_passing_fault_is_tried_again(name: str, stream: bool) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            provider.next(faults.rate_limited(wait_s=0.01))
            if stream:
                answer = await (await client.chat(model, "say pong", stream=True)).answer()
            else:
                answer = await client.chat(model, "say pong")
            assert answer.text == "pong"
            assert len(talks(provider)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "ollama"])  # it has no keys
def test_a_refused_key_is_the_callers(name: str) -> None:
    async def main() -> None:
        kind, model = ROOMS[name]
        async with (
            Provider(kind, key="another") as provider,
            AsyncClient(kind, api_key=KEY, base_url=provider.base_url, env={}) as client,
        ):
            error = await fails(client, model)
            assert error.failure.kind in ("unauthenticated", "invalid_request")  # Gemini says 400
            assert KEY not in str(error)
            assert KEY not in repr(error.failure)

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (faults.too_long(), "too_long"),
        (faults.failing(400, "bad thing"), "invalid_request"),
    ],
    ids=lambda case: case.name if isinstance(case, ScriptedFault) else case,
)
def test_a_lasting_fault_is_reported(name: str, fault: ScriptedFault, kind: str) -> None:
    async def main() -> None:
        kind_of_server, model = ROOMS[name]
        async with Provider(kind_of_server, key=KEY) as provider:
            provider.always(fault)
            async with AsyncClient(kind_of_server, api_key=KEY, base_url=provider.base_url, timeouts=PATIENT) as client:
                error = await fails(client, model, timeout_s=30)
                assert error.failure.kind == kind
                assert len(talks(provider)) <= 3

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_provider_that_forbids_something_keeps_its_403_whatever_its_words(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            provider.always(faults.failing(403, "Project policy refuses this model"))
            error = await fails(client, model)
            assert (error.failure.kind, error.failure.status) == ("forbidden", 403)
            assert error.failure.message.endswith("does not allow this: Project policy refuses this model")

    asyncio.run(main())


def test_an_answer_that_is_no_answer_is_asked_for_once_more_and_then_a_failure() -> None:
    async def main() -> None:
        async with room("openai_chat") as (client, provider, model):
            provider.always(faults.garbage())
            error = await fails(client, model)
            assert (error.failure.kind, error.failure.code) == ("server_error", "upstream_malformed")
            assert len(talks(provider)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("name", DIALECTS)
def test_a_stream_that_breaks_raises_after_what_it_had_said(name: str) -> None:
    async def main() -> None:
        async with room(name) as (client, provider, model):
            provider.next(faults.cut(after=8))
            stream = await client.chat(model, "count to 30", stream=True)
            heard: list[str] = []

            async def listen() -> None:
                async for _ in _kept(stream.texts(), heard):
                    pass

            with pytest.raises(UpstreamError) as caught:
                await listen()
            assert heard
            assert caught.value.failure.kind == "cut_off"
            with pytest.raises(UpstreamError):
                await stream.answer()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "with", "cancel", "client", "forget"])
def test_leaving_a_stream_early_closes_the_connection(how: str) -> None:
    async def main() -> None:
        async with Provider("anthropic", key=KEY, pace_s=0.02) as provider:
            client = AsyncClient("anthropic", api_key=KEY, base_url=provider.base_url, env={})
            stream = await client.chat("claude-sonnet-4-6", "count to 500", stream=True)
            match how:
                case "close":
                    await anext(stream)
                    await stream.close()
                case "with":
                    async with stream:
                        await anext(stream)
                case "cancel":
                    begun = asyncio.Event()

                    async def drain() -> None:
                        begun.set()
                        await stream.answer()

                    task = asyncio.create_task(drain())
                    await begun.wait()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                case "forget":
                    await anext(stream)
                    del stream
                    gc.collect()
                case _:
                    await client.close()
            await until(lambda: provider.requests[0].left)
            state = client.upstreams.targets("claude-sonnet-4-6")[0][0]
            await until(lambda: state.budget.in_flight == 0)
            await client.close()

    asyncio.run(main())


async def _kept(texts: AsyncIterator[str], heard: list[str]) -> AsyncIterator[str]:
    """What came before a break counts."""
    async for text in texts:
        heard.append(text)
        yield text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_cancelling_a_loop_leaves_nothing_behind(stream: bool) -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    @tool
    async def slow() -> None:
        """Is slow."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")

    async def main() -> None:
        async with room("openai_chat") as (client, provider, model):
            before = asyncio.all_tasks()

            async def work() -> None:
                if stream:
                    async for _ in client.run_steps(model, "slow please", tools=[slow]):
                        pass
                else:
                    await client.run(model, "slow please", tools=[slow])

            task = asyncio.create_task(work())
            await asyncio.wait_for(begun.wait(), NEVER_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gc.collect()
            await asyncio.sleep(0)
            assert ended == ["slow"]
            assert [task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)] == []
            assert len(talks(provider)) == 1
            assert client.upstreams.targets(model)[0][0].budget.in_flight == 0

    asyncio.run(main())


def test_a_loop_whose_model_fails_raises() -> None:
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    async def main() -> None:
        async with room("anthropic") as (client, provider, model):
            provider.say("unused")
            provider.always(faults.failing(400, "enough"))
            with pytest.raises(UpstreamError, match="enough"):
                await client.run(model, "now", tools=[now])

    asyncio.run(main())


def test_a_loop_that_a_limit_ended_has_an_answer_that_says_so() -> None:
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    async def main() -> None:
        async with room("openai_chat") as (client, _, model):
            answer = await client.run(model, "now please", tools=[now], limits=Limits(turns=1))
            assert (answer.stopped, answer.turns, answer.calls_run) == ("turns", 1, 0)
            assert answer.finish == "tool_call"

    asyncio.run(main())


def test_a_slow_answer_is_given_up_at_its_timeout() -> None:
    async def main() -> None:
        async with room("openai_chat") as (client, provider, model):
            provider.always(faults.stalled(60))
            error = await fails(client, model, timeout_s=0.1)
            assert error.failure.kind == "timed_out"

    asyncio.run(main())


def test_another_model_is_asked_when_the_first_fails() -> None:
    """Fallback is the gateway's own code: an alias for several models."""

    async def main() -> None:
        async with Provider("openai", key=KEY) as one, Provider("anthropic", key=KEY) as two:
            env = {"OPENAI_BASE_URL": one.base_url, "ANTHROPIC_BASE_URL": two.base_url}
            keys = {"openai": KEY, "anthropic": KEY}
            aliases = {"best": ("gpt-4o", "claude-sonnet-4-6")}
            async with AsyncClient(keys=keys, env=env, aliases=aliases) as client:
                assert (await client.chat("best", "say x")).upstream == "openai"
                one.always(faults.overloaded(503))
                assert (await client.chat("best", "say x")).upstream == "anthropic"

    asyncio.run(main())


def test_a_loss_can_be_refused() -> None:
    async def main() -> None:
        async with room("openai_chat") as (client, provider, model):
            with pytest.raises(LossError):
                await client.chat(model, "say x", options={"top_k": 5}, refuse={"dropped"})
            assert provider.requests == []
            answer = await client.chat(model, "say x", options={"top_k": 5})
            assert [note.where for note in answer.notes if note.kind == "dropped"] == ["/top_k"]

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_where_json_is_only_asked_for_in_words_a_wrong_answer_is_asked_for_again(stream: bool) -> None:
    schema = {"type": "object", "properties": {"people": {"type": "integer"}}, "required": ["people"]}

    async def ask(client: AsyncClient, model: str) -> Any:
        if not stream:
            return (await client.chat(model, "?", output=schema)).parsed
        return (await (await client.chat(model, "?", output=schema, stream=True)).answer()).parsed

    async def main() -> None:
        async with room("deepseek") as (client, provider, model):
            if not stream:  # what has been said cannot be taken back
                provider.say('{"people": "many"}', '{"people": 7}')
                assert await ask(client, model) == {"people": 7}
                assert len(talks(provider)) == 2
            provider.say(*['{"people": "many"}'] * 4)
            with pytest.raises(
                DecodeError, match=r"does not match its schema: /people: expected integer, found string"
            ):
                await ask(client, model)

    asyncio.run(main())


def test_an_answer_that_is_not_the_type_says_how() -> None:
    async def main() -> None:
        async with room("openai_chat") as (client, provider, model):
            provider.say('{"value": ["x"]}', "no JSON at all", '```json\n{"value": [1]}\n```')
            wrong = await client.chat(model, "?", output=list[int])
            with pytest.raises(DecodeError, match=r"the answer is not list\[int\]: Expected int, got str \(in \[0\]\)"):
                _ = wrong.parsed
            with pytest.raises(DecodeError, match="not JSON"):
                _ = (await client.chat(model, "?", output=list[int])).parsed
            assert (await client.chat(model, "?", output=list[int])).parsed == [1]
            with pytest.raises(DragomanError, match="output="):
                _ = (await client.chat(model, "?")).parsed

    asyncio.run(main())
