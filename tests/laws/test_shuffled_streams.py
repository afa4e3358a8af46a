"""A provider that sends its events in any order, twice or not at all: they still become one grammatical stream."""

from random import Random

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import DragomanError
from dragoman.model.events import ReplyEnd, ReplyFailed
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Reasoning, Text, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from tests.fuzz.targets import CALL, WIRES

SHUFFLES = 200
SAID = Reply(
    id="r",
    model="m",
    choices=(
        Choice(
            parts=(
                Reasoning(text="hm"),
                Text(text="so"),
                CALL,
                ToolCall(id="call_2", name="look", arguments="{}"),
                Text(text="!"),
            ),
            finish=Finish(reason="tool_call"),
        ),
    ),
    usage=Usage(input=3, output=4),
)


def frames_of(name: str) -> list[bytes]:
    encoder = find_dialect(name).stream_encoder(Notes())
    end = b"\n" if name == "ollama" else b"\n\n"
    data: bytes = encoder.feed(unfold(SAID)) + encoder.close()
    return [frame + end for frame in data.split(end) if frame]


def shuffle(frames: list[bytes], dice: Random) -> list[bytes]:
    for _ in range(dice.randint(1, 4)):
        at, to = dice.randrange(len(frames)), dice.randrange(len(frames))
        match dice.randrange(3):
            case 0:
                frames = [*frames[:at], *frames[at + 1 :]] or frames
            case 1:
                frames = [*frames[:to], frames[at], *frames[to:]]
            case _:
                frames = [*frames[:at], frames[to], *frames[at + 1 :]]
    return frames


@pytest.mark.parametrize("name", WIRES)
def test_events_in_any_order_are_one_grammatical_stream(name: str) -> None:
    dice, frames, dialect = Random(7), frames_of(name), find_dialect(name)  # noqa: S311
    for _ in range(SHUFFLES):
        odd = b"".join(shuffle(frames, dice))
        decoder = dialect.stream_decoder(Notes())
        try:
            events = decoder.feed(odd) + decoder.close()
        except DragomanError:
            continue
        assert isinstance(events[-1], ReplyEnd | ReplyFailed), odd
        fold(events)
        for other in WIRES:
            encoder = find_dialect(other).stream_encoder(Notes())
            written = encoder.feed(events) + encoder.close()
            again = find_dialect(other).stream_decoder(Notes())
            fold(again.feed(written) + again.close())
