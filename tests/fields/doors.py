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


# ---------------------------------------------------------------- ollama

_OLLAMA_VALUES: dict[str, tuple[Any, ...]] = {
    "created_at": ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"),
    "format": ("json", {"type": "object"}),
    "options.min_p": (0.25, 0.5),
    "index": (0, 1),
    "bytes": (65, 66),
    "arguments": ("one", "two"),
    "think": ("low", "high"),
    "done_reason": ("stop", "length"),
    "properties.type": ("string", "number"),
}
_OLLAMA_END: JsonObject = {
    "model": "x",
    "created_at": "2026-01-02T03:04:05Z",
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 9000,
    "eval_count": 9000,
}
_OLLAMA = {
    "request": Settings(
        base={"model": "x", "messages": [{"role": "user", "content": "x"}]},
        fill={"Message": {"content": "x"}, "Function": {"name": "x"}},
        beside={
            "Message.tool_name": {"role": "tool"},
            "Message.tool_call_id": {"role": "tool"},
            "Message.thinking": {"role": "assistant"},
            "Message.tool_calls": {"role": "assistant"},
        },
        values=_OLLAMA_VALUES | {"role": ("user", "assistant")},
    ),
    "reply": Settings(
        base={**_OLLAMA_END, "message": {"role": "assistant", "content": "x"}},
        fill={"Message": {"role": "assistant", "content": "x"}},
        values=_OLLAMA_VALUES,
    ),
    "generate request": Settings(base={"model": "x", "prompt": "x"}, values=_OLLAMA_VALUES),
    "generate reply": Settings(base={**_OLLAMA_END, "response": "x"}, values=_OLLAMA_VALUES),
}


def _ollama_stream(event: JsonObject) -> bytes:
    """A first piece, then the one under test, as the last."""
    first = {"model": event["model"], "created_at": event["created_at"], "done": False}
    first |= {"response": "a"} if "response" in event else {"message": {"role": "assistant", "content": "a"}}
    if "error" in event:
        event = {"error": event["error"]}
    return dump_json(first) + b"\n" + dump_json(event) + b"\n"


# ---------------------------------------------------------------- openai chat

