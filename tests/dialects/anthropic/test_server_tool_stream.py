"""A call of a tool that the provider runs itself comes in pieces, as other calls do: what it asked for is kept."""

import json
from typing import Any

from dragoman.dialects import find_dialect
from dragoman.model.fold import fold
from dragoman.model.messages import Opaque
from dragoman.model.reply import Reply
from dragoman.notes import Notes

CALL: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
HEAD: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def frame(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def piece(text: str) -> bytes:
    return frame("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": text})


STREAM = (
    frame("message_start", message=HEAD)
    + frame("content_block_start", index=0, content_block=CALL)
    + piece('{"query":')
    + piece('"x"}')
    + frame("content_block_stop", index=0)
    + frame("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2})
    + frame("message_stop")
)


def test_what_a_server_tool_was_asked_for_is_kept() -> None:
    dialect = find_dialect("anthropic")
    decoder, encoder = dialect.stream_decoder(Notes()), dialect.stream_encoder(Notes())
    events = decoder.feed(STREAM) + decoder.close()
    reply = fold(events)
    assert isinstance(reply, Reply)
    (part,) = reply.choices[0].parts
    assert isinstance(part, Opaque)
    assert part.body == {**CALL, "input": {"query": "x"}}
    again = dialect.stream_decoder(Notes())
    written = fold(again.feed(encoder.feed(events) + encoder.close()) + again.close())
    assert isinstance(written, Reply)
    assert written.choices[0].parts == (part,)
