"""Ollama replies: what our own wire says exactly, and what becomes of what it cannot say."""

from typing import Any

import pytest

from dragoman.dialects.ollama import DIALECT
from dragoman.dialects.ollama.reply import read_time, write_time
from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Citation, Image, Opaque, Part, Reasoning, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireReply, WireRequest

TIME = "2026-11-15T21:30:33.092466418Z"
CALL = {"function": {"name": "f", "arguments": {"a": 1}}}
PNG = "iVBORw0KGgoAAAANSUhEUg=="


def decode(body: JsonObject) -> Reply:
    return DIALECT.decode_reply(WireReply(body=copy_json(body)), Notes())


def encode(reply: Reply, request: Request | None = None) -> tuple[JsonObject, list[tuple[str, str]]]:
    notes = Notes()
    body = DIALECT.encode_reply(reply, notes, request).body
    return body, [(note.kind, note.where) for note in notes]


def answers(message: JsonObject, **more: Any) -> JsonObject:
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 2}
    return {"model": "m", "created_at": TIME, "message": {"role": "assistant", **message}, **end, **more}


def says(*parts: Part, reason: FinishReason = "stop", **more: Any) -> Reply:
    given: dict[str, Any] = {"created": 1.5, "usage": Usage(input=1, output=2)} | more
    return Reply(id="", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),), **given)


EXACT: dict[str, JsonObject] = {
    "a_text": answers({"content": "hi"}),
    "thinking_and_calls": answers({"content": "", "thinking": "hm", "tool_calls": [CALL, CALL]}),
    "a_call_as_newer_servers_write_it": answers(
        {"content": "", "tool_calls": [{"id": "call_x", "function": {"index": 3, "name": "f", "arguments": {}}}]}
    ),
    "durations": answers({"content": "hi"}, total_duration=5, load_duration=1, eval_duration=2),
    "a_remote_model": answers({"content": "hi"}, remote_model="n", remote_host="https://example.org"),
    "loading": {
        "model": "m",
        "created_at": TIME,
        "message": {"role": "assistant", "content": ""},
        "done_reason": "load",
        "done": True,
    },
    "no_reason": {"model": "m", "created_at": TIME, "message": {"role": "assistant", "content": "x"}, "done": True},
    "a_reason_nobody_knows": answers({"content": "hi"}, done_reason="bored"),
    "not_done": answers({"content": "hi"}, done=False),
    "next_to_nothing": {"message": {"content": "hi"}},
    "nulls": answers({"content": "hi"}, done_reason=None, eval_count=None, created_at=None, model=None),
    "null_content": answers({"content": None, "thinking": "hm"}),
    "logprobs": answers(
        {"content": "hi"},
        logprobs=[{"token": "hi", "logprob": -0.5, "bytes": [104], "top_logprobs": [{"token": "h", "logprob": -1}]}],
    ),
    "logprobs_of_nothing": answers({"content": ""}, logprobs=[{"token": "hi", "logprob": -0.5}]),
    "a_picture": answers({"content": "hi", "images": [PNG]}),
    "unknown_keys": answers({"content": "hi", "mood": "good"}, weather="fine"),
    "generate": {
        "model": "m",
        "created_at": TIME,
        "response": "hi",
        "thinking": "hm",
        "done": True,
        "done_reason": "stop",
        "context": [1, 2],
        "eval_count": 2,
    },
    "generate_with_a_picture": {"model": "m", "created_at": TIME, "response": "", "image": PNG, "done": True},
}


@pytest.mark.parametrize("body", EXACT.values(), ids=EXACT)
def test_our_own_wire_comes_back_as_it_was(body: JsonObject) -> None:
    assert encode(decode(body)) == (body, [])


def test_a_call_that_ends_with_stop_is_a_call() -> None:
    assert decode(answers({"content": "", "tool_calls": [CALL]})).choices[0].finish == Finish(reason="tool_call")
    body, notes = encode(says(ToolCall(id="x", name="f", arguments="{}"), reason="tool_call"))
    assert (body["done_reason"], notes) == ("stop", [])
    assert decode(answers({"content": "", "tool_calls": [CALL]}, done_reason="length")).choices[0].finish == Finish(
        reason="length"
    )


def test_calls_without_ids_have_other_ids_in_other_answers() -> None:
    body = answers({"content": "", "tool_calls": [CALL, CALL]})
    later = {**body, "created_at": "2026-11-15T21:30:34Z"}
    replies = (decode(body), decode(body), decode(later))
    ids = [part.id for reply in replies for part in reply.choices[0].parts if isinstance(part, ToolCall)]
    assert ids[:2] == ids[2:4]
    assert len(set(ids)) == 4
    assert all(call_id.startswith("call_") and call_id.replace("_", "").isalnum() for call_id in ids)


