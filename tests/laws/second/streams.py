"""Streams put together by hand: the pieces of an answer as the body that an unstreamed answer would have had.

Only what the vendors document is used: events and their fields. None if the stream ended in an error.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Body: TypeAlias = dict[str, Any]


def assemble(dialect: str, data: bytes) -> Body | None:
    return READERS[dialect](list(frames(data)))


def frames(data: bytes) -> Iterator[Body]:
    """The JSON objects of an SSE stream, an NDJSON stream or one array."""
    text = data.decode().replace("\r\n", "\n")
    if text.lstrip().startswith("["):
        yield from json.loads(text)
        return
    for line in text.split("\n"):
        piece = line.removeprefix("data:").strip()
        if piece.startswith("{"):
            yield json.loads(piece)


def _add(holder: Body, key: str, more: Any) -> None:
    if isinstance(more, str) and more:
        holder[key] = (holder.get(key) or "") + more


def read_chat(chunks: list[Body]) -> Body | None:
    reply: Body = {"object": "chat.completion", "choices": []}
    choices: dict[int, Body] = {}
    for chunk in chunks:
        if chunk.get("error"):
            return None
        said = {key: value for key, value in chunk.items() if key not in ("choices", "object") and value}
        usage = {**reply.get("usage", {}), **(said.pop("usage", None) or {})}
        reply |= {key: value for key, value in said.items() if key not in ("id", "model") or key not in reply}
        reply |= {"usage": usage} if usage else {}
        for piece in chunk.get("choices") or ():
            choice = choices.setdefault(piece.get("index") or 0, {"message": {}})
            _add_chat(choice, piece)
    for choice in choices.values():
        calls = choice["message"].pop("calls", {})
        if calls:
            choice["message"]["tool_calls"] = list(calls.values())
    reply["choices"] = list(choices.values())
    return reply


# What comes in pieces, or once more with every piece. All else that a piece of a message says is there as a whole.
IN_PIECES = {"role", "content", "refusal", "reasoning_content", "reasoning", "audio", "reasoning_details"}
IN_PIECES |= {"images", "annotations", "tool_calls", "function_call"}


def _add_chat(choice: Body, piece: Body) -> None:
    message, delta = choice["message"], piece.get("delta") or {}
    for key in ("content", "refusal", "reasoning_content", "reasoning"):
        said = delta.get(key)
        if isinstance(said, list) or (said and isinstance(message.get(key), list)):  # Mistral says thoughts so
            message[key] = _blocks(message.get(key)) + _blocks(said)
        else:
            _add(message, key, said)
    message |= {key: value for key, value in delta.items() if key not in IN_PIECES and value}
    for key in ("data", "transcript"):
        if (delta.get("audio") or {}).get(key):
            _add(message.setdefault("audio", {}), key, delta["audio"][key])
    for detail in delta.get("reasoning_details") or ():
        held = message.setdefault("reasoning_details", [])
        if held and held[-1].get("type") == detail.get("type") and held[-1].get("index") == detail.get("index"):
            for key in ("text", "summary", "data"):
                _add(held[-1], key, detail.get(key))
        else:
            held.append(dict(detail))
    if delta.get("function_call"):
        held_call = message.setdefault("function_call", {})
        held_call.setdefault("name", delta["function_call"].get("name"))
        _add(held_call, "arguments", delta["function_call"].get("arguments"))
    message.setdefault("images", []).extend(delta.get("images") or ())
    message.setdefault("annotations", []).extend(delta.get("annotations") or ())
    for tokens in ((piece.get("logprobs") or {}).get("content") or (),):
        choice.setdefault("logprobs", {}).setdefault("content", []).extend(tokens)
    kept = {key: value for key, value in piece.items() if key not in ("delta", "logprobs", "message", "index")}
    choice |= {key: value for key, value in kept.items() if value or key not in choice}
    for call in delta.get("tool_calls") or ():
        calls = message.setdefault("calls", {})
        held = calls.setdefault(call.get("index", len(calls)), {})
        held |= {key: call[key] for key in call if key not in ("function", "custom", "index") and call[key]}
        for kind, key in (("function", "arguments"), ("custom", "input")):
            said = call.get(kind) or {}
            if said:
                held.setdefault(kind, {}).setdefault("name", said.get("name"))
                _add(held[kind], key, said.get(key))


def _blocks(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [{"type": "text", "text": said}] if said else []


def read_responses(events: list[Body]) -> Body | None:
    reply: Body = {}
    items: dict[int, Body] = {}
    for event in events:
        kind = event.get("type", "")
        if kind in ("error", "response.failed"):
            return None
        if kind in ("response.completed", "response.incomplete"):
            reply = {key: value for key, value in event["response"].items() if key != "output"}
        number = event.get("output_index", -1)
        if kind == "response.output_item.added":
            items[number] = json.loads(json.dumps(event["item"]))
        elif number in items:
            _add_responses(items[number], kind, event)
    return {**reply, "output": [items[number] for number in sorted(items)]} if reply else None


def _add_responses(item: Body, kind: str, event: Body) -> None:
    match kind:
        case "response.content_part.added":
            item.setdefault("content", [])
            item["content"] = [*(item["content"] or ()), dict(event["part"])]
        case "response.reasoning_summary_part.added":
            item["summary"] = [*(item.get("summary") or ()), dict(event["part"])]
        case "response.output_text.delta":
            _add(item["content"][event["content_index"]], "text", event["delta"])
            item["content"][event["content_index"]].setdefault("logprobs", []).extend(event.get("logprobs") or ())
        case "response.refusal.delta":
            _add(item["content"][event["content_index"]], "refusal", event["delta"])
        case "response.output_text.annotation.added" | "response.output_text_annotation.added":
            part = item["content"][event["content_index"]]
            part["annotations"] = [*(part.get("annotations") or ()), event["annotation"]]
        case "response.reasoning_summary_text.delta":
            _add(item["summary"][event["summary_index"]], "text", event["delta"])
        case "response.reasoning_text.delta":
            _add(item["content"][event["content_index"]], "text", event["delta"])
        case "response.function_call_arguments.delta":
            _add(item, "arguments", event["delta"])
        case "response.output_item.done" if item.get("type") not in ("message", "function_call", "reasoning"):
            item |= event["item"]
        case "response.output_item.done":
            item |= {key: value for key, value in event["item"].items() if not item.get(key)}
        case _:
            pass


def read_anthropic(events: list[Body]) -> Body | None:
    reply: Body = {}
    blocks: dict[int, Body] = {}
    for event in events:
        match event.get("type"):
            case "error":
                return None
            case "message_stop":
                reply |= {key: value for key, value in event.items() if key != "type"}
                break
            case "message_start":
                reply = {key: value for key, value in event["message"].items() if key != "content"}
            case "content_block_start":
                blocks[event["index"]] = json.loads(json.dumps(event["content_block"]))
            case "content_block_delta":
                _add_anthropic(blocks[event["index"]], event["delta"])
            case "message_delta":
                reply |= {key: value for key, value in event["delta"].items() if value is not None}
                reply |= {key: value for key, value in event.items() if key not in ("type", "delta", "usage")}
                counts = {key: value for key, value in (event.get("usage") or {}).items() if value is not None}
                reply["usage"] = {**(reply.get("usage") or {}), **counts}
            case _:
                pass
    for block in blocks.values():
        pieces = block.pop("pieces", "")
        if pieces:
            block["input"] = json.loads(pieces) if _is_json(pieces) else pieces
    return {**reply, "content": list(blocks.values())} if reply else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


IN_DELTAS = ("type", "text", "thinking", "partial_json", "signature", "citation")


def _add_anthropic(block: Body, delta: Body) -> None:
    for kind, key in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("partial_json", "pieces"),
        ("signature", "signature"),
    ):
        _add(block, key, delta.get(kind))
    if delta.get("citation"):
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    block |= {key: value for key, value in delta.items() if key not in IN_DELTAS}


def read_gemini(chunks: list[Body]) -> Body | None:
    reply: Body = {}
    candidates: dict[int, Body] = {}
    for chunk in chunks:
        if "error" in chunk:
            return None
        reply |= {key: value for key, value in chunk.items() if key not in ("candidates", "usageMetadata")}
        reply["usageMetadata"] = {**reply.get("usageMetadata", {}), **(chunk.get("usageMetadata") or {})}
        for piece in chunk.get("candidates") or ():
            held = candidates.setdefault(piece.get("index") or 0, {"content": {"parts": [], "role": "model"}})
            held["content"]["parts"] += (piece.get("content") or {}).get("parts") or ()
            for key, scores in (piece.get("logprobsResult") or {}).items():
                if isinstance(scores, list):
                    held.setdefault("logprobsResult", {}).setdefault(key, []).extend(scores)
            held |= {key: value for key, value in piece.items() if key not in ("content", "logprobsResult")}
    for held in candidates.values():
        held["content"]["parts"] = _join(held["content"]["parts"])
    return {**reply, "candidates": list(candidates.values())}


def _join(parts: list[Body]) -> list[Body]:
    """Pieces of one text as the text they are."""
    joined: list[Body] = []
    for part in parts:
        last = joined[-1] if joined else {}
        if part == {"text": ""}:
            continue
        if "text" in part and "text" in last and bool(part.get("thought")) == bool(last.get("thought")):
            last["text"] += part["text"]
            last.update({key: value for key, value in part.items() if key == "thoughtSignature"})
        elif "functionCall" in part and last.get("functionCall", {}).pop("willContinue", False):
            _add_arguments(last["functionCall"], part["functionCall"])
        elif "functionCall" in part:
            joined.append({**part, "functionCall": {**part["functionCall"]}})
            _add_arguments(joined[-1]["functionCall"], part["functionCall"])
        else:
            joined.append(dict(part))
    return joined


def _add_arguments(call: Body, piece: Body) -> None:
    """Arguments in pieces: each names its place and has a piece of the value there."""
    if piece.get("willContinue"):
        call["willContinue"] = True
    call.pop("partialArgs", None)
    for partial in piece.get("partialArgs") or ():
        steps = [int(i) if i else key for key, i in re.findall(r"\.(\w+)|\[(\d+)\]", partial["jsonPath"])]
        value = next((partial[key] for key in ("stringValue", "numberValue", "boolValue") if key in partial), None)
        _put(call.setdefault("args", {}), steps, value)


def _put(holder: Any, steps: list[str | int], value: Any) -> None:
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        holder.extend([None] * (step + 1 - len(holder)))
        before = holder[step]
    else:
        before = holder.get(step)
    if rest:
        holder[step] = before if before is not None else [] if isinstance(rest[0], int) else {}
        _put(holder[step], rest, value)
    else:
        holder[step] = before + value if isinstance(before, str) and isinstance(value, str) else value


def read_ollama(lines: list[Body]) -> Body | None:
    reply: Body = {}
    message: Body = {"role": "assistant"}
    for line in lines:
        if "error" in line:
            return None
        piece = line.get("message") or {}
        for key in ("content", "thinking"):
            _add(message, key, piece.get(key))
        message.setdefault("tool_calls", []).extend(piece.get("tool_calls") or ())
        for key in ("response", "thinking"):
            _add(reply, key, line.get(key))
        reply.setdefault("logprobs", []).extend(line.get("logprobs") or ())
        reply |= {
            key: value for key, value in line.items() if key not in ("message", "response", "thinking", "logprobs")
        }
    return {**reply, "message": message} if reply.get("done") else None


READERS: dict[str, Callable[[list[Body]], Body | None]] = {
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "anthropic": read_anthropic,
    "gemini": read_gemini,
    "ollama": read_ollama,
}
