"""For each dialect: what its bodies need beyond their types, and how an event becomes a whole stream."""

from collections.abc import Callable
from typing import Any

from dragoman.jsontypes import JsonObject, copy_json, dump_json
from tests.fields.measure import Door, reply_door, request_door, stream_door
from tests.fields.samples import Settings

# ---------------------------------------------------------------- anthropic

_ANTHROPIC = Settings(
    fill={
        "Message": {"content": [], "stop_reason": "refusal"},
        "RefusalStopDetails": {"category": "bio"},
        "Delta": {"stop_reason": "refusal"},
        "SystemMessageParam": {"content": "x"},
        "Usage": {"input_tokens": 9000, "output_tokens": 9000},
    },
    base={"model": "x", "max_tokens": 9000, "messages": []},
    values={
        "source.media_type": ("image/png", "image/jpeg"),
        "temperature": (0.25, 0.5),
        "top_p": (0.25, 0.5),
        "stream": (True, False),
    },
)
_START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}
_END = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"output_tokens": 9},
}
_BLOCKS: dict[str, JsonObject] = {
    "input_json_delta": {"type": "tool_use", "id": "t", "name": "n", "input": {}},
    "thinking_delta": {"type": "thinking", "thinking": "", "signature": ""},
    "signature_delta": {"type": "thinking", "thinking": "", "signature": ""},
    "compaction_delta": {"type": "compaction", "content": ""},
}


def _anthropic_stream(event: JsonObject) -> bytes:
    stop = {"type": "message_stop"}
    index = event.get("index", 0)
    close = {"type": "content_block_stop", "index": index}
    text = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    match event.get("type"):
        case "message_start":
            frames = [event, _END, stop]
        case "content_block_start":
            frames = [_START, event, close, _END, stop]
        case "content_block_delta":
            block = _BLOCKS.get(event["delta"]["type"], {"type": "text", "text": ""})
            frames = [_START, text | {"content_block": block}, event, close, _END, stop]
        case "content_block_stop":
            frames = [_START, text, event, _END, stop]
        case "message_delta":
            frames = [_START, event, stop]
        case "message_stop":
            frames = [_START, _END, event]
        case "error":
            error = {"type": "api_error", "message": "x", **event.get("error", {})}
            frames = [_START, {**event, "error": error}]
        case _:
            frames = [_START, event, _END, stop]
    return b"".join(b"event: %b\ndata: %b\n\n" % (f["type"].encode(), dump_json(copy_json(f))) for f in frames)


# ---------------------------------------------------------------- all of them

FRAMES: dict[str, Callable[[Any], bytes]] = {"anthropic": _anthropic_stream}
SETTINGS: dict[str, Settings] = {"anthropic": _ANTHROPIC}


def door(dialect: str, section: str) -> Door:
    settings = SETTINGS[dialect]
    match section.split()[-1]:
        case "request":
            return request_door(dialect, settings)
        case "reply":
            return reply_door(dialect, settings._replace(base={}))
        case _:
            return stream_door(dialect, settings._replace(base={}), FRAMES[dialect])
