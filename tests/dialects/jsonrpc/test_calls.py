"""JSON-RPC 2.0: what the specification says about calls, and what its clients send all the same."""

import json
from typing import Any

import pytest

from dragoman.dialects.jsonrpc import (
    RpcCall,
    RpcFault,
    calls,
    decode_calls,
    encode_answers,
    encode_error,
    encode_result,
    refuse_params,
)
from dragoman.errors import DecodeError


def respond(data: bytes) -> Any:
    """Answer every call with its own parameters."""
    batch = decode_calls(data, ("generate_content", "other"))
    answers = [encode_result(c.id, c.params) if isinstance(c, RpcCall) else None for c in batch.calls]
    said = encode_answers(batch, answers)
    return None if said is None else json.loads(said)


def call(**keys: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "generate_content", **keys}


def sent(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("data", "code", "call_id"),
    [
        (b'{"jsonrpc": "2.0", "method": "generate_content", "params"', -32700, None),
        (b"", -32700, None),
        (b"\xff", -32700, None),
        (b'[{"jsonrpc": "2.0", "method"', -32700, None),
        (b"[]", -32600, None),
        (b"42", -32600, None),
        (b"null", -32600, None),
        (b'"generate_content"', -32600, None),
        (sent({"method": "generate_content", "id": 1}), -32600, 1),
        (sent(call(jsonrpc="1.0", id=1)), -32600, 1),
        (sent(call(jsonrpc=2.0, id=1)), -32600, 1),
        (sent({"jsonrpc": "2.0", "id": 1}), -32600, 1),
        (sent(call(method=1, params="bar")), -32600, None),
        (sent(call(method=None, id="a")), -32600, "a"),
        (sent(call(id={})), -32600, None),
        (sent(call(id=[1])), -32600, None),
        (sent(call(id=True)), -32600, None),
        (sent(call(method="chat", id=7)), -32601, 7),
        (sent(call(method="rpc.discover", id=7)), -32601, 7),
        (sent(call(method="", id=7)), -32601, 7),
        (sent(call(params="x", id=7)), -32602, 7),
        (sent(call(params=[1, 2], id=7)), -32602, 7),
        (sent(call(params=None, id=7)), -32602, 7),
        (sent(call(params=1, id=None)), -32602, None),
    ],
)
def test_every_code_the_specification_has(data: bytes, code: int, call_id: Any) -> None:
    batch = decode_calls(data)
    assert batch.single
    assert isinstance(batch.calls[0], RpcFault)
    answer = respond(data)
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", call_id)


@pytest.mark.parametrize(
    "written",
    [
        "7",
        "0",
        "-1",
        '"7"',
        '""',
        "null",
        "1.5",
        "1.10",
        "1.0",
        "1e3",
        "123456789012345678901234567890",
        "-9223372036854775809",
    ],
)
@pytest.mark.parametrize("frame", [b"%b", b" [%b ] "])
def test_an_id_comes_back_as_it_was_written(written: str, frame: bytes) -> None:
    data = b'{"params": {"id": 5}, "id" : %b , "jsonrpc":"2.0","method":"generate_content"}' % written.encode()
    batch = decode_calls(frame % data)
    (made,) = batch.calls
    assert isinstance(made, RpcCall)
    assert not made.notification
    said = encode_answers(batch, [encode_result(made.id, {})])
    assert said is not None
    assert said.strip(b"[]") == b'{"jsonrpc":"2.0","result":{},"id":%b}' % written.encode()
    assert encode_error(made.id, {}).endswith(b'"id":%b}' % written.encode())


def test_a_call_with_a_null_id_is_a_call() -> None:
    assert respond(sent(call(id=None, params={"a": 1}))) == {"jsonrpc": "2.0", "result": {"a": 1}, "id": None}


@pytest.mark.parametrize(
    "data",
    [
        sent(call(params={})),
        sent(call(method="unknown")),
        sent(call(params=[1])),
        sent([call(), call(method="unknown")]),
    ],
)
def test_a_notification_is_answered_nothing(data: bytes) -> None:
    assert all(made.notification for made in decode_calls(data).calls)
    assert respond(data) is None


def test_params_may_be_left_out() -> None:
    assert respond(sent(call(id=1)))["result"] == {}


def test_a_mixed_batch_is_answered_one_by_one() -> None:
    answers = respond(
        sent(
            [
                call(id=1, params={"a": 1}),
                call(params={"silent": True}),
                42,
                {"foo": "boo"},
                call(id="2", method="nope"),
                call(id=1.5, method="other"),
                call(id=None, params=[]),
                [],
            ]
        )
    )
    assert [(answer["id"], answer.get("error", {}).get("code")) for answer in answers] == [
        (1, None),
        (None, -32600),
        (None, -32600),
        ("2", -32601),
        (1.5, None),
        (None, -32602),
        (None, -32600),
    ]


def test_a_batch_of_one_is_still_a_batch() -> None:
    assert respond(sent([call(id=1)])) == [{"jsonrpc": "2.0", "result": {}, "id": 1}]


def test_wrong_params_say_where() -> None:
    error = refuse_params(DecodeError("expected string, found number", "model").under("params"))
    assert error == {
        "code": -32602,
        "message": "Invalid params: /params/model: expected string, found number",
        "data": {"kind": "invalid_request", "param": "/params/model"},
    }


def test_a_batch_of_too_many_is_refused_before_its_calls_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a million ones cost seconds and 300 MB."""
    monkeypatch.setattr(calls, "_decode_call", None)
    batch = decode_calls(b"[" + b",".join([b"1"] * 101) + b"]")
    assert batch.single
    (fault,) = batch.calls
    assert isinstance(fault, RpcFault)
    assert fault.error["message"] == "Invalid Request: more than 100 calls"


@pytest.mark.parametrize("frame", [b"%b", b"[%b]"])
def test_half_a_surrogate_pair_is_no_error_of_ours(frame: bytes) -> None:
    """Found by bench/fuzz.py."""
    call = b'{"jsonrpc":"2.0","id":1.5,"method":"generate_content","params":{"model":"\\ud800"}}'
    (made,) = decode_calls(frame % call).calls
    assert isinstance(made, RpcCall)
