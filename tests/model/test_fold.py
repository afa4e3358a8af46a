"""Events into a reply: which event sequences are legal."""

import pytest

from dragoman.failure import Failure
from dragoman.model.events import (
    Aside,
    Event,
    PartDelta,
    PartEnd,
    PartPlaces,
    PartStart,
    ReplyEnd,
    ReplyFailed,
    ReplyStart,
)
from dragoman.model.fold import GrammarError, StartedParts, fold, merge_extras
from dragoman.model.messages import Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage

START = ReplyStart(id="r", model="m")
END = ReplyEnd(finishes=(Finish(reason="stop"),), usage=Usage(input=1, output=2))


def test_interleaved_parts_grow_apart() -> None:
    reply = fold(
        [
            START,
            PartStart(index=0, part=Text(text="")),
            PartStart(index=1, part=ToolCall(id="c", name="f", arguments="")),
            PartDelta(index=1, text='{"a":'),
            PartDelta(index=0, text="hel"),
            Aside(dialect="anthropic", body={"type": "ping"}),
            PartDelta(index=1, text="1}"),
            PartDelta(index=0, text="lo"),
            PartEnd(index=1, seal=Seal(origin="gemini", value="s")),
            PartEnd(index=0, extras={"anthropic": {"k": 1}}),
            END,
        ]
    )
    assert reply == Reply(
        id="r",
        model="m",
        choices=(
            Choice(
                parts=(
                    Text(text="hello", extras={"anthropic": {"k": 1}}),
                    ToolCall(id="c", name="f", arguments='{"a":1}', seal=Seal(origin="gemini", value="s")),
                ),
                finish=Finish(reason="stop"),
            ),
        ),
        usage=Usage(input=1, output=2),
    )


def test_a_failed_stream_folds_to_its_failure() -> None:
    failure = Failure(kind="overloaded", message="busy")
    assert fold([START, PartStart(index=0, part=Text(text="")), ReplyFailed(failure=failure)]) is failure


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START],
        [END],
        [START, START],
        [PartStart(index=0, part=Text(text=""))],
        [START, PartDelta(index=0, text="x")],
        [START, PartStart(index=0, part=Text(text="")), END],
        [START, PartStart(index=0, part=Text(text="")), PartStart(index=0, part=Text(text=""))],
        [START, PartStart(index=0, part=Text(text="")), PartEnd(index=0), PartDelta(index=0, text="x")],
        [START, END, PartStart(index=0, part=Text(text=""))],
    ],
)
def test_what_is_not_a_stream_is_refused(events: list[Event]) -> None:
    with pytest.raises(GrammarError):
        fold(events)


def test_extras_merge_key_by_key_and_the_second_wins() -> None:
    assert merge_extras({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}, "b": {"z": 3}}) == {
        "a": {"x": 1, "y": 2},
        "b": {"z": 3},
    }


def test_a_part_stands_where_its_index_puts_it_in_whatever_order_parts_begin() -> None:
    texts = [Text(text=word) for word in "abc"]
    starts = [PartStart(index=i, part=texts[i]) for i in (2, 0, 1)]
    started, places = StartedParts(), PartPlaces()
    started.feed(starts)
    assert started.choices[0].parts == texts
    assert [places.add(start) for start in starts] == [2, 0, 1]


def test_parts_of_two_choices_have_places_of_their_own() -> None:
    places = PartPlaces()
    starts = [PartStart(index=i, part=Text(text=""), choice=i % 2) for i in range(4)]
    assert [places.add(start) for start in starts] == [0, 0, 1, 1]
    assert [places[i] for i in range(4)] == [0, 0, 1, 1]


def test_an_answer_without_parts_has_a_choice_too() -> None:
    started = StartedParts()
    started.feed([START, END])
    assert len(started.choices) == 1
