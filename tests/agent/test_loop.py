"""The loop's decisions as a script: what happened in, what to do out."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.agent.loop import (
    Answered,
    AskModel,
    Begun,
    Expired,
    Happening,
    ModelFailed,
    Replied,
    RunTools,
    State,
    decide,
    mark_of,
)
from dragoman.agent.steps import Limits, Price, Stopped
from dragoman.failure import Failure
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage, add_usage
from dragoman.model.request import Request, Tool, ToolChoice

QUESTION = Message(role="user", parts=(Text(text="?"),))


def begin(limits: Limits | None = None, **more: Any) -> State:
    fields = {"model": "m", "messages": (QUESTION,), **more}
    caller = frozenset(tool.name for tool in fields.get("tools", ()))
    return State(request=Request(**fields), limits=limits or Limits(), until=300.0, caller=caller)


def call(name: str = "f", arguments: str = "{}", call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def reply(*parts: Part, why: FinishReason | None = "stop", usage: Usage | None = None) -> Reply:
    finish = None if why is None else Finish(reason=why)
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=finish),), usage=usage)


def said(*parts: Part, why: FinishReason | None = "tool_call", now: float = 1.0, usage: Usage | None = None) -> Replied:
    return Replied(reply(*parts, why=why, usage=usage), now)


def told(*results: str, now: float = 1.0) -> Answered:
    return Answered(tuple(ToolResult(call_id="c", parts=(Text(text=text),)) for text in results), now)


def play(state: State, *happenings: Happening) -> list[str]:
    """What is done after each, in words."""
    done = []
    for happening in happenings:
        state, command = decide(state, happening)
        match command:
            case AskModel():
                done.append("ask")
            case RunTools(calls=calls):
                done.append("run " + " ".join(one.name for one in calls))
            case Stopped(reason=reason):
                done.append(f"stop {reason}")
    return done


def test_a_question_without_calls_is_done_after_one_turn() -> None:
    assert play(begin(), Begun(0), said(Text(text="hi"), why="stop")) == ["ask", "stop done"]


def test_calls_are_run_and_their_results_told() -> None:
    state = begin()
    state, _ = decide(state, Begun(0))
    state, command = decide(state, said(Text(text="let me see"), call("a"), call("b")))
    assert isinstance(command, RunTools)
    results = (ToolResult(call_id="1"), ToolResult(call_id="2"))
    state, command = decide(state, Answered(results, 2.0))
    assert isinstance(command, AskModel)
    assert command.request.messages == (
        QUESTION,
        Message(role="assistant", parts=(Text(text="let me see"), call("a"), call("b"))),
        Message(role="user", parts=results),
    )
    state, command = decide(state, said(Text(text="done"), why="stop", usage=Usage(output=3)))
    assert isinstance(command, Stopped)
    assert (command.reason, command.turns, command.calls, command.usage.output) == ("done", 2, 2, 3)
    assert command.messages[-1] == Message(role="assistant", parts=(Text(text="done"),))


def test_many_calls_at_once_are_one_run() -> None:
    calls = [call(f"t{i}") for i in range(32)]
    assert play(begin(), Begun(0), said(*calls))[1] == "run " + " ".join(f"t{i}" for i in range(32))


@pytest.mark.parametrize("why", ["length", "context", "filter", "refusal", "malformed"])
def test_a_call_that_may_have_been_cut_is_not_run(why: FinishReason) -> None:
    assert play(begin(), Begun(0), said(call(), why=why)) == ["ask", "stop done"]


@pytest.mark.parametrize("why", ["stop", "tool_call", "other", None])
def test_a_call_is_run_whatever_else_the_model_says_about_its_end(why: FinishReason | None) -> None:
    assert play(begin(), Begun(0), said(call(), why=why)) == ["ask", "run f"]


def test_a_pause_is_sent_back_to_go_on() -> None:
    state, _ = decide(begin(), Begun(0))
    state, command = decide(state, said(Text(text="..."), why="pause"))
    assert isinstance(command, AskModel)
    assert command.request.messages[-1].role == "assistant"


def test_a_pause_for_ever_ends_at_the_limit_of_turns() -> None:
    assert play(begin(), Begun(0), *[said(Text(text="."), why="pause")] * 10)[-1] == "stop turns"


def test_the_same_call_is_run_three_times_and_no_more() -> None:
    """T20: `<= 3 tool runs, then stop tool_repeat`."""
    script: list[Happening] = [Begun(0)]
    for _ in range(4):
        script += [said(call(arguments='{"a":1,"b":2}')), told("x")]
    assert play(begin(), *script[:-1]) == ["ask", "run f", "ask", "run f", "ask", "run f", "ask", "stop tool_repeat"]


def test_the_same_calls_together_again_and_again_are_a_repeat_too() -> None:
    script: list[Happening] = [Begun(0)]
    for i in range(4):
        calls = (call("a"), call("b")) if i % 2 else (call("b"), call("a"))
        script += [said(*calls), told("x", "y")]
    assert play(begin(), *script[:-1])[-1] == "stop tool_repeat"


def test_the_same_call_four_times_in_one_turn_is_a_repeat() -> None:
    assert play(begin(), Begun(0), said(*[call()] * 4)) == ["ask", "stop tool_repeat"]
    assert play(begin(), Begun(0), said(*[call()] * 3)) == ["ask", "run f f f"]


def test_alternating_calls_stop_at_ten_turns() -> None:
    """T20: `alternating calls -> stop at 10 turns`. Those of the tenth turn are not run: nobody would hear of them."""
    script: list[Happening] = [Begun(0)]
    for i in range(10):
        script += [said(call(arguments=f'{{"i":{i % 2}}}')), told("x")]
    done = play(begin(), *script[:-1])
    assert (done.count("ask"), done.count("run f"), done[-1]) == (10, 9, "stop turns")


def test_more_calls_than_allowed_stop_it_before_they_run() -> None:
    calls = [call(f"t{i}") for i in range(20)]
    others = [call(f"u{i}") for i in range(13)]
    done = play(begin(), Begun(0), said(*calls), told(), said(*others))
    assert done[-1] == "stop calls"


def test_time_is_up_between_steps() -> None:
    assert play(begin(), Begun(300)) == ["stop time"]
    assert play(begin(), Begun(0), said(call(), now=300)) == ["ask", "stop time"]
    assert play(begin(), Begun(0), said(call()), told("x", now=301)) == ["ask", "run f", "stop time"]
    assert play(begin(), Begun(0), Expired()) == ["ask", "stop time"]
    assert play(begin(), Begun(0), said(Text(text="late but whole"), now=400))[-1] == "stop done"


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
def test_a_turn_that_would_surely_cost_too_much_is_not_begun(limits: Limits, verdicts: list[str]) -> None:
    """The next turn reads at least what the last one read and said."""
    script: list[Happening] = [Begun(0), said(call(), usage=Usage(input=40, output=20)), told("x")]
    again = said(call("g"), usage=Usage(input=60, output=5, reasoning=5))
    assert play(begin(limits), *script, again)[: len(verdicts)] == verdicts


def test_a_provider_that_does_not_count_is_counted_by_a_rule_of_thumb() -> None:
    long = call(arguments='{"a": "' + "x" * 4000 + '"}')
    assert play(begin(Limits(tokens=1500)), Begun(0), said(long)) == ["ask", "stop tokens"]
    assert play(begin(Limits(tokens=3000)), Begun(0), said(long)) == ["ask", "run f"]
    state, _ = decide(begin(), Begun(0))
    _, command = decide(state, said(Text(text="hi"), why="stop"))
    assert isinstance(command, Stopped)
    assert command.usage == Usage()  # a guess is nobody's bill


def test_pauses_cost_too() -> None:
    pause = said(Text(text="."), why="pause", usage=Usage(input=50))
    assert play(begin(Limits(tokens=120)), Begun(0), pause, pause) == ["ask", "ask", "stop tokens"]


def test_a_failure_stops_it_with_all_there_was() -> None:
    state, _ = decide(begin(), Begun(0))
    state, _ = decide(state, said(call()))
    state, _ = decide(state, told("x"))
    _, command = decide(state, ModelFailed(Failure(kind="overloaded", message="busy")))
    assert isinstance(command, Stopped)
    assert (command.reason, len(command.messages)) == ("failed", 3)
    assert command.failure == Failure(kind="overloaded", message="busy")


def test_a_call_of_the_callers_own_tool_is_the_callers() -> None:
    state = begin(tools=(Tool(name="mine"),))
    assert play(state, Begun(0), said(call("mine"))) == ["ask", "stop caller"]
    assert play(state, Begun(0), said(call("theirs"), call("mine"))) == ["ask", "stop caller"]
    assert play(state, Begun(0), said(call("theirs"))) == ["ask", "run theirs"]


def test_a_call_that_must_be_made_is_made_once() -> None:
    state, command = decide(begin(tool_choice=ToolChoice(mode="required")), Begun(0))
    assert isinstance(command, AskModel)
    assert command.request.tool_choice == ToolChoice(mode="required")
    state, _ = decide(state, said(call()))
    _, command = decide(state, told("x"))
    assert isinstance(command, AskModel)
    assert command.request.tool_choice is None


def test_a_reply_without_choices_or_parts_is_the_end() -> None:
    empty = Reply(id="r", model="m", choices=())
    _, command = decide(decide(begin(), Begun(0))[0], Replied(empty, 1.0))
    assert isinstance(command, Stopped)
    assert command.messages == (QUESTION,)


def test_deciding_changes_no_state_it_was_given() -> None:
    state = begin()
    before = replace(state)
    decide(state, Begun(0))
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
def test_identical_means_the_same_json(one: str, other: str, same: bool) -> None:
    assert (mark_of(call(arguments=one)) == mark_of(call(arguments=other))) is same


def test_usage_adds_up_what_is_known() -> None:
    assert add_usage(Usage(input=1, output=2), Usage(input=3)) == Usage(input=4, output=2)
    assert add_usage(None, None) == Usage()
    assert add_usage(Usage(input=1), None) == Usage(input=1)
