"""Chat streams: what goes wrong, one case each."""

from typing import Any

import pytest

from dragoman.convert import convert_stream
from dragoman.dialects import find_dialect
from dragoman.dialects.openai_chat import DIALECT
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import (
    Audio,
    Citation,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    ToolCall,
    Video,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireRequest
from tests.dialects.openai_chat.grammar import check_stream

END = b"data: [DONE]\n\n"


def chunk(delta: JsonObject | None = None, finish: str | None = None, *, index: int = 0, **choice: Any) -> JsonObject:
    """A chunk with one choice."""
    whole = {"index": index, "delta": delta or {}, "finish_reason": finish, **choice}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [whole]}


def frames(*bodies: JsonObject) -> bytes:
    return b"".join(b"data: %b\n\n" % dump_json(body) for body in bodies)


def read(data: bytes) -> list[Event]:
    decoder = DIALECT.stream_decoder(Notes())
    return [*decoder.feed(data), *decoder.close()]


def reply_of(*bodies: JsonObject, end: bytes = END) -> Reply:
    reply = fold(read(frames(*bodies) + end))
    assert isinstance(reply, Reply), reply
    return reply


def parts_of(*bodies: JsonObject, end: bytes = END) -> tuple[Part, ...]:
    return reply_of(*bodies, end=end).choices[0].parts


def failure_of(data: bytes) -> Failure:
    failure = fold(read(data))
    assert isinstance(failure, Failure), failure
    return failure


def call(arguments: str = "", **fields: Any) -> JsonObject:
    """A delta with a fragment of a call."""
    function = {"arguments": arguments} | ({"name": fields.pop("name")} if "name" in fields else {})
    return {"tool_calls": [{**fields, "function": function}]}


def calls(*bodies: JsonObject) -> list[tuple[str, str, str]]:
    return [(part.id, part.name, part.arguments) for part in parts_of(*bodies) if isinstance(part, ToolCall)]


# ---------------------------------------------------------------- the end


def test_a_stream_is_the_reply_in_pieces() -> None:
    reply = reply_of(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [], "usage": USAGE},
    )
    assert reply == Reply(
        id="c1",
        model="m",
        created=5,
        choices=(Choice(parts=(Text(text="Hello"),), finish=Finish(reason="stop")),),
        usage=Usage(input=3, output=2),
    )


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_what_only_one_chunk_of_many_says_is_kept() -> None:
    """As many keys as the chunk before, or the same keys with another value: it is not the same chunk."""
    first = chunk({"role": "assistant", "content": ""}) | {"system_fingerprint": "a"}
    other = chunk({"content": "b"}) | {"system_fingerprint": "b"}
    foreign = chunk({"content": "c"}) | {"system_fingerprint": "b", "kind": 1}
    del foreign["object"]
    said = reply_of(first, chunk({"content": "a"}) | {"system_fingerprint": "a"}, other, foreign, chunk({}, "stop"))
    assert said.choices[0].parts == (Text(text="abc"),)
    assert said.extras == {"openai_chat": {"system_fingerprint": "b", "kind": 1}}


def test_a_stream_without_done_ends_with_its_finish() -> None:
    assert parts_of(chunk({"content": "a"}), chunk(finish="stop"), end=b"") == (Text(text="a"),)


def test_a_stream_without_done_and_without_finish_was_cut() -> None:
    assert failure_of(frames(chunk({"content": "a"}))).kind == "cut_off"


def test_half_a_call_that_was_cut_is_never_a_call() -> None:
    data = frames(chunk(call('{"rm', index=0, id="a", name="f")))
    assert failure_of(data).kind == "cut_off"
    assert b"tool_use" not in b"".join(convert_stream([data], source="openai_chat", to="anthropic")).split(b"error")[-1]


def test_a_stream_that_is_done_without_a_finish_ended_well() -> None:
    """OpenRouter (Grok) and Snowflake name no reason (recorded). A stream without `[DONE]` is cut off."""
    finish = reply_of(chunk({"content": "a"})).choices[0].finish
    assert finish is not None
    assert finish.reason == "stop"


