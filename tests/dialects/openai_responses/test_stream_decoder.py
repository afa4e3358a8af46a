"""Streams: whatever a server leaves out or does in its own way, the reply is the same; what we write has it all."""

from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import copy_json, dump_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import (
    Citation,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply
from tests.dialects.openai_responses.grammar import check_stream

NAME = "openai_responses"
HERE = find_dialect(NAME)


def frames(*events: dict[str, Any], named: bool = True) -> bytes:
    out = []
    for event in events:
        head = b"event: %b\n" % event["type"].encode() if named else b""
        out.append(head + b"data: " + dump_json(event) + b"\n\n")
    return b"".join(out)


def decode(data: bytes) -> list[Event]:
    decoder = HERE.stream_decoder(Notes())
    return [*decoder.feed(data), *decoder.close()]


def encode(events: list[Event], request: Request | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    notes = Notes()
    encoder = HERE.stream_encoder(notes, request)
    data = b"".join(encoder.feed([event]) for event in events) + encoder.close()
    assert encoder.feed(events) == b""
    return check_stream(data), [f"{note.kind} {note.where}" for note in notes]


def whole(response: dict[str, Any]) -> Reply:
    return HERE.decode_reply(WireReply(body=copy_json(response)), Notes())


MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "final_answer",
    "content": [
        {
            "type": "output_text",
            "text": "hello",
            "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 5}],
            "logprobs": [{"token": "hello", "bytes": [104], "logprob": -1.0, "top_logprobs": []}],
        },
        {"type": "refusal", "refusal": "but no"},
    ],
}
THOUGHT: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
    "encrypted_content": "gA",
    "status": "completed",
}
CALL: dict[str, Any] = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"a":1}',
}
SEARCH: dict[str, Any] = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
START: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "model": "m",
    "output": [],
}
RESPONSE: dict[str, Any] = START | {
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [THOUGHT, SEARCH, MESSAGE, CALL],
    "usage": {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 5,
    },
    "service_tier": "default",
    "temperature": 1.0,
}
CREATED: dict[str, Any] = {"type": "response.created", "response": START | {"temperature": 1.0, "service_tier": "auto"}}
COMPLETED: dict[str, Any] = {"type": "response.completed", "response": RESPONSE}


def item_events(index: int, item: dict[str, Any], *inner: dict[str, Any], **start: Any) -> list[dict[str, Any]]:
    added = {
        "type": "response.output_item.added",
        "output_index": index,
        "item": item | {"status": "in_progress"} | start,
    }
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    place = {"output_index": index, "item_id": item["id"]}
    return [added, *(event | place for event in inner), done]


def text_events(kind: str, place: dict[str, int], block: dict[str, Any], *deltas: Any) -> list[dict[str, Any]]:
    part = "reasoning_summary_part" if kind == "reasoning_summary_text" else "content_part"
    key = "refusal" if kind == "refusal" else "text"
    return [
        {"type": f"response.{part}.added", "part": block | {key: ""}, **place},
        *(({"type": f"response.{kind}.delta", "delta": d, **place} if type(d) is str else d | place) for d in deltas),
        {"type": f"response.{kind}.done", key: block[key], **place},
        {"type": f"response.{part}.done", "part": block, **place},
    ]


SAID, REFUSED = MESSAGE["content"]
FULL = [
    CREATED,
    {"type": "response.in_progress", "response": START},
    *item_events(
        0,
        THOUGHT,
        *text_events("reasoning_summary_text", {"summary_index": 0}, THOUGHT["summary"][0], "o", "ne"),
        *text_events("reasoning_summary_text", {"summary_index": 1}, THOUGHT["summary"][1], "two"),
        summary=[],
        encrypted_content="not yet whole",
    ),
    *item_events(1, SEARCH, {"type": "response.web_search_call.searching"}),
    *item_events(
        2,
        MESSAGE,
        *text_events(
            "output_text",
            {"content_index": 0},
            SAID,
            "hel",
            {"type": "response.output_text.delta", "delta": "lo", "logprobs": SAID["logprobs"], "obfuscation": "x"},
            {
                "type": "response.output_text.annotation.added",
                "annotation": SAID["annotations"][0],
                "annotation_index": 0,
            },
        ),
        *text_events("refusal", {"content_index": 1}, REFUSED, "but ", "no"),
        content=[],
    ),
    *item_events(
        3,
        CALL,
        {"type": "response.function_call_arguments.delta", "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "delta": "1}"},
        {"type": "response.function_call_arguments.done", "arguments": '{"a":1}', "name": "look"},
        arguments="",
    ),
    COMPLETED,
]


