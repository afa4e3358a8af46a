"""JSON-RPC from bytes to bytes, as a door would do it."""

import json
from typing import Any

import pytest

from dragoman.dialects import NAMES, find_dialect
from dragoman.dialects.jsonrpc import Batch, RpcCall, RpcFault, decode_calls, dialect_for, encode_answers, refuse_params
from dragoman.dialects.jsonrpc.calls import encode_error
from dragoman.errors import DecodeError, DragomanError
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json
from dragoman.model.fold import unfold
from dragoman.model.messages import Text
from dragoman.model.reply import Choice, Finish, Reply
from dragoman.notes import Notes
from dragoman.wire import WireRequest


def serve(data: bytes) -> bytes | None:
    """Every model says its own name; the model `broken` fails."""
    batch: Batch = decode_calls(data)
    answers: list[bytes | None] = []
    for call in batch.calls:
        if isinstance(call, RpcFault):
            answers.append(None)
            continue
        answers.append(answer(call))
    return encode_answers(batch, answers)


def answer(call: RpcCall) -> bytes:
    dialect = dialect_for(call.id)
    try:
        request = dialect.decode_request(WireRequest(body=call.params), Notes())
    except DecodeError as error:
        return encode_error(call.id, refuse_params(error))
    if request.model == "broken":
        return dump_json(dialect.encode_failure(Failure(kind="overloaded", message="busy")).body)
    reply = Reply(id="r", model="m", choices=(Choice(parts=(Text(text=request.model),), finish=Finish(reason="stop")),))
    if request.stream:
        encoder = dialect.stream_encoder(Notes(), request)
        return encoder.feed(unfold(reply)) + encoder.close()
    return dump_json(dialect.encode_reply(reply, Notes(), request).body)


def call(model: Any, **keys: Any) -> dict[str, Any]:
    params = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return {"jsonrpc": "2.0", "method": "generate_content", "params": params, **keys}


def test_one_slow_or_broken_call_does_not_lose_the_others() -> None:
    said = serve(dump_json([call("a", id=1), call("broken", id=2), call(None, id=3), call("b"), call("c", id="4")]))
    assert said is not None
    answers = {
        row["id"]: row.get("result", {}).get("generated_text", row.get("error", {}).get("code"))
        for row in json.loads(said)
    }
    assert answers == {1: "a", 2: -32053, 3: -32602, "4": "c"}


def test_a_fractional_id_survives_in_every_kind_of_answer() -> None:
    for model in ("a", "broken", ""):
        data = dump_json(call(model, id=0)).replace(b'"id":0', b'"id":1.50')
        said = serve(data)
        assert said is not None
        assert b'"id":1.50' in said


def test_a_stream_has_the_id_of_its_call_in_every_line() -> None:
    asked = call("a", id="x")
    asked["params"]["stream"] = True
    said = serve(dump_json(asked))
    assert said is not None
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line.get("id") or line["params"]["id"] for line in lines] == ["x"] * 3


def test_nothing_is_converted_to_json_rpc() -> None:
    assert "jsonrpc" not in NAMES
    dialect = find_dialect("jsonrpc")
    request = dialect.decode_request(WireRequest(body=call("a")["params"]), Notes())
    with pytest.raises(DragomanError, match="no provider speaks"):
        dialect.encode_request(request, Notes())


def test_a_body_is_recognised() -> None:
    recognise = dialect_for(None).recognise
    assert recognise(call("a"), "request") == 100
    assert recognise({"jsonrpc": "2.0", "result": {}, "id": 1}, "reply") == 100
    assert recognise({"jsonrpc": "2.0", "error": {}, "id": 1}, "failure") == 100
    assert recognise({"jsonrpc": "2.0", "method": "generate_content.start"}, "stream") == 100
    assert recognise({"model": "a", "messages": []}, "request") == 0