@pytest.mark.parametrize("data", [b"", END, b": ping\n\n"])
def test_nothing_at_all_is_a_failure(data: bytes) -> None:
    assert failure_of(data).kind == "cut_off"


def test_finish_twice_is_finish_once() -> None:
    reply = reply_of(
        chunk({"content": "a"}), chunk(finish="stop"), chunk({"content": ""}, finish="stop") | {"usage": USAGE}
    )
    assert reply.choices[0].finish == Finish(reason="stop")
    assert reply.usage == Usage(input=3, output=2)


def test_what_comes_after_the_finish_still_counts() -> None:
    assert parts_of(chunk({"content": "a"}), chunk({"content": "b"}, finish="stop"), chunk({"content": "c"})) == (
        Text(text="abc"),
    )


@pytest.mark.parametrize(
    "usage",
    [
        chunk() | {"usage": USAGE},
        chunk(usage=USAGE),
        {"choices": [], "usage": USAGE},
        {"usage": USAGE},
        chunk() | {"x_groq": {"id": "q", "usage": USAGE}},
    ],
)
def test_usage_is_found_wherever_it_stands(usage: JsonObject) -> None:
    found = reply_of(chunk({"content": "a"}), chunk(finish="stop"), usage).usage
    assert found is not None
    assert (found.input, found.output) == (3, 2)


def test_a_first_chunk_that_knows_nothing_is_not_the_start() -> None:
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"x": 1}]}
    reply = reply_of(first, chunk({"content": "a"}), chunk(finish="stop", content_filter_results={"hate": 0}))
    assert (reply.id, reply.model) == ("c1", "m")
    assert reply.extras == {"openai_chat": {"prompt_filter_results": [{"x": 1}]}}
    assert reply.choices[0].extras == {"openai_chat": {"content_filter_results": {"hate": 0}}}


def test_a_first_chunk_with_an_id_and_no_model_is_not_the_start() -> None:
    """Azure tells first what its filters found, and names the model later."""
    first = {"id": "c", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    reply = reply_of(first, chunk({"content": "hi"}, "stop"))
    assert reply.model == chunk()["model"]
    assert reply.extras["openai_chat"]["prompt_filter_results"] == [{"prompt_index": 0}]


def test_a_choice_without_a_delta_is_no_trouble() -> None:
    odd: JsonObject = {"id": "c1", "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]}
    assert parts_of(chunk({"content": "a"}), odd, chunk(None, "stop"))[0] == Text(text="a")


def test_a_whole_answer_in_one_frame_is_read() -> None:
    whole = {
        "id": "c1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
    }
    assert parts_of(whole, end=b"") == (Text(text="a"),)


def test_a_message_beside_the_delta_only_repeats_it() -> None:
    both = chunk({"content": "a"}, message={"role": "assistant", "content": "all of it"})
    assert parts_of(both, chunk(finish="stop")) == (Text(text="a"),)


def test_unknown_frames_are_asides() -> None:
    events = read(frames({"ping": 1}, chunk({"content": "a"}, "stop")) + END)
    assert events[0] == Aside(dialect="openai_chat", body={"ping": 1})


def test_padding_is_not_kept() -> None:
    reply = reply_of(chunk({"content": "a"}) | {"obfuscation": "xyz", "p": "abc"}, chunk(finish="stop") | {"p": "q"})
    assert reply.extras == {}


# ---------------------------------------------------------------- errors under status 200

OVERLOADED = {"error": {"message": "busy", "type": "server_error", "code": 503}}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frames(OVERLOADED), "overloaded"),
        (frames(OVERLOADED) + END, "overloaded"),
        (
            frames(chunk({"content": "a"}), chunk({"content": ""}, "error") | {"error": {"code": 502, "message": "x"}}),
            "server_error",
        ),
        (frames({"choices": [], "error": {"code": 429, "message": "x"}}), "rate_limited"),
        (
            b'event: error\ndata: {"error":{"message":"x","status_code":400,"code":"tool_use_failed"}}\n\n',
            "invalid_request",
        ),
        (b'error: {"error":{"message":"x","code":503}}\n\n', "overloaded"),
        (b'{"error":{"message":"x","code":401}}\n\n', "unauthenticated"),
        (b'data: [{"error":{"message":"x","code":403}}]\n\n', "forbidden"),
        (frames(chunk({"content": "a"}, "stop"), {"error": "text"}), "unknown"),
    ],
)
def test_an_error_in_a_stream_is_an_error(data: bytes, kind: str) -> None:
    assert failure_of(data).kind == kind


