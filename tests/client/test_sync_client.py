"""The client without `await`: the same answers, everywhere, and nothing left running."""

import asyncio
import concurrent.futures
import copy
import dataclasses
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import dragoman
from dragoman.agent import CallFinished, CallStarted, Stopped, TurnFinished
from dragoman.testing import Provider, faults, serve
from tests.waiting import NEVER_S, wait_until


@pytest.fixture
def client() -> Iterator[dragoman.Client]:
    with dragoman.Client(env={}) as made:
        yield made


@dragoman.tool
def get_weather(city: str) -> dict[str, str]:
    """The weather of a city."""
    return {"city": city, "sky": "clear"}


def test_demo_needs_nothing(client: dragoman.Client) -> None:
    answer = client.chat("demo", "say hello")
    assert (answer.text, str(answer), answer.finish, answer.model) == ("hello", "hello", "stop", "demo")
    assert answer.message.role == "assistant"


def test_streams(client: dragoman.Client) -> None:
    with client.chat("demo", "count to 5", stream=True) as stream:
        assert list(stream.texts()) == ["1", " 2", " 3", " 4", " 5"]
        assert stream.answer().text == "1 2 3 4 5"
    thinking = client.stream("demo", "hm", effort="low")
    assert "".join(heard.reasoning for heard in thinking).startswith("I was asked")


def test_the_tool_loop(client: dragoman.Client) -> None:
    answer = client.run("demo", "get_weather in Oslo", tools=[get_weather])
    assert '"sky":"clear"' in answer.text
    kinds = [type(step) for step in client.run_steps("demo", "get_weather in Oslo", tools=get_weather)]
    assert (kinds.count(TurnFinished), kinds.count(CallFinished), kinds[-1]) == (2, 1, Stopped)


def test_types_lists_counts_and_forms(client: dragoman.Client) -> None:
    @dataclasses.dataclass
    class City:
        name: str

    assert client.chat("demo", "Tell of 'Oslo'", output=City).parsed == City("Oslo")
    assert ("demo", "demo") in [(row.name, row.upstream) for row in client.models()]
    assert int(client.count_tokens("demo", "one two")) == 2
    made = client.openai.chat.completions.create(model="demo", messages=[{"role": "user", "content": "say x"}])
    assert made.choices[0].message.content == "x"
    chunks = client.openai.chat(model="demo", messages=[{"role": "user", "content": "say x"}], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "x"


def test_a_tool_may_use_the_client_itself(client: dragoman.Client) -> None:
    """From its thread, without a deadlock."""

    @dragoman.tool
    def ask_again(what: str) -> str:
        """Asks again."""
        return client.chat("demo", f"say {what}").text

    assert "pong" in client.run("demo", "ask_again 'pong'", tools=[ask_again]).text


def test_agents_that_call_themselves_come_to_an_end(client: dragoman.Client) -> None:
    depth = []

    @dragoman.tool
    def again(what: str) -> str:
        """Again."""
        depth.append(1)
        return client.run("demo", "again 'x'", tools=[again]).text

    assert client.run("demo", "again 'x'", tools=[again]).stopped == "done"
    assert len(depth) == 4


def test_it_works_where_a_loop_already_runs(client: dragoman.Client) -> None:
    async def main() -> str:
        return client.chat("demo", "say hello").text

    assert asyncio.run(main()) == "hello"


def test_it_works_from_many_threads(client: dragoman.Client) -> None:
    said: list[str] = []

    def work(n: int) -> None:
        said.append(client.chat("demo", f"say {n}").text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [str(n) for n in range(8)]


def test_closing_ends_what_runs_and_its_thread() -> None:
    with serve("anthropic", key="k", pace_s=0.02) as provider:
        made = dragoman.Client("anthropic", api_key="k", base_url=provider.base_url, env={})
        stream = made.chat("claude-x", "count to 500", stream=True)
        next(stream)
        thread = own_thread(made)
        made.close()
        assert not alive(thread)
        assert left(provider)
        with pytest.raises(dragoman.DragomanError, match="closed"):
            made.chat("claude-x", "x")


def test_a_stream_without_a_holder_hangs_up() -> None:
    with (
        serve("anthropic", key="k", pace_s=0.02) as provider,
        dragoman.Client("anthropic", api_key="k", base_url=provider.base_url, env={}) as made,
    ):
        for _ in made.chat("claude-x", "count to 500", stream=True):
            break
        assert left(provider)
        provider.reset()
        question = [{"role": "user", "content": "count to 500"}]
        for _ in made.openai.chat(model="claude-x", messages=question, max_tokens=9000, stream=True):
            break
        assert left(provider)


def test_a_loop_that_is_no_longer_watched_ends_its_tools(client: dragoman.Client) -> None:
    ended = threading.Event()

    async def slow() -> None:
        """Is slow."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    for step in client.run_steps("demo", "slow please", tools=[slow]):
        if isinstance(step, CallStarted):
            break
    del step
    gc.collect()
    assert ended.wait(NEVER_S)


def own_thread(client: dragoman.Client) -> threading.Thread:
    """Clients of other tests, which the garbage collector has not found yet, have threads too."""
    thread = client._loop_thread._thread
    assert thread is not None
    return thread


def alive(thread: threading.Thread) -> bool:
    thread.join(NEVER_S)
    return thread.is_alive()


def left(provider: Provider) -> bool:
    return wait_until(lambda: provider.requests[0].left)


def test_a_client_without_a_holder_is_closed() -> None:
    made = dragoman.Client(env={})
    made.chat("demo", "say x")
    thread = own_thread(made)
    del made
    assert not alive(thread)


def test_a_client_collected_in_its_own_thread_does_not_wait_for_itself() -> None:
    made: list[dragoman.Client] = [dragoman.Client(env={})]
    thread = None

    @dragoman.tool
    async def drop() -> str:
        """Drops the last reference."""
        nonlocal thread
        thread = threading.current_thread()
        made[0]._finalizer()
        return "dropped"

    with pytest.raises((dragoman.DragomanError, concurrent.futures.CancelledError)):
        made[0].run("demo", "drop it", tools=[drop])
    assert thread is not None
    assert not alive(thread)


def test_an_async_client_works_in_one_loop_after_another() -> None:
    with serve("openai", key="k") as provider:
        made = dragoman.AsyncClient("openai", api_key="k", base_url=provider.base_url, env={})

        async def ask() -> str:
            answer = await made.chat("gpt-4o", "say x")
            await made.close()
            return answer.text

        assert [asyncio.run(ask()) for _ in range(3)] == ["x"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
def test_a_forked_process_begins_anew() -> None:
    """Threads do not survive a fork: without care, the child would wait for ever for a loop nobody runs."""
    with serve("openai", key="k") as provider:
        program = f"""
import multiprocessing, dragoman
client = dragoman.Client("openai", api_key="k", base_url={provider.base_url!r}, env={{}})
assert client.chat("gpt-4o", "say before").text == "before"
stream = client.chat("gpt-4o", "count to 9", stream=True)
next(stream)

def work(word):
    try:
        next(stream)
    except dragoman.DragomanError as error:
        assert "before a fork" in str(error)
    stream.close()
    assert client.openai.chat(model="gpt-4o", messages=[{{"role": "user", "content": "say x"}}]).choices
    return client.chat("gpt-4o", f"say {{word}}").text

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, ["one", "two", "three"]) == ["one", "two", "three"]
assert "".join(stream.texts()).endswith("9")
client.close()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=NEVER_S)
        assert (done.returncode, done.stderr) == (0, "")


