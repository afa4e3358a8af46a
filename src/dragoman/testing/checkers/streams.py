"""Checks that a vendor's own client can read a streamed answer. The result is a list of objections.

If a stream breaks one of these rules, an official SDK raises, loses a call or runs a wrong one (openai 2.x and
openai-node, anthropic 0.7x, google-genai 1.x, ollama 0.6). No code is shared with the decoders.
"""

import json
import re
from collections.abc import Callable

from dragoman.jsontypes import JsonObject
from dragoman.testing.checkers.shared import Complaints, objects, repeated

CHAT_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")


def check_stream(dialect: str, data: bytes) -> Complaints:
    """The objections to all bytes of one stream."""
    return _CHECKS[dialect](data)


def _frames(data: bytes) -> list[tuple[str, str]]:
    """The name and the data of each event. Clients ignore a last event without a blank line after it."""
    found: list[tuple[str, str]] = []
    blocks = re.split(r"\r\n\r\n|\n\n|\r\r", data.decode())
    for block in blocks[:-1]:
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        name = next((line[6:].strip() for line in lines if line.startswith("event:")), "")
        text = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        if text:
            found.append((name, text))
    return found


def _unended(data: bytes) -> Complaints:
    return [] if re.search(rb"(\r\n\r\n|\n\n|\r\r)$", data) else ["the last event has no blank line behind it"]


def _lacks(holder: JsonObject, where: str, **kinds: type | tuple[type, ...]) -> Complaints:
    return [
        f"{where} has no {key}"
        for key, kind in kinds.items()
        if not isinstance(holder.get(key), kind) or holder[key] == ""
    ]


def _same_ids(ids: list[str]) -> Complaints:
    return [f"two calls have the id {name}" for name in repeated(ids)]


# ---------------------------------------------------------------- OpenAI Chat


def _check_chat(data: bytes) -> Complaints:
    frames, wrong = [text for _, text in _frames(data)], _unended(data)
    if "error" in json.loads(frames[-1] if frames[-1] != "[DONE]" else "{}"):
        return wrong
    if frames[-1] != "[DONE]":
        wrong.append("the stream does not end with [DONE]")
    chunks = [json.loads(text) for text in frames if text != "[DONE]"]
    for chunk in chunks:
        wrong += _lacks(chunk, "a chunk", id=str, object=str, created=int, model=str, choices=list)
    choices: dict[int, list[JsonObject]] = {}
    for choice in (choice for chunk in chunks for choice in objects(chunk.get("choices"))):
        wrong += _lacks(choice, "a choice", index=int, delta=dict)
        choices.setdefault(choice.get("index", 0), []).append(choice)
    for pieces in choices.values():
        wrong += _check_chat_choice(pieces)
    return wrong


def _check_chat_choice(pieces: list[JsonObject]) -> Complaints:
    calls, wrong = _gather_calls(pieces)
    if not any((piece.get("delta") or {}).get("role") for piece in pieces):
        wrong.append("no delta of a choice has its role")
    for call in calls.values():
        wrong += _lacks(call, "a call", id=str, type=str, name=str, arguments=str)
        wrong += _check_arguments(call.get("arguments"))
    if list(calls) != list(range(len(calls))):
        wrong.append("calls are not numbered 0, 1, 2")
    if any(not isinstance((piece.get("delta") or {}).get("content"), str | None) for piece in pieces):
        wrong.append("the content of a delta is no text")
    if any(piece.get("finish_reason") == "" for piece in pieces):
        wrong.append("an empty finish_reason is no word of OpenAI's")
    ends = [piece["finish_reason"] for piece in pieces if piece.get("finish_reason")]
    if not ends:
        wrong.append("a choice has no finish_reason")
    elif ends[-1] not in CHAT_FINISHES:
        wrong.append(f"finish_reason {ends[-1]} is no word of OpenAI's")
    elif calls and ends[-1] == "stop":
        wrong.append("finish_reason stop, though there are calls")
    return wrong + _same_ids([call["id"] for call in calls.values() if call.get("id")])