def without(*kinds: str) -> list[dict[str, Any]]:
    return [event for event in FULL if not any(kind in event["type"] for kind in kinds)]


def unnumbered() -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if not key.endswith("_index")} for event in without("summary")]


STREAMS: dict[str, bytes] = {
    "as it should be": frames(*FULL),
    "without event lines": frames(*FULL, named=False),
    "with [DONE], pings and comments": b": hi\n\n"
    + frames({"type": "ping", "cost": 1}, *FULL[:9], {"type": "keepalive"}, *FULL[9:])
    + b"data: [DONE]\n\n",
    "arguments only when done": frames(*without("arguments.delta")),
    "arguments only in the item": frames(*without("arguments")),
    "citations only in the item": frames(*without("annotation")),
    "without parts": frames(*without("part.")),
    "without deltas": frames(*without("delta")),
    "texts only when done, and items never": frames(*without("output_text.delta", "item.done", "annotation")),
    "items only when done": frames(*without("delta", "part", "added")),
    "items only at the end": frames(CREATED, COMPLETED),
    "nothing but the end": frames(COMPLETED),
    "items not repeated at the end": frames(*FULL[:-1], COMPLETED | {"response": RESPONSE | {"output": []}}),
    "items that are never done": frames(*without("item.done")),
    "without numbers": frames(*unnumbered()),
    "other ids at the end": frames(
        *FULL[:-1], COMPLETED | {"response": RESPONSE | {"output": [i | {"id": "x"} for i in RESPONSE["output"]]}}
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_folds_to_the_same_as_the_whole_reply(case: str) -> None:
    assert fold(decode(STREAMS[case])) == whole(RESPONSE)


def test_a_stream_is_written_as_it_was_read() -> None:
    events, notes = encode(decode(frames(*FULL)))
    assert notes == []
    assert events[-1]["response"] == RESPONSE
    # thoughts keep the order and the names of all events but the dropped ping
    assert [event["type"] for event in events] == [event["type"] for event in FULL]


def test_deltas_without_an_announcement_belong_to_an_item_too() -> None:
    message = MESSAGE | {"content": [SAID]}
    response = RESPONSE | {"output": [THOUGHT, message]}
    place = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    data = frames(
        CREATED,
        {"type": "response.reasoning_summary_text.delta", "delta": "on", "item_id": "rs_1", "summary_index": 0},
        {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
        {"type": "response.output_text.delta", "delta": "hell", **place},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": response},
    )
    assert fold(decode(data)) == whole(response)


def test_a_part_that_begins_after_its_item_was_done_has_an_end() -> None:
    block = {"type": "output_text", "text": "so", "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "content": [block]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    late = {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 1, "delta": "!"}
    again = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
    for events in ([done, late], [done, late, again]):
        end = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}}
        reply = fold(decode(frames(*events, end)))
        assert isinstance(reply, Reply)
        assert [part.text for part in reply.choices[0].parts if isinstance(part, Text)][:2] == ["so", "!"]


def test_a_whole_response_in_one_frame_is_a_stream_too() -> None:
    assert fold(decode(b"data: " + dump_json(RESPONSE) + b"\n\n")) == whole(RESPONSE)


def test_a_local_server_numbers_nothing_and_names_a_call_by_its_call_id() -> None:
    """llama.cpp: no indexes, no arguments.done, a bare start."""
    call = {"type": "function_call", "call_id": "fc_9", "name": "look", "arguments": '{"a":1}', "status": "completed"}
    message = {
        "type": "message",
        "id": "msg_9",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
    }
    thought = {
        "type": "reasoning",
        "id": "rs_9",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": "",
        "status": "completed",
    }
    response = {
        "id": "r",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [thought, message, call],
    }
    data = frames(
        {"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress"}},
        {"type": "response.output_item.added", "item": thought | {"content": [], "status": "in_progress"}},
        {"type": "response.reasoning_text.delta", "delta": "h", "item_id": "rs_9"},
        {"type": "response.reasoning_text.delta", "delta": "m", "item_id": "rs_9"},
        {"type": "response.output_item.added", "item": message | {"content": [], "status": "in_progress"}},
        {"type": "response.content_part.added", "item_id": "msg_9", "part": {"type": "output_text", "text": ""}},
        {"type": "response.output_text.delta", "delta": "hi", "item_id": "msg_9"},
        {"type": "response.output_item.added", "item": call | {"arguments": "", "status": "in_progress"}},
        {"type": "response.function_call_arguments.delta", "delta": '{"a":', "item_id": "fc_9"},
        {"type": "response.function_call_arguments.delta", "delta": "1}", "item_id": "fc_9"},
        {"type": "response.output_item.done", "item": thought},
        {"type": "response.output_item.done", "item": message},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": response},
    )
    reply = fold(decode(data))
    assert isinstance(reply, Reply)
    assert reply.choices == whole(response).choices


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}, "rate_limited"),
        ({"type": "error", "error": {"type": "tokens", "code": None, "message": "slow"}}, "rate_limited"),
        (
            {"type": "response.failed", "response": START | {"error": {"code": "server_error", "message": "x"}}},
            "server_error",
        ),
        ({"type": "response.failed", "response": START | {"error": None}}, "server_error"),
        (
            {
                "type": "response.completed",
                "response": START | {"status": "failed", "error": {"code": "x", "message": "y"}},
            },
            "unknown",
        ),
    ],
)
def test_an_error_in_the_middle_ends_everything(event: dict[str, Any], kind: str) -> None:
    events = decode(frames(*FULL[:8], event, COMPLETED))
    assert isinstance(events[-1], ReplyFailed)
    assert events[-1].failure.kind == kind
    assert events[-1].failure.message


