"""All turns as one stream, with the grammar that every dialect needs."""

import asyncio

import pytest

from dragoman.agent import Limits, TurnMerger, run_loop
from dragoman.agent.merge_turns import ShowCalls
from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, ReplyEnd, ReplyFailed
from dragoman.model.fold import fold
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Tool
from dragoman.notes import Notes
from dragoman.tools import ToolCollection
from tests.agent.test_driver import ScriptedModel, ask, call, make_reply, now


def stream(
    model: ScriptedModel, *, show: ShowCalls = "reasoning", limits: Limits | None = None, own: str = ""
) -> list[Event]:
    async def main() -> list[Event]:
        merger = TurnMerger(show_calls=show, caller_tools=frozenset([own]) if own else frozenset())
        request = ask(tools=(Tool(name=own),)) if own else ask()
        return [e async for step in run_loop(model, ToolCollection([now]), request, limits) for e in merger.feed(step)]

    return asyncio.run(main())


def build_reply(events: list[Event]) -> Reply:
    reply = fold(events)
    assert isinstance(reply, Reply)
    return reply


def model() -> ScriptedModel:
    return ScriptedModel(make_reply("Let me see. ", call("now")), make_reply("It is noon."))


def test_two_turns_are_one_reply() -> None:
    reply = build_reply(stream(model(), show="nothing"))
    assert reply.choices[0].parts == (Text(text="Let me see. \n\n"), Text(text="It is noon."))
    assert reply.choices[0].finish is not None
    assert reply.choices[0].finish.reason == "stop"
    assert reply.usage == Usage(input=20, output=10)


@pytest.mark.parametrize(("show", "kind"), [("reasoning", Reasoning), ("text", Text)])
def test_calls_are_reported_as_reasoning_or_text(show: ShowCalls, kind: type) -> None:
    parts = build_reply(stream(model(), show=show)).choices[0].parts
    told = [part.text for part in parts if isinstance(part, Text | Reasoning) and type(part) is kind]
    assert [text for text in told if "[now" in text] == ["[now {}]\n[now answered: noon]\n"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("See", "See\n\n"), ("See.\n", "See.\n\n"), ("See.\n\n", "See.\n\n"), ("a\n\n\n", "a\n\n\n")],
)
def test_texts_of_two_turns_do_not_run_into_each_other(before: str, after: str) -> None:
    parts = (
        build_reply(stream(ScriptedModel(make_reply(before, call("now")), make_reply("It is noon.")), show="nothing"))
        .choices[0]
        .parts
    )
    assert parts == (Text(text=after), Text(text="It is noon."))


def test_a_json_answer_is_the_text_of_the_last_turn_only() -> None:
    async def main() -> list[Event]:
        merger = TurnMerger(show_calls="reasoning", final_text_only=True)
        model = ScriptedModel(make_reply("Let me see. ", call("now")), make_reply('{"hour":', " 12}"))
        return [e async for step in run_loop(model, ToolCollection([now]), ask(), None) for e in merger.feed(step)]

    parts = build_reply(asyncio.run(main())).choices[0].parts
    assert [part.text for part in parts if isinstance(part, Text)] == ['{"hour":', " 12}"]
    assert [type(part) for part in parts] == [Reasoning, Text, Text]


def test_texts_of_one_turn_stay_as_they_are() -> None:
    parts = build_reply(stream(ScriptedModel(make_reply("one", "two")), show="nothing")).choices[0].parts
    assert parts == (Text(text="one"), Text(text="two"))


def test_reasoning_is_not_changed_and_a_report_starts_on_a_new_line() -> None:
    """Reasoning may be sealed, and the seal is valid for the unchanged text only."""
    model = ScriptedModel(
        make_reply(Reasoning(text="Which hour?"), call("now")), make_reply(Reasoning(text="I see."), "Noon.")
    )
    parts = build_reply(stream(model)).choices[0].parts
    assert [part.text for part in parts if isinstance(part, Reasoning)] == [
        "Which hour?",
        "\n[now {}]\n[now answered: noon]\n",
        "I see.",
    ]


def test_calls_of_the_caller_s_tools_are_passed_on() -> None:
    reply = build_reply(stream(ScriptedModel(make_reply(call("now")), make_reply("yours:", call("mine"))), own="mine"))
    assert [part.name for part in reply.choices[0].parts if isinstance(part, ToolCall)] == ["mine"]
    assert reply.choices[0].finish is not None
    assert reply.choices[0].finish.reason == "tool_call"


def test_a_limit_gives_the_finish_length_and_names_the_limit() -> None:
    reply = build_reply(stream(ScriptedModel(make_reply(call("now")), repeat=True)))
    told = "".join(part.text for part in reply.choices[0].parts if isinstance(part, Reasoning))
    assert told.endswith("[stopped: tool_repeat]\n")
    finish = reply.choices[0].finish
    assert finish is not None
    assert (finish.reason, finish.message) == ("length", "stopped: tool_repeat")


def test_a_failed_loop_gives_a_failed_reply() -> None:
    events = stream(ScriptedModel(make_reply(call("now")), Failure(kind="overloaded", message="busy")))
    assert events[-1] == ReplyFailed(failure=Failure(kind="overloaded", message="busy"))
    assert not any(isinstance(event, ReplyEnd) for event in events)


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_can_encode_the_merged_stream(name: str) -> None:
    dialect = find_dialect(name)
    encoder, decoder = dialect.stream_encoder(Notes()), dialect.stream_decoder(Notes())
    wire = encoder.feed(stream(model())) + encoder.close()
    reply = build_reply(decoder.feed(wire) + decoder.close())
    said = "".join(part.text for part in reply.choices[0].parts if isinstance(part, Text))
    assert said.split() == ["Let", "me", "see.", "It", "is", "noon."]  # Ollama sets parts of text apart by lines