def _gather_calls(pieces: list[JsonObject]) -> tuple[dict[int, JsonObject], Complaints]:
    """Joins pieces of calls as the SDKs do: one index is one call, and a second id replaces or extends the first."""
    calls: dict[int, JsonObject] = {}
    wrong: Complaints = []
    for piece in (call for chunk in pieces for call in objects((chunk.get("delta") or {}).get("tool_calls"))):
        if not isinstance(piece.get("index"), int):
            wrong.append("a fragment of a call has no index")
            continue
        call = calls.setdefault(piece["index"], {})
        if call.get("id") and piece.get("id") and piece["id"] != call["id"]:
            wrong.append("two calls have one index")
        inner = piece.get("function") or piece.get("custom") or {}
        call |= {key: piece[key] for key in ("id", "type") if piece.get(key)}
        call["name"] = call.get("name") or inner.get("name")
        call["arguments"] = call.get("arguments", "") + (inner.get("arguments") or inner.get("input") or "")
        call["free"] = call.get("free") or "custom" in piece
    return calls, wrong


def _check_arguments(text: object) -> Complaints:
    try:
        return [] if not text or isinstance(json.loads(str(text)), dict) else ["arguments are no JSON object"]
    except ValueError:
        return ["arguments are no JSON"]


# ---------------------------------------------------------------- Anthropic


def _check_anthropic(data: bytes) -> Complaints:
    wrong = _unended(data)
    events: list[JsonObject] = []
    for name, text in _frames(data):
        event = json.loads(text)
        if name != event.get("type"):
            wrong.append(f"the event line does not name {event.get('type')}")
        if event.get("type") == "error":
            return wrong
        if event.get("type") != "ping":
            events.append(event)
    kinds = [event["type"] for event in events]
    if kinds[:1] != ["message_start"] or kinds[-2:] != ["message_delta", "message_stop"]:
        return [*wrong, "not message_start ... message_delta message_stop"]
    message = events[0].get("message") or {}
    wrong += _lacks(message, "message_start", id=str, model=str, type=str, role=str, content=list, usage=dict)
    wrong += _lacks(message.get("usage") or {}, "usage", input_tokens=int, output_tokens=int)
    end = events[-2]
    wrong += _lacks(end.get("usage") or {}, "message_delta's usage", output_tokens=int)
    blocks, more = _gather_blocks(events[1:-2])
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    reason = (end.get("delta") or {}).get("stop_reason")
    if not isinstance(reason, str):
        wrong.append("there is no stop_reason")
    elif calls and reason == "end_turn":
        wrong.append("stop_reason end_turn, though there are calls")
    return wrong + more + _same_ids([call.get("id", "") for call in calls])


def _gather_blocks(events: list[JsonObject]) -> tuple[list[JsonObject], Complaints]:
    blocks: list[JsonObject] = []
    wrong: Complaints = []
    text: str | None = None  # of the open block
    for event in events:
        if event.get("index") != len(blocks) - (event["type"] != "content_block_start"):
            wrong.append(f"{event['type']} has another index than its block")
        match event["type"]:
            case "content_block_start":
                if text is not None:
                    wrong.append("a block begins before the last one has stopped")
                blocks.append(event.get("content_block") or {})
                text = ""
                if blocks[-1].get("type") == "tool_use":
                    wrong += _lacks(blocks[-1], "a call", id=str, name=str, input=dict)
                elif blocks[-1].get("type") == "thinking" and "signature" not in blocks[-1]:
                    wrong.append("a thought has no signature")
            case "content_block_delta":
                text = (text or "") + (event.get("delta") or {}).get("partial_json", "")
            case "content_block_stop":
                wrong += _check_arguments(text)
                text = None
            case other:
                wrong.append(f"{other} among the blocks")
    return blocks, wrong + (["a block never stops"] if text is not None else [])


# ---------------------------------------------------------------- OpenAI Responses