def test_errors_come_through() -> None:
    with serve("openai", key="k") as provider:
        provider.always(faults.failing(400, "no such thing"))
        with dragoman.Client("openai", api_key="k", base_url=provider.base_url, env={}) as made:
            with pytest.raises(dragoman.UpstreamError) as caught:
                made.chat("gpt-4o", "x")
            assert caught.value.failure.message == "no such thing"


def test_a_program_ends_while_a_tool_still_hangs() -> None:
    program = """
import dragoman, time

def hangs() -> None:
    "Hangs."
    time.sleep(3600)

client = dragoman.Client(env={})
answer = client.run("demo", "hangs now", tools=[dragoman.FunctionTool(hangs, timeout_s=0.05)])
assert "took longer" in answer.text, answer.text
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=NEVER_S)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_importing_dragoman_loads_no_client() -> None:
    program = (
        "import sys, dragoman; dragoman.FunctionTool; "
        "assert 'aiohttp' not in sys.modules; assert 'dragoman.client' not in sys.modules"
    )
    before = "import sys, dragoman; assert 'asyncio' not in sys.modules and 'aiohttp' not in sys.modules"
    for text in (before, program):
        subprocess.run([sys.executable, "-c", text], check=True, timeout=NEVER_S)
    assert set(dragoman._HOMES) <= set(dragoman.__all__)
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = dragoman.nothing_here  # type: ignore[attr-defined]


def test_what_a_client_gave_out_works_without_a_name_for_the_client() -> None:
    """`Client().openai` is what people write who come from OpenAI. A client that is forgotten is closed."""
    openai = dragoman.Client(env={}).openai
    stream = dragoman.Client(env={}).stream("demo", "say pong")
    chunks = dragoman.Client(env={}).openai.chat.create(
        model="demo", messages=[{"role": "user", "content": "say pong"}], stream=True
    )
    gc.collect()
    assert openai.responses.create(model="demo", input="say pong").output_text == "pong"
    assert "".join(stream.texts()) == "pong"
    assert list(chunks)


def test_a_misspelt_argument_is_named_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="Client\\(\\) takes no argument 'base_ulr'; did you mean base_url"):
        dragoman.Client(base_ulr="http://127.0.0.1:1")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: dragoman.completion, "use Client().chat(model, messages)"),  # type: ignore[attr-defined]
        (lambda: dragoman.Client().openai.embeddings, "use client.embed(model, texts)"),  # type: ignore[attr-defined]
        (lambda: dragoman.Client().chat("demo", "hi").content, "its text is .text"),  # type: ignore[attr-defined]
    ],
)
def test_a_name_of_other_clients_is_answered_with_ours(use: Callable[[], object], told: str) -> None:
    with pytest.raises(AttributeError) as caught:
        use()
    assert told in str(caught.value)


@pytest.mark.parametrize("work", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_says_that_it_cannot_be_copied(work: Callable[[object], object]) -> None:
    for client in (dragoman.Client(), dragoman.AsyncClient()):
        with pytest.raises(TypeError, match="make one in each process"):
            work(client)