def test_an_error_without_a_type_is_one() -> None:
    events = decode(frames(CREATED) + b'data: {"error": {"message": "no", "code": 503}}\n\n')
    assert isinstance(events[-1], ReplyFailed)
    assert events[-1].failure.kind == "overloaded"


@pytest.mark.parametrize("length", [0, 1, 5, 20, len(FULL) - 1])
def test_a_cut_stream_is_a_failure(length: int) -> None:
    events = decode(frames(*FULL[:length]))
    assert isinstance(events[-1], ReplyFailed)
    assert events[-1].failure.kind == "cut_off"


def test_what_the_end_says_differently_is_reported() -> None:
    notes = Notes()
    decoder = HERE.stream_decoder(notes)
    wrong = [e | {"delta": "other"} if e["type"] == "response.function_call_arguments.delta" else e for e in FULL]
    decoder.feed(frames(*wrong))
    assert {note.kind for note in notes} == {"altered"}


# ---------------------------------------------------------------- encode


def test_parts_that_interleave_are_written_one_after_the_other() -> None:
    events, _ = encode(
        [
            ReplyStart(id="r", model="m", created=1),
            PartStart(index=0, part=ToolCall(id="a", name="f", arguments="")),
            PartStart(index=1, part=ToolCall(id="b", name="g", arguments='{"b":')),
            PartDelta(index=0, text='{"a":'),
            PartDelta(index=1, text="2}"),
            PartDelta(index=0, text="1}"),
            PartEnd(index=1),
            PartEnd(index=0),
            ReplyEnd(finishes=(Finish(reason="tool_call"),)),
        ]
    )
    assert [item["arguments"] for item in events[-1]["response"]["output"]] == ['{"a":1}', '{"b":2}']


