"""Ollama streams: lines, whole calls, one end."""

import json
from typing import Any

import pytest

from dragoman.dialects.ollama import DIALECT
from dragoman.failure import Failure
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import (
    Citation,
    Document,
    Extras,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest
from tests.dialects.ollama.grammar import check_stream

TIME = "2026-11-15T21:30:33.092466418Z"
END: JsonObject = {"done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 2}
PNG = "iVBORw0KGgoAAAANSUhEUg=="


def line(done: JsonObject | None = None, **message: Any) -> bytes:
    said = {"role": "assistant", "content": "", **message}
    return json.dumps({"model": "m", "created_at": TIME, "message": said, **(done or {"done": False})}).encode() + b"\n"


def decode(*lines: bytes) -> list[Event]:
    decoder = DIALECT.stream_decoder(Notes())
    return [event for piece in lines for event in decoder.feed(piece)] + decoder.close()


def encode(*events: Event, request: Request | None = None) -> tuple[list[JsonObject], list[tuple[str, str]]]:
    notes = Notes()
    encoder = DIALECT.stream_encoder(notes, request)
    data = encoder.feed(events) + encoder.close()
    assert encoder.feed(events) + encoder.close() == b"", "nothing follows the end"
    return check_stream(data), [(note.kind, note.where) for note in notes]


def whole(reply: JsonObject) -> Reply:
    return DIALECT.decode_reply(WireReply(body=copy_json(reply)), Notes())


def call(name: str, **more: Any) -> JsonObject:
    return {"function": {"name": name, "arguments": {"a": 1}}, **more}


def answered(message: JsonObject, **more: Any) -> Reply:
    said = {"role": "assistant", "content": "", **message}
    return whole({"model": "m", "created_at": TIME, "message": said, **END, **more})


LOGPROB = {"token": "t", "logprob": -1.0}

SAME: dict[str, tuple[list[bytes], Reply]] = {
    "text": ([line(content="a"), line(content="b"), line(END)], answered({"content": "ab"})),
    "the_last_line_has_text_too": ([line(content="a"), line(END, content="b")], answered({"content": "ab"})),
    "thinking_then_text": (
        [line(thinking="x"), line(thinking="y"), line(content="a"), line(END)],
        answered({"thinking": "xy", "content": "a"}),
    ),
    "both_in_one_line": ([line(thinking="x", content="a"), line(END)], answered({"thinking": "x", "content": "a"})),
    "calls_in_lines_of_their_own": (
        [line(tool_calls=[call("f")]), line(tool_calls=[call("g")]), line(END)],
        answered({"tool_calls": [call("f"), call("g")]}),
    ),
    "text_goes_on_behind_a_call": (
        [line(content="a"), line(tool_calls=[call("f")]), line(content="b"), line(END)],
        answered({"content": "ab", "tool_calls": [call("f")]}),
    ),
    "nothing_at_all": ([line(END)], answered({})),
    "logprobs": (
        [line({"done": False, "logprobs": [LOGPROB]}, content="t"), line(END)],
        answered({"content": "t"}, logprobs=[LOGPROB]),
    ),
    "logprobs_of_thinking": (
        [
            line({"done": False, "logprobs": [LOGPROB]}, thinking="t"),
            line({"done": False, "logprobs": [LOGPROB]}, content="t"),
            line({"done": False, "logprobs": [LOGPROB]}),
            line(END),
        ],
        answered({"thinking": "t", "content": "t"}, logprobs=[LOGPROB] * 3),
    ),
    "logprobs_of_thinking_alone": (
        [line({"done": False, "logprobs": [LOGPROB]}, thinking="t"), line(END)],
        answered({"thinking": "t"}, logprobs=[LOGPROB]),
    ),
    "the_whole_answer_in_one_line": (
        [line(END, content="a", thinking="b")],
        answered({"content": "a", "thinking": "b"}),
    ),
    "a_remote_model": (
        [line({"done": False, "remote_model": "n"}, content="a"), line(END)],
        answered({"content": "a"}, remote_model="n"),
    ),
    "a_picture": ([line(images=[PNG]), line(END)], answered({"images": [PNG]})),
}


@pytest.mark.parametrize(("lines", "reply"), SAME.values(), ids=SAME)
def test_a_streamed_answer_is_the_same_answer(lines: list[bytes], reply: Reply) -> None:
    assert fold(decode(*lines)) == reply


@pytest.mark.parametrize(("lines", "reply"), SAME.values(), ids=SAME)
def test_a_line_may_come_in_any_pieces_and_the_last_without_its_end(lines: list[bytes], reply: Reply) -> None:
    data = b"".join(lines).rstrip(b"\n")
    for size in (1, 5, len(data)):
        assert fold(decode(*(data[i : i + size] for i in range(0, len(data), size)))) == reply


@pytest.mark.parametrize(("lines", "reply"), SAME.values(), ids=SAME)
def test_our_own_stream_comes_back_to_the_same(lines: list[bytes], reply: Reply) -> None:
    written, notes = encode(*decode(*lines))
    assert notes == []
    assert fold(decode(*(json.dumps(body).encode() + b"\n" for body in written))) == reply


def test_a_line_with_a_key_of_its_own_keeps_it() -> None:
    """It has as many keys as every line has, but not the same ones."""
    odd = json.loads(line(content="b"))
    del odd["created_at"]
    reply = fold(decode(line(content="a"), json.dumps(odd | {"load": 7}).encode() + b"\n", line(END, content="c")))
    assert isinstance(reply, Reply)
    assert reply.choices[0].parts == (Text(text="abc"),)
    assert reply.extras["ollama"]["load"] == 7


def test_generate_streams_responses() -> None:
    head = {"model": "m", "created_at": TIME}
    bodies = [
        {**head, "response": "", "thinking": "x", "done": False},
        {**head, "response": "a", "done": False},
        {**head, "response": "b", "done": False},
        {**head, "response": "", **END, "context": [1]},
    ]
    events = decode(*(json.dumps(body).encode() + b"\n" for body in bodies))
    reply = whole({**head, "response": "ab", "thinking": "x", **END, "context": [1]})
    assert fold(events) == reply
    assert encode(*events) == (bodies, [])


def test_a_client_that_asked_generate_gets_responses() -> None:
    asked = DIALECT.decode_request(WireRequest(body={"model": "m", "prompt": "hi"}, path="/api/generate"), Notes())
    said = ToolCall(id="x", name="f", arguments="{}")
    written, _ = encode(*unfold(says(Reasoning(text="x"), Text(text="a"), said)), request=asked)
    assert [body.get("thinking") or body["response"] or bool(body.get("tool_calls")) for body in written] == [
        "x",
        "a",
        True,
        False,
    ]


def test_progress_of_a_picture_is_an_aside() -> None:
    events = decode(b'{"model":"m","completed":1,"total":4,"done":false}\n', line(END))
    assert events[0] == Aside(dialect="ollama", body={"model": "m", "completed": 1, "total": 4, "done": False})
    assert encode(*decode(line(END)), Aside(dialect="ollama", body={}))[1] == []


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        ([b'{"error":"boom"}\n'], Failure(kind="unknown", message="boom")),
        ([line(content="a"), b'{"error":"boom"}'], Failure(kind="unknown", message="boom")),
        ([line(content="a")], Failure(kind="cut_off", message="the stream was cut off")),
        ([], Failure(kind="cut_off", message="the stream was cut off")),
        ([line(tool_calls=[call("f")])], Failure(kind="cut_off", message="the stream was cut off")),
    ],
)
def test_a_stream_without_its_end_has_failed(lines: list[bytes], failure: Failure) -> None:
    assert fold(decode(*lines)) == failure


