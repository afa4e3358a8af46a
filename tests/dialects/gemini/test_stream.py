"""What goes wrong with Gemini streams, both ways."""

from typing import Any

import pytest

from dragoman.dialects.gemini import DIALECT
from dragoman.errors import DecodeError
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, copy_json, dump_json, load_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Citation, Image, Opaque, Reasoning, Refusal, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.dialects.gemini.grammar import check_frames, check_stream

SEAL = Seal(origin="gemini", value="c2ln", form="thought_signature")


def frame(*parts: JsonObject, **beside: Any) -> JsonObject:
    candidate: JsonObject = {"content": {"parts": list(parts), "role": "model"}, "index": 0} | beside
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r"}


STOP = frame(finishReason="STOP")


def sse(*frames: JsonObject) -> bytes:
    return b"".join(b"data: %b\r\n\r\n" % dump_json(body) for body in frames)


def array(*frames: JsonObject) -> bytes:
    return b"[" + b",\r\n".join(map(dump_json, frames)) + b"]"


def decode(data: bytes, size: int = 10_000) -> list[Event]:
    decoder = DIALECT.stream_decoder(Notes())
    events: list[Event] = []
    for i in range(0, len(data), size):
        events.extend(decoder.feed(data[i : i + size]))
    return [*events, *decoder.close()]


def folded(*frames: JsonObject) -> Reply:
    reply = fold(decode(sse(*(copy_json(body) for body in frames))))
    assert isinstance(reply, Reply)
    return reply


def parts_of(*frames: JsonObject) -> tuple[Any, ...]:
    return folded(*frames).choices[0].parts


# ---------------------------------------------------------------- decode


def test_text_in_successive_frames_is_one_part() -> None:
    assert parts_of(frame({"text": "he"}), frame({"text": "llo"}), STOP) == (Text(text="hello"),)


def test_thought_and_text_are_two_parts() -> None:
    thought, said = parts_of(
        frame({"text": "h", "thought": True}), frame({"text": "m", "thought": True}), frame({"text": "a"}), STOP
    )
    assert (thought.text, thought.summary) == ("hm", True)
    assert said == Text(text="a")


def test_two_texts_in_one_frame_are_two_parts() -> None:
    assert parts_of(frame({"text": "a"}, {"text": "b"}), frame({"text": "c"}), STOP) == (
        Text(text="a"),
        Text(text="bc"),
    )


def test_a_signature_on_an_empty_text_belongs_to_the_text_before_it() -> None:
    signed = frame({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP")
    assert parts_of(frame({"text": "a"}), signed) == (Text(text="a", seal=SEAL),)


def test_a_signature_on_an_empty_text_after_a_call_is_kept() -> None:
    called = {"functionCall": {"name": "f", "args": {}}}
    call, last = parts_of(frame(called), frame({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP"))
    assert isinstance(call, ToolCall)
    assert last.seal == SEAL


def test_signed_and_unsigned_texts_are_never_merged() -> None:
    parts = parts_of(frame({"text": "a"}), frame({"text": "b", "thoughtSignature": "c2ln"}), frame({"text": "c"}), STOP)
    assert parts == (Text(text="a"), Text(text="b", seal=SEAL), Text(text="c"))


def test_a_signature_alone_is_kept() -> None:
    (part,) = parts_of(frame({"text": "a"}), frame({"thoughtSignature": "c2ln"}), STOP)
    assert part == Text(text="a", seal=SEAL)


def test_a_call_arrives_with_its_arguments_in_a_delta() -> None:
    events = decode(sse(frame({"functionCall": {"name": "f", "args": {"a": 17}}}), STOP))
    assert [event.text for event in events if isinstance(event, PartDelta)] == ['{"a":17}']


def test_a_streamed_answer_is_the_unstreamed_one() -> None:
    whole = frame(
        {"text": "hm", "thought": True},
        {"text": "hello", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "f", "args": {"a": 1}}},
        {"executableCode": {"code": "1"}},
        finishReason="STOP",
    ) | {"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}}
    pieces = [
        frame({"text": "h", "thought": True}),
        frame({"text": "m", "thought": True}),
        frame({"text": "hel"}) | {"usageMetadata": {"promptTokenCount": 1}},
        frame({"text": "lo"}),
        frame({"text": "", "thoughtSignature": "c2ln"}),
        frame({"functionCall": {"name": "f", "args": {"a": 1}}}),
        frame({"executableCode": {"code": "1"}}),
        frame({"text": ""}, finishReason="STOP") | {"usageMetadata": whole["usageMetadata"]},
    ]
    assert folded(*pieces) == DIALECT.decode_reply(WireReply(body=copy_json(whole)), Notes())


def test_a_reason_in_every_frame_counts_only_in_the_last() -> None:
    reply = folded(frame({"text": "a"}, finishReason="STOP"), frame({"text": "b"}, finishReason="MAX_TOKENS"))
    assert reply.choices[0].parts == (Text(text="ab"),)
    assert reply.choices[0].finish == Finish(reason="length")


def test_sources_of_every_frame_are_gathered() -> None:
    cite = [{"citationMetadata": {"citations": [{"endIndex": i, "uri": f"https://{i}.example/"}]}} for i in (1, 2)]
    choice = folded(frame({"text": "ab"}, **cite[0]), frame({"text": "c"}, finishReason="STOP", **cite[1])).choices[0]
    assert len(choice.extras["gemini"]["citationMetadata"]["citations"]) == 2
    assert isinstance(choice.parts[0], Text)
    assert [c.end for c in choice.parts[0].citations] == [1, 2]


PARTIAL = [
    {"name": "write", "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.to[0].name", "stringValue": "A", "willContinue": True}], "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.to[0].name", "stringValue": "da"}], "willContinue": True},
    {"partialArgs": [{"jsonPath": "$['odd key']", "numberValue": 1.5}], "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.to[1]", "nullValue": "NULL_VALUE"}, {"jsonPath": "$.ok", "boolValue": True}]},
]


