"""Replies and errors: a response says why it ended only by its status and its output."""

from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.messages import (
    Audio,
    Citation,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
)
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import Request, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.wire import WireReply

NAME = "openai_responses"
HERE = find_dialect(NAME)

SAID = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
MESSAGE = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [SAID]}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": list(output),
        "usage": None,
    } | more


def decode(body: dict[str, Any]) -> Reply:
    return HERE.decode_reply(WireReply(body=copy_json(body)), Notes())


def encode(*parts: Part, finish: FinishReason = "stop", request: Request | None = None) -> tuple[Any, list[str]]:
    notes = Notes()
    reply = Reply(id="r", model="m", created=1, choices=(Choice(parts=parts, finish=Finish(reason=finish)),))
    body = load_json(dump_json(HERE.encode_reply(reply, notes, request).body))
    found = [f"{note.kind} {note.where}" for note in notes]
    return body, found


EXACT: dict[str, dict[str, Any]] = {
    "a message": response(MESSAGE),
    "two messages and a call": response(MESSAGE | {"phase": "commentary"}, MESSAGE | {"id": "msg_2"}, CALL),
    "items without id or status": response(
        {"type": "message", "role": "assistant", "content": [SAID]}, {**CALL, "id": None}
    ),
    "no status at all": {key: value for key, value in response(MESSAGE).items() if key not in ("status", "error")},
    "nothing but output": {"id": "resp_1", "model": "m", "output": [MESSAGE]},
    "queued": response(status="queued", background=True),
    "cancelled": response(status="cancelled"),
    "failed": response(status="failed", error={"code": "server_error", "message": "no"}),
    "incomplete": response(MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "steered": response(MESSAGE, status="incomplete", incomplete_details={"reason": "steered"}),
    "complete at the limit": response(MESSAGE, incomplete_details={"reason": "max_output_tokens"}),
    "a message of the user": response(MESSAGE | {"role": "user"}),
    "tools of the provider": response({"type": "web_search_call", "id": "ws_1", "status": "failed"}, MESSAGE),
    "an old usage": response(MESSAGE, usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    "a usage that does not add up": response(
        MESSAGE,
        usage={
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 20, "tomorrow": 1},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 9},
            "total_tokens": 99,
            "cost": 0.1,
        },
    ),
    "citations": response(
        MESSAGE
        | {
            "content": [
                SAID
                | {
                    "annotations": [
                        {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 2},
                        {"type": "url_citation", "url": "u"},
                        {"type": "file_citation", "file_id": "f", "filename": "a.txt", "index": 3},
                        {"type": "container_file_citation", "container_id": "c", "start_index": 1, "end_index": 2},
                    ]
                }
            ]
        }
    ),
    "logprobs": response(
        MESSAGE
        | {
            "content": [
                SAID
                | {
                    "logprobs": [
                        {"token": "h", "bytes": [104], "logprob": -0.5, "top_logprobs": []},
                        {
                            "token": "i",
                            "logprob": -0.5,
                            "top_logprobs": [{"token": "o", "logprob": -2.0, "bytes": None}],
                        },
                    ]
                }
            ]
        }
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_a_response_comes_back_word_for_word(case: str) -> None:
    notes = Notes()
    body = HERE.encode_reply(decode(EXACT[case]), notes).body
    assert load_json(dump_json(body)) == EXACT[case]
    assert list(notes) == []


REFUSED = MESSAGE | {"content": [{"type": "refusal", "refusal": "no"}]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (response(MESSAGE), "stop"),
        (response(MESSAGE, CALL), "tool_call"),
        (response(REFUSED), "refusal"),
        (response({"type": "web_search_call", "id": "ws_1", "status": "completed"}), "stop"),
        (response(CALL, status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response(status="incomplete", incomplete_details={"reason": "content_filter"}), "filter"),
        (response(status="incomplete", incomplete_details={"reason": "steered"}), "other"),
        (response(MESSAGE, incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response(status="cancelled"), "other"),
        (response(status="failed", error={"code": "server_error", "message": "no"}), "other"),
        (response(status="in_progress"), "other"),
        (response(CALL, status="queued"), "other"),
    ],
)
def test_why_a_response_ended(body: dict[str, Any], reason: str) -> None:
    finish = decode(body).choices[0].finish
    assert finish is not None
    assert finish.reason == reason


@pytest.mark.parametrize(
    ("parts", "finish", "status", "details", "notes"),
    [
        ((Text(text="a"),), "stop", "completed", None, []),
        ((Text(text="a"),), "length", "incomplete", {"reason": "max_output_tokens"}, []),
        ((Text(text="a"),), "context", "incomplete", {"reason": "max_output_tokens"}, ["altered"]),
        ((Text(text="a"),), "filter", "incomplete", {"reason": "content_filter"}, []),
        ((Refusal(text="a"),), "refusal", "completed", None, []),
        ((Text(text="a"),), "refusal", "incomplete", {"reason": "content_filter"}, ["altered"]),
        ((Text(text="a"),), "sequence", "completed", None, ["altered"]),
        ((Text(text="a"),), "malformed", "incomplete", None, ["altered"]),
        ((Text(text="a"),), "other", "incomplete", None, []),
        ((ToolCall(id="c", name="f", arguments="{}"),), "tool_call", "completed", None, []),
        ((ToolCall(id="c", name="f", arguments="{}"),), "stop", "completed", None, ["altered"]),
    ],
)
def test_a_foreign_end_is_said_by_the_status(
    parts: tuple[Part, ...], finish: FinishReason, status: str, details: Any, notes: list[str]
) -> None:
    body, found = encode(*parts, finish=finish)
    assert (body["status"], body["incomplete_details"]) == (status, details)
    assert found == [f"{kind} /choices/0/finish/reason" for kind in notes]


def test_a_call_that_was_cut_off_is_not_one_to_run() -> None:
    body, _ = encode(Text(text="a"), ToolCall(id="c", name="f", arguments='{"a":'), finish="length")
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]


def test_foreign_reasoning_is_shown_as_a_summary_with_its_seal_beside_it() -> None:
    body, notes = encode(Reasoning(text="hm", seal=Seal(origin="anthropic", value="c2ln")), Text(text="so"))
    assert body["output"][0] == {
        "type": "reasoning",
        "id": "rs_dragoman_r_0",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "dragoman": {"seal": {"origin": "anthropic", "value": "c2ln"}},
    }
    assert notes == ["altered /choices/0/parts/0/summary"]
    first = decode(body).choices[0].parts[0]
    assert isinstance(first, Reasoning)
    assert first.seal == Seal(origin="anthropic", value="c2ln")


def test_texts_of_one_turn_are_one_message_and_a_call_ends_it() -> None:
    body, _ = encode(Text(text="a"), Text(text="b"), ToolCall(id="c", name="f", arguments="{}"), Text(text="d"))
    assert [item["type"] for item in body["output"]] == ["message", "function_call", "message"]
    assert [block["text"] for block in body["output"][0]["content"]] == ["a", "b"]
    assert [item["id"] for item in body["output"]] == ["msg_dragoman_r_0", "fc_dragoman_r_1", "msg_dragoman_r_2"]


def test_a_picture_is_the_result_of_a_drawing_tool() -> None:
    body, notes = encode(Image(data="iVBO", media_type="image/png"), Audio(data="UklG"), Opaque(dialect="x", body={}))
    (item,) = body["output"]
    assert (item["type"], item["result"], item["output_format"]) == ("image_generation_call", "iVBO", "png")
    assert notes == ["altered /choices/0/parts/0", "dropped /choices/0/parts/1", "dropped /choices/0/parts/2"]


def test_a_citation_without_a_span_covers_its_text() -> None:
    body, notes = encode(Text(text="hello", citations=(Citation(url="u", quote="q"), Citation(quote="nowhere"))))
    assert body["output"][0]["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "u", "title": "", "start_index": 0, "end_index": 5}
    ]
    assert notes == [
        "dropped /choices/0/parts/0/citations/0/quote",
        "invented /choices/0/parts/0/citations/0",
        "dropped /choices/0/parts/0/citations/1/quote",
        "dropped /choices/0/parts/0/citations/1",
    ]


def test_tokens_get_the_bytes_their_types_demand() -> None:
    tokens = (TokenLogprob(token="é", logprob=-1, top=(TokenLogprob(token="e", logprob=-2),)),)
    body, notes = encode(Text(text="é", logprobs=tokens))
    assert body["output"][0]["content"][0]["logprobs"] == [
        {
            "token": "é",
            "logprob": -1.0,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "e", "logprob": -2.0, "bytes": [101]}],
        }
    ]
    assert notes == ["invented /choices/0/parts/0/logprobs"]


