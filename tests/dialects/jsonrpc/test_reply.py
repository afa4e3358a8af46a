"""JSON-RPC `generate_content`: results, errors and streams."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman.dialects.jsonrpc import (
    StreamDecoder,
    StreamEncoder,
    decode_failure,
    decode_reply,
    encode_failure,
    encode_reply,
)
from dragoman.dialects.jsonrpc.words import CODES
from dragoman.failure import KINDS, Failure, FailureKind
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Document, Image, Opaque, Part, Reasoning, Refusal, Seal, Text, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply
from tests.laws.strategies import replies

DOCS = Path(__file__).parents[3] / "docs" / "jsonrpc.md"


def says(*parts: Part, reason: FinishReason = "stop", **more: Any) -> Reply:
    return Reply(id="", model="m", choices=(Choice(parts=parts, finish=Finish(reason=reason)),), **more)


def encode(reply: Reply) -> tuple[dict[str, Any], set[str]]:
    notes = Notes()
    return load_json(dump_json(encode_reply(reply, notes).body)), {note.where for note in notes}


def test_the_result_of_the_old_gateway() -> None:
    result, notes = encode(says(Text(text="hi")))
    assert result == {"generated_text": "hi", "finish_reason": "STOP", "model": "m"}
    assert notes == set()


@pytest.mark.parametrize(
    "reply",
    [
        says(
            Reasoning(text="hm"), Text(text="hi"), ToolCall(id="x", name="f", arguments='{"a":1}'), reason="tool_call"
        ),
        says(ToolCall(id="x", name="f", arguments='{"a":', seal=Seal(origin="gemini", value="s")), reason="malformed"),
        says(Image(data="AAAA", media_type="image/png")),
        says(Text(text="hi"), usage=Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5)),
        says(Text(text="hi"), usage=Usage(output=4)),
        says(reason="length"),
    ],
)
def test_what_a_result_can_say_comes_back(reply: Reply) -> None:
    result, notes = encode(reply)
    assert notes == set()
    assert decode_reply(WireReply(body=result), Notes()) == reply


def test_usage_counts_in_all() -> None:
    result, _ = encode(says(usage=Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5)))
    assert result["usage"] == {
        "input_tokens": 6,
        "output_tokens": 9,
        "cache_read_tokens": 2,
        "cache_write_tokens": 3,
        "reasoning_tokens": 5,
    }


often = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_has_a_code_and_comes_back(kind: FailureKind) -> None:
    failure = Failure(
        kind=kind, message="no", status=418, code="c", param="/p", retry_after_s=1.5, request_id="req", extras={}
    )
    wire = encode_failure(failure)
    assert wire.status == 200
    assert wire.headers == {"retry-after": "2"}
    assert wire.body["code"] == CODES[kind]
    assert wire.body["data"]["kind"] == kind
    again = decode_failure(WireReply(body={"jsonrpc": "2.0", "error": wire.body, "id": 1}))
    assert (again.kind, again.status, again.code, again.param) == (kind, 418, "c", "/p")
    assert (again.retry_after_s, again.request_id) == (1.5, "req")
    assert again.message.endswith("no")
    assert encode_failure(again).body == wire.body


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"code": -32603, "message": "boom"}, "server_error", "boom"),
        ({"code": -32601, "message": "Method not found"}, "not_found", "Method not found"),
        ({"code": -32700, "message": "Parse error"}, "invalid_request", "Parse error"),
        ({"code": 5, "message": "odd", "data": "why"}, "unknown", "odd"),
        ({"code": -32029, "message": "slow", "data": {"retry_after_s": "soon", "x": 1}}, "rate_limited", "slow"),
        ({}, "server_error", ""),
    ],
)
def test_errors_of_other_servers_are_read(error: dict[str, Any], kind: FailureKind, message: str) -> None:
    failure = decode_failure(WireReply(body={"error": error, "id": None}))
    assert (failure.kind, failure.message) == (kind, message)


def test_a_broken_upstream_is_not_our_own_fault() -> None:
    assert encode_failure(Failure(kind="server_error", message="x", status=502)).body["code"] == -32050
    assert encode_failure(Failure(kind="server_error", message="x")).body["code"] == -32603


# ---------------------------------------------------------------- streams


def stream(*events: Event, call_id: Any = 1) -> tuple[list[dict[str, Any]], bytes]:
    encoder = StreamEncoder(Notes(), call_id=call_id)
    data = b"".join(encoder.feed([event]) for event in events) + encoder.close()
    assert encoder.feed(events) + encoder.close() == b"", "nothing follows the end"
    return check_stream(data, call_id), data


def check_stream(data: bytes, call_id: Any) -> list[dict[str, Any]]:
    """Notifications about the call, then exactly one response to it, last."""
    assert data.endswith(b"\n")
    lines: list[dict[str, Any]] = [json.loads(line) for line in data.split(b"\n")[:-1]]
    for line in lines[:-1]:
        assert line.keys() == {"jsonrpc", "method", "params"}
        assert line["method"] in ("generate_content.start", "generate_content.delta")
        assert line["params"]["id"] == call_id
        assert len(line["params"]) == 2
    last = lines[-1]
    assert last["id"] == call_id
    assert last.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    if "result" in last:
        deltas = [line["params"].get("text", "") for line in lines[:-1]]
        assert "".join(deltas) == last["result"]["generated_text"]
        assert [line["params"]["tool_call"] for line in lines[:-1] if "tool_call" in line["params"]] == last[
            "result"
        ].get("tool_calls", [])
    return lines


REPLY = says(
    Reasoning(text="hm"),
    Text(text="hi"),
    ToolCall(id="x", name="f", arguments='{"a":1}'),
    ToolCall(id="y", name="g", arguments="{"),
    reason="tool_call",
    usage=Usage(input=1, output=2),
)


def test_a_stream_grows_and_ends_with_the_response() -> None:
    lines, data = stream(*unfold(REPLY), call_id="seven")
    assert [line.get("method") for line in lines] == ["generate_content.start", *["generate_content.delta"] * 4, None]
    assert lines[-1]["result"] == encode(REPLY)[0]
    decoder = StreamDecoder(Notes())
    assert fold([*decoder.feed(data), *decoder.close()]) == REPLY


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_any_split_of_the_bytes_gives_the_same_events(size: int) -> None:
    _, data = stream(*unfold(REPLY))
    data = data.rstrip(b"\n")
    decoder = StreamDecoder(Notes())
    events = [event for i in range(0, len(data), size) for event in decoder.feed(data[i : i + size])]
    assert fold([*events, *decoder.close()]) == REPLY


def test_an_unstreamed_response_is_read_as_a_stream_too() -> None:
    line = dump_json({"jsonrpc": "2.0", "result": encode(REPLY)[0], "id": 1})
    decoder = StreamDecoder(Notes())
    assert fold([*decoder.feed(line), *decoder.close()]) == REPLY


@often
@given(reply=replies())
def test_a_streamed_result_is_the_unstreamed_one(reply: Reply) -> None:
    lines, _ = stream(*unfold(reply))
    assert lines[-1]["result"] == encode(reply)[0]


def test_parts_that_interleave_arrive_whole() -> None:
    lines, _ = stream(
        ReplyStart(id="r", model="m"),
        PartStart(index=0, part=Text(text="a")),
        PartStart(index=1, part=ToolCall(id="x", name="f", arguments="")),
        PartDelta(index=1, text="{}"),
        PartDelta(index=0, text="b"),
        Aside(dialect="anthropic", body={"type": "ping"}),
        PartEnd(index=1),
        PartEnd(index=0),
        PartStart(index=2, part=Refusal(text="no"), choice=0),
        PartEnd(index=2),
        PartStart(index=3, part=Text(text="other"), choice=1),
        PartEnd(index=3),
        PartStart(index=4, part=Opaque(dialect="anthropic", body={})),
        PartEnd(index=4),
        PartStart(index=5, part=Document(data="AA")),
        PartEnd(index=5),
        ReplyEnd(finishes=(Finish(reason="stop"),)),
    )
    assert lines[-1]["result"]["generated_text"] == "abno"


@pytest.mark.parametrize("after", range(6))
def test_a_failure_anywhere_is_the_response(after: int) -> None:
    failed = ReplyFailed(failure=Failure(kind="overloaded", message="busy"))
    lines, data = stream(*list(unfold(REPLY))[:after], failed)
    assert lines[-1]["error"]["code"] == -32053
    decoder = StreamDecoder(Notes())
    answer = fold([*decoder.feed(data), *decoder.close()])
    assert isinstance(answer, Failure)
    assert answer.kind == "overloaded"


def test_a_stream_without_its_end_is_never_a_success() -> None:
    lines, _ = stream(*list(unfold(REPLY))[:-1])
    assert lines[-1]["error"]["data"]["kind"] == "cut_off"
    decoder = StreamDecoder(Notes())
    cut = fold([*decoder.feed(dump_json(lines[0]) + b"\n"), *decoder.close()])
    assert isinstance(cut, Failure)
    assert cut.kind == "cut_off"


# ---------------------------------------------------------------- the page


def test_the_page_shows_what_we_write() -> None:
    page = DOCS.read_text("utf-8")
    (example,) = re.findall(r"```ndjson\n(.*?)```", page, re.DOTALL)
    reply = Reply(
        id="",
        model="gpt-5.5",
        choices=(Choice(parts=(Text(text=""),), finish=Finish(reason="stop")),),
        usage=Usage(input=11, output=2),
    )
    start, first, end, last = unfold(reply)
    assert isinstance(last, ReplyEnd)
    grown = [PartDelta(index=0, text="Hel"), PartDelta(index=0, text="lo!")]
    _, data = stream(start, first, *grown, end, last)
    assert data.decode() == example


def test_the_examples_of_the_page_are_json() -> None:
    for block in re.findall(r"```json\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL):
        assert json.loads(block)


def test_the_page_names_every_code() -> None:
    page = DOCS.read_text("utf-8")
    for code in {-32700, -32600, -32601, -32602, -32603, -32050, *CODES.values()}:
        assert f"| {code} |" in page
    for kind in KINDS:
        assert f"`{kind}`" in page
