"""OpenAI Chat Completions: where a place of the canonical value is in a body.

A message is not one list. Thoughts, content, refusal, sound, pictures and calls each have a key of their own. So a part
is found by its kind, and by how many parts of that kind come before it.
"""

from collections.abc import Sequence

from dragoman.dialects._note_places import PlaceNames, in_part, look_up, under
from dragoman.dialects.openai_chat.calls import OPAQUE_CALL, is_legacy
from dragoman.dialects.openai_chat.reasoning import OPAQUE_DETAIL, is_detail, names_of
from dragoman.dialects.openai_chat.usage import ASIDE, READ_NAMES, REASONING_NAMES, WRITE_NAMES
from dragoman.dialects.openai_chat.words import NAME
from dragoman.fields import OMIT, spelled
from dragoman.model.messages import (
    Audio,
    Document,
    Extras,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Reply
from dragoman.model.request import CustomTool, Request, Tool
from dragoman.note_places import Place

PARTS: dict[type[Part], PlaceNames] = {
    Text: {"text": "text", "cache": "prompt_cache_breakpoint/*"},
    Image: {**dict.fromkeys(("data", "url", "media_type"), "image_url/url"), "detail": "image_url/detail"},
    Document: {
        **dict.fromkeys(("data", "url", "media_type"), "file/file_data"),
        "file_id": "file/file_id",
        "name": "file/filename",
    },
    Audio: {"data": "input_audio/data", "media_type": "input_audio/format"},
    Video: dict.fromkeys(("data", "url", "media_type"), "video_url/url"),
    Opaque: {"body": "*"},
}
DETAIL: PlaceNames = {"text": "text", "summary": "type", "seal": "signature"}
SPOKEN: PlaceNames = {"id": "id", "data": "data", "transcript": "transcript"}
CALL: PlaceNames = {"id": "id", "name": "function/name", "arguments": "function/arguments"}
FREEFORM: PlaceNames = {"id": "id", "name": "custom/name", "arguments": "custom/input", "freeform": "type"}
LEGACY: PlaceNames = {"name": "name", "arguments": "arguments"}
RESULT: PlaceNames = {"": "", "call_id": "tool_call_id", "name": "name", "parts": "content", "failed": "content"}
FUNCTION: PlaceNames = {"": "*", "parameters": "parameters/*"}
SETTINGS: PlaceNames = {
    "model": "model",
    "messages": "messages",
    "tools": "tools",
    "tool_choice": "tool_choice",
    "parallel_calls": "parallel_tool_calls",
    "stream": "stream",
    "stop": "stop",
    "choices": "n",
    "output": "response_format",
    "output/type": "response_format/type",
    **{f"output/{key}": f"response_format/json_schema/{key}" for key in ("name", "description", "strict")},
    "output/schema": "response_format/json_schema/schema/*",
    "reasoning": "reasoning_effort",
    "modalities": "modalities",
    **{key: key for key in ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "seed")},
    **{key: key for key in ("logprobs", "top_logprobs", "verbosity", "service_tier", "store")},
    "metadata": "metadata/*",
    "cache": "prompt_cache_options/*",
    "cache_key": "prompt_cache_key",
}
ANNOTATION: PlaceNames = {
    "": "",
    "url": "url_citation/url",
    "title": "url_citation/title",
    "start": "url_citation/start_index",
    "end": "url_citation/end_index",
}
TOKEN: PlaceNames = {"": "*", "top": "top_logprobs", "top/#": "top_logprobs/#/*"}
ASIDE_NAMES = {
    "cache_read": ("cached_tokens", READ_NAMES),
    "cache_write": ("cache_write_tokens", WRITE_NAMES),
    "reasoning": ("reasoning_tokens", REASONING_NAMES),
}
REPLY: PlaceNames = {
    **{key: key for key in ("id", "model", "created", "service_tier", "usage", "choices")},
    "choices/#": "choices/#",
    "choices/#/parts": "choices/#/message",
    "choices/#/finish": "choices/#/finish_reason",
    "choices/#/finish/sequence": "choices/#/stop_reason",
    "usage/input": "usage/prompt_tokens",
    "usage/output": "usage/completion_tokens",
    "usage/cache_read": "usage/prompt_tokens_details/cached_tokens",
    "usage/cache_write": "usage/prompt_tokens_details/cache_write_tokens",
    "usage/input_audio": "usage/prompt_tokens_details/audio_tokens",
    "usage/reasoning": "usage/completion_tokens_details/reasoning_tokens",
    "usage/output_audio": "usage/completion_tokens_details/audio_tokens",
}


def locate_request(request: Request, place: Place) -> Place:
    match place:
        case ("messages", int(i), *rest):
            return ("messages", i, *_in_message(request.messages[i], tuple(rest)))
        case ("tools", int(i), *rest):
            return _in_tool(request, i, tuple(rest))
        case _:
            return (*_renamed(request, place), *look_up(SETTINGS, place, NAME)[1:])


def _renamed(request: Request, place: Place) -> Place:
    """The key of a setting, which may be an older one or a server's own."""
    own = request.extras.get(NAME, {})
    match place:
        case ("max_output", *_):
            return (own.get("~limit", "max_tokens"),)
        case ("user", *_):
            return (own.get("~user", "safety_identifier"),)
        case ("tools",) if str(own.get("~tools")).endswith("functions"):
            return ("functions",)
        case ("tool_choice", *_) if own.get("~tool_choice") is not None:
            return ("function_call",)
        case _:
            return look_up(SETTINGS, place, NAME)[:1]