def test_what_follows_the_end_is_not_read() -> None:
    assert fold(decode(line(END), line(content="late"), b"not even json\n")) == answered({})


# ---------------------------------------------------------------- encode


def says(*parts: Part, **more: Any) -> Reply:
    finish = Finish(reason="tool_call" if any(isinstance(part, ToolCall) for part in parts) else "stop")
    given: dict[str, Any] = {"created": 1.5, "usage": Usage(input=1, output=2)} | more
    return Reply(id="", model="m", choices=(Choice(parts=parts, finish=finish),), **given)


def through(reply: Reply) -> tuple[Any, list[tuple[str, str]]]:
    written, notes = encode(*unfold(reply))
    return fold(decode(*(json.dumps(body).encode() + b"\n" for body in written))), notes


SEAL = Seal(origin="anthropic", value="sig")


@pytest.mark.parametrize(
    "parts",
    [
        (Reasoning(text="x"), Text(text="a")),
        (Reasoning(text="x", seal=SEAL), Text(text="a", seal=SEAL)),
        (Reasoning(text="", seal=SEAL), Text(text="a")),
        (Text(text="", seal=SEAL),),
        (Text(text="a", logprobs=(TokenLogprob(token="a", logprob=-1),)),),
    ],
)
def test_what_ollama_can_say_comes_back(parts: tuple[Part, ...]) -> None:
    returned, notes = through(says(*parts))
    assert returned.choices[0].parts == parts
    assert notes == []


def test_a_call_comes_whole_with_its_place() -> None:
    one = ToolCall(id="toolu_1", name="f", arguments='{"a": 1}', seal=SEAL)
    two = ToolCall(id="toolu_2", name="g", arguments="{}")
    written, notes = encode(*unfold(says(one, two)))
    assert [body["message"]["tool_calls"] for body in written[:2]] == [
        [
            {
                "id": "toolu_1",
                "function": {"index": 0, "name": "f", "arguments": {"a": 1}},
                "dragoman": {"seal": {"origin": "anthropic", "value": "sig"}},
            }
        ],
        [{"id": "toolu_2", "function": {"index": 1, "name": "g", "arguments": {}}}],
    ]
    assert (written[2]["done_reason"], notes) == ("stop", [])