def test_arguments_in_pieces_are_put_together() -> None:
    frames = [frame({"functionCall": call}) for call in PARTIAL]
    frames[0]["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "c2ln"
    (call,) = parts_of(*frames, STOP)
    assert load_json(call.arguments) == {"to": [{"name": "Ada"}, None], "odd key": 1.5, "ok": True}
    assert (call.name, call.seal) == ("write", SEAL)


def test_a_call_that_was_cut_cannot_be_run() -> None:
    frames = [frame({"functionCall": call}) for call in PARTIAL[:2]]
    (call,) = parts_of(*frames, frame(finishReason="MAX_TOKENS"))
    with pytest.raises(DecodeError):
        load_json(call.arguments)


def test_a_path_cannot_ask_for_a_giant_array() -> None:
    calls = [{"name": "f", "willContinue": True}, {"partialArgs": [{"jsonPath": "$.a[999999999]", "boolValue": True}]}]
    with pytest.raises(DecodeError):
        decode(sse(*(frame({"functionCall": call}) for call in calls)))


def test_a_blocked_prompt_ends_the_stream_well() -> None:
    reply = folded({"promptFeedback": {"blockReason": "SAFETY"}})
    assert [choice.finish and choice.finish.reason for choice in reply.choices] == ["filter"]


@pytest.mark.parametrize("data", [b"", b"\r\n", sse(frame({"text": "a"})), array(frame({"text": "a"}))[:-9], b"["])
def test_a_stream_without_its_reason_is_cut_off(data: bytes) -> None:
    last = decode(data)[-1]
    assert isinstance(last, ReplyFailed)
    assert last.failure.kind == "cut_off"


ERROR: JsonObject = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    "data",
    [
        sse(frame({"text": "a"}), ERROR),
        sse(frame({"text": "a"}))
        + b'{\n  "error": {\n    "code": 503,\n    "message": "x",\n    "status": "UNAVAILABLE"\n  }\n}',
        array(frame({"text": "a"}), ERROR),
        array(ERROR),
        dump_json(ERROR),
        sse(ERROR, frame({"text": "never"}), STOP),
    ],
)
def test_an_error_in_mid_stream_is_a_failure_in_every_form(data: bytes) -> None:
    failure = fold(decode(data))
    assert isinstance(failure, Failure)
    assert failure.kind == "overloaded"


FRAMES = [
    frame({"text": 'a "quoted" {brace} \\ and é 한'}),
    frame({"functionCall": {"name": "f", "args": {"b": '\\"}]'}}}),
    STOP | {"usageMetadata": {"promptTokenCount": 1}},
]


@pytest.mark.parametrize("form", [sse, array])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_any_split_gives_the_same_events(form: Any, size: int) -> None:
    assert decode(form(*FRAMES), size) == decode(sse(*FRAMES))