def test_what_a_part_says_at_its_start_is_a_delta() -> None:
    tokens = (TokenLogprob(token="hi", logprob=-1, bytes=(1,), top=()),)
    parts: tuple[Part, ...] = (
        Reasoning(text="hm", summary=True),
        Text(text="hi", logprobs=tokens, citations=(Citation(url="u", title="t", start=0, end=2),)),
        Refusal(text="no"),
        ToolCall(id="c", name="f", arguments="{}"),
        ToolCall(id="d", name="g", arguments="free", freeform=True),
    )
    events: list[Event] = [ReplyStart(id="r", model="m", created=1)]
    for i, part in enumerate(parts):
        events += [PartStart(index=i, part=part), PartEnd(index=i)]
    events.append(ReplyEnd(finishes=(Finish(reason="tool_call"),)))
    written, notes = encode(events)
    assert [e["delta"] for e in written if e["type"].endswith(".delta")] == ["hm", "hi", "no", "{}", "free"]
    assert notes == []
    assert [e["type"] for e in written if "annotation" in e["type"]] == ["response.output_text.annotation.added"]


def test_an_empty_thought_is_an_item_without_summary() -> None:
    events, notes = encode(
        [
            ReplyStart(id="r", model="m", created=1),
            PartStart(index=0, part=Reasoning(text="")),
            PartEnd(index=0, seal=Seal(origin="anthropic", value="c2ln")),
            ReplyEnd(finishes=(Finish(reason="stop"),)),
        ]
    )
    (item,) = events[-1]["response"]["output"]
    assert item["summary"] == []
    assert item["dragoman"] == {"seal": {"origin": "anthropic", "value": "c2ln"}}
    assert notes == []


def test_a_call_cut_off_by_the_limit_is_done_as_incomplete() -> None:
    events, _ = encode(
        [
            ReplyStart(id="r", model="m", created=1),
            PartStart(index=0, part=ToolCall(id="c", name="f", arguments='{"a":')),
            PartEnd(index=0),
            ReplyEnd(finishes=(Finish(reason="length"),)),
        ]
    )
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"
    assert events[-2]["item"]["status"] == "incomplete"


def test_an_open_call_is_never_done_when_the_stream_fails() -> None:
    begun: list[Event] = [
        ReplyStart(id="r", model="m", created=1),
        PartStart(index=0, part=Text(text="let me")),
        PartEnd(index=0),
        PartStart(index=1, part=ToolCall(id="c", name="f", arguments='{"a":')),
    ]
    for end in ([ReplyFailed(failure=Failure(kind="overloaded", message="no"))], []):
        events, _ = encode([*begun, *end])
        assert events[-1]["type"] == "response.failed"
        assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]
        assert events[-1]["response"]["error"]["code"] == ("server_is_overloaded" if end else "server_error")


def test_a_stream_that_fails_before_it_starts_says_so() -> None:
    events, _ = encode([ReplyFailed(failure=Failure(kind="rate_limited", message="slow"))])
    assert [event["type"] for event in events] == ["error", "response.failed"]


def test_a_second_answer_is_left_out_with_a_note() -> None:
    reply = Reply(
        id="r",
        model="m",
        created=1,
        choices=(
            Choice(parts=(Text(text="a"),), finish=Finish(reason="stop")),
            Choice(parts=(Text(text="b"),), finish=Finish(reason="stop")),
        ),
    )
    events, notes = encode(list(unfold(reply)))
    assert [item["content"][0]["text"] for item in events[-1]["response"]["output"]] == ["a"]
    assert "dropped /choices/1" in notes


def test_asides_of_others_and_parts_without_a_form_are_left_out() -> None:
    events, notes = encode(
        [
            ReplyStart(id="r", model="m", created=1),
            Aside(dialect="anthropic", body={"type": "ping"}),
            Aside(dialect=NAME, body={"type": "keepalive"}),
            Aside(dialect=NAME, body={"type": "response.web_search_call.searching", "item_id": "nobody's"}),
            PartStart(index=0, part=Opaque(dialect="gemini", body={"executableCode": {}})),
            PartEnd(index=0),
            PartStart(index=1, part=Image(data="iVBO", media_type="image/png")),
            PartEnd(index=1),
            ReplyEnd(finishes=(Finish(reason="stop"),)),
        ]
    )
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["image_generation_call"]
    assert notes[:2] == ["dropped /choices/0/parts/0", "altered /choices/0/parts/1"]
