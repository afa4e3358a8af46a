"""How the answers of OpenAI-compatible servers differ from OpenAI's, as edits of its JSON.

Seen in recorded traffic and server sources (provider-quirks, ODDITIES, BACKENDS; November 2026). `body` edits a whole
reply, `chunks` a whole stream's objects at once, `frames` adds what is no object: comments, a missing end.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects import USUAL, find_dialect
from dragoman.jsontypes import JsonObject, dump_json, load_json
from dragoman.model.events import Event, PartStart, ReplyStart
from dragoman.model.messages import ToolCall
from dragoman.testing.services import CREATED


def _same_body(body: JsonObject) -> JsonObject:
    return body


def _same_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    return chunks


def _same_frames(frames: list[bytes]) -> list[bytes]:
    return frames


class Oddity(Struct, frozen=True, kw_only=True):
    body: Callable[[JsonObject], JsonObject] = _same_body
    chunks: Callable[[list[JsonObject]], list[JsonObject]] = _same_chunks
    frames: Callable[[list[bytes]], list[bytes]] = _same_frames
    usage: bool = False  # a stream has its usage even if the request does not ask for it


def _messages(body: JsonObject) -> list[JsonObject]:
    """Each message or delta."""
    choices = [choice for choice in body.get("choices") or () if isinstance(choice, dict)]
    return [
        message for choice in choices for key in ("message", "delta") if isinstance(message := choice.get(key), dict)
    ]


def _rename_reasoning(body: JsonObject, name: str) -> JsonObject:
    for message in _messages(body):
        if "reasoning_content" in message:
            message[name] = message.pop("reasoning_content")
    return body


# -- xAI: calls end with `stop`, stream whole in one chunk, and completion_tokens leave the reasoning out


def _xai_body(body: JsonObject) -> JsonObject:
    for choice in body.get("choices") or ():
        if choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"] = "stop"
    _less_reasoning(body.get("usage"))
    return body


def _less_reasoning(usage: Any) -> None:
    if isinstance(usage, dict):
        thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        if isinstance(usage.get("completion_tokens"), int):
            usage["completion_tokens"] -= thought


def _xai_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    return [_xai_body(chunk) for chunk in _whole_calls(chunks)]


def _whole_calls(chunks: list[JsonObject]) -> list[JsonObject]:
    """Each call in one piece, at the place of its first fragment."""
    kept: list[JsonObject] = []
    calls: dict[tuple[int, int], JsonObject] = {}
    for chunk in chunks:
        rest = []
        for choice in chunk.get("choices") or ():
            pieces = (choice.get("delta") or {}).get("tool_calls")
            if not pieces:
                rest.append(choice)
                continue
            for piece in pieces:
                key = (choice.get("index", 0), piece.get("index", 0))
                if key in calls:
                    calls[key]["function"]["arguments"] += piece["function"].get("arguments", "")
                else:
                    calls[key] = piece
                    piece["function"].setdefault("arguments", "")
                    rest.append(choice)
        if rest or not chunk.get("choices"):
            kept.append({**chunk, "choices": rest})
    return kept


# -- Mistral: thoughts as parts of the content, calls without type and index


def _mistral(body: JsonObject) -> JsonObject:
    for message in _messages(body):
        thought = message.pop("reasoning_content", None)
        if thought:
            part = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            text = message.get("content")
            message["content"] = [part, *([{"type": "text", "text": text}] if text else [])]
        for call in message.get("tool_calls") or ():
            call.pop("type", None)
    for choice in body.get("choices") or ():
        if choice.get("finish_reason") == "length":
            choice["finish_reason"] = "model_length"
    return body


def _mistral_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    made = _usage_in_last([_mistral(chunk) for chunk in _whole_calls(chunks)])
    for message in (message for chunk in made for message in _messages(chunk)):
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
    return made


# -- Ollama's /v1: every call whole, and all of them number 0 (ollama #7881)


def _ollama_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    made = [_rename_reasoning(chunk, "reasoning") for chunk in _whole_calls(chunks)]
    for message in (message for chunk in made for message in _messages(chunk)):
        for call in message.get("tool_calls") or ():
            call["index"] = 0
    return made


def _usage_in_last(chunks: list[JsonObject]) -> list[JsonObject]:
    """Usage in the chunk with the finish reason, not in a separate one."""
    if len(chunks) > 1 and chunks[-1].get("usage") and not chunks[-1].get("choices"):
        return [*chunks[:-2], {**chunks[-2], "usage": chunks[-1]["usage"]}]
    return chunks


# -- DeepSeek, OpenRouter: comments; other counts, a second finish


def _deepseek(body: JsonObject) -> JsonObject:
    usage = body.get("usage")
    if isinstance(usage, dict):
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        usage["prompt_cache_hit_tokens"] = cached
        usage["prompt_cache_miss_tokens"] = usage.get("prompt_tokens", 0) - cached
    return body


def _commented(comment: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [
        b": %b\n\n" % comment,
        *(piece for frame in frames for piece in (frame, b": %b\n\n" % comment)),
    ]


def _openrouter(body: JsonObject) -> JsonObject:
    for message in _messages(body):
        thought = message.pop("reasoning_content", None)
        if thought is not None:
            message["reasoning"] = thought
            detail = {"type": "reasoning.text", "text": thought, "format": "unknown", "index": 0}
            message["reasoning_details"] = [detail]
        elif message.get("reasoning_details"):  # both fields have the same text
            message["reasoning"] = "".join(detail.get("text") or "" for detail in message["reasoning_details"]) or None
    for choice in body.get("choices") or ():
        if "finish_reason" in choice:
            choice["native_finish_reason"] = choice["finish_reason"]
    return {**body, "provider": "scripted"}


def _openrouter_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    made = []
    for chunk in map(_openrouter, chunks):
        made.append(chunk)
        if any(choice.get("finish_reason") for choice in chunk.get("choices") or ()):
            made.append(chunk)  # 180 recorded streams send it twice
    return made


# -- servers on the user's machine


def _vllm(body: JsonObject) -> JsonObject:
    for choice in body.get("choices") or ():
        choice["stop_reason"] = None
    return _rename_reasoning(body, "reasoning")


def _llamacpp_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    for chunk in chunks:
        chunk["id"] = chunk["id"].removeprefix("chatcmpl-")
    for message in _messages(chunks[0]) if chunks else ():
        message["content"] = None
    if chunks:
        chunks[-1]["timings"] = {"prompt_n": 1, "predicted_n": 1}
    return chunks


def _azure_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    filters = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}]
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": filters}
    return [first, *chunks]


def _groq_chunks(chunks: list[JsonObject]) -> list[JsonObject]:
    usage = chunks[-1].get("usage") if chunks else None
    made = [_rename_reasoning(chunk, "reasoning") for chunk in _usage_in_last(chunks)]
    if usage and made:
        made[-1] = {**made[-1], "x_groq": {"id": "req_scripted", "usage": usage}}
    return made


def _together(body: JsonObject) -> JsonObject:
    for choice in body.get("choices") or ():
        if choice.get("finish_reason") == "stop":
            choice["finish_reason"] = "eos"
    return body


def _cerebras(body: JsonObject) -> JsonObject:
    return {**_rename_reasoning(body, "reasoning"), "time_info": {"queue_time": 0.0, "total_time": 0.01}}


def _each(edit: Callable[[JsonObject], JsonObject]) -> Callable[[list[JsonObject]], list[JsonObject]]:
    return lambda chunks: [edit(chunk) for chunk in chunks]


# -- Google and Ollama: most calls have no id


def _gemini(body: JsonObject) -> JsonObject:
    for candidate in body.get("candidates") or ():
        for part in (candidate.get("content") or {}).get("parts") or ():
            if "functionCall" in part:
                part["functionCall"].pop("id", None)
    return body


def _ollama(body: JsonObject) -> JsonObject:
    for call in (body.get("message") or {}).get("tool_calls") or ():
        call.pop("id", None)
    return body


DIALECTS: dict[str, Oddity] = {
    "gemini": Oddity(body=_gemini, chunks=_each(_gemini)),
    "ollama": Oddity(body=_ollama, chunks=_each(_ollama)),
}
ODDITIES: dict[str, Oddity] = {
    "azure": Oddity(chunks=_azure_chunks),
    "xai": Oddity(body=_xai_body, chunks=_xai_chunks, usage=True),
    "groq": Oddity(body=lambda body: _rename_reasoning(body, "reasoning"), chunks=_groq_chunks, usage=True),
    "cerebras": Oddity(body=_cerebras, chunks=_each(_cerebras), usage=True),
    "mistral": Oddity(body=_mistral, chunks=_mistral_chunks, usage=True),
    "deepseek": Oddity(body=_deepseek, chunks=_each(_deepseek), frames=_commented(b"keep-alive"), usage=True),
    "openrouter": Oddity(
        body=_openrouter, chunks=_openrouter_chunks, frames=_commented(b"OPENROUTER PROCESSING"), usage=True
    ),
    "together": Oddity(body=_together, chunks=_each(_together)),
    "vllm": Oddity(body=_vllm, chunks=_each(_vllm)),
    "sglang": Oddity(chunks=_usage_in_last),
    "gpustack": Oddity(chunks=_usage_in_last, usage=True),
    "llamacpp": Oddity(chunks=_llamacpp_chunks, usage=True),
    "ollama": Oddity(body=lambda body: _rename_reasoning(body, "reasoning"), chunks=_ollama_chunks),
}


def find_oddity(kind: str, dialect: str, wanted: bool) -> Oddity:
    known = ODDITIES.get(kind) if dialect == USUAL else DIALECTS.get(dialect)
    return known if wanted and known is not None else Oddity()


def edit_frames(frames: list[bytes], odd: Oddity) -> list[bytes]:
    """The edited objects of a stream. Frames without an object (`[DONE]`) stay at the end."""
    if not frames or frames[0][:1] == b"[" or frames[0].startswith(b"event:"):
        return frames
    head = b"data: " if frames[0].startswith(b"data: ") else b""
    end = frames[0][len(frames[0].rstrip()) :]
    chunks = [load_json(frame[len(head) :]) for frame in frames if frame.startswith(head + b"{")]
    rest = [frame for frame in frames if not frame.startswith(head + b"{")]
    return odd.frames([*(head + dump_json(chunk) + end for chunk in odd.chunks(chunks)), *rest])


def add_vendor_ids(events: Iterable[Event], kind: str, dialect: str) -> Iterator[Event]:
    """Ids in the vendor's form, and a fixed date."""
    for event in events:
        if isinstance(event, ReplyStart):
            prefix = find_dialect(dialect).reply_id_prefix
            name = prefix + event.id.removeprefix("demo-") if event.id[:5] == "demo-" else event.id
            yield replace(event, id=name, created=event.created if event.created is not None else CREATED)
        elif isinstance(event, PartStart) and isinstance(event.part, ToolCall):
            yield replace(event, part=replace(event.part, id=_spell_id(event.part.id, kind, dialect)))
        else:
            yield event


def _spell_id(name: str, kind: str, dialect: str) -> str:
    bare = name.removeprefix("call_")
    if kind == "mistral":
        return bare[:9]
    return find_dialect(dialect).call_id_prefix + bare if name != bare else name