_CHAT_VALUES: dict[str, tuple[Any, ...]] = {
    "stream": (True, False),
    "choices.index": (0, 1),
    "tool_calls.index": (0, 1),
    "bytes": (65, 66),
}
_CHAT_CHUNK: JsonObject = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x"}
_CHAT = {
    "request": Settings(
        base={"model": "x", "messages": [{"role": "user", "content": "x"}]},
        whole={
            "tool_choice<allowed_tools>.allowed_tools.tools[]{}": tuple(
                [{"type": "function", "function": {"name": name}}] for name in ("one", "two")
            )
        },
        values=_CHAT_VALUES,
    ),
    "reply": Settings(
        base={"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]},
        beside={"Choice.logprobs": {"message": {"role": "assistant", "content": "x", "refusal": "x"}}},
        fill={
            "Choice": {"index": 0},
            "ChatCompletionMessage": {"content": "x"},
            "CompletionUsage": {"prompt_tokens": 9000, "completion_tokens": 9000, "total_tokens": 18000},
        },
        values=_CHAT_VALUES,
    ),
    "stream": Settings(
        base=_CHAT_CHUNK | {"choices": []},
        fill={
            "Choice": {"index": 0},
            "CompletionUsage": {"prompt_tokens": 9000, "completion_tokens": 9000, "total_tokens": 18000},
        },
        values=_CHAT_VALUES,
    ),
}


def _chat_stream(event: JsonObject) -> bytes:
    """A first piece, the one under test, and an end unless it says one itself."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}
    same = {key: value for key, value in event.items() if key not in ("choices", "usage", "error")}
    frames = [{**_CHAT_CHUNK, **same, "choices": [choice]}]
    if "error" in event:
        return _sse([*frames, {"error": {"message": "x", "type": "server_error", **event["error"]}}])
    for choice in event["choices"]:
        if "audio" in choice["delta"]:
            whole = {"id": "a", "data": "AAAA", "transcript": "x", "expires_at": 1}
            choice["delta"]["audio"] = {**whole, **choice["delta"]["audio"]}
        if "refusal" in (choice.get("logprobs") or ()):
            choice["delta"] = {"refusal": "x"}
    frames.append(event)
    if not any(choice.get("finish_reason") for choice in event["choices"]):
        frames.append({**_CHAT_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return _sse(frames) + b"data: [DONE]\n\n"


def _sse(frames: list[JsonObject]) -> bytes:
    return b"".join(b"data: %b\n\n" % dump_json(frame) for frame in frames)


# ---------------------------------------------------------------- openai responses

_RESPONSES_VALUES: dict[str, tuple[Any, ...]] = {"stream": (True, False)}
_RESPONSE: JsonObject = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "x",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
_PICTURE: JsonObject = {"image_url": "https://example.org/x.png"}
_PAPER: JsonObject = {"file_data": "data:application/pdf;base64,AAAA"}
_RESPONSES_FILL: dict[str, JsonObject] = {
    "Response": {"status": "completed", "output": []},
    "ResponseUsage": {
        "input_tokens": 9000,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 9000,
        "output_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 18000,
    },
    "FunctionCallOutput": {"call_id": "c"},
    "InputTokensDetails": {"cached_tokens": 10},
}
_RESPONSES = {
    "request": Settings(
        base={"model": "x", "input": "x"},
        fill=_RESPONSES_FILL,
        example={
            **dict.fromkeys(("ResponseInputImageParam", "ResponseInputImageContentParam"), _PICTURE),
            **dict.fromkeys(("ResponseInputFileParam", "ResponseInputFileContentParam"), _PAPER),
        },
        beside={
            f"ResponseInput{kind}{param}.{field}": said
            for kind, said, fields in (
                ("Image", _PICTURE, ("detail", "prompt_cache_breakpoint")),
                ("File", _PAPER, ("detail", "filename", "prompt_cache_breakpoint")),
            )
            for param in ("Param", "ContentParam")
            for field in fields
        },
        whole={
            "tool_choice<allowed_tools>.tools[]{}": tuple(
                [{"type": "function", "name": name}] for name in ("one", "two")
            )
        },
        values=_RESPONSES_VALUES,
    ),
    "reply": Settings(base=_RESPONSE, fill=_RESPONSES_FILL, values=_RESPONSES_VALUES),
    "stream": Settings(
        fill=_RESPONSES_FILL | {"ResponseErrorEvent": {"code": "server_error"}, "LogprobTopLogprob": {"token": "x"}},
        values=_RESPONSES_VALUES
        | {"item_id": ("i", "j"), "output_index": (0,), "content_index": (0,), "summary_index": (0,)},
        whole={
            "<response.completed>.response=Response": tuple(
                {**_RESPONSE, "usage": {"input_tokens": 9, "output_tokens": count, "total_tokens": 9 + count}}
                for count in (1, 2)
            ),
            "<response.incomplete>.response=Response": tuple(
                {**_RESPONSE, "status": "incomplete", "incomplete_details": {"reason": reason}}
                for reason in ("max_output_tokens", "content_filter")
            ),
            "<response.failed>.response=Response": tuple(
                {**_RESPONSE, "status": "failed", "error": {"code": "server_error", "message": message}}
                for message in ("one", "two")
            ),
        },
        anew=("sequence_number", "output_index", "content_index", "summary_index", "annotation_index", "obfuscation"),
    ),
}
_ITEMS: dict[str, JsonObject] = {
    "message": {"type": "message", "role": "assistant", "status": "in_progress", "content": []},
    "function_call": {"type": "function_call", "call_id": "c", "name": "n", "arguments": "", "status": "in_progress"},
    "custom_tool_call": {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": ""},
    "reasoning": {"type": "reasoning", "summary": []},
}
_OPENERS: dict[str, tuple[str, JsonObject | None]] = {  # by the middle of an event's name: its item, its part
    "content_part": ("message", None),
    "output_text": ("message", {"type": "output_text", "text": "", "annotations": []}),
    "refusal": ("message", {"type": "refusal", "refusal": ""}),
    "function_call_arguments": ("function_call", None),
    "custom_tool_call_input": ("custom_tool_call", None),
    "reasoning_text": ("reasoning", {"type": "reasoning_text", "text": ""}),
    "reasoning_summary_part": ("reasoning", None),
    "reasoning_summary_text": ("reasoning", {"type": "summary_text", "text": ""}),
}

_PROVIDERS_TOOLS = (
    "code_interpreter_call",
    "file_search_call",
    "web_search_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "compaction",
    "shell_call",
    "apply_patch_call",
)


def _responses_stream(event: JsonObject) -> bytes:
    """An event in its place: a started response, the item and the part it belongs to, and an end."""
    kind = event["type"]
    created = {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}}
    completed = {"type": "response.completed", "response": _RESPONSE}
    middle = kind.split(".")[1] if "." in kind else ""
    frames = [created, event, completed]
    if kind in ("response.created", "response.queued", "response.in_progress"):
        frames = [event, completed] if kind == "response.created" else frames
    elif kind in ("response.completed", "response.incomplete", "response.failed", "error"):
        if "error" in event:  # the nested form
            error = {"code": "server_error", "message": "x", "param": "x", **event["error"]}
            event = {"type": "error", "error": error}
        frames = [created, event]
    elif middle == "output_item":
        other = {"added": "done", "done": "added"}[kind.split(".")[2]]
        pair = [event, {**event, "type": f"response.output_item.{other}"}]
        frames = [created, *(pair if other == "done" else reversed(pair)), completed]
    elif middle in _OPENERS:
        frames = [created, *_open_item(event, *_OPENERS[middle]), event, completed]
    elif owner := next((word for word in _PROVIDERS_TOOLS if middle.startswith(word)), None):
        place = {"output_index": event.get("output_index", 0), "item": {"type": owner, "id": event.get("item_id", "i")}}
        added, done = ({"type": f"response.output_item.{word}", **place} for word in ("added", "done"))
        frames = [created, added, event, done, completed]
    return _sse([{**frame, "sequence_number": frame.get("sequence_number", i)} for i, frame in enumerate(frames)])


def _open_item(event: JsonObject, kind: str, part: JsonObject | None) -> list[JsonObject]:
    item = {"id": event.get("item_id", "i"), **_ITEMS[kind]}
    place = {"item_id": item["id"], "output_index": event.get("output_index", 0)}
    frames: list[JsonObject] = [{"type": "response.output_item.added", **place, "item": item}]
    if part is not None:
        word, index = (
            ("reasoning_summary", "summary_index") if part["type"] == "summary_text" else ("content", "content_index")
        )
        opened = {"type": f"response.{word}_part.added", **place, index: event.get(index, 0), "part": part}
        frames.append(opened)
    return frames


# ---------------------------------------------------------------- gemini

_GEMINI_VALUES: dict[str, tuple[Any, ...]] = {
    "data": ("AAAA", "BBBB"),
    "mimeType": ("image/png", "image/jpeg"),
    "parametersJsonSchema": ({"title": "one"}, {"title": "two"}),
    "responseJsonSchema": ({"title": "one"}, {"title": "two"}),
    "thoughtSignature": ("AAAA", "BBBB"),
    "createTime": ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"),
    "jsonPath": ("$.one", "$.two"),
    "contents.role": ("user", "model"),
    "topK": (10, 20),
    "generationConfig.responseMimeType": ("application/json", "text/plain"),
    "startIndex": (0, 1),
    "endIndex": (4, 5),
    "groundingChunkIndices": (0, 1),
    "error.code": (503, 429),
    "error.status": ("UNAVAILABLE", "RESOURCE_EXHAUSTED"),
    "candidates.index": (0, 1),
    "logProbability": (-0.25, -0.5),
}
_GEMINI_ANSWER: JsonObject = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP", "index": 0}],
    "modelVersion": "x",
    "responseId": "r",
}
_GEMINI_FILL: dict[str, JsonObject] = {
    "FunctionCall": {"name": "x"},
    "FunctionResponse": {"name": "x", "response": {"output": "x"}},
    "FunctionDeclaration": {"name": "x"},
    "PartialArg": {"jsonPath": "$.one"},
}
_GEMINI_BESIDE: dict[str, JsonObject] = {
    "Part.thought": {"text": "x"},
    "Part.thoughtSignature": {"text": "x"},
    "Part.videoMetadata": {"fileData": {"fileUri": "x", "mimeType": "video/mp4"}},
    "Part.mediaResolution": {"inlineData": {"data": "AAAA", "mimeType": "image/png"}},
    "Blob.data": {"mimeType": "image/png"},
    "Blob.mimeType": {"data": "AAAA"},
    "Blob.displayName": {"data": "AAAA", "mimeType": "image/png"},
    "PartialArg.jsonPath": {"stringValue": "x"},
    "PartialArg.willContinue": {"stringValue": "x"},
    "FunctionResponseBlob.data": {"mimeType": "image/png"},
    "FunctionResponseBlob.mimeType": {"data": "AAAA"},
    "FunctionResponseBlob.displayName": {"data": "AAAA", "mimeType": "image/png"},
    "FunctionResponseFileData.fileUri": {"mimeType": "image/png"},
    "FunctionResponseFileData.mimeType": {"fileUri": "https://example.org/x"},
    "FunctionResponseFileData.displayName": {"fileUri": "https://example.org/x", "mimeType": "image/png"},
    "FileData.fileUri": {"mimeType": "image/png"},
    "FileData.mimeType": {"fileUri": "https://example.org/x"},
    "FileData.displayName": {"fileUri": "https://example.org/x", "mimeType": "image/png"},
    "GenerateContentResponse.promptFeedback": {"candidates": []},
}
_GEMINI = {
    "request": Settings(
        base={
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "generationConfig": {"responseMimeType": "application/json"},
        },
        fill={**_GEMINI_FILL, "Content": {"role": "user"}},
        beside=_GEMINI_BESIDE,
        values=_GEMINI_VALUES,
    ),
    "reply": Settings(
        base=_GEMINI_ANSWER,
        fill={
            **_GEMINI_FILL,
            "Content": {"role": "model"},
            "Candidate": {
                "content": {"role": "model", "parts": [{"text": "hello"}]},
                "finishReason": "STOP",
                "index": 0,
            },
            "LogprobsResultCandidate": {"token": "hello", "logProbability": -0.5},
            "GroundingMetadata": {
                "groundingChunks": [{"web": {"uri": f"https://example.org/{i}", "title": "x"}} for i in (0, 1)],
                "groundingSupports": [
                    {"segment": {"startIndex": 0, "endIndex": 5, "text": "hello"}, "groundingChunkIndices": [0]}
                ],
            },
            "GroundingSupport": {
                "segment": {"startIndex": 0, "endIndex": 5, "text": "hello"},
                "groundingChunkIndices": [0],
            },
            "GenerateContentResponsePromptFeedback": {"blockReason": "SAFETY"},
            "Citation": {"startIndex": 0, "endIndex": 5, "uri": "https://example.org"},
            "Segment": {"startIndex": 0, "endIndex": 5, "text": "hello"},
            "ModalityTokenCount": {"modality": "AUDIO", "tokenCount": 5},
        },
        beside=_GEMINI_BESIDE,
        values=_GEMINI_VALUES,
    ),
}


def _gemini_stream(event: JsonObject) -> bytes:
    if "error" in event:
        return _sse([{"error": {"code": 503, "message": "x", "status": "UNAVAILABLE", **event["error"]}}])
    return _sse([event])


# ---------------------------------------------------------------- all of them

FRAMES: dict[str, Callable[[Any], bytes]] = {
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
    "openai_chat": _chat_stream,
    "openai_responses": _responses_stream,
    "ollama": _ollama_stream,
}
SETTINGS: dict[str, dict[str, Settings]] = {
    "anthropic": {
        "request": _ANTHROPIC,
        "reply": _ANTHROPIC._replace(base={}),
        "stream": _ANTHROPIC._replace(base={}, anew=("index",)),
    },
    "gemini": _GEMINI,
    "openai_chat": _CHAT,
    "openai_responses": _RESPONSES,
    "ollama": _OLLAMA,
}
PATHS = {
    ("gemini", "request"): "/v1beta/models/x:generateContent",
    ("ollama", "request"): "/api/chat",
    ("ollama", "generate request"): "/api/generate",
}


def door(dialect: str, section: str) -> Door:
    settings = SETTINGS[dialect].get(section) or SETTINGS[dialect][section.replace("stream", "reply")]
    match section.split()[-1]:
        case "request":
            return request_door(dialect, settings, PATHS.get((dialect, section), ""))
        case "reply":
            return reply_door(dialect, settings)
        case _:
            return stream_door(dialect, settings, FRAMES[dialect])
