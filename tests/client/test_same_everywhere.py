"""One table for everybody: each provider, straight and through a gateway, with and without `await`: the same."""

import base64
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import dragoman
from dragoman.agent import CallFinished, CallStarted, Limits, Stopped
from dragoman.client import Answer, AsyncClient, Client, RunAnswer, StreamEvent
from dragoman.testing import Provider, faults, serve
from tests.client.scripted_clients import DIALECTS, PATIENT, ROOMS
from tests.client.test_providers import PNG, City, get_current_time, get_weather
from tests.gateway.house import CANARY, Loop, open_house, upstream
from tests.waiting import NEVER_S, wait_until

WAYS = ("straight", "straight, await", "gateway", "gateway, await")


class Plain:
    """What both clients can do, said in one way."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def chat(self, model: str, prompt: Any, **asking: Any) -> Answer:
        return self.client.chat(model, prompt, **asking)

    def hear(self, model: str, prompt: Any, **asking: Any) -> tuple[list[StreamEvent], Answer]:
        with self.client.chat(model, prompt, stream=True, **asking) as stream:
            return list(stream), stream.answer()

    def leave(self, model: str, prompt: Any) -> None:
        with self.client.stream(model, prompt) as stream:
            next(stream)

    def run(self, model: str, prompt: Any, **asking: Any) -> RunAnswer:
        return self.client.run(model, prompt, **asking)

    def steps(self, model: str, prompt: Any, **asking: Any) -> list[Any]:
        return list(self.client.run_steps(model, prompt, **asking))

    def openai(self, **body: Any) -> Any:
        made = self.client.openai.chat(**body)
        return list(made) if body.get("stream") else made

    def speak(self, model: str, text: str) -> bytes:
        return self.client.speak(model, text, form="wav").data

    def close(self) -> None:
        self.client.close()


class Awaited(Plain):
    def __init__(self, client: AsyncClient) -> None:
        self.awaited = client
        self.loop = Loop()

    def chat(self, model: str, prompt: Any, **asking: Any) -> Any:
        return self.loop.run(self.awaited.chat(model, prompt, **asking))

    def hear(self, model: str, prompt: Any, **asking: Any) -> Any:
        async def hear() -> Any:
            async with await self.awaited.chat(model, prompt, stream=True, **asking) as stream:
                return [heard async for heard in stream], await stream.answer()

        return self.loop.run(hear())

    def leave(self, model: str, prompt: Any) -> None:
        async def leave() -> None:
            async with await self.awaited.stream(model, prompt) as stream:
                await anext(stream)

        self.loop.run(leave())

    def run(self, model: str, prompt: Any, **asking: Any) -> Any:
        return self.loop.run(self.awaited.run(model, prompt, **asking))

    def steps(self, model: str, prompt: Any, **asking: Any) -> Any:
        return self.loop.run(gather(self.awaited.run_steps(model, prompt, **asking)))

    def openai(self, **body: Any) -> Any:
        made = self.loop.run(self.awaited.openai.chat(**body))
        return self.loop.run(gather(made)) if body.get("stream") else made

    def speak(self, model: str, text: str) -> bytes:
        return bytes(self.loop.run(self.awaited.speak(model, text, form="wav")).data)

    def close(self) -> None:
        self.loop.run(self.awaited.close())
        self.loop.stop()


async def gather(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@dataclass
class SampleGateway:
    ask: Plain
    provider: Provider
    model: str
    name: str
    through: bool = False  # a gateway


@contextmanager
def scene(name: str, way: str) -> Iterator[SampleGateway]:
    kind, model = ROOMS[name]
    with ExitStack() as stack:
        provider = stack.enter_context(serve(kind, key=CANARY))
        said: dict[str, Any] = {"env": {}, "timeout_s": 5.0}
        if way.startswith("gateway"):
            spec = upstream("up", name, provider.base_url, kind=kind, models=(model,))
            said["base_url"] = stack.enter_context(open_house(spec)).url
        else:
            said |= {"provider": kind, "api_key": CANARY, "base_url": provider.base_url, "timeouts": PATIENT}
        ask = Awaited(AsyncClient(**said)) if way.endswith("await") else Plain(Client(**said))
        stack.callback(ask.close)
        yield SampleGateway(ask, provider, model, name, way.startswith("gateway"))


# ---------------------------------------------------------------- what is the same for everybody


def one_answer(at: SampleGateway) -> None:
    answer = at.ask.chat(at.model, "say pong", system="Be short.")
    assert (answer.text, answer.finish, answer.calls, str(answer)) == ("pong", "stop", (), "pong")
    assert answer.usage.output == 1
    assert (answer.usage.input or 0) >= 2
    assert answer.model.startswith(at.model)
    assert [note for note in answer.notes if note.kind == "dropped"] == []


def a_stream(at: SampleGateway) -> None:
    heard, answer = at.ask.hear(at.model, "count to 5")
    whole = at.ask.chat(at.model, "count to 5")
    assert "".join(event.text for event in heard) == answer.text == whole.text == "1 2 3 4 5"
    assert (answer.finish, answer.usage.output) == (whole.finish, whole.usage.output) == ("stop", 5)


def a_call(at: SampleGateway) -> None:
    said = "What is the weather in Oslo?"
    answer = at.ask.chat(at.model, said, tools=[get_weather])
    heard, streamed = at.ask.hear(at.model, said, tools=[get_weather])
    called = [event.call for event in heard if event.call is not None]
    for calls in (answer.calls, streamed.calls, called):
        assert [(call.name, dragoman.jsontypes.load_json(call.arguments)["city"]) for call in calls] == [
            ("get_weather", "Oslo")
        ]
    assert answer.finish == streamed.finish == "tool_call"


def a_loop(at: SampleGateway) -> None:
    """Both tools wait for each other: they run at the same time or not at all."""
    together = threading.Barrier(2, timeout=NEVER_S)

    def first(city: str) -> str:
        """The first."""
        together.wait()
        return f"first {city}"

    def second(city: str) -> str:
        """The second."""
        together.wait()
        return f"second {city}"

    answer = at.ask.run(at.model, "Use first and second for Oslo, both at once", tools=[first, second])
    assert (answer.stopped, answer.turns, answer.calls_run) == ("done", 2, 2)
    assert "first Oslo" in answer.text
    assert "second " in answer.text
    assert [message.role for message in answer.messages] == ["user", "assistant", "user", "assistant"]
    assert answer.usage.output is not None


def every_step(at: SampleGateway) -> None:
    steps = at.ask.steps(at.model, "get_current_time please", tools=[get_current_time])
    kinds = [type(step).__name__ for step in steps]
    assert (kinds.count("CallStarted"), kinds.count("CallFinished")) == (1, 1)
    assert kinds.index("CallStarted") < kinds.index("CallFinished") < len(kinds) - 1
    stopped = steps[-1]
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.turns) == ("done", 2)
    started = next(step for step in steps if isinstance(step, CallStarted))
    finished = next(step for step in steps if isinstance(step, CallFinished))
    assert (started.call.name, finished.result.failed) == ("get_current_time", None)


def limits(at: SampleGateway) -> None:
    some = at.ask.run(at.model, "get_current_time please", tools=[get_current_time], limits=Limits(turns=1))
    assert (some.stopped, some.calls_run) == ("turns", 0)
    none = at.ask.run(at.model, "get_current_time please", tools=[get_current_time], limits=Limits(calls=0))
    assert none.stopped == "calls"
    release = threading.Event()
    slow = dragoman.FunctionTool(lambda: release.wait(NEVER_S), name="slow", description="Slow.", timeout_s=0.05)
    late = at.ask.run(at.model, "slow please", tools=[slow])
    release.set()
    assert (late.stopped, "took longer" in late.text) == ("done", True)


def types(at: SampleGateway) -> None:
    city = at.ask.chat(at.model, "Tell me about 'Oslo' with 7 people", output=City)
    assert city.parsed == City("Oslo", 7)
    numbers = at.ask.chat(at.model, "The numbers 1 2 3", output=list[int])
    assert isinstance(numbers.parsed, list)
    either = at.ask.chat(at.model, "Tell me about 'Oslo' with 7 people", output=City | int)
    assert isinstance(either.parsed, City | int)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert at.ask.chat(at.model, "'Oslo'", output=schema).parsed["name"]


def pictures(at: SampleGateway) -> None:
    assert "image" in at.ask.chat(at.model, "What do you see?", images=[PNG]).text
    data = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert "image" in at.ask.chat(at.model, "What do you see?", images=[data]).text


def effort(at: SampleGateway) -> None:
    thought = at.ask.chat(at.model, "hello", effort="high")
    assert thought.finish == "stop"
    assert "thought" not in thought.text
    if at.name not in ("openai_chat",):  # which tells nobody what it thought
        assert thought.reasoning
    calm = at.ask.chat(at.model, "say pong", effort=False)
    assert calm.text == "pong"
    if at.name != "openai_responses":  # an o-series model thinks always, and then as little as it can
        assert calm.reasoning == ""


def options_and_notes(at: SampleGateway) -> None:
    answer = at.ask.chat(at.model, "say pong", options={"stop": ["ong"], "top_k": 5, "top_p": 0.5})
    kept = at.name in ("anthropic", "gemini", "ollama")  # a gateway is asked in the canonical form, which has it
    assert [note.where for note in answer.notes if note.where == "/top_k"] == ([] if kept else ["/top_k"])
    assert answer.text in ("p", "pong")  # reasoning models of OpenAI have no stop sequences


def failures(at: SampleGateway) -> None:
    at.provider.always(faults.too_long())
    with pytest.raises(dragoman.UpstreamError) as caught:
        at.ask.chat(at.model, "hello")
    assert caught.value.failure.kind == "too_long"
    at.provider.always(faults.error_in_stream(after=12))
    with pytest.raises(dragoman.UpstreamError) as caught:
        at.ask.hear(at.model, "count to 50")
    assert caught.value.failure.kind in ("server_error", "cut_off", "overloaded", "unknown")
    at.provider.always(None)
    assert at.ask.chat(at.model, "say again").text == "again"


def leaving(at: SampleGateway) -> None:
    at.provider.next(faults.slow(200, 0.01))
    at.ask.leave(at.model, "count to 900")
    wait_until(lambda: at.provider.requests[-1].left)


def openai_form(at: SampleGateway) -> None:
    messages = [{"role": "user", "content": "say pong"}]
    made = at.ask.openai(model=at.model, messages=messages)
    assert (made.object, made.choices[0].message.content) == ("chat.completion", "pong")
    assert (made.choices[0].finish_reason, made.usage.completion_tokens) == ("stop", 1)
    chunks = at.ask.openai(model=at.model, messages=messages, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "pong"
    assert chunks[-1].usage.completion_tokens == 1
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": get_weather.parameters}}]
    asked = at.ask.openai(model=at.model, messages=[{"role": "user", "content": "get_weather in Oslo"}], tools=tools)
    (call,) = asked.choices[0].message.tool_calls
    assert asked.choices[0].finish_reason == "tool_calls"
    told = [
        {"role": "user", "content": "get_weather in Oslo"},
        asked.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "clear"},
    ]
    assert "clear" in at.ask.openai(model=at.model, messages=told, tools=tools).choices[0].message.content


FEATURES: tuple[Callable[[SampleGateway], None], ...] = (
    one_answer, a_stream, a_call, a_loop, every_step, limits, types, pictures, effort, options_and_notes, failures,
    leaving, openai_form,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DIALECTS)
def test_every_provider_works_alike_in_every_way_to_ask(name: str, way: str) -> None:
    with scene(name, way) as at:
        wrong = []
        for feature in FEATURES:
            try:
                feature(at)
            except Exception as error:  # all of the row, not only its first fault
                wrong.append(f"{feature.__name__}: {type(error).__name__}: {error}")
        assert not wrong, "\n".join(wrong)
        assert [words for words in at.provider.refusals if "exceed" not in words] == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "model"), [("openai", "gpt-4o-mini-tts"), ("gemini", "gemini-2.5-flash-preview-tts")])
def test_every_provider_with_speech_speaks(kind: str, model: str, way: str) -> None:
    name = {"openai": "openai_chat"}.get(kind, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ROOMS, name, (kind, model))
        with scene(name, way) as at:
            assert at.ask.speak(model, "hello there")[:4] == b"RIFF"


def test_the_demo_model_does_all_of_it_too() -> None:
    with Client(env={}) as client:
        at = SampleGateway(Plain(client), Provider("openai"), "demo", "anthropic")
        for feature in (one_answer, a_stream, a_call, a_loop, every_step, limits, types, pictures, effort, openai_form):
            feature(at)
        assert at.ask.speak("demo", "hello there")[:4] == b"RIFF"