def test_what_a_model_failed_to_write_is_kept_with_the_error() -> None:
    failed = {"error": {"message": "x", "code": "tool_use_failed", "failed_generation": "<f>"}}
    assert failure_of(frames(failed)).extras["openai_chat"]["failed_generation"] == "<f>"


# ---------------------------------------------------------------- calls (FIELD-CASES 6-8)


@pytest.mark.parametrize(
    "bodies",
    [
        [
            chunk(call('{"a":', index=0, id="a", name="f")),
            chunk(call("1}", index=0)),
            chunk(call("{}", index=1, id="b", name="g")),
        ],
        [chunk(call('{"a":1}', id="a", name="f")), chunk(call("{}", id="b", name="g"))],
        [chunk(call('{"a":1}', index=0, id="a", name="f")), chunk(call("{}", index=0, id="b", name="g"))],
        [
            chunk(
                {
                    "tool_calls": [
                        *call('{"a":1}', id="a", name="f")["tool_calls"],
                        *call("{}", id="b", name="g")["tool_calls"],
                    ]
                }
            )
        ],
        [
            chunk(call("", index=0, id="a", name="f")),
            chunk(call("", index=1, id="b", name="g")),
            chunk(call('{"a":', index=0)),
            chunk(call("{", index=1)),
            chunk(call("1}", index=0, id=None, name=None, type=None)),
            chunk(call("}", index=1)),
        ],
        [chunk(call('{"a":1}', index=3, id="a", name="f")), chunk(call("{}", index=7, id="b", name="g"))],
        [
            chunk(call("", index=0, id="a", name="")),
            chunk(call('{"a":', index=0)),
            chunk(call("1}", index=0, name="f")),
            chunk(call("{}", index=1, id="b", name="g")),
        ],
    ],
    ids=["usual", "no index", "one index", "one chunk", "interleaved", "sparse", "name later"],
)
def test_two_calls_are_two_calls(bodies: list[JsonObject]) -> None:
    assert calls(*bodies, chunk(finish="tool_calls")) == [("a", "f", '{"a":1}'), ("b", "g", "{}")]


def test_calls_without_ids_or_indexes_are_told_apart_by_their_names() -> None:
    two = {
        "tool_calls": [
            {"function": {"name": "f", "arguments": "{}"}},
            {"function": {"name": "g", "arguments": {"a": 1}}},
        ]
    }
    assert calls(chunk(two), chunk(finish="stop")) == [("call_c1_0", "f", "{}"), ("call_c1_1", "g", '{"a":1}')]


def test_a_call_that_ends_with_stop_is_the_callers_turn() -> None:
    reply = reply_of(chunk(call("{}", index=0, id="a", name="f")), chunk(finish="stop"))
    finish = reply.choices[0].finish
    assert finish is not None
    assert finish.reason == "tool_call"


def test_an_older_function_call_is_a_call() -> None:
    bodies = [chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}})]
    assert calls(*bodies, chunk(finish="function_call")) == [("call_c1_0", "f", "{}")]
    converted = b"".join(convert_stream([frames(*bodies, chunk(finish="function_call")) + END], to="anthropic"))
    assert b'"tool_use"' in converted


def test_freeform_calls_stream_their_input() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** "}}
    more = {"index": 0, "custom": {"input": "Begin"}}
    parts = parts_of(chunk({"tool_calls": [first]}), chunk({"tool_calls": [more]}), chunk(finish="tool_calls"))
    assert parts == (ToolCall(id="a", name="patch", arguments="*** Begin", freeform=True),)


