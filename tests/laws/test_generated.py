"""Laws over generated values: what holds for every dialect and every conversation."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.convert import make_legal
from dragoman.dialects._base import Dialect
from dragoman.failure import Failure
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, Sequencer
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from tests.laws import odd_values, strategies
from tests.laws.compare import differences
from tests.laws.round_trip import ANSWERED, ASKED, reply_differences, request_differences, stream_differences, through

# The odd values take long to draw and find something new only where the examples are new.
WILD = os.environ.get("HYPOTHESIS") == "wild"
requests = strategies.requests | odd_values.requests if WILD else strategies.requests


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    usual = strategies.replies(max_choices)
    return usual | odd_values.replies(max_choices) if WILD else usual


often = settings(
    max_examples=int(os.environ.get("DRAGOMAN_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not WILD,  # a decorator's settings win over the profile of conftest.py
)


def found_by_dialect(find: Callable[[Any, Dialect], list[str]], value: Request | Reply) -> dict[str, list[str]]:
    """What a law finds wrong, in each dialect. (To draw a value costs ten times what converting it costs.)"""
    dialects = ASKED if isinstance(value, Request) else ANSWERED
    problems = {name: find(value, there) for name, there in dialects.items()}
    return {name: found for name, found in problems.items() if found}


@often
@given(request_=requests)
def test_no_request_loses_anything_in_silence(request_: Request) -> None:
    assert found_by_dialect(request_differences, request_) == {}


@often
@given(request_=strategies.requests)
def test_the_passes_of_a_dialect_are_idempotent_and_leave_the_legal_alone(request_: Request) -> None:
    for name, there in ASKED.items():
        first, notes = Notes(), Notes()
        once = make_legal(request_, there, first)
        if any(note.why.endswith("can say nothing of this turn") for note in first):
            continue  # a gap: a dialect leaves it out after the passes saw to a user's turn at either end (issue 11, 3)
        assert make_legal(once, there, notes) is once, name
        assert not notes.items, name


@often
@given(reply=replies())
def test_no_reply_loses_anything_in_silence(reply: Reply) -> None:
    assert found_by_dialect(reply_differences, reply) == {}


@often
@given(reply=replies())
def test_no_stream_loses_anything_in_silence(reply: Reply) -> None:
    assert found_by_dialect(stream_differences, reply) == {}


@often
@given(reply=replies())
def test_interleaved_parts_arrive_whole(reply: Reply) -> None:
    assert found_by_dialect(interleaved_differences, reply) == {}


def interleaved_differences(reply: Reply, there: Dialect) -> list[str]:
    """The same answer with its parts shuffled into each other says the same."""
    events = list(unfold(reply))
    whole, mixed = (fold(through(there, some, Notes())) for some in (events, _interleave(events)))
    return [str(mixed)] if isinstance(mixed, Failure) else differences(whole, mixed, ())


@often
@given(reply=replies())
def test_a_seal_that_comes_last_is_kept_like_one_that_comes_first(reply: Reply) -> None:
    assert found_by_dialect(late_seal_differences, reply) == {}


def late_seal_differences(reply: Reply, there: Dialect) -> list[str]:
    """Most models seal a part when all of it is said. A streamed answer loses no seal that a whole one keeps."""
    notes, whole = Notes(), Notes()
    returned = fold(through(there, _seal_last(unfold(reply)), notes))
    if isinstance(returned, Failure):
        return [str(returned)]
    there.encode_reply(reply, whole)
    late = [f"a whole answer keeps {where}" for where in _lost_seals(notes) - _lost_seals(whole)]
    return differences(reply, returned, notes) + late


def _seal_last(events: Iterable[Event]) -> Iterator[Event]:
    """Every seal with the end of its part."""
    seals: dict[int, Seal] = {}
    for event in events:
        if isinstance(event, PartStart) and isinstance(event.part, Text | Reasoning | ToolCall) and event.part.seal:
            seals[event.index] = event.part.seal
            yield replace(event, part=replace(event.part, seal=None))
        elif isinstance(event, PartEnd) and event.index in seals:
            yield replace(event, seal=seals[event.index])
        else:
            yield event


def _lost_seals(notes: Notes) -> set[str]:
    return {note.where for note in notes if note.kind == "dropped" and note.where.endswith("/seal")}


@often
@given(reply=replies())
def test_fold_undoes_unfold(reply: Reply) -> None:
    assert fold(unfold(reply)) == reply


@often
@given(reply=replies(max_choices=1))
def test_a_sequencer_never_lets_two_parts_be_open(reply: Reply) -> None:
    sequencer, opened = Sequencer(), None
    seen: list[Event] = []
    for event in _interleave(list(unfold(reply))):
        for ordered in sequencer.feed(event):
            seen.append(ordered)
            if isinstance(ordered, PartStart):
                assert opened is None
                opened = ordered.index
            elif isinstance(ordered, PartDelta | PartEnd):
                assert ordered.index == opened
                opened = None if isinstance(ordered, PartEnd) else opened
    assert fold(seen) == reply


def _interleave(events: list[Event]) -> list[Event]:
    """All starts, then all deltas, then all ends."""
    inner = [event for event in events if isinstance(event, PartStart | PartDelta | PartEnd)]
    order: dict[type, int] = {PartStart: 0, PartDelta: 1, PartEnd: 2}
    return [events[0], *sorted(inner, key=lambda event: order[type(event)]), events[-1]]
