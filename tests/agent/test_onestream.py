"""All turns as one stream: its grammar holds for every dialect that has to say it."""

import asyncio

import pytest

from dragoman.agent import Limits, OneStream, run_loop
from dragoman.agent.onestream import Show
from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, ReplyEnd, ReplyFailed
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Tool
from dragoman.notes import Notes
from dragoman.tools import ToolCollection
from tests.agent.test_driver import Scripted, ask, call, now, say


def stream(model: Scripted, *, show: Show = "reasoning", limits: Limits | None = None, own: str = "") -> list[Event]:
    async def main() -> list[Event]:
        one = OneStream(show=show, caller=frozenset([own]) if own else frozenset())
        request = ask(tools=(Tool(name=own),)) if own else ask()
        return [e async for step in run_loop(model, ToolCollection([now]), request, limits) for e in one.feed(step)]

    return asyncio.run(main())


def folded(events: list[Event]) -> Reply:
    reply = fold(events)
    assert isinstance(reply, Reply)
    return reply


def model() -> Scripted:
    return Scripted(say("Let me see. ", call("now")), say("It is noon."))


def test_two_turns_are_one_reply() -> None:
    reply = folded(stream(model(), show="nothing"))
    assert reply.choices[0].parts == (Text(text="Let me see. \n\n"), Text(text="It is noon."))
    assert reply.choices[0].finish is not None
    assert reply.choices[0].finish.reason == "stop"
    assert reply.usage == Usage(input=20, output=10)


@pytest.mark.parametrize(("show", "kind"), [("reasoning", Reasoning), ("text", Text)])
def test_calls_can_be_told_in_it(show: Show, kind: type) -> None:
    parts = folded(stream(model(), show=show)).choices[0].parts
    told = [part.text for part in parts if isinstance(part, Text | Reasoning) and type(part) is kind]
    assert [text for text in told if "[now" in text] == ["[now {}]\n[now answered: noon]\n"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("See", "See\n\n"), ("See.\n", "See.\n\n"), ("See.\n\n", "See.\n\n"), ("a\n\n\n", "a\n\n\n")],
)
def test_texts_of_two_turns_do_not_run_into_each_other(before: str, after: str) -> None:
    parts = folded(stream(Scripted(say(before, call("now")), say("It is noon.")), show="nothing")).choices[0].parts
    assert parts == (Text(text=after), Text(text="It is noon."))


def test_an_answer_that_has_to_be_json_is_the_last_turn_s_alone() -> None:
    async def main() -> list[Event]:
        one = OneStream(show="reasoning", last_only=True)
        model = Scripted(say("Let me see. ", call("now")), say('{"hour":', " 12}"))
        return [e async for step in run_loop(model, ToolCollection([now]), ask(), None) for e in one.feed(step)]

    parts = folded(asyncio.run(main())).choices[0].parts
    assert [part.text for part in parts if isinstance(part, Text)] == ['{"hour":', " 12}"]
    assert [type(part) for part in parts] == [Reasoning, Text, Text]


def test_texts_of_one_turn_stay_as_they_are() -> None:
    parts = folded(stream(Scripted(say("one", "two")), show="nothing")).choices[0].parts
    assert parts == (Text(text="one"), Text(text="two"))


def test_a_thought_is_never_changed_and_what_is_told_begins_on_a_line_of_its_own() -> None:
    """A thought may be sealed: its seal fits no other text."""
    model = Scripted(say(Reasoning(text="Which hour?"), call("now")), say(Reasoning(text="I see."), "Noon."))
    parts = folded(stream(model)).choices[0].parts
    assert [part.text for part in parts if isinstance(part, Reasoning)] == [
        "Which hour?",
        "\n[now {}]\n[now answered: noon]\n",
        "I see.",
    ]


def test_the_callers_own_calls_are_passed_on() -> None:
    reply = folded(stream(Scripted(say(call("now")), say("yours:", call("mine"))), own="mine"))
    assert [part.name for part in reply.choices[0].parts if isinstance(part, ToolCall)] == ["mine"]
    assert reply.choices[0].finish is not None
    assert reply.choices[0].finish.reason == "tool_call"


def test_a_limit_ends_it_as_cut_short_and_says_which() -> None:
    reply = folded(stream(Scripted(say(call("now")), repeat=True)))
    told = "".join(part.text for part in reply.choices[0].parts if isinstance(part, Reasoning))
    assert told.endswith("[stopped: tool_repeat]\n")
    finish = reply.choices[0].finish
    assert finish is not None
    assert (finish.reason, finish.message) == ("length", "stopped: tool_repeat")


def test_a_failure_is_never_made_a_success() -> None:
    events = stream(Scripted(say(call("now")), Failure(kind="overloaded", message="busy")))
    assert events[-1] == ReplyFailed(failure=Failure(kind="overloaded", message="busy"))
    assert not any(isinstance(event, ReplyEnd) for event in events)


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_can_say_it(name: str) -> None:
    dialect = find_dialect(name)
    encoder, decoder = dialect.stream_encoder(Notes()), dialect.stream_decoder(Notes())
    wire = encoder.feed(stream(model())) + encoder.close()
    reply = folded(decoder.feed(wire) + decoder.close())
    said = "".join(part.text for part in reply.choices[0].parts if isinstance(part, Text))
    assert said.split() == ["Let", "me", "see.", "It", "is", "noon."]  # Ollama sets parts of text apart by lines