def test_interleaved_calls_reach_anthropic_one_after_the_other() -> None:
    bodies = [
        chunk(call("", index=0, id="a", name="f")),
        chunk(call("", index=1, id="b", name="g")),
        chunk(call('{"x":', index=0)),
        chunk(call('{"y":', index=1)),
        chunk(call("1}", index=0)),
        chunk(call("2}", index=1)),
        chunk(finish="tool_calls"),
    ]
    data = b"".join(convert_stream([frames(*bodies) + END], source="openai_chat", to="anthropic"))
    events = find_dialect("anthropic").stream_decoder(Notes())
    reply = fold([*events.feed(data), *events.close()])
    assert isinstance(reply, Reply)
    assert [part.arguments for part in reply.choices[0].parts if isinstance(part, ToolCall)] == ['{"x":1}', '{"y":2}']


# ---------------------------------------------------------------- thoughts, text, refusals and the rest


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_come_under_every_name(name: str) -> None:
    thought, text = parts_of(
        chunk({name: "h", "content": ""}), chunk({name: "m"}), chunk({"content": "a"}), chunk(finish="stop")
    )
    assert isinstance(thought, Reasoning)
    assert (thought.text, text) == ("hm", Text(text="a"))


def test_a_thought_that_comes_twice_is_one_thought() -> None:
    detail = {"type": "reasoning.text", "text": "hm", "format": "f", "index": 0}
    signed = {"type": "reasoning.text", "text": "", "signature": "sig", "format": "f", "index": 0}
    thought, _ = parts_of(
        chunk({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [detail]}),
        chunk({"reasoning": None, "reasoning_details": [signed]}),
        chunk({"content": "a", "reasoning_details": []}),
        chunk(finish="stop"),
    )
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.seal) == ("hm", Seal(origin="openai_chat", value="sig"))


def test_details_are_told_apart_by_kind_and_index() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "a", "index": 0},
        {"type": "reasoning.summary", "summary": "b", "index": 1},
        {"type": "reasoning.encrypted", "data": "x", "index": 0},
        {"type": "reasoning.encrypted", "data": "y", "index": 0},
    ]
    parts = parts_of(*(chunk({"reasoning_details": [detail]}) for detail in details), chunk(finish="stop"))
    told = [(part.text, part.summary, part.seal and part.seal.value) for part in parts if isinstance(part, Reasoning)]
    assert told == [("a", True, None), ("b", True, None), ("", False, "x"), ("", False, "y")]


def test_mistral_thinks_in_lists() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    thought, text = parts_of(
        chunk({"content": thinking}),
        chunk({"content": [{"type": "text", "text": "a"}]}),
        chunk({"content": "b"}, "stop"),
    )
    assert isinstance(thought, Reasoning)
    assert (thought.text, text) == ("hm", Text(text="ab"))


def test_refusals_audio_and_pictures_are_parts() -> None:
    parts = parts_of(
        chunk({"refusal": "n"}),
        chunk({"refusal": "o"}),
        chunk({"images": [{"type": "image_url", "image_url": {"url": "https://a"}}]}),
        chunk({"audio": {"id": "x"}}),
        chunk({"audio": {"data": "Ukl", "transcript": "H"}}),
        chunk({"audio": {"data": "GRg", "transcript": "i"}}),
        chunk(finish="stop"),
        chunk({"audio": {"expires_at": 9}}),
    )
    assert parts[0] == Refusal(text="no")
    assert isinstance(parts[1], Image)
    assert isinstance(parts[2], Audio)
    assert (parts[2].id, parts[2].data, parts[2].transcript) == ("x", "UklGRg", "Hi")


def test_citations_and_logprobs_find_their_text() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    token = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}
    (text,) = parts_of(
        chunk({"annotations": [cited]}),
        chunk({"content": "a"}, logprobs={"content": [token], "refusal": None}),
        chunk({"content": "b", "annotations": [cited]}, logprobs={"content": [token]}),
        chunk(finish="stop"),
    )
    assert isinstance(text, Text)
    assert (text.text, len(text.citations), len(text.logprobs or ())) == ("ab", 2, 2)


