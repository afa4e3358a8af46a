"""The grammar of an Anthropic stream (FIELD-CASES, appendix C), as a checker."""

import json
from typing import Any

from dragoman.framing.sse import SseDecoder

DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
}


def check_stream(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream; AssertionError where it breaks the grammar."""
    decoder = SseDecoder()
    frames = [*decoder.feed(data), *decoder.close()]
    events = [json.loads(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events], "event: names the type"
    talk = [event for event in events if event["type"] != "ping"]
    if talk and talk[-1]["type"] == "error":
        check_blocks(talk[1:-1] if talk[0]["type"] == "message_start" else talk[:-1], whole=False)
        return events
    assert talk[0]["type"] == "message_start"
    assert [event["type"] for event in talk[-2:]] == ["message_delta", "message_stop"]
    check_blocks(talk[1:-2], whole=True)
    return events


def check_blocks(events: list[dict[str, Any]], *, whole: bool) -> None:
    opened: dict[str, Any] | None = None
    count, pieces = 0, ""
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert opened is None, "blocks overlap"
                assert event["index"] == count, "indexes are dense"
                opened, pieces = event["content_block"], ""
            case "content_block_delta":
                assert opened is not None, "a delta outside its block"
                assert event["index"] == count
                assert event["delta"]["type"] in DELTAS[opened["type"]], "a delta of another type than its block"
                pieces += event["delta"].get("partial_json", "")
            case "content_block_stop":
                assert opened is not None
                assert event["index"] == count
                if opened["type"] == "tool_use":
                    assert opened["input"] == {}, "arguments come as deltas"
                opened, count = None, count + 1
            case other:
                raise AssertionError(f"{other} among the blocks")
    assert opened is None or not whole, "a block never stops"