def test_an_array_may_be_printed_for_people() -> None:
    pretty = b" [\n" + b"\n,\n".join(dump_json(body).replace(b",", b",\n  ") for body in FRAMES) + b"\n]\n"
    assert decode(pretty, 5) == decode(sse(*FRAMES))


# ---------------------------------------------------------------- encode


def encode(events: list[Event], request: Request | None = None) -> tuple[bytes, Notes]:
    notes = Notes()
    encoder = DIALECT.stream_encoder(notes, request)
    return encoder.feed(events) + encoder.close(), notes


def stream(*inner: Event, finish: Finish | None = None, **fields: Any) -> list[Event]:
    return [ReplyStart(id="r", model="m"), *inner, ReplyEnd(finishes=(finish or Finish(reason="stop"),), **fields)]


def text_events(*pieces: str) -> list[Event]:
    return [
        PartStart(index=0, part=Text(text="")),
        *(PartDelta(index=0, text=piece) for piece in pieces),
        PartEnd(index=0),
    ]


def test_a_text_goes_out_word_by_word() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    encoder.feed([ReplyStart(id="r", model="m"), PartStart(index=0, part=Text(text=""))])
    assert encoder.feed([PartDelta(index=0, text='é "')]) == sse(frame({"text": 'é "'}))
    assert encoder.feed([PartDelta(index=0, text="")]) == b""


def test_the_last_frame_has_the_reason_and_the_counts() -> None:
    data, notes = encode(stream(*text_events("a"), usage=Usage(input=1, output=2)))
    *_, last = check_stream(data)
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"] == {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    assert not notes.items


def test_a_tier_said_at_the_start_is_not_forgotten() -> None:
    data, _ = encode([ReplyStart(id="r", model="m", service_tier="flex"), *stream(*text_events("a"))[1:]])
    assert check_stream(data)[-1]["usageMetadata"] == {"serviceTier": "flex"}


def test_a_call_is_held_until_it_is_whole() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    start: list[Event] = [
        ReplyStart(id="r", model="m"),
        PartStart(index=0, part=ToolCall(id="c", name="f", arguments="")),
        PartDelta(index=0, text='{"a":'),
        PartDelta(index=0, text="1}"),
    ]
    assert encoder.feed(start) == b""
    call = {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}
    assert encoder.feed([PartEnd(index=0)]) == sse(frame(call))


def test_a_signature_after_its_text_goes_out_on_an_empty_text() -> None:
    events = stream(PartStart(index=0, part=Text(text="")), PartDelta(index=0, text="a"), PartEnd(index=0, seal=SEAL))
    data, notes = encode(events)
    _, signed, _ = check_stream(data)
    assert signed["candidates"][0]["content"]["parts"] == [{"text": "", "thoughtSignature": "c2ln"}]
    assert not notes.items


def test_a_foreign_signature_goes_out_beside_and_comes_back() -> None:
    seal = Seal(origin="anthropic", value="x")
    thought = Reasoning(text="", summary=True)
    events = stream(
        PartStart(index=0, part=thought),
        PartDelta(index=0, text="hm"),
        PartEnd(index=0, seal=seal),
        *text_events("a")[1:0],
    )
    data, _ = encode(events)
    check_stream(data)
    reply = fold(decode(data))
    assert isinstance(reply, Reply)
    part = reply.choices[0].parts[0]
    assert isinstance(part, Reasoning)
    assert (part.text, part.seal) == ("hm", seal)


def test_neighbouring_texts_are_joined_and_that_is_noted() -> None:
    events = stream(*text_events("a"), PartStart(index=1, part=Text(text="b")), PartEnd(index=1))
    data, notes = encode(events)
    reply = fold(decode(data))
    assert isinstance(reply, Reply)
    assert reply.choices[0].parts == (Text(text="ab"),)
    assert [note.where for note in notes] == ["/choices/0/parts"]


def test_interleaved_parts_come_out_whole_and_choices_side_by_side() -> None:
    events: list[Event] = [
        ReplyStart(id="r", model="m"),
        PartStart(index=0, part=Text(text="")),
        PartStart(index=1, part=ToolCall(id="c", name="f", arguments="")),
        PartStart(index=2, part=Text(text=""), choice=1),
        PartDelta(index=1, text="{}"),
        PartDelta(index=2, text="other"),
        PartDelta(index=0, text="one"),
        PartEnd(index=1),
        PartEnd(index=2),
        PartEnd(index=0),
        ReplyEnd(finishes=(Finish(reason="tool_call"), Finish(reason="stop"))),
    ]
    data, notes = encode(events)
    check_stream(data)
    reply = fold(decode(data))
    assert isinstance(reply, Reply)
    assert [[type(part) for part in choice.parts] for choice in reply.choices] == [[Text, ToolCall], [Text]]
    assert not notes.items


