"""The decisions of the loop: outcomes in, commands out."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.agent.loop import (
    AskModel,
    LoopStarted,
    LoopState,
    ModelFailed,
    ModelReplied,
    Outcome,
    RunTools,
    TimedOut,
    ToolsFinished,
    decide,
    make_call_key,
)
from dragoman.agent.steps import Limits, Price, Stopped
from dragoman.failure import Failure
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage, add_usage
from dragoman.model.request import Request, Tool, ToolChoice

QUESTION = Message(role="user", parts=(Text(text="?"),))


def begin(limits: Limits | None = None, **more: Any) -> LoopState:
    fields = {"model": "m", "messages": (QUESTION,), **more}
    caller = frozenset(tool.name for tool in fields.get("tools", ()))
    return LoopState(request=Request(**fields), limits=limits or Limits(), deadline=300.0, caller_tools=caller)


def call(name: str = "f", arguments: str = "{}", call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def reply(*parts: Part, why: FinishReason | None = "stop", usage: Usage | None = None) -> Reply:
    finish = None if why is None else Finish(reason=why)
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=finish),), usage=usage)


def replied(
    *parts: Part, why: FinishReason | None = "tool_call", now: float = 1.0, usage: Usage | None = None
) -> ModelReplied:
    return ModelReplied(reply(*parts, why=why, usage=usage), now)


def answered(*results: str, now: float = 1.0) -> ToolsFinished:
    return ToolsFinished(tuple(ToolResult(call_id="c", parts=(Text(text=text),)) for text in results), now)


def play(state: LoopState, *outcomes: Outcome) -> list[str]:
    """The command after each outcome, in words."""
    done = []
    for outcome in outcomes:
        state, command = decide(state, outcome)
        match command:
            case AskModel():
                done.append("ask")
            case RunTools(calls=calls):
                done.append("run " + " ".join(one.name for one in calls))
            case Stopped(reason=reason):
                done.append(f"stop {reason}")
    return done


def test_a_question_without_calls_is_done_after_one_turn() -> None:
    assert play(begin(), LoopStarted(0), replied(Text(text="hi"), why="stop")) == ["ask", "stop done"]


def test_calls_are_run_and_their_results_go_to_the_model() -> None:
    state = begin()
    state, _ = decide(state, LoopStarted(0))
    state, command = decide(state, replied(Text(text="let me see"), call("a"), call("b")))
    assert isinstance(command, RunTools)
    results = (ToolResult(call_id="1"), ToolResult(call_id="2"))
    state, command = decide(state, ToolsFinished(results, 2.0))
    assert isinstance(command, AskModel)
    assert command.request.messages == (
        QUESTION,
        Message(role="assistant", parts=(Text(text="let me see"), call("a"), call("b"))),
        Message(role="user", parts=results),
    )
    state, command = decide(state, replied(Text(text="done"), why="stop", usage=Usage(output=3)))
    assert isinstance(command, Stopped)
    assert (command.reason, command.turns, command.calls, command.usage.output) == ("done", 2, 2, 3)
    assert command.messages[-1] == Message(role="assistant", parts=(Text(text="done"),))


def test_many_calls_at_once_are_one_run() -> None:
    calls = [call(f"t{i}") for i in range(32)]
    assert play(begin(), LoopStarted(0), replied(*calls))[1] == "run " + " ".join(f"t{i}" for i in range(32))


@pytest.mark.parametrize("why", ["length", "context", "filter", "refusal", "malformed"])
def test_a_call_that_may_have_been_cut_is_not_run(why: FinishReason) -> None:
    assert play(begin(), LoopStarted(0), replied(call(), why=why)) == ["ask", "stop done"]


@pytest.mark.parametrize("why", ["stop", "tool_call", "other", None])
def test_a_call_is_run_whatever_else_the_model_says_about_its_end(why: FinishReason | None) -> None:
    assert play(begin(), LoopStarted(0), replied(call(), why=why)) == ["ask", "run f"]


def test_a_paused_reply_is_sent_back_to_continue() -> None:
    state, _ = decide(begin(), LoopStarted(0))
    state, command = decide(state, replied(Text(text="..."), why="pause"))
    assert isinstance(command, AskModel)
    assert command.request.messages[-1].role == "assistant"


def test_endless_pauses_end_at_the_limit_of_turns() -> None:
    assert play(begin(), LoopStarted(0), *[replied(Text(text="."), why="pause")] * 10)[-1] == "stop turns"


def test_the_same_call_is_run_three_times_and_no_more() -> None:
    """At most 3 tool runs, then stop `tool_repeat`. (T20)"""
    script: list[Outcome] = [LoopStarted(0)]
    for _ in range(4):
        script += [replied(call(arguments='{"a":1,"b":2}')), answered("x")]
    assert play(begin(), *script[:-1]) == ["ask", "run f", "ask", "run f", "ask", "run f", "ask", "stop tool_repeat"]


def test_the_same_calls_together_again_and_again_are_a_repeat_too() -> None:
    script: list[Outcome] = [LoopStarted(0)]
    for i in range(4):
        calls = (call("a"), call("b")) if i % 2 else (call("b"), call("a"))
        script += [replied(*calls), answered("x", "y")]
    assert play(begin(), *script[:-1])[-1] == "stop tool_repeat"


def test_the_same_call_four_times_in_one_turn_is_a_repeat() -> None:
    assert play(begin(), LoopStarted(0), replied(*[call()] * 4)) == ["ask", "stop tool_repeat"]
    assert play(begin(), LoopStarted(0), replied(*[call()] * 3)) == ["ask", "run f f f"]


def test_alternating_calls_stop_at_ten_turns() -> None:
    """The calls of the tenth turn are not run, because no turn follows that could use their results. (T20)"""
    script: list[Outcome] = [LoopStarted(0)]
    for i in range(10):
        script += [replied(call(arguments=f'{{"i":{i % 2}}}')), answered("x")]
    done = play(begin(), *script[:-1])
    assert (done.count("ask"), done.count("run f"), done[-1]) == (10, 9, "stop turns")


def test_more_calls_than_allowed_stop_it_before_they_run() -> None:
    calls = [call(f"t{i}") for i in range(20)]
    others = [call(f"u{i}") for i in range(13)]
    done = play(begin(), LoopStarted(0), replied(*calls), answered(), replied(*others))
    assert done[-1] == "stop calls"


def test_time_is_up_between_steps() -> None:
    assert play(begin(), LoopStarted(300)) == ["stop time"]
    assert play(begin(), LoopStarted(0), replied(call(), now=300)) == ["ask", "stop time"]
    assert play(begin(), LoopStarted(0), replied(call()), answered("x", now=301)) == ["ask", "run f", "stop time"]
    assert play(begin(), LoopStarted(0), TimedOut()) == ["ask", "stop time"]
    assert play(begin(), LoopStarted(0), replied(Text(text="late but whole"), now=400))[-1] == "stop done"


@pytest.mark.parametrize(
    ("limits", "verdicts"),
    [
        (Limits(tokens=200), ["ask", "run f", "ask", "run g"]),
        (Limits(tokens=199), ["ask", "run f", "ask", "stop tokens"]),  # 60 and 70 were used, 70 would be again
        (Limits(tokens=119), ["ask", "stop tokens"]),
        (Limits(cost=2.5, price=Price(input=10_000, output=30_000)), ["ask", "run f", "ask", "stop cost"]),
        (Limits(cost=2.7, price=Price(input=10_000, output=30_000)), ["ask", "run f", "ask", "run g"]),
        (Limits(cost=1.7, price=Price(input=10_000, output=30_000)), ["ask", "run f", "ask", "stop cost"]),
        (Limits(cost=1.5, price=Price(input=10_000, output=30_000)), ["ask", "stop cost"]),
        (
            Limits(cost=2.1, price=Price(input=10_000, output=30_000, cache_read=1_000)),
            ["ask", "run f", "ask", "run g"],
        ),
    ],
)
def test_a_turn_that_would_exceed_the_budget_is_not_started(limits: Limits, verdicts: list[str]) -> None:
    """The next turn reads at least the input and the output of the last one."""
    script: list[Outcome] = [LoopStarted(0), replied(call(), usage=Usage(input=40, output=20)), answered("x")]
    again = replied(call("g"), usage=Usage(input=60, output=5, reasoning=5))
    assert play(begin(limits), *script, again)[: len(verdicts)] == verdicts


def test_usage_is_guessed_if_the_provider_does_not_count() -> None:
    long = call(arguments='{"a": "' + "x" * 4000 + '"}')
    assert play(begin(Limits(tokens=1500)), LoopStarted(0), replied(long)) == ["ask", "stop tokens"]
    assert play(begin(Limits(tokens=3000)), LoopStarted(0), replied(long)) == ["ask", "run f"]
    state, _ = decide(begin(), LoopStarted(0))
    _, command = decide(state, replied(Text(text="hi"), why="stop"))
    assert isinstance(command, Stopped)
    assert command.usage == Usage()  # a guess is not reported as usage


def test_pauses_cost_too() -> None:
    pause = replied(Text(text="."), why="pause", usage=Usage(input=50))
    assert play(begin(Limits(tokens=120)), LoopStarted(0), pause, pause) == ["ask", "ask", "stop tokens"]


def test_a_failure_stops_the_loop_and_keeps_the_conversation() -> None:
    state, _ = decide(begin(), LoopStarted(0))
    state, _ = decide(state, replied(call()))
    state, _ = decide(state, answered("x"))
    _, command = decide(state, ModelFailed(Failure(kind="overloaded", message="busy")))
    assert isinstance(command, Stopped)
    assert (command.reason, len(command.messages)) == ("failed", 3)
    assert command.failure == Failure(kind="overloaded", message="busy")


def test_a_call_of_a_caller_s_tool_ends_the_loop() -> None:
    state = begin(tools=(Tool(name="mine"),))
    assert play(state, LoopStarted(0), replied(call("mine"))) == ["ask", "stop caller"]
    assert play(state, LoopStarted(0), replied(call("theirs"), call("mine"))) == ["ask", "stop caller"]
    assert play(state, LoopStarted(0), replied(call("theirs"))) == ["ask", "run theirs"]


def test_a_forced_call_is_forced_once() -> None:
    state, command = decide(begin(tool_choice=ToolChoice(mode="required")), LoopStarted(0))
    assert isinstance(command, AskModel)
    assert command.request.tool_choice == ToolChoice(mode="required")
    state, _ = decide(state, replied(call()))
    _, command = decide(state, answered("x"))
    assert isinstance(command, AskModel)
    assert command.request.tool_choice is None


def test_a_reply_without_choices_or_parts_is_the_end() -> None:
    empty = Reply(id="r", model="m", choices=())
    _, command = decide(decide(begin(), LoopStarted(0))[0], ModelReplied(empty, 1.0))
    assert isinstance(command, Stopped)
    assert command.messages == (QUESTION,)


def test_decide_does_not_change_its_state_argument() -> None:
    state = begin()
    before = replace(state)
    decide(state, LoopStarted(0))
    assert state == before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":[2]}', '{ "b": [2], "a": 1 }', True),
        ('{"a":1}', '{"a":2}', False),
        ('{"a":', '{"a":', True),
        ('{"a":', '{"a": ', False),
    ],
)
def test_calls_with_the_same_json_are_identical(one: str, other: str, same: bool) -> None:
    assert (make_call_key(call(arguments=one)) == make_call_key(call(arguments=other))) is same


def test_usage_adds_up_what_is_known() -> None:
    assert add_usage(Usage(input=1, output=2), Usage(input=3)) == Usage(input=4, output=2)
    assert add_usage(None, None) == Usage()
    assert add_usage(Usage(input=1), None) == Usage(input=1)
