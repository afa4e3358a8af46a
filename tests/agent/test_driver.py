"""The running loop: the order of its steps, calls at the same time, limits, and cleaning up."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from dragoman.agent import (
    CallFinished,
    CallStarted,
    Limits,
    Step,
    Stopped,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    run_loop,
)
from dragoman.demo.model import demo_events
from dragoman.errors import DragomanError, LossError, UpstreamError
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, ReplyFailed, ReplyStart
from dragoman.model.fold import unfold
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import AnyTool, Request, Tool
from dragoman.notes import Note
from dragoman.tools import Toolbox, ToolCollection
from tests.waiting import NEVER_S, turns, until

Turn = Reply | Failure | Exception | float


class ScriptedModel:
    """A model that follows a script: replies, failures and exceptions. A number means silence for so many seconds."""

    def __init__(self, *turns: "Turn | Callable[[Request], Reply]", repeat: bool = False) -> None:
        self.turns = list(turns)
        self.repeat = repeat
        self.asked: list[Request] = []
        self.open = 0

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        self.asked.append(request)
        self.open += 1
        try:
            turn = self.turns[0] if self.repeat else self.turns.pop(0)
            match turn:
                case Exception():
                    raise turn
                case Failure():
                    yield ReplyStart(id="r", model="m")
                    yield ReplyFailed(failure=turn)
                case float():
                    yield ReplyStart(id="r", model="m")
                    await asyncio.sleep(turn)
                case Reply():
                    for event in unfold(turn):
                        yield event
                case _:
                    for event in unfold(turn(request)):
                        yield event
        finally:
            self.open -= 1


def make_reply(*parts: Part | str) -> Reply:
    made = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    why = "tool_call" if any(isinstance(part, ToolCall) for part in made) else "stop"
    choice = Choice(parts=made, finish=Finish(reason=why))  # type: ignore[arg-type]
    return Reply(id="r", model="m", choices=(choice,), usage=Usage(input=10, output=5))


def call(name: str, arguments: str = "{}", call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def ask(text: str = "?", **more: Any) -> Request:
    return Request(model="m", messages=(Message(role="user", parts=(Text(text=text),)),), **more)


def run(
    model: Any, tools: Iterable[Any] = (), limits: Limits | None = None, request: Request | None = None
) -> list[Step]:
    async def main() -> list[Step]:
        toolbox = tools if isinstance(tools, Toolbox) else ToolCollection(tools)
        steps = [step async for step in run_loop(model, toolbox, request or ask(), limits)]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert getattr(model, "open", 0) == 0
        return steps

    return asyncio.run(main())


def last(steps: list[Step]) -> Stopped:
    assert isinstance(steps[-1], Stopped)
    assert not any(isinstance(step, Stopped) for step in steps[:-1])
    return steps[-1]


def shape(steps: list[Step]) -> list[str]:
    return [type(step).__name__ for step in steps if not isinstance(step, TurnEvent)]


def results(steps: list[Step]) -> list[ToolResult]:
    return [step.result for step in steps if isinstance(step, CallFinished)]


def test_every_step_is_seen() -> None:
    def now() -> str:
        return "noon"

    steps = run(ScriptedModel(make_reply("let me see", call("now")), make_reply("It is noon.")), [now])
    assert shape(steps) == [
        "TurnStarted",
        "TurnFinished",
        "CallStarted",
        "CallFinished",
        "TurnStarted",
        "TurnFinished",
        "Stopped",
    ]
    assert [step.turn for step in steps if isinstance(step, TurnStarted | TurnFinished)] == [1, 1, 2, 2]
    texts = [s.event.text for s in steps if isinstance(s, TurnEvent) and isinstance(s.event, PartDelta)]
    assert "It is noon." in texts
    stopped = last(steps)
    assert (stopped.reason, stopped.turns, stopped.calls, stopped.usage) == ("done", 2, 1, Usage(input=20, output=10))
    assert [message.role for message in stopped.messages] == ["user", "assistant", "user", "assistant"]


def test_the_demo_model_finishes_a_task() -> None:
    class Demo:
        async def ask(self, request: Request) -> AsyncIterator[Event]:
            for event in demo_events(request):
                yield event

    async def get_weather(city: str) -> dict[str, str]:
        """The weather of a city."""
        return {"city": city, "sky": "clear"}

    steps = run(Demo(), [get_weather], request=ask("get_weather in Oslo and in Paris, both please"))
    assert len(results(steps)) == 2
    reply = last(steps).reply
    assert reply is not None
    assert isinstance(text := reply.choices[0].parts[0], Text)
    assert "Oslo" in text.text
    assert "Paris" in text.text


def test_calls_of_a_turn_run_at_the_same_time_and_keep_their_order() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def wait(number: int) -> int:
        begun.append(number)
        await until(lambda: len(begun) == 3 and len(ended) == 2 - number)  # the last one ends first
        ended.append(number)
        return number

    calls = [call("wait", f'{{"number": {i}}}', f"c{i}") for i in range(3)]
    model = ScriptedModel(make_reply(*calls), make_reply("done"))
    steps = run(model, [wait])
    assert shape(steps)[2:5] == ["CallStarted"] * 3
    assert [r.call_id for r in results(steps)] == ["c2", "c1", "c0"]  # as they finish
    told = model.asked[1].messages[-1].parts
    assert [part.call_id for part in told if isinstance(part, ToolResult)] == ["c0", "c1", "c2"]


def test_plain_functions_run_at_the_same_time_too() -> None:
    together = threading.Barrier(5)

    def wait(n: int) -> None:
        together.wait(NEVER_S)

    calls = [call("wait", f'{{"n": {i}}}', f"c{i}") for i in range(5)]
    steps = run(ScriptedModel(make_reply(*calls), make_reply("done")), [wait])
    assert [result.failed for result in results(steps)] == [None] * 5


def test_the_number_of_calls_at_once_is_limited() -> None:
    running, most = 0, 0

    async def work(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turns(5)
        running -= 1

    calls = [call("work", f'{{"n": {i}}}', f"c{i}") for i in range(6)]
    run(ScriptedModel(make_reply(*calls), make_reply("done")), [work], Limits(at_once=2))
    assert most == 2


def test_a_model_that_never_stops_calling_is_stopped() -> None:
    ran = []

    def now() -> str:
        ran.append(1)
        return "noon"

    steps = run(ScriptedModel(make_reply(call("now")), repeat=True), [now])
    assert (last(steps).reason, len(ran)) == ("tool_repeat", 3)


def test_a_tool_that_raises_hangs_or_floods_does_not_stop_the_loop() -> None:
    def raises() -> None:
        raise ValueError("broken")

    async def hangs() -> None:
        await asyncio.sleep(60)

    def floods() -> str:
        return "x" * 10_000_000

    def recurses() -> None:
        recurses()

    names = ["raises", "hangs", "floods", "recurses", "unknown"]
    model = ScriptedModel(make_reply(*(call(name, call_id=name) for name in names)), make_reply("I see"))
    steps = run(model, [raises, hangs, floods, recurses], Limits(tool_s=1.0, result_bytes=1000))
    assert last(steps).reason == "done"
    told = {r.call_id: (r.failed, "".join(p.text for p in r.parts if isinstance(p, Text))) for r in results(steps)}
    assert told["raises"] == (True, "raises failed: ValueError: broken")
    assert told["hangs"] == (True, "hangs took longer than 1 s")
    assert told["floods"][0] is None
    assert len(told["floods"][1]) < 1100
    assert told["recurses"][0]
    assert "there is no tool unknown" in told["unknown"][1]


def test_a_toolbox_that_raises_does_not_stop_the_loop() -> None:
    class Broken:
        async def list_tools(self) -> Sequence[AnyTool]:
            return [Tool(name="f")]

        async def run(self, call: ToolCall) -> ToolResult:
            raise ConnectionError("gone")

    steps = run(ScriptedModel(make_reply(call("f")), make_reply("I see")), Broken())  # type: ignore[arg-type]
    assert results(steps)[0].parts == (Text(text="f failed: ConnectionError: gone"),)
    assert last(steps).reason == "done"


def test_a_toolbox_that_cannot_list_its_tools_ends_it_with_a_failure() -> None:
    class Broken(ToolCollection):
        async def list_tools(self) -> Sequence[AnyTool]:
            raise DragomanError("the server is gone")

    stopped = last(run(ScriptedModel(), Broken()))
    assert stopped.reason == "failed"
    assert stopped.failure is not None
    assert stopped.failure.message == "the server is gone"


def test_tools_are_listed_again_for_every_turn() -> None:
    tools = ToolCollection()

    def learn() -> str:
        def fresh() -> str:
            return "new"

        tools.add(fresh)
        return "learnt"

    tools.add(learn)
    model = ScriptedModel(make_reply(call("learn")), make_reply(call("fresh")), make_reply("done"))
    steps = run(model, tools)
    offered = [[getattr(tool, "name", "") for tool in request.tools or ()] for request in model.asked]
    assert offered == [["learn"], ["learn", "fresh"], ["learn", "fresh"]]
    assert [r.parts for r in results(steps)] == [(Text(text="learnt"),), (Text(text="new"),)]


def test_the_callers_own_tools_come_first_and_are_not_run() -> None:
    def mine() -> str:
        raise AssertionError("not to be called")

    def other() -> str:
        return "x"

    model = ScriptedModel(make_reply(call("mine")))
    stopped = last(run(model, [mine, other], request=ask(tools=(Tool(name="mine"),))))
    assert stopped.reason == "caller"
    assert [getattr(tool, "name", "") for tool in model.asked[0].tools or ()] == ["mine", "other"]


@pytest.mark.parametrize("repeat", [False, True])
def test_time_is_up_in_the_middle_of_a_turn(repeat: bool) -> None:
    stopped = last(run(ScriptedModel(60.0), limits=Limits(total_s=0.05)))
    assert (stopped.reason, stopped.reply) == ("time", None)


def test_time_is_up_in_the_middle_of_a_call() -> None:
    async def hangs() -> None:
        await asyncio.sleep(60)

    steps = run(ScriptedModel(make_reply(call("hangs"))), [hangs], Limits(total_s=0.5))
    assert last(steps).reason == "time"
    assert results(steps)[0].failed


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (UpstreamError(Failure(kind="rate_limited", message="slow down")), "rate_limited"),
        (Failure(kind="overloaded", message="busy"), "overloaded"),
        (0.001, "cut_off"),  # it starts and never ends
    ],
)
def test_a_failing_model_ends_it_with_its_failure(turn: Turn, kind: str) -> None:
    steps = run(ScriptedModel(make_reply(call("now")), turn), [now])
    stopped = last(steps)
    assert stopped.reason == "failed"
    assert stopped.failure is not None
    assert stopped.failure.kind == kind
    assert stopped.calls == 1


def now() -> str:
    return "noon"


def test_cancelling_leaves_nothing_behind() -> None:
    begun: list[int] = []
    cleaned = []

    async def slow(n: int) -> None:
        begun.append(n)
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(n)

    async def main() -> None:
        calls = [call("slow", f'{{"n": {i}}}', f"c{i}") for i in range(3)]
        model = ScriptedModel(make_reply(*calls))

        async def consume() -> None:
            async for _ in run_loop(model, ToolCollection([slow]), ask()):
                pass

        task = asyncio.create_task(consume())
        await until(lambda: len(begun) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(cleaned) == [0, 1, 2]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert model.open == 0

    asyncio.run(main())


def test_fifty_loops_cancelled_anywhere_leave_nothing() -> None:
    open_calls = 0

    async def slow(n: int) -> None:
        nonlocal open_calls
        open_calls += 1
        try:
            await turns(5)
        finally:
            open_calls -= 1

    async def main() -> None:
        dice = random.Random(7)  # noqa: S311
        for _ in range(50):
            calls = [call("slow", f'{{"n": {i}}}', f"c{i}") for i in range(4)]
            model = ScriptedModel(make_reply(*calls), 0.0, make_reply("done"))

            async def consume(model: ScriptedModel = model) -> None:
                async with aclosing(run_loop(model, ToolCollection([slow]), ask())) as steps:
                    async for _ in steps:
                        await asyncio.sleep(0)

            task = asyncio.create_task(consume())
            await turns(dice.randrange(60))
            task.cancel()
            await asyncio.wait([task])
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert (model.open, open_calls) == (0, 0)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [TurnEvent, CallStarted, TurnFinished])
def test_closing_the_loop_early_ends_everything(kind: type) -> None:
    begun: list[int] = []
    cleaned = []

    async def slow() -> None:
        begun.append(1)
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(1)

    async def main() -> None:
        model = ScriptedModel(make_reply("a", call("slow")))
        steps = run_loop(model, ToolCollection([slow]), ask())
        async for step in steps:
            if isinstance(step, kind):
                await until(lambda: begun or kind is not CallStarted)
                break
        await steps.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert model.open == 0
        assert len(cleaned) == (kind is CallStarted)

    asyncio.run(main())


def test_the_depth_of_agents_inside_tools_is_limited() -> None:
    depth = 0

    async def deeper() -> str:
        nonlocal depth
        depth += 1
        steps = [
            step async for step in run_loop(ScriptedModel(make_reply(call("deeper")), make_reply("up")), tools, ask())
        ]
        return str(len(steps))

    tools = ToolCollection([deeper])
    steps = run(ScriptedModel(make_reply(call("deeper")), make_reply("done")), tools)
    assert last(steps).reason == "done"
    assert depth == 4


def test_a_loop_in_a_plain_function_counts_as_deeper_too() -> None:
    depth = 0

    def deeper() -> str:
        nonlocal depth
        depth += 1

        async def inner() -> None:
            async for _ in run_loop(ScriptedModel(make_reply(call("deeper")), make_reply("up")), tools, ask()):
                pass

        asyncio.run(inner())
        return "up"

    tools = ToolCollection([deeper])
    assert last(run(ScriptedModel(make_reply(call("deeper")), make_reply("done")), tools)).reason == "done"
    assert depth == 4


class Losing(ScriptedModel):
    """A model whose turns have one note in common and one of their own."""

    def turn_notes(self) -> tuple[Note, ...]:
        always = Note("dropped", "/top_k", "it has none")
        return (always, Note("altered", f"/messages/{len(self.asked)}", "said in other words"))


def test_each_turn_has_its_notes_and_the_end_has_all_of_them_once() -> None:
    steps = run(Losing(make_reply("let me see", call("now")), make_reply("It is noon.")), [now])
    places = [[note.where for note in step.notes] for step in steps if isinstance(step, TurnFinished)]
    assert places == [["/top_k", "/messages/1"], ["/top_k", "/messages/2"]]
    assert [note.where for note in last(steps).notes] == ["/top_k", "/messages/1", "/messages/2"]


def test_a_failed_turn_has_its_notes_too() -> None:
    steps = run(Losing(Failure(kind="overloaded", message="busy")), [now])
    assert [note.where for note in last(steps).notes] == ["/top_k", "/messages/1"]


def test_a_limit_of_the_cost_needs_a_price() -> None:
    with pytest.raises(DragomanError, match="price"):
        run(ScriptedModel(make_reply("hi")), limits=Limits(cost=1.0))


def test_a_refused_loss_is_raised_to_the_caller() -> None:
    with pytest.raises(LossError):
        run(ScriptedModel(LossError("/top_k", "there is none")), [now])