def test_choices_grow_side_by_side() -> None:
    bodies = [chunk({"content": str(i)}, index=i % 2) for i in range(4)]
    reply = reply_of(*bodies, chunk(finish="stop", index=1), chunk(finish="length", index=0))
    assert [choice.parts for choice in reply.choices] == [(Text(text="02"),), (Text(text="13"),)]
    assert [choice.finish for choice in reply.choices] == [Finish(reason="length"), Finish(reason="stop")]


# ---------------------------------------------------------------- what we write


def write(*events: Event, request: JsonObject | None = None) -> tuple[list[JsonObject], Notes]:
    notes = Notes()
    asked = DIALECT.decode_request(WireRequest(body=request), Notes()) if request is not None else None
    encoder = DIALECT.stream_encoder(notes, asked)
    data = encoder.feed(events) + encoder.close()
    assert encoder.feed(events) + encoder.close() == b"", "nothing follows the end"
    return check_stream(data), notes


START = ReplyStart(id="r", model="m", created=7)
STOP = ReplyEnd(finishes=(Finish(reason="stop"),), usage=Usage(input=1, output=1))


def deltas(chunks: list[JsonObject]) -> list[JsonObject]:
    return [choice["delta"] for body in chunks for choice in body["choices"]]


def test_a_text_is_written_piece_by_piece() -> None:
    chunks, notes = write(
        START,
        PartStart(index=0, part=Text(text="H")),
        PartDelta(index=0, text='e"'),
        PartDelta(index=0, text="é\n"),
        PartEnd(index=0),
        STOP,
    )
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"content": "H"},
        {"content": 'e"'},
        {"content": "é\n"},
        {},
    ]
    assert chunks[0]["created"] == 7
    assert chunks[-1]["usage"]["total_tokens"] == 2
    assert not len(notes)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True}}, True),
    ],
)
def test_usage_is_sent_to_clients_that_asked_for_it(options: JsonObject, told: bool) -> None:
    chunks, _ = write(START, STOP, request={"model": "m", "messages": [], **options})
    assert ("usage" in chunks[-1]) == told


def test_calls_may_grow_side_by_side() -> None:
    first, second = (ToolCall(id=name, name="f", arguments="") for name in "ab")
    chunks, _ = write(
        START,
        PartStart(index=0, part=first),
        PartStart(index=1, part=second),
        PartDelta(index=1, text="{"),
        PartDelta(index=0, text="{}"),
        PartDelta(index=1, text="}"),
        PartEnd(index=0),
        PartEnd(index=1),
        ReplyEnd(finishes=(Finish(reason="tool_call"),)),
    )
    fragments = [
        (c["index"], c["function"]["arguments"]) for delta in deltas(chunks) for c in delta.get("tool_calls", ())
    ]
    assert fragments == [(0, ""), (1, ""), (1, "{"), (0, "{}"), (1, "}")]