_NUMBERS: dict[str, tuple[str, ...]] = {
    "response.output_item.added": ("output_index",),
    "response.output_item.done": ("output_index",),
    "response.content_part.added": ("output_index", "content_index"),
    "response.content_part.done": ("output_index", "content_index"),
    "response.output_text.delta": ("output_index", "content_index"),
    "response.output_text.done": ("output_index", "content_index"),
    "response.function_call_arguments.delta": ("output_index",),
    "response.function_call_arguments.done": ("output_index",),
}
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def _check_responses(data: bytes) -> Complaints:
    wrong, events = _unended(data), [json.loads(text) for _, text in _frames(data) if text != "[DONE]"]
    if any(event.get("type") in ("error", "response.failed") for event in events):
        return wrong
    if [event.get("type") for event in events[:1]] != ["response.created"]:
        wrong.append("the first event is not response.created")
    if events[-1].get("type") not in _ENDS:
        return [*wrong, "the last event is no end"]
    items: dict[int, JsonObject] = {}  # by output_index, as the SDK keeps them
    for event in events:
        kind = event.get("type", "")
        wrong += _lacks(event, kind, type=str, sequence_number=int, **dict.fromkeys(_NUMBERS.get(kind, ()), int))
        if kind in _NUMBERS and not kind.startswith("response.output_item"):
            wrong += _lacks(event, kind, item_id=str)
        wrong += _follow_item(items, event, kind)
    response = events[-1].get("response") or {}
    wrong += _lacks(response, "the response", id=str, model=str, status=str, output=list)
    if len(objects(response.get("output"))) != len(items):
        wrong.append("the last event does not repeat the items")
    wrong += ["an item is never done" for item in items.values() if not item["done"]]
    return wrong + _same_ids([item["call"] for item in items.values() if item["call"]])


def _follow_item(items: dict[int, JsonObject], event: JsonObject, kind: str) -> Complaints:
    place, item = event.get("output_index", -1), event.get("item") or {}
    if kind == "response.output_item.added":
        items[place] = {"parts": 0, "done": False, "call": item.get("call_id")}
        if item.get("type") in ("message", "reasoning"):
            return _lacks(item, "an item", id=str)
        return _lacks(item, "a call", call_id=str, name=str) if item.get("type") == "function_call" else []
    if kind in _NUMBERS and place not in items:
        return [f"{kind} of an item that was never added"]
    if kind == "response.content_part.added":
        items[place]["parts"] += 1
    elif kind == "response.output_text.delta" and not items[place]["parts"]:
        return ["a text begins without content_part.added"]
    elif kind == "response.output_item.done":
        items[place]["done"] = True
        return _check_arguments(item.get("arguments")) if item.get("type") == "function_call" else []
    return []


# ---------------------------------------------------------------- Gemini and Ollama


def _check_gemini(data: bytes) -> Complaints:
    """Google's client reads `data:` lines only: a comment, a name or an end mark is one too many for it."""
    wrong = _unended(data)
    lines = [line for line in data.decode().splitlines() if line]
    wrong += [f"a line that is no data: {line[:20]}" for line in lines if not line.startswith("data: {")]
    bodies = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    if any("error" in body for body in bodies):
        return wrong
    candidates = [candidate for body in bodies for candidate in objects(body.get("candidates"))]
    blocked = any("promptFeedback" in body for body in bodies)
    if not blocked and not any(candidate.get("finishReason") for candidate in candidates):
        wrong.append("there is no finishReason")
    wrong += [
        "a chunk without parts: Google's `chats` would leave the whole turn out of its history"
        for candidate in candidates
        if candidate.get("finishReason", "STOP") == "STOP" and not (candidate.get("content") or {}).get("parts")
    ]
    parts = [part for candidate in candidates for part in objects((candidate.get("content") or {}).get("parts"))]
    wrong += ["a key in snake case" for part in parts if "function_call" in part]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    for call in calls:
        if not call.get("partialArgs") and "willContinue" not in call and call:  # otherwise it is a piece of a call
            wrong += _lacks(call, "a call", name=str)
        if not isinstance(call.get("args", {}), dict):
            wrong.append("args are no object")
    return wrong + _same_ids([call["id"] for call in calls if call.get("id")])


def _check_ollama(data: bytes) -> Complaints:
    wrong = [] if data.endswith(b"\n") else ["the last line has no end"]
    lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    if "error" in lines[-1]:
        return wrong
    if [line.get("done") for line in lines] != [False] * (len(lines) - 1) + [True]:
        wrong.append("not `done` in the last line, and only there")
    calls: list[JsonObject] = []
    for line in lines:
        wrong += _lacks(line, "a line", model=str, created_at=str)
        message = line.get("message")
        if message is not None:
            wrong += _lacks(message, "a message", role=str)
            calls += objects(message.get("tool_calls"))
    for call in calls:
        wrong += _lacks(call.get("function") or {}, "a call", name=str, arguments=dict)
    return wrong + _same_ids([call["id"] for call in calls if call.get("id")])


_CHECKS: dict[str, Callable[[bytes], Complaints]] = {
    "openai_chat": _check_chat,
    "anthropic": _check_anthropic,
    "openai_responses": _check_responses,
    "gemini": _check_gemini,
    "ollama": _check_ollama,
}
