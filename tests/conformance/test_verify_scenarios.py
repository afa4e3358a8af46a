"""Scenarios as data: those that come with dragoman, those of users, and what each check complains about."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.conformance.scenario import Expect, build_request, load_scenarios, say_turn
from dragoman.conformance.scenario_checks import ScenarioRequest, check_events, check_failure, check_reply
from dragoman.errors import ConfigError
from dragoman.failure import Failure
from dragoman.model.events import Event, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Tool

BY_NAME = {scenario.name: scenario for scenario in load_scenarios()}


def test_the_scenarios_of_the_mission_are_there() -> None:
    wanted = "basic streaming tool_bare tool_nested tool_trip memory stream_tool tool_parallel tool_error tool_image"
    wanted += " think_none think_low think_medium think_high think_tools choice_none choice_required choice_named"
    wanted += " system structured image stop max_output unicode long_history orphans usage wrong_model wrong_key"
    wanted += " cancel count models rule_settings rule_budget rule_turns"
    wanted += " stop_line image_label two_results rule_quiet rule_marks rule_no_tools think_turns"
    assert set(BY_NAME) == set(wanted.split())


def test_each_says_what_it_tries() -> None:
    assert [scenario.name for scenario in BY_NAME.values() if not scenario.title or scenario.group == "own"] == []


def test_a_turn_answers_the_calls_of_the_turn_before() -> None:
    trip = BY_NAME["tool_trip"]
    asked = say_turn(trip.turn[0], ())
    call = ToolCall(id="c1", name="get_weather", arguments="{}")
    said = say_turn(trip.turn[1], (*asked, Message(role="assistant", parts=(call,))))
    (result,) = said[-1].parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name) == ("c1", "get_weather")


def test_a_call_without_an_id_is_answered_without_one() -> None:
    trip = BY_NAME["tool_trip"]
    call = ToolCall(id="made-up", name="get_weather", arguments="{}", extras={"gemini": {"~id": "absent"}})
    said = say_turn(trip.turn[1], (Message(role="assistant", parts=(call,)),))
    result = said[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.extras["gemini"]["~id"] == "absent"


def test_long_history_is_long() -> None:
    scenario = BY_NAME["long_history"]
    request = build_request(scenario, "m", say_turn(scenario.turn[0], ()))
    assert len(request.messages) == 83


OWN = """
[tool.roll]
description = "Rolls a die"

[[scenario]]
name = "dice"
tools = ["roll"]

[[scenario.turn]]
user = "Roll"
expect = { calls = ["roll"] }

[[scenario]]
name = "basic"
title = "ours instead"