def test_text_between_calls_waits_for_its_turn() -> None:
    chunks, _ = write(
        START,
        PartStart(index=0, part=Text(text="a")),
        PartStart(index=1, part=Reasoning(text="hm")),
        PartDelta(index=0, text="b"),
        PartDelta(index=1, text="m"),
        PartEnd(index=1),
        PartEnd(index=0),
        STOP,
    )
    keys = [next(iter(delta), None) for delta in deltas(chunks)]
    assert keys == [
        "role",
        "content",
        "content",
        "reasoning_content",
        "reasoning_content",
        None,
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_failure_may_come_at_any_time(count: int) -> None:
    events: list[Event] = [START, PartStart(index=0, part=Text(text="a")), PartDelta(index=0, text="b")]
    chunks, _ = write(*events[:count], ReplyFailed(failure=Failure(kind="rate_limited", message="x")))
    assert len(chunks) == (0, 1, 2, 3)[count]


def test_an_end_without_its_mark_is_an_error() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    data = encoder.feed([START, PartStart(index=0, part=Text(text="a"))]) + encoder.close()
    check_stream(data)
    assert b"stream_cut_off" in data
    assert b"[DONE]" not in data


def test_a_client_that_asked_with_functions_reads_function_call() -> None:
    request = {"model": "m", "messages": [], "functions": [{"name": "f"}]}
    events = unfold(answer(ToolCall(id="a", name="f", arguments="{}"), ToolCall(id="b", name="f", arguments="{}")))
    chunks, notes = write(*events, request=request)
    assert [delta["function_call"] for delta in deltas(chunks) if "function_call" in delta] == [
        {"name": "f", "arguments": ""},
        {"arguments": "{}"},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"
    assert ("dropped", "/choices/0/parts/1") in [(note.kind, note.where) for note in notes]


def answer(*parts: Part) -> Reply:
    return Reply(id="r", model="m", created=7, choices=(Choice(parts=parts, finish=Finish(reason="tool_call")),))


def test_several_choices_each_have_a_role_and_an_end() -> None:
    choice = Choice(parts=(Text(text="a"),), finish=Finish(reason="stop"))
    chunks, _ = write(*unfold(Reply(id="r", model="m", choices=(choice, choice))))
    assert [c["index"] for body in chunks for c in body["choices"] if c["finish_reason"]] == [0, 1]


SEAL = Seal(origin="gemini", value="sig")


@pytest.mark.parametrize(
    "parts",
    [
        (Reasoning(text="hm"), Text(text="a"), ToolCall(id="c", name="f", arguments="{}")),
        (Reasoning(text="", seal=SEAL), Text(text="a")),
        (Text(text="a"), Reasoning(text="hm", seal=SEAL), ToolCall(id="c", name="f", arguments="", seal=SEAL)),
        (Text(text="a", seal=SEAL), ToolCall(id="c", name="f", arguments="{}"), Text(text="b")),
        (Refusal(text="no"),),
        (ToolCall(id="c", name="f", arguments="*** x", freeform=True),),
        (Audio(id="x", data="UklG", transcript="Hi"),),
    ],
)
def test_streams_keep_places_and_seals(parts: tuple[Part, ...]) -> None:
    notes = Notes()
    encoder = DIALECT.stream_encoder(notes)
    data = encoder.feed(unfold(answer(*parts))) + encoder.close()
    check_stream(data)
    reply = fold(read(data))
    assert isinstance(reply, Reply)
    bare = [
        part if not isinstance(part, Audio) else Audio(id=part.id, data=part.data, transcript=part.transcript)
        for part in reply.choices[0].parts
    ]
    assert tuple(bare) == parts
    assert [note.where for note in notes] in ([], ["/choices/0/finish/reason"])


@pytest.mark.parametrize("seal", [None, SEAL])
def test_thoughts_with_nothing_between_them_are_one(seal: Seal | None) -> None:
    parts = (Reasoning(text="one"), Reasoning(text="two", summary=True, seal=seal), Text(text="a"))
    chunks, notes = write(*unfold(answer(*parts)))
    assert not any("dragoman" in delta for delta in deltas(chunks))
    told = "".join(delta.get("reasoning_content", "") for delta in deltas(chunks))
    assert told == "onetwo"
    lost = "/choices/0/parts/1/summary" if seal is None else "/choices/0/parts/1/seal"
    assert {"/choices/0/parts", lost} <= {note.where for note in notes}


def test_texts_with_nothing_between_them_are_one_and_cite_where_they_stand() -> None:
    cited = Text(text="two", citations=(Citation(url="u", title="t"),))
    chunks, notes = write(*unfold(answer(Text(text="one "), Opaque(dialect="anthropic", body={"type": "x"}), cited)))
    annotation = next(delta["annotations"][0] for delta in deltas(chunks) if "annotations" in delta)
    assert annotation["url_citation"] == {"url": "u", "title": "t", "start_index": 4, "end_index": 7}
    assert ("altered", "/choices/0/parts") in [(note.kind, note.where) for note in notes]


def test_what_no_stream_can_say_is_noted() -> None:
    _, notes = write(*unfold(answer(Video(url="https://a"), Text(text=""), Text(text="a"))))
    assert [(note.kind, note.where) for note in notes] == [
        ("dropped", "/choices/0/parts/0"),
        ("dropped", "/choices/0/parts/1"),
    ]