def test_a_call_is_written_whole_with_its_id_and_place() -> None:
    one, two = ToolCall(id="toolu_1", name="f", arguments='{"a":1}'), ToolCall(id="toolu_2", name="g", arguments="{")
    body, notes = encode(says(one, two, reason="tool_call"))
    assert body["message"]["tool_calls"] == [
        {"id": "toolu_1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}},
        {"id": "toolu_2", "function": {"index": 1, "name": "g", "arguments": {"_raw": "{"}}},
    ]
    assert notes == [("altered", "/choices/0/parts/1/arguments")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2024-05-24T20:01:31.01558Z", 1716580891.01558),
        ("2024-05-24T13:01:31-07:00", 1716580891.0),
        (TIME, 1794778233.0924664),
        ("2024-05-24T20:01:31", None),
        ("yesterday", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert read_time(text) == seconds


@pytest.mark.parametrize("seconds", [0, 1, 1700000000, 1716580891.01558, 1794778233.0924664, 0.00001, 253402300799])
def test_a_time_comes_back_as_it_was(seconds: float) -> None:
    text = write_time(seconds)
    assert text is not None
    assert read_time(text) == pytest.approx(seconds, abs=1e-4 if seconds < 1 else 0)


@pytest.mark.parametrize("seconds", [-1, 253402300800, 1e30])
def test_a_time_that_is_none_of_ours(seconds: float) -> None:
    assert write_time(seconds) is None
    body, notes = encode(says(Text(text="hi"), created=seconds))
    assert (body["created_at"], notes) == ("1970-01-01T00:00:00Z", [("invented", "/created")])


@pytest.mark.parametrize(
    ("reason", "word"),
    [("sequence", "stop"), ("context", "length"), ("refusal", "length"), ("filter", "length"), ("other", "length")],
)
def test_case_31_reasons_ollama_does_not_know(reason: FinishReason, word: str) -> None:
    body, notes = encode(says(Text(text="hi"), reason=reason))
    assert body["done_reason"] == word
    assert notes == [("altered", "/choices/0/finish/reason")]


@pytest.mark.parametrize(
    ("usage", "counters", "notes"),
    [
        (Usage(input=3, output=4), (3, 4), set()),
        (None, (0, 0), {"/usage"}),
        (Usage(input=3), (3, 0), {"/usage/output"}),
        (
            Usage(input=3, cache_read=4, cache_write=5, output=6, reasoning=7),
            (12, 13),
            {f"/usage/{key}" for key in ("input", "cache_read", "cache_write", "output", "reasoning")},
        ),
        (Usage(input=3, output=4, input_audio=1), (3, 4), {"/usage/input_audio"}),
    ],
)
def test_the_counters_are_always_there(usage: Usage | None, counters: tuple[int, int], notes: set[str]) -> None:
    body, found = encode(says(Text(text="hi"), usage=usage))
    assert (body["prompt_eval_count"], body["eval_count"]) == counters
    assert {where for _, where in found} == notes


def test_durations_that_are_unknown_are_not_written() -> None:
    """Clients divide by them; Ollama itself leaves out what it does not know."""
    body, _ = encode(says(Text(text="hi")))
    assert not [key for key in body if key.endswith("_duration")]


def test_seals_stand_in_the_side_field() -> None:
    seal = Seal(origin="anthropic", value="sig")
    call = ToolCall(id="x", name="f", arguments="{}", seal=seal)
    reply = says(Reasoning(text="hm", seal=seal), Text(text="hi", seal=seal), call, reason="tool_call")
    body, notes = encode(reply)
    assert body["message"]["dragoman"] == {
        "thinking": {"seal": {"origin": "anthropic", "value": "sig"}},
        "content": {"seal": {"origin": "anthropic", "value": "sig"}},
    }
    assert notes == []
    assert [getattr(part, "seal", None) for part in decode(body).choices[0].parts] == [seal] * 3


def test_a_thought_of_which_only_the_seal_is_known() -> None:
    seal = Seal(origin="anthropic", value="sig", form="redacted")
    body, notes = encode(says(Reasoning(text="", seal=seal), Text(text="hi")))
    assert decode(body).choices[0].parts == (Reasoning(text="", seal=seal), Text(text="hi"))
    assert notes == []


def test_what_ollama_cannot_answer_is_noted() -> None:
    said = Text(text="hi", citations=(Citation(url="https://example.org"),))
    choices = (
        Choice(parts=(said, Opaque(dialect="anthropic", body={"type": "server_tool_use"}))),
        Choice(parts=()),
    )
    body, notes = encode(Reply(id="msg_1", model="m", choices=choices, service_tier="flex"))
    assert body["message"] == {"role": "assistant", "content": "hi"}
    assert sorted(where for _, where in notes) == [
        "/choices/0/finish",
        "/choices/0/parts/0/citations",
        "/choices/0/parts/1",
        "/choices/1",
        "/created",
        "/id",
        "/service_tier",
        "/usage",
    ]


def test_a_picture_in_an_answer_would_break_the_official_client() -> None:
    body, notes = encode(says(Text(text="hi"), Image(data=PNG, media_type="image/png")))
    assert body["message"] == {"role": "assistant", "content": "hi"}
    assert notes == [("dropped", "/choices/0/parts/1")]


def test_logprobs_of_a_text() -> None:
    logprobs = (TokenLogprob(token="h", logprob=-1, bytes=(104,), top=(TokenLogprob(token="x", logprob=-2),)),)
    body, notes = encode(says(Text(text="h", logprobs=logprobs)))
    assert decode(body).choices[0].parts == (Text(text="h", logprobs=logprobs),)
    assert notes == []


def test_a_client_that_asked_generate_gets_a_response() -> None:
    asked = DIALECT.decode_request(WireRequest(body={"model": "m", "prompt": "hi"}, path="/api/generate"), Notes())
    body, notes = encode(says(Reasoning(text="hm"), Text(text="hi")), asked)
    assert (body["response"], body["thinking"], notes) == ("hi", "hm", [])
    assert "message" not in body


def test_a_client_that_asked_chat_gets_a_message_whatever_the_upstream_said() -> None:
    asked = DIALECT.decode_request(WireRequest(body={"model": "m", "messages": []}), Notes())
    body, _ = encode(decode({"model": "m", "created_at": TIME, "response": "hi", "done": True}), asked)
    assert body["message"] == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize("body", [[], "hi", {"message": []}, {"message": {"content": 1}}, {"response": False}])
def test_what_is_no_answer_is_refused(body: Any) -> None:
    with pytest.raises(DecodeError):
        decode(body)