def test_usage_is_counted_apart_and_added_up_again() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 150,
    }
    reply = decode(response(usage=usage))
    assert reply.usage == Usage(input=30, cache_read=60, cache_write=10, output=30, reasoning=20)
    assert HERE.encode_reply(reply, Notes()).body["usage"] == usage


def test_a_reply_repeats_what_was_asked() -> None:
    request = Request(
        model="m",
        messages=(
            Message(role="system", parts=(Text(text="be brief"),)),
            Message(role="user", parts=(Text(text="hi"),)),
        ),
        tools=(Tool(name="f", parameters={"type": "object", "properties": {}}, strict=True),),
        tool_choice=ToolChoice(mode="required"),
        temperature=0.5,
        metadata={"a": "b"},
        max_output=50,
        verbosity="low",
    )
    body, _ = encode(Text(text="hi"), request=request)
    assert body["instructions"] == "be brief"
    assert body["tools"][0]["name"] == "f"
    assert body["tool_choice"] == "required"
    assert (body["temperature"], body["metadata"], body["max_output_tokens"]) == (0.5, {"a": "b"}, 50)
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        (
            {"error": {"message": "m", "type": "invalid_request_error", "code": "invalid_api_key"}},
            401,
            "unauthenticated",
            "m",
        ),
        ({"error": {"message": "m", "type": "requests", "code": None}}, 429, "rate_limited", "m"),
        (
            {"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}},
            429,
            "no_credit",
            "m",
        ),
        ({"error": {"message": "m", "code": "context_length_exceeded"}}, 400, "too_long", "m"),
        ({"error": {"message": "This model's maximum context length is 8", "code": 400}}, 400, "too_long", None),
        ({"error": {"message": "m", "type": "exceed_context_size_error", "code": 400}}, 400, "too_long", "m"),
        ({"error": {"message": "m", "code": "previous_response_not_found"}}, 400, "not_found", "m"),
        ({"code": "invalid-argument", "error": "m"}, 400, "invalid_request", "m"),
        ({"detail": "m"}, 401, "unauthenticated", "m"),
        ({"detail": [{"loc": ["body"]}]}, 422, "invalid_request", None),
        ({"error": {"message": "m", "code": 503}}, 200, "overloaded", "m"),
        ({"message": "m"}, 500, "server_error", "m"),
        ("bad gateway", 502, "server_error", "bad gateway"),
    ],
)
def test_an_error_is_read_in_any_shape(body: Any, status: int, kind: str, message: str | None) -> None:
    failure = HERE.decode_failure(WireReply(body=body, status=status))
    assert failure.kind == kind
    assert failure.message
    assert message is None or failure.message == message


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (
            Failure(kind="too_long", message="m", status=400, code="invalid_request_error"),
            400,
            "context_length_exceeded",
        ),
        (Failure(kind="overloaded", message="m", status=529), 503, "server_is_overloaded"),
        (Failure(kind="rate_limited", message="m", status=429), 429, "rate_limit_exceeded"),
        (Failure(kind="no_credit", message="m"), 429, "insufficient_quota"),
        (Failure(kind="no_credit", message="m", code="budget_exceeded"), 429, "insufficient_quota"),
        (
            Failure(kind="invalid_request", message="m", param="model", code="unsupported_value"),
            400,
            "unsupported_value",
        ),
        (Failure(kind="invalid_request", message="m"), 400, None),
        (Failure(kind="cut_off", message="m"), 502, "server_error"),
    ],
)
def test_an_error_has_the_code_clients_act_on(failure: Failure, status: int, code: str | None) -> None:
    wire = HERE.encode_failure(failure)
    assert wire.status == status
    assert wire.body["error"]["code"] == code
    assert set(wire.body["error"]) == {"message", "type", "param", "code"}
    assert HERE.decode_failure(wire).kind in (failure.kind, "server_error")


def test_how_long_to_wait_is_passed_on() -> None:
    wire = HERE.encode_failure(Failure(kind="rate_limited", message="m", retry_after_s=1.2, request_id="req_1"))
    assert wire.headers == {"retry-after": "2", "x-request-id": "req_1"}