def test_citations_of_a_text_are_said_before_the_next_part() -> None:
    cited = Text(text="héllo", citations=(Citation(url="https://a.example/", start=1, end=5),))
    call = ToolCall(id="c", name="f", arguments="{}")
    reply = Reply(id="r", model="m", choices=(Choice(parts=(cited, call, cited), finish=Finish(reason="tool_call")),))
    data, notes = encode(list(unfold(reply)))
    check_stream(data)
    assert fold(decode(data)) == reply
    assert not notes.items


def test_the_last_citations_of_a_stream_include_the_earlier_ones() -> None:
    """A reader keeps the last metadata it gets."""
    texts = [Text(text=word, citations=(Citation(url=f"https://{word}.example/", start=0, end=1),)) for word in "abc"]
    reply = Reply(id="r", model="m", choices=(Choice(parts=tuple(texts), finish=Finish(reason="stop")),))
    joined = fold(decode(encode(list(unfold(reply)))[0]))
    assert isinstance(joined, Reply)
    (text,) = joined.choices[0].parts
    assert isinstance(text, Text)
    assert [(c.url, c.start) for c in text.citations] == [(f"https://{w}.example/", i) for i, w in enumerate("abc")]


def test_logprobs_travel_with_their_words() -> None:
    tokens = tuple(TokenLogprob(token=word, logprob=-0.5) for word in "ab")
    events = stream(
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="a", logprobs=tokens[:1]),
        PartDelta(index=0, text="b", logprobs=tokens[1:]),
        PartEnd(index=0),
    )
    data, notes = encode(events)
    reply = fold(decode(data))
    assert isinstance(reply, Reply)
    assert reply.choices[0].parts == (Text(text="ab", logprobs=tokens),)
    assert not notes.items


def test_a_failure_ends_everything_in_band() -> None:
    failure = ReplyFailed(failure=Failure(kind="rate_limited", message="slow", retry_after_s=30.0))
    data, _ = encode([ReplyStart(id="r", model="m"), *text_events("a")[:2], failure, *text_events("b")])
    *_, last = check_stream(data)
    assert last["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert last["error"]["details"][0]["retryDelay"] == "30s"


def test_a_stream_without_its_end_ends_in_an_error() -> None:
    data, _ = encode([ReplyStart(id="r", model="m"), *text_events("a")])
    assert "error" in check_stream(data)[-1]


def test_what_cannot_be_said_is_noted_and_asides_are_ignored() -> None:
    events = stream(
        Aside(dialect="anthropic", body={"type": "ping"}),
        PartStart(index=0, part=Opaque(dialect="parrot", body={"type": "squawk"})),
        PartEnd(index=0),
        PartStart(index=1, part=Refusal(text="no")),
        PartEnd(index=1),
        PartStart(index=2, part=Image(data="aGk=", media_type="image/png")),
        PartEnd(index=2),
    )
    data, notes = encode(events)
    check_stream(data)
    assert [note.where for note in notes] == ["/choices/0/parts/0", "/choices/0/parts/1"]


def array_request() -> Request:
    wire = WireRequest(body={"contents": []}, path="/v1beta/models/m:streamGenerateContent")
    return DIALECT.decode_request(wire, Notes())


@pytest.mark.parametrize(
    "events",
    [
        stream(*text_events("a", "b")),
        [ReplyFailed(failure=Failure(kind="overloaded", message="no"))],
        [ReplyStart(id="r", model="m"), *text_events("a")],
    ],
)
def test_a_client_that_did_not_ask_for_sse_gets_an_array(events: list[Event]) -> None:
    data, _ = encode(events, array_request())
    frames = load_json(data)
    check_frames(frames)
    assert decode(data) == decode(encode(events)[0])


def test_a_stream_that_asked_for_sse_gets_it() -> None:
    wire = WireRequest(body={"contents": []}, path="/v1beta/models/m:streamGenerateContent?alt=sse")
    data, _ = encode(stream(*text_events("a")), DIALECT.decode_request(wire, Notes()))
    check_stream(data)
