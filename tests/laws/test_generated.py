"""Laws over generated values: what holds for every dialect and every conversation."""

import os
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.convert import make_legal
from dragoman.dialects import NAMES, find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, Sequencer
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.laws import strategies, wide
from tests.laws.compare import differences

# The odd values take long to draw and find something new only where the examples are new.
WILD = os.environ.get("HYPOTHESIS") == "wild"
requests = strategies.requests | wide.requests if WILD else strategies.requests


def replies(max_choices: int = 2) -> st.SearchStrategy[Reply]:
    usual = strategies.replies(max_choices)
    return usual | wide.replies(max_choices) if WILD else usual


often = settings(
    max_examples=int(os.environ.get("DRAGOMAN_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not WILD,  # a decorator's settings win over the profile of conftest.py
)


@pytest.mark.parametrize("target", NAMES)
@often
@given(request_=requests)
def test_no_request_loses_anything_in_silence(target: str, request_: Request) -> None:
    there = find_dialect(target)
    legal = make_legal(request_, there, Notes())
    notes = Notes()
    wire = there.encode_request(legal, notes)
    again = WireRequest(body=load_json(dump_json(wire.body)), path=wire.path, headers=wire.headers)
    assert not differences(legal, there.decode_request(again, Notes()), notes), dump_json(wire.body)


@pytest.mark.parametrize("target", NAMES)
@often
@given(request_=strategies.requests)
def test_the_passes_of_a_dialect_are_idempotent_and_leave_the_legal_alone(target: str, request_: Request) -> None:
    there = find_dialect(target)
    once = make_legal(request_, there, Notes())
    notes = Notes()
    assert make_legal(once, there, notes) is once
    assert not notes.items


@pytest.mark.parametrize("target", NAMES)
@often
@given(reply=replies())
def test_no_reply_loses_anything_in_silence(target: str, reply: Reply) -> None:
    there = find_dialect(target)
    notes = Notes()
    wire = WireReply(body=load_json(dump_json(there.encode_reply(reply, notes).body)))
    assert not differences(reply, there.decode_reply(wire, Notes()), notes)


@pytest.mark.parametrize("target", NAMES)
@often
@given(reply=replies())
def test_no_stream_loses_anything_in_silence(target: str, reply: Reply) -> None:
    there = find_dialect(target)
    notes = Notes()
    encoder = there.stream_encoder(notes)
    data = encoder.feed(unfold(reply)) + encoder.close()
    decoder = there.stream_decoder(Notes())
    returned = fold([*decoder.feed(data), *decoder.close()])
    assert not isinstance(returned, Failure), data
    assert not differences(reply, returned, notes), data


@pytest.mark.parametrize("target", NAMES)
@often
@given(reply=replies())
def test_interleaved_parts_arrive_whole(target: str, reply: Reply) -> None:
    """The same answer with its parts shuffled into each other says the same."""
    there = find_dialect(target)
    whole, mixed = (
        fold(_through(there.name, events)) for events in (list(unfold(reply)), _interleave(list(unfold(reply))))
    )
    assert not isinstance(mixed, Failure)
    assert differences(whole, mixed, ()) == []


@pytest.mark.parametrize("target", NAMES)
@often
@given(reply=replies())
def test_a_seal_that_comes_last_is_kept_like_one_that_comes_first(target: str, reply: Reply) -> None:
    """Most models seal a part when all of it is said. A streamed answer loses no seal that a whole one keeps."""
    there, notes, whole = find_dialect(target), Notes(), Notes()
    encoder, decoder = there.stream_encoder(notes), there.stream_decoder(Notes())
    data = encoder.feed(_seal_last(unfold(reply))) + encoder.close()
    returned = fold([*decoder.feed(data), *decoder.close()])
    assert not isinstance(returned, Failure), data
    assert not differences(reply, returned, notes), data
    there.encode_reply(reply, whole)
    assert _lost_seals(notes) <= _lost_seals(whole), data


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


def _through(target: str, events: list[Event]) -> list[Event]:
    there = find_dialect(target)
    encoder, decoder = there.stream_encoder(Notes()), there.stream_decoder(Notes())
    data = encoder.feed(events) + encoder.close()
    return [*decoder.feed(data), *decoder.close()]


def _interleave(events: list[Event]) -> list[Event]:
    """All starts, then all deltas, then all ends."""
    inner = [event for event in events if isinstance(event, PartStart | PartDelta | PartEnd)]
    order: dict[type, int] = {PartStart: 0, PartDelta: 1, PartEnd: 2}
    return [events[0], *sorted(inner, key=lambda event: order[type(event)]), events[-1]]