def test_broken_arguments_are_never_an_empty_call() -> None:
    written, notes = encode(*unfold(says(ToolCall(id="x", name="f", arguments='{"a": '))))
    assert written[0]["message"]["tool_calls"][0]["function"]["arguments"] == {"_raw": '{"a": '}
    assert notes == [("altered", "/choices/0/parts/0/arguments")]


@pytest.mark.parametrize(
    ("parts", "content", "thinking"),
    [
        ((Text(text="a"), Text(text="b")), "a\nb", ""),
        ((Reasoning(text="x"), Reasoning(text="y"), Text(text="a")), "a", "x\ny"),
        ((Text(text="a"), Reasoning(text="x"), Text(text="b")), "a\nb", "x"),
        ((Text(text="a"), Refusal(text="no")), "a\nno", ""),
    ],
)
def test_texts_are_joined_as_in_an_unstreamed_answer(parts: Any, content: str, thinking: str) -> None:
    written, notes = encode(*unfold(says(*parts)))
    said = [body["message"] for body in written]
    assert "".join(message["content"] for message in said) == content
    assert "".join(message.get("thinking", "") for message in said) == thinking
    assert ("altered", "/choices/0/parts") in notes
    unstreamed = DIALECT.encode_reply(says(*parts), Notes()).body["message"]
    assert (unstreamed["content"], unstreamed.get("thinking", "")) == (content, thinking)


def test_parts_that_interleave_arrive_whole() -> None:
    one, two = ToolCall(id="x", name="f", arguments=""), ToolCall(id="y", name="g", arguments="")
    written, _ = encode(
        ReplyStart(id="", model="m"),
        PartStart(index=0, part=Text(text="a")),
        PartStart(index=1, part=one),
        PartStart(index=2, part=two),
        PartDelta(index=2, text='{"b":'),
        PartDelta(index=1, text="{}"),
        PartDelta(index=0, text="b"),
        PartDelta(index=2, text="1}"),
        PartEnd(index=1),
        PartEnd(index=0),
        PartEnd(index=2),
        ReplyEnd(finishes=(Finish(reason="tool_call"),)),
    )
    assert "".join(body["message"]["content"] for body in written) == "ab"
    calls = [made["function"] for body in written for made in body["message"].get("tool_calls", ())]
    assert [(made["index"], made["name"], made["arguments"]) for made in calls] == [(0, "f", {}), (1, "g", {"b": 1})]


def test_a_second_answer_is_left_out_with_one_note() -> None:
    choices = (Choice(parts=(Text(text="a"),)), Choice(parts=(Text(text="b"), Text(text="c"))))
    written, notes = encode(*unfold(Reply(id="", model="m", choices=choices)))
    assert "".join(body["message"]["content"] for body in written) == "a"
    assert [note for note in notes if note[1] == "/choices/1"] == [("dropped", "/choices/1")]


@pytest.mark.parametrize("after", range(4))
def test_a_failure_anywhere_is_the_last_line(after: int) -> None:
    events = list(unfold(says(Text(text="a"))))[:after]
    written, _ = encode(*events, ReplyFailed(failure=Failure(kind="overloaded", message="busy")))
    assert written[-1] == {"error": "busy"}


def test_a_stream_without_its_end_is_never_a_success() -> None:
    encoder = DIALECT.stream_encoder(Notes())
    encoder.feed(list(unfold(says(Text(text="a"))))[:-1])
    assert check_stream(encoder.close()) == [{"error": "the stream was cut off"}]
    assert encoder.close() == b""


def test_what_a_stream_cannot_say_is_noted() -> None:
    foreign: Extras = {"openai_chat": {"x": 1}}
    parts: tuple[Part, ...] = (
        Reasoning(text="x", summary=True, extras=foreign),
        Text(text="a", citations=(Citation(url="u"),), extras=foreign),
        Text(text=""),
        Opaque(dialect="anthropic", body={"type": "server_tool_use"}),
        Document(data="JVBERi0="),
    )
    reply = Reply(id="x", model="m", choices=(Choice(parts=parts, extras=foreign),), service_tier="t", extras=foreign)
    _, notes = encode(*unfold(reply), Aside(dialect="anthropic", body={"type": "ping"}))
    assert {where for _, where in notes} == {
        "/id",
        "/service_tier",
        "/created",
        "/usage",
        "/extras/openai_chat/x",
        "/choices/0/extras/openai_chat/x",
        "/choices/0/finish",
        "/choices/0/parts",
        "/choices/0/parts/0/summary",
        "/choices/0/parts/0/extras/openai_chat/x",
        "/choices/0/parts/1/citations",
        "/choices/0/parts/1/extras/openai_chat/x",
        "/choices/0/parts/2",
        "/choices/0/parts/3",
        "/choices/0/parts/4",
    }
