"""Gemini generateContent: where a place of the canonical value is in a body.

Keys may be in camelCase or snake_case (see spelling.py): a place says them as the body does.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.dialects._note_places import PlaceNames, in_part, look_up
from dragoman.dialects.gemini.generation import CONFIG, INTEGERS, NUMBERS
from dragoman.dialects.gemini.schema import find_in_schema
from dragoman.dialects.gemini.spelling import SNAKE_KEY, snake
from dragoman.dialects.gemini.tools import default_groups
from dragoman.dialects.gemini.words import NAME
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
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Reply
from dragoman.model.request import OutputFormat, Request, ServerTool, Tool
from dragoman.note_places import Place

MEDIA: PlaceNames = {"data": "inlineData/data", "url": "fileData/fileUri"}
PARTS: dict[type[Part], PlaceNames] = {
    Text: {"text": "text", "seal": "thoughtSignature"},
    Reasoning: {"text": "text", "summary": "thought", "seal": "thoughtSignature"},
    Image: {**MEDIA, "detail": "mediaResolution", "seal": "thoughtSignature"},
    Document: MEDIA,
    Audio: MEDIA,
    Video: MEDIA,
    ToolCall: {
        "id": "functionCall/id",
        "name": "functionCall/name",
        "arguments": "functionCall/args",
        "seal": "thoughtSignature",
    },
    ToolResult: {
        "call_id": "functionResponse/id",
        "name": "functionResponse/name",
        "parts": "functionResponse",
        "failed": "functionResponse/response",
    },
    Opaque: {"body": "*"},
}
SETTINGS: PlaceNames = {
    "model": "model",
    "messages": "contents",
    "tools": "tools",
    "tool_choice": "toolConfig/functionCallingConfig",
    "tool_choice/mode": "toolConfig/functionCallingConfig/mode",
    "tool_choice/names": "toolConfig/functionCallingConfig/allowedFunctionNames",
    **{field: f"{CONFIG}/{key}" for field, key in NUMBERS + INTEGERS},
    "logprobs": f"{CONFIG}/responseLogprobs",
    "stop": f"{CONFIG}/stopSequences/*",
    "modalities": f"{CONFIG}/responseModalities/*",
    "reasoning": f"{CONFIG}/thinkingConfig",
    "reasoning/budget": f"{CONFIG}/thinkingConfig/thinkingBudget",
    "reasoning/effort": f"{CONFIG}/thinkingConfig/thinkingLevel",
    "reasoning/show": f"{CONFIG}/thinkingConfig/includeThoughts",
    "service_tier": "serviceTier",
    "store": "store",
}
REPLY: PlaceNames = {
    "id": "responseId",
    "model": "modelVersion",
    "created": "createTime",
    "service_tier": "usageMetadata/serviceTier",
    "choices": "candidates",
    "choices/#": "candidates/#",
    "choices/#/parts": "candidates/#/content",
    "choices/#/finish": "candidates/#/finishReason",
    "choices/#/finish/message": "candidates/#/finishMessage",
    "usage": "usageMetadata",
    "usage/input": "usageMetadata/promptTokenCount",
    "usage/cache_read": "usageMetadata/cachedContentTokenCount",
    "usage/output": "usageMetadata/candidatesTokenCount",
    "usage/reasoning": "usageMetadata/thoughtsTokenCount",
    "usage/input_audio": "usageMetadata/promptTokensDetails",
    "usage/output_audio": "usageMetadata/candidatesTokensDetails",
}


def locate_request(request: Request, place: Place) -> Place:
    match place:
        case ("messages", int(i), *rest):
            return _in_turn(request, i, tuple(rest))
        case ("tools", int(i), *rest):
            return _respell(request.extras, _in_tool(request, i, tuple(rest)))
        case ("output", *rest):
            return _respell(request.extras, (CONFIG, *_in_output(request.output, tuple(rest))))
        case ("reasoning", "mode") if request.reasoning is not None:
            field = "budget" if request.reasoning.effort is None else "effort"
            return locate_request(request, ("reasoning", field))
        case _:
            return _respell(request.extras, look_up(SETTINGS, place, NAME))


def _respell(extras: Extras, place: Place) -> Place:
    """Keys in camelCase as the body has them."""
    names = extras.get(NAME, {}).get(SNAKE_KEY, ())
    if not names:
        return place
    steps: list[str | int] = []
    path: list[str] = []
    for step in place:
        path.append(str(step))
        steps.append(snake(str(step)) if ".".join(path) in names else step)
    return tuple(steps)


def _in_turn(request: Request, i: int, rest: Place) -> Place:
    own = request.extras.get(NAME, {})
    message = request.messages[i]
    lead = request.messages[0].role == "system" and "~system" not in own
    base: Place
    if lead and i == 0:
        base, form = _respell(request.extras, ("systemInstruction",)), own.get("~systemInstruction")
    elif own.get("~contents") in ("string", "object"):
        base, form = ("contents",), own["~contents"]
    else:
        base, form = ("contents", i - lead), None
    if form == "string":
        return base
    return (*base, *_in_content(message, rest, bare=form == "list"))


def _in_content(message: Message, rest: Place, *, bare: bool) -> Place:
    own = message.extras.get(NAME, {})
    match rest:
        case ("parts", int(j), *more):
            number: Place = () if own.get("~parts") == "object" else (j,)
            inner = in_block(message.parts[j], tuple(more))
            return (*number, *inner) if bare else ("parts", *number, *inner)
        case ("parts", *_):
            return () if bare or own.get("~parts") == "absent" else ("parts",)
        case ("role", *_) if own.get("~role") == "absent":
            return ()
        case _:
            return look_up({"role": "role"}, rest, NAME)


def in_block(part: Part, rest: Place) -> Place:
    """Inside a part."""
    if isinstance(part, Opaque):
        return in_part(PARTS, part, rest, NAME)
    match part, rest:
        case ToolResult(), ("parts", int(k), *more):
            return _respell(part.extras, ("functionResponse", *_in_result(part, k, tuple(more))))
        case ((Image() | Document() | Audio() | Video()), ("media_type" | "name" as field, *_)):
            holder = "inlineData" if part.data is not None else "fileData"
            return _respell(part.extras, (holder, "mimeType" if field == "media_type" else "displayName"))
        case _:
            return _respell(part.extras, in_part(PARTS, part, rest, NAME))


def _in_result(part: ToolResult, k: int, rest: Place) -> Place:
    """Its text is the `response`; media stand beside it in `parts`."""
    inner = part.parts[k]
    if isinstance(inner, Text):
        return ("response",)
    number = sum(not isinstance(other, Text) for other in part.parts[:k])
    return ("parts", number, *in_block(inner, rest))


def _in_tool(request: Request, i: int, rest: Place) -> Place:
    tools = request.tools or ()
    own = request.extras.get(NAME, {})
    base = _find_entry(tools, own, i)
    tool = tools[i]
    if isinstance(tool, ServerTool):
        return base
    if isinstance(tool, Tool) and rest[:1] == ("parameters",):
        spelling = spelled(tool.extras, NAME, "~parameters")
        key = "parametersJsonSchema" if spelling is None else "parameters"
        return (*base, *_respell(tool.extras, (key, *find_in_schema(rest[1:], spelling))))
    return (*base, *_respell(tool.extras, look_up({"": "*"}, rest, NAME)))


def _find_entry(tools: tuple[Any, ...], own: Mapping[str, Any], number: int) -> Place:
    """Tools stand in groups: `/tools/0/functionDeclarations/3`, `/tools/1/googleSearch`."""
    first: Place = ("tools",)
    seen = 0
    for i, group in enumerate(own.get("~tools") or default_groups(list(tools))):
        entry = first if own.get("~tools_form") == "object" else (*first, i)
        for key, count in group.items():
            if number < seen + count:
                return (*entry, key) if isinstance(tools[number], ServerTool) else (*entry, key, number - seen)
            seen += count
    return first


def _in_output(output: OutputFormat | None, rest: Place) -> Place:
    own = {} if output is None else output.extras.get(NAME, {})
    spelling = own.get("~schema")
    key = own.get("~schema_key", "responseJsonSchema" if spelling is None else "responseSchema")
    if rest[:1] == ("schema",):
        return (key, *find_in_schema(rest[1:], spelling))
    return ("responseMimeType",) if "~responseMimeType" not in own else (key,)


def locate_reply(reply: Reply, place: Place) -> Place:
    match place:
        case ("choices", *_) if "candidates" in reply.extras.get(NAME, {}).get(OMIT, ()):
            return ("promptFeedback", "blockReason") if reply.choices else ()  # a blocked prompt has no candidates
        case ("choices", int(i), "parts", int(_), "logprobs", *_):
            return ("candidates", i, "logprobsResult")
        case ("choices", int(i), "parts", int(_), "citations", *_):
            return ("candidates", i)
        case ("choices", int(i), "parts", int(j), *rest):
            return ("candidates", i, "content", "parts", j, *in_block(reply.choices[i].parts[j], tuple(rest)))
        case ("choices", int(i), "finish", "extras", _, *key):
            return ("candidates", i, *key)
        case _:
            return look_up(REPLY, place, NAME)