def _in_tool(request: Request, i: int, rest: Place) -> Place:
    tool, own = (request.tools or ())[i], request.extras.get(NAME, {})
    if own.get("~tools") == "functions":
        return ("functions", i, *look_up(FUNCTION, rest, NAME))
    if rest[:1] == ("extras",):
        return ("tools", i, *look_up({}, rest, NAME))
    match tool:
        case Tool():
            return ("tools", i, "function", *look_up(FUNCTION, rest, NAME)) if rest else ("tools", i)
        case CustomTool():
            words = {"": "*", "syntax": "format/grammar/syntax", "grammar": "format/grammar/definition"}
            return ("tools", i, "custom", *look_up(words, rest, NAME)) if rest else ("tools", i)
        case _:
            return ("tools", i, *look_up({"body": "*"}, rest, NAME))


def _in_message(message: Message, rest: Place) -> Place:
    only = message.parts[0] if len(message.parts) == 1 else None
    match rest:
        case ("parts", 0, *more) if isinstance(only, ToolResult):
            return _in_result(only, tuple(more))
        case ("parts", int(j), *more):
            return find_part(message.parts, message.extras, j, tuple(more))
        case ("parts", *_):
            return () if message.role == "assistant" else ("content",)
        case _:
            return look_up({"role": "role"}, rest, NAME)


def _in_result(result: ToolResult, rest: Place) -> Place:
    match rest:
        case ("parts", int(k), *more):
            return _in_content(result.parts, result.extras, k, tuple(more))
        case _:
            return look_up(RESULT, rest, NAME)


def find_part(parts: Sequence[Part], extras: Extras, j: int, rest: Place) -> Place:
    """Where a part is in its message."""
    part, key = parts[j], key_of(parts[j])
    number = sum(key_of(other) == key for other in parts[:j])
    match key, part:
        case "content", _:
            content = [other for other in parts if key_of(other) == "content"]
            return _in_content(content, extras, number, rest)
        case "tool_calls", ToolCall():
            return (key, number, *look_up(FREEFORM if part.freeform else CALL, rest, NAME))
        case "reasoning_details" | "images", _:
            table = DETAIL if isinstance(part, Reasoning) else PARTS[Image] if isinstance(part, Image) else {}
            return (key, number, *look_up(table, rest, NAME))
        case "tool_calls", _:
            return (key, number)
        case _:
            return (key, *look_up({"function_call": LEGACY, "audio": SPOKEN}.get(key, {}), rest, NAME))


def key_of(part: Part) -> str:
    """The key of a message that a part stands under."""
    match part:
        case ToolCall():
            return "function_call" if is_legacy(part) else "tool_calls"
        case Opaque(body={"type": "tool_calls"}):
            return OPAQUE_CALL
        case Opaque(body={"type": "reasoning_details"}):
            return OPAQUE_DETAIL
        case Reasoning() if spelled(part.extras, NAME, "~name") == "content":
            return "content"
        case Reasoning():
            return "reasoning_details" if is_detail(part) else names_of(part)[0]
        case Refusal() if spelled(part.extras, NAME, "~place") is None:
            return "refusal"
        case Audio() if part.id is not None or spelled(part.extras, NAME, "~form") is not None:
            return "audio"
        case Image() if spelled(part.extras, NAME, "~place") == "images":
            return "images"
        case _:
            return "content"


def _in_content(parts: Sequence[Part], extras: Extras, j: int, rest: Place) -> Place:
    """Inside `content`: a bare string has no places in it."""
    part = parts[j]
    if len(parts) == 1 and _is_string(part, extras):
        return ("content",)
    if rest[:1] == ("cache",) and _says_cache_control(part):
        return ("content", j, "cache_control", *look_up({"": "*"}, rest[1:], NAME))
    return ("content", j, *in_part(PARTS, part, rest, NAME))


def _is_string(part: Part, extras: Extras) -> bool:
    """Whether the only part of a content is a bare string. Its seal stands elsewhere in the message."""
    if not isinstance(part, Text) or spelled(extras, NAME, "~content") == "list":
        return False
    return part.cache is None and not part.extras


def _says_cache_control(part: Part) -> bool:
    cache = getattr(part, "cache", None)
    return cache is not None and spelled(cache.extras, NAME, "~key") is not None


def locate_reply(reply: Reply, place: Place) -> Place:
    match place:
        case ("choices", int(i), "parts", int(j), "logprobs", *rest):
            key = "refusal" if isinstance(reply.choices[i].parts[j], Refusal) else "content"
            return ("choices", i, "logprobs", key, *look_up(under("#=#", TOKEN), tuple(rest), NAME))
        case ("choices", int(i), "parts", int(_), "citations", *rest):
            return ("choices", i, "message", "annotations", *look_up(under("#=#", ANNOTATION), tuple(rest), NAME))
        case ("choices", int(i), "parts", int(j), *rest):
            choice = reply.choices[i]
            spelling = choice.extras.get(NAME, {}).get("~message", {})
            return ("choices", i, "message", *find_part(choice.parts, {NAME: spelling}, j, tuple(rest)))
        case ("choices", int(i), "finish", "extras", _, *key):
            return ("choices", i, *key)
        case ("choices", *_) if "choices" in reply.extras.get(NAME, {}).get(OMIT, ()):
            return ()
        case ("usage", str(field), *_) if _aside(reply, field):
            return ("usage", _aside(reply, field))
        case _:
            return look_up(REPLY, place, NAME)


def _aside(reply: Reply, field: str) -> str:
    """The name under which a count stands beside the details; "" where it is one of them."""
    key, names = ASIDE_NAMES.get(field, ("", ()))
    own = {} if reply.usage is None else reply.usage.extras.get(NAME, {})
    return next((name for name in names if name in own), "") if key in own.get(ASIDE, ()) else ""