[[scenario.turn]]
user = "Hi"
"""


def test_users_add_scenarios_and_replace_ours(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    found = {scenario.name: scenario for scenario in load_scenarios(path)}
    assert found["basic"].title == "ours instead"
    assert [tool.name for tool in found["dice"].offered] == ["roll"]
    assert len(found) == len(BY_NAME) + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[scenario]\n", "cannot be read"),
        ("[[scenario]]\nname = 'x'\n", "scenario.x: has no turn"),
        ("[[scenario]]\nname = 'x'\ntools = ['nope']\n[[scenario.turn]]\nuser = 'a'\n", "no such tool: nope"),
        ("[[scenario]]\nname = 'x'\n[[scenario.turn]]\nuser = 'a'\nexpect = { sez = ['a'] }\n", "sez"),
        ("[[scenario]]\nname = 'x'\nset = { tool_choice = { mode = 'perhaps' } }\n[[scenario.turn]]\n", "perhaps"),
        ("[[scenario]]\nname = 'x'\n[[scenario.turn]]\nuser = [{ kind = 'image', data = '@blue' }]\n", "blue"),
        ("[settings]\n", "settings"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_scenarios(path)
    assert str(path) in str(caught.value)


# ---------------------------------------------------------------- checks

WEATHER = Tool(
    name="get_weather",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
COUNTED = Usage(input=5, output=2)


def reply(*parts: Part, reason: FinishReason = "stop", usage: Usage | None = COUNTED) -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),), usage=usage)


def call(arguments: str = '{"city": "Oslo"}', name: str = "get_weather", call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


SAID = Text(text="Pong, cafe\u0301!")


@pytest.mark.parametrize(
    ("answer", "expect", "words"),
    [
        (reply(SAID), {"finish": ("stop",), "text": True, "says": ("pong", "café")}, None),
        (reply(SAID, reason="length"), {"finish": ("stop",)}, "finished with length, expected stop"),
        (reply(), {"text": True}, "there is no text"),
        (reply(SAID), {"says": ("ping",)}, "does not say 'ping'"),
        (reply(SAID), {"says_any": ("a ping", "a pang")}, "says none of"),
        (reply(SAID), {"without": ("Pong",)}, "contains 'Pong'"),
        (reply(Text(text="a b c")), {"max_words": 2}, "3 words, expected 2 at most"),
        (reply(Text(text="no")), {"answer": {"type": "object"}}, "not JSON"),
        (reply(Text(text='{"age": "x"}')), {"answer": {"properties": {"age": {"type": "integer"}}}}, "not fit"),
        (reply(call()), {"calls": ("get_weather",)}, None),
        (reply(call()), {"calls": ()}, "which was forbidden"),
        (reply(SAID), {"calls": ("get_weather",)}, "called nothing"),
        (reply(call()), {"calls": ("get_weather",), "least_calls": 2}, "made 1 call(s), expected 2"),
        (reply(call("{}")), {}, "do not fit its schema"),
        (reply(call("{")), {}, "are not JSON"),
        (reply(call("[]")), {}, "expected object"),
        (reply(call(name="other")), {}, "which was not offered"),
        (reply(call(), call()), {}, "not unique"),
        (reply(call(call_id="")), {}, "empty"),
        (reply(Reasoning(text="hm")), {"thinks": False}, "although the request said not to"),
        (reply(SAID), {"thinks": True}, "it did not think: no thoughts"),
        (reply(SAID, usage=Usage(input=1, output=1, reasoning=9)), {"thinks": True}, None),
        (reply(SAID, usage=None), {}, "the reply has no usage"),
        (reply(SAID, usage=Usage(input=0, output=1)), {}, "0 tokens of input"),
        (reply(SAID, usage=Usage(input=3, output=-1)), {}, "-1 tokens of output"),
        (reply(SAID), {"usage": "grows"}, "the shorter had 7"),
        (Reply(id="r", model="m", choices=()), {}, "no answer in it"),
    ],
)
def test_an_answer_is_held_to_what_is_expected(answer: Reply, expect: dict[str, Any], words: str | None) -> None:
    asked = ScenarioRequest(expect=Expect(**expect), tools=(WEATHER,), before=Usage(input=4, cache_read=3))
    complaints = check_reply(answer, asked)
    assert complaints == [] if words is None else words in "; ".join(complaints)


def test_form_alone_does_not_judge_what_a_model_says() -> None:
    asked = ScenarioRequest(expect=Expect(says=("ping",), least_calls=3, thinks=True), meaning=False)
    assert check_reply(reply(SAID), asked) == []


def test_a_schema_that_was_only_asked_for_in_words_need_not_be_met() -> None:
    asked = ScenarioRequest(expect=Expect(answer={"type": "object", "required": ["name"]}), worded=True)
    assert check_reply(reply(Text(text="{}")), asked) == []
    assert check_reply(reply(Text(text="hello")), asked) != []


def test_a_failure_must_be_of_the_right_kind_and_say_something() -> None:
    expect = Expect(failure=("not_found",))
    assert check_failure(Failure(kind="not_found", message="no such model"), expect) == []
    assert "failed as rate_limited" in check_failure(Failure(kind="rate_limited", message="slow"), expect)[0]
    assert check_failure(Failure(kind="not_found", message=" "), expect) == ["the error has no message"]


START, END = ReplyStart(id="r", model="m"), ReplyEnd(finishes=(Finish(reason="stop"),))
PIECE = (PartStart(index=0, part=Text(text="a")), PartEnd(index=0))


@pytest.mark.parametrize(
    ("events", "pieces", "words"),
    [
        ((START, *PIECE, END), 1, None),
        ((), 1, "the stream is empty"),
        ((*PIECE, END), 1, "begins with PartStart"),
        ((START, *PIECE), 1, "does not end once"),
        ((START, END, *PIECE), 1, "does not end once"),
        ((START, *PIECE, END), 2, "in 1 piece(s), expected 2"),
    ],
)
def test_a_stream_has_an_order_and_an_end(events: tuple[Event, ...], pieces: int, words: str | None) -> None:
    complaints = check_events(events, Expect(pieces=pieces))
    assert complaints == [] if words is None else words in "; ".join(complaints)
