"""Anthropic Messages: streams, event by event."""

from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from dragoman.dialects import find_dialect
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import copy_json, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold
from dragoman.model.messages import Part, Reasoning, Seal, Text, ToolCall
from dragoman.model.reply import Finish, Reply
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.anthropic.grammar import check_stream

HERE = find_dialect("anthropic")
SEAL = Seal(origin="openai_responses", value="gAAAAA", form="encrypted")
CALL = ToolCall(id="toolu_1", name="f", arguments="{}")
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def sealed_last(part: Part, seal: Seal, *, text: str = "hm") -> list[Event]:
    """A part whose seal comes when it is over, and a call after it."""
    return [
        ReplyStart(id="msg_1", model="m"),
        PartStart(index=0, part=part),
        PartDelta(index=0, text=text),
        PartEnd(index=0, seal=seal),
        PartStart(index=1, part=CALL),
        PartEnd(index=1),
        ReplyEnd(finishes=(Finish(reason="tool_call"),)),
    ]


def written(events: list[Event]) -> tuple[bytes, Notes]:
    notes = Notes()
    encoder = HERE.stream_encoder(notes)
    data = encoder.feed(events) + encoder.close()
    check_stream(data)
    return data, notes


def frames(data: bytes) -> list[Any]:
    return [load_json(frame.data) for frame in SseDecoder().feed(data)]


def read(data: bytes) -> Reply:
    decoder = HERE.stream_decoder(Notes())
    reply = fold([*decoder.feed(data), *decoder.close()])
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize("part", [Reasoning(text=""), Text(text=""), ToolCall(id="toolu_0", name="g", arguments="")])
def test_a_foreign_seal_that_comes_last_is_read_back_on_its_part(part: Part) -> None:
    data, notes = written(sealed_last(part, SEAL, text='{"a":1}'))
    first, second = read(data).choices[0].parts
    assert not isinstance(first, ToolCall) or first.arguments == '{"a":1}'
    assert getattr(first, "seal", None) == SEAL
    assert second == CALL
    assert not [note for note in notes if "seal" in note.where]


def test_the_package_folds_a_late_seal_into_the_turn_it_sends_back() -> None:
    """Clients keep what a block says at its start: the seal of a thought takes an empty thought of its own."""
    data, _ = written(sealed_last(Reasoning(text=""), SEAL))
    message = None
    for body in frames(data):
        event = EVENT.validate_python(body)
        message = accumulate_event(event=event, current_snapshot=message, json_bufs={})
    assert message is not None
    turn = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
    wire = WireRequest(body={"model": "m", "max_tokens": 9, "messages": [turn]})
    thought, call = HERE.decode_request(wire, Notes()).messages[0].parts
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.seal) == ("hm", SEAL)
    assert isinstance(call, ToolCall)


def test_a_signature_of_its_own_stays_a_signature() -> None:
    own = Seal(origin="anthropic", value="c2ln")
    data, _ = written(sealed_last(Reasoning(text=""), own))
    deltas = [body["delta"] for body in frames(data) if body["type"] == "content_block_delta"]
    assert deltas[1] == {"type": "signature_delta", "signature": "c2ln"}
    assert b"dragoman" not in data
    assert getattr(read(data).choices[0].parts[0], "seal", None) == own


def test_an_empty_thought_that_is_no_seal_is_a_thought() -> None:
    side = {"seal": {"origin": "gemini", "value": "s"}, "late": True}
    lone = {"type": "thinking", "thinking": "", "signature": "", "dragoman": side}
    for content in ([lone], [{"type": "text", "text": "a"}, lone]):
        turn = {"role": "assistant", "content": copy_json(content)}
        wire = WireRequest(body={"model": "m", "max_tokens": 9, "messages": [turn]})
        parts = HERE.decode_request(wire, Notes()).messages[0].parts
        assert len(parts) == len(content)
        assert isinstance(parts[-1], Reasoning)


def test_the_tier_of_the_start_is_the_replys() -> None:
    data, notes = written(
        [
            ReplyStart(id="msg_1", model="m", service_tier="priority"),
            ReplyEnd(finishes=(Finish(reason="stop"),), service_tier="priority"),
        ]
    )
    assert frames(data)[0]["message"]["usage"]["service_tier"] == "priority"
    assert read(data).service_tier == "priority"
    assert not [note for note in notes if "tier" in note.where]


def test_free_text_of_a_call_goes_out_as_json() -> None:
    """The SDK reads the pieces of a call's input as JSON, and fails on anything else."""
    events: list[Event] = [
        ReplyStart(id="msg_1", model="m"),
        PartStart(index=0, part=ToolCall(id="toolu_1", name="run", arguments="", freeform=True)),
        PartDelta(index=0, text='print("a'),
        PartDelta(index=0, text='")\n'),
        PartEnd(index=0),
        ReplyEnd(finishes=(Finish(reason="tool_call"),)),
    ]
    data, notes = written(events)
    pieces = [f["delta"]["partial_json"] for f in frames(data) if f["type"] == "content_block_delta"]
    assert load_json("".join(pieces)) == {"input": 'print("a")\n'}
    assert "/choices/0/parts/0/arguments" in [note.canonical for note in notes]


def test_what_the_last_event_says_is_kept() -> None:
    """Bedrock tells in it how long it took."""
    data, _ = written([ReplyStart(id="msg_1", model="m"), ReplyEnd(finishes=(Finish(reason="stop"),))])
    end = b'data: {"type":"message_stop"}'
    assert end in data
    said = read(data.replace(end, b'data: {"type":"message_stop","metrics":{"latency":1213}}'))
    assert said.extras["anthropic"] == {"metrics": {"latency": 1213}}


def test_parts_are_counted_one_by_one() -> None:
    data, _ = written(sealed_last(Text(text=""), SEAL))
    events = HERE.stream_decoder(Notes()).feed(data)
    assert [event.index for event in events if isinstance(event, PartStart)] == [0, 1]


def test_what_only_another_dialect_says_of_an_answer_is_noted_at_that_answer() -> None:
    notes = Notes()
    events: list[Event] = [
        ReplyStart(id="a", model="m"),
        ReplyEnd(finishes=(None,), choice_extras=({"openai_chat": {"x": 1}},)),
    ]
    find_dialect("anthropic").stream_encoder(notes, None).feed(events)
    assert "/choices/0/extras/openai_chat/x" in [note.where for note in notes]


def test_a_block_that_begins_again_ends_the_one_before() -> None:
    """Two blocks with one number, and one end for both."""
    start = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":%b}\n\n'
    text, call = b'{"type":"text","text":"a"}', b'{"type":"tool_use","id":"t","name":"f","input":{}}'
    stop = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    for first in (text, call, b'{"type":"thinking","thinking":"","signature":""}', b'{"type":"odd"}'):
        decoder = HERE.stream_decoder(Notes())
        events = decoder.feed(start % first + start % text + stop) + decoder.close()
        begun = [event.index for event in events if isinstance(event, PartStart)]
        ended = [event.index for event in events if isinstance(event, PartEnd)]
        assert begun == ended == [0, 1]
        assert isinstance(fold(events), Reply)
