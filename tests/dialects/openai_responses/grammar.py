"""The grammar of a Responses stream (FIELD-CASES 41 and appendix C), as a checker."""

import json
from typing import Any

from dragoman.framing.sse import SseDecoder

TERMINALS = ("response.completed", "response.incomplete", "response.failed")

# which list of its item a text belongs to, and the key of its place there
TEXTS = {
    "response.output_text": ("content", "output_text", "text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text": ("summary", "summary_text", "text"),
}
PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
CALLS = {"response.function_call_arguments": "arguments", "response.custom_tool_call_input": "input"}


def check_stream(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream; AssertionError where it breaks the grammar."""
    decoder = SseDecoder()
    frames = [*decoder.feed(data), *decoder.close()]
    events = [json.loads(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events], "event: names the type"
    assert [event["sequence_number"] for event in events] == list(range(len(events))), "numbers from 0, without a gap"
    kinds = [event["type"] for event in events]
    assert kinds[-1] in TERMINALS
    assert sum(kind in TERMINALS for kind in kinds) == 1, "exactly one end"
    failed = kinds[-1] == "response.failed"
    if failed:
        assert kinds[-2] == "error", "a failure is said in the flat form too"
        assert "error" not in events[-2]
    if kinds[0] != "error":
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert events[0]["response"]["output"] == []
    _check_items(events, whole=not failed)
    return events


class _Item:
    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.texts: dict[tuple[str, int], str] = {}  # open parts
        self.whole: dict[tuple[str, int], dict[str, Any]] = {}  # parts that are done
        self.arguments = ""
        self.done = False


def _check_items(events: list[dict[str, Any]], *, whole: bool) -> None:
    items: dict[int, _Item] = {}
    for event in events[:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items), "indexes are dense"
            assert event["item"]["id"], "an item has an id"
            items[event["output_index"]] = _Item(event["item"])
        elif "output_index" in event:
            _check_event(items[event["output_index"]], event)
    if whole:
        assert all(item.done for item in items.values()), "an item is never done"
    output = events[-1]["response"]["output"]
    assert output == [item.item for item in items.values() if item.done], "the end repeats what was streamed"


def _check_event(item: _Item, event: dict[str, Any]) -> None:
    kind = event["type"]
    assert not item.done, f"{kind} after the end of its item"
    if kind == "response.output_item.done":
        _check_done(item, event["item"])
        return
    assert event["item_id"] == item.item["id"], "the same id throughout"
    stem, _, step = kind.rpartition(".")
    if stem in PARTS:
        where = (PARTS[stem], event[f"{PARTS[stem]}_index"])
        if step == "added":
            assert where[1] == sum(key[0] == where[0] for key in (*item.texts, *item.whole)), "parts are dense"
            assert not item.texts, "parts of an item do not overlap"
            item.texts[where] = ""
        else:
            assert event["part"].get("text", event["part"].get("refusal")) == item.texts.pop(where)
            item.whole[where] = event["part"]
    elif stem in TEXTS:
        list_, _, key = TEXTS[stem]
        where = (list_, event[f"{list_}_index"])
        assert where in item.texts, f"{kind} outside its part"
        if step == "delta":
            item.texts[where] += event["delta"]
        else:
            assert event[key] == item.texts[where], "the text is what its deltas say"
    elif stem in CALLS:
        if step == "delta":
            item.arguments += event["delta"]
        else:
            assert event[CALLS[stem]] == item.arguments, "the arguments are what their deltas say"
    else:
        assert kind.startswith("response."), kind


def _check_done(item: _Item, body: dict[str, Any]) -> None:
    assert body["id"] == item.item["id"], "the same id throughout"
    assert body["type"] == item.item["type"]
    assert not item.texts, "a part is never done"
    if body["type"] in ("message", "reasoning"):
        for where in ("content", "summary"):
            streamed = [part for (key, _), part in sorted(item.whole.items()) if key == where]
            assert len(body.get(where) or []) == len(streamed), f"{where} that was not streamed"
            for part, said in zip(streamed, body.get(where) or [], strict=True):
                assert part == said, "the item is what its parts say"
    if body["type"] in ("function_call", "custom_tool_call"):
        assert body.get("arguments", body.get("input")) == item.arguments
    if "_dragoman_" in body["id"]:  # a provider's own word is passed on as it is
        assert body.get("status") != "in_progress"
    item.item, item.done = body, True
