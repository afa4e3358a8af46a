"""Ollama: the request, both ways: `/api/chat` and `/api/generate`.
https://github.com/ollama/ollama docs/api.md and api/types.go at fb30760 (read 2026-11-15)
"""

from typing import Any

from dragoman.dialects._settings import note_missing, note_unnamed
from dragoman.dialects._tools import encode_any_tool, encode_each_tool, freeform_as_function
from dragoman.dialects.ollama.messages import encode_messages, take_messages
from dragoman.dialects.ollama.parts import MessageWriter, take_media
from dragoman.dialects.ollama.words import (
    CHAT_PATH,
    EMPTY,
    FORM,
    GENERATE,
    GENERATE_PATH,
    LEVEL_OF_EFFORT,
    LEVELS,
    NAME,
    OPTIONS,
    OptionKind,
    says_generate,
)
from dragoman.errors import DecodeError
from dragoman.fields import (
    NUMBER,
    ValueTypes,
    add_extras,
    check_type,
    checked_leftovers,
    leftovers,
    note_omitted,
    note_spelling,
    spelled,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_text_or_none,
)
from dragoman.jsontypes import JsonObject
from dragoman.model.effort import effort_of_budget
from dragoman.model.messages import Audio, Image, Message, Part, Text
from dragoman.model.request import (
    AnyTool,
    CustomTool,
    OutputFormat,
    ReasoningSetting,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
)
from dragoman.notes import ROOT, At, Notes
from dragoman.wire import WireRequest

# ---------------------------------------------------------------- decode


# Of keys that stay in the extras because of their values.
VALUE_TYPES: ValueTypes = {
    "options": (dict,),
    "format": (str, dict),
    "think": (bool, str),
    "keep_alive": (str, *NUMBER),
}
OPTION_TYPES: ValueTypes = {
    "num_ctx": NUMBER,
    **{key: (str, list) if kind == "texts" else NUMBER for key, (_, kind) in OPTIONS.items()},
}


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    messages = _take_generate(body) if _is_generate(wire.path, body) else take_messages(body)
    if body.get("model") is None:
        note_spelling(body, "model", "absent")  # a null is kept in the extras
    options = _take_options(body)
    return Request(
        model=take_text_or_none(body, "model") or "",
        messages=messages,
        tools=take_each(body, "tools", decode_tool) if body.get("tools") is not None else None,
        tool_choice=_take_tool_choice(body),
        stream=_take_stream(body),
        output=_take_output(body),
        reasoning=_take_reasoning(body),
        logprobs=take_flag_or_none(body, "logprobs"),
        top_logprobs=take_integer_or_none(body, "top_logprobs"),
        **options,
        extras=checked_leftovers(body, NAME, VALUE_TYPES),
    )


def _is_generate(path: str, body: JsonObject) -> bool:
    if GENERATE_PATH in path:
        return True
    return CHAT_PATH not in path and "prompt" in body and "messages" not in body


def _take_generate(body: JsonObject) -> tuple[Message, ...]:
    """Decode `system` and `prompt` into two turns. An empty prompt only asks to load the model."""
    body[FORM] = GENERATE
    silent = {key: body.pop(key) for key, value in EMPTY.items() if key in body and body[key] == value}
    if silent:
        note_spelling(body, "empty", silent)
    messages: list[Message] = []
    system = take_text_or_none(body, "system")
    if system:
        messages.append(Message(role="system", parts=(Text(text=system),)))
    elif system is not None:
        note_spelling(body, "system", "empty")
    prompt = take_text_or_none(body, "prompt")
    parts: list[Part] = [*take_media(body)]
    if prompt:
        parts.insert(0, Text(text=prompt))
    elif prompt is not None:
        note_spelling(body, "prompt", "empty")
    if parts:
        messages.append(Message(role="user", parts=tuple(parts)))
    return tuple(messages)


def _take_stream(body: JsonObject) -> bool:
    """Take `stream`. Ollama streams by default."""
    flag = take_flag_or_none(body, "stream")
    if flag is None:
        note_spelling(body, "stream", "null" if "stream" in body else "absent")
        body.pop("stream", None)
        return True
    return flag


def _take_options(body: JsonObject) -> dict[str, Any]:
    """Take the options that other dialects have too. Other options, and values that Ollama refuses, stay extras."""
    options = body.get("options")
    if type(options) is not dict:
        return {}
    del body["options"]
    if not options:
        note_spelling(body, "options", "empty")
        return {}
    taken: dict[str, Any] = {}
    for key, (field, kind) in OPTIONS.items():
        value = options.get(key)
        if value is not None and _fits(value, kind):
            del options[key]
            taken[field] = tuple(value) if kind == "texts" else value
    if options:
        body["options"] = options
        _check_options(options)
    return taken


def _check_options(options: JsonObject) -> None:
    for key in options:
        if key in OPTION_TYPES:
            try:
                check_type(options, key, OPTION_TYPES)
            except DecodeError as error:
                raise error.under("options") from None


def _fits(value: object, kind: OptionKind) -> bool:
    match kind:
        case "number":
            return type(value) is float or type(value) is int
        case "whole":
            return type(value) is int
        case "limit":
            return type(value) is int and value > 0
        case "texts":
            return type(value) is list and all(type(item) is str for item in value)


def _take_tool_choice(body: JsonObject) -> ToolChoice | None:
    """Ollama has no tool choice, but clients send OpenAI's, and another upstream can obey it (CLIENTS.md 18)."""
    given = body.get("tool_choice")
    choice = None
    if given in ("auto", "none", "required"):
        choice = ToolChoice(mode=given)
    elif type(given) is dict and given.get("type") == "function":
        function = given.get("function")
        if type(function) is dict and type(function.get("name")) is str:
            choice = ToolChoice(mode="required", names=(function["name"],))
    if choice is not None:
        note_spelling(body, "tool_choice", body.pop("tool_choice"))
    return choice


def _take_output(body: JsonObject) -> OutputFormat | None:
    given = body.get("format")
    if given == "json":
        del body["format"]
        return OutputFormat(type="json")
    if given == "":  # "Field was set, but missing a value. We accept these as not set." (llm/server.go)
        del body["format"]
        return OutputFormat(type="text")
    if type(given) is dict:
        del body["format"]
        return OutputFormat(type="json_schema", schema=given)
    return None


def _take_reasoning(body: JsonObject) -> ReasoningSetting | None:
    think = body.get("think")
    if type(think) is bool:
        del body["think"]
        return ReasoningSetting(mode="on" if think else "off")
    if think in LEVELS:
        del body["think"]
        return ReasoningSetting(mode="auto", effort=think)
    return None


# ---------------------------------------------------------------- encode


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {}
    if request.model or spelled(request.extras, NAME, "~model") is None:
        body["model"] = request.model
    generate = says_generate(request.extras) and _fits_generate(request)
    if generate:
        _encode_generate(body, request, notes)
    elif request.messages or spelled(request.extras, NAME, "~messages") is None:
        # Null and absent are kept in the extras.
        body["messages"] = encode_messages(request.messages, (ROOT, "messages"), notes)
    _encode_tools(body, request, notes)
    _encode_output(body, request, notes)
    _encode_reasoning(body, request, notes)
    _encode_options(body, request)
    _encode_stream(body, request, notes)
    if request.logprobs is not None:
        body["logprobs"] = request.logprobs
    if request.top_logprobs is not None:
        body["top_logprobs"] = request.top_logprobs
    note_missing(request, _NO_SUCH, NAME, notes)
    _add_extras(body, request, notes)
    return WireRequest(path=GENERATE_PATH if generate else CHAT_PATH, body=body)


def _fits_generate(request: Request) -> bool:
    """Whether a request from /api/generate still fits there, because passes may have added turns."""
    roles = [message.role for message in request.messages]
    return roles in ([], ["system"], ["user"], ["system", "user"]) and all(
        isinstance(part, Text | Image | Audio) for message in request.messages for part in message.parts
    )


def _encode_generate(body: JsonObject, request: Request, notes: Notes) -> None:
    own = request.extras[NAME]
    if "~system" in own:
        body["system"] = ""
    if "~prompt" in own:
        body["prompt"] = ""
    if "~images" in own:
        body["images"] = []
    empty = own.get("~empty", {})
    body.update({key: empty[key] for key in EMPTY if key in empty and empty[key] == EMPTY[key]})
    for i, message in enumerate(request.messages):
        at: At = ((ROOT, "messages"), i)
        turn = MessageWriter((at, "parts"), notes)
        for j, part in enumerate(message.parts):
            turn.add(part, j)
        encoded = turn.body() or {"content": ""}
        if encoded["content"]:
            body["system" if message.role == "system" else "prompt"] = encoded["content"]
        if "images" in encoded:
            body["images"] = encoded["images"]
        add_extras({}, message.extras, NAME, at, notes)


def _encode_tools(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.tools is not None:
        body["tools"] = encode_each_tool(request.tools, encode_tool, notes)
    if request.tool_choice is not None:
        given = spelled(request.extras, NAME, "~tool_choice")
        if given is not None:
            body["tool_choice"] = given  # the client sent it, and Ollama ignores it
        else:
            _note_choice(request.tool_choice, notes)


def _note_choice(choice: ToolChoice, notes: Notes) -> None:
    if choice != ToolChoice(mode="auto"):
        notes.dropped((ROOT, "tool_choice"), "ollama has no tool choice: the model decides")


def _encode_output(body: JsonObject, request: Request, notes: Notes) -> None:
    output = request.output
    if output is None:
        return
    at: At = (ROOT, "output")
    note_unnamed(output, NAME, at, notes)
    if output.extras:
        add_extras({}, output.extras, NAME, at, notes)
    if output.schema is not None:
        body["format"] = output.schema
        return
    if output.type == "json_schema":
        notes.altered((at, "type"), "there is no schema: any JSON")
    body["format"] = "" if output.type == "text" else "json"


def _encode_reasoning(body: JsonObject, request: Request, notes: Notes) -> None:
    """Write `think`: true, false or a level. Models that cannot think refuse the first and the last."""
    setting = request.reasoning
    if setting is None:
        return
    at: At = (ROOT, "reasoning")
    if setting.show is not None:
        notes.dropped((at, "show"), "ollama always shows what the model thought")
    if setting.extras:
        add_extras({}, setting.extras, NAME, at, notes)
    _encode_think(body, setting, at, notes)
    if "think" not in body:
        notes.dropped(at, "ollama has no form for the rest of it: think is left out")


def _encode_think(body: JsonObject, setting: ReasoningSetting, at: At, notes: Notes) -> None:
    if setting.mode == "off":
        body["think"] = False
        for key, value in (("effort", setting.effort), ("budget", setting.budget)):
            if value is not None:
                notes.dropped((at, key), "thinking is off")
        return
    level = _level(setting, at, notes)
    if level is not None:
        body["think"] = level
        if setting.mode != "auto":
            notes.altered((at, "mode"), f"think is {level}: the model decides")
    elif setting.mode is not None:
        body["think"] = True
        if setting.mode == "auto":
            notes.altered((at, "mode"), "ollama can only say that the model thinks")


def _level(setting: ReasoningSetting, at: At, notes: Notes) -> str | None:
    if setting.effort is not None:
        level = LEVEL_OF_EFFORT.get(setting.effort)
        if level is None:
            notes.dropped((at, "effort"), f"ollama has no effort {setting.effort}")
        elif level != setting.effort:
            notes.altered((at, "effort"), f"ollama has no effort {setting.effort}: {level}")
        if setting.budget is not None:
            notes.dropped((at, "budget"), "ollama has levels of thinking, no budget")
        return level
    if setting.budget is not None and setting.budget > 0:
        level = LEVEL_OF_EFFORT[effort_of_budget(setting.budget)]
        notes.altered((at, "budget"), f"ollama has levels of thinking, no budget: {level}")
        notes.invented((at, "effort"), "from the budget")
        return level
    if setting.budget is not None:
        notes.dropped((at, "budget"), "ollama has levels of thinking, no budget")
    return None


def _encode_options(body: JsonObject, request: Request) -> None:
    options: JsonObject = {}
    for key, (field, kind) in OPTIONS.items():
        value = getattr(request, field)
        if value is not None:
            options[key] = list(value) if kind == "texts" else value
    if options or spelled(request.extras, NAME, "~options") == "empty":
        body["options"] = options


def _encode_stream(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.stream is None:
        body["stream"] = False  # Ollama streams by default
        return
    spelling = spelled(request.extras, NAME, "~stream") if request.stream else None
    if spelling is None:
        body["stream"] = request.stream
    elif spelling == "null":
        body["stream"] = None


_NO_SUCH: tuple[str, ...] = (
    "parallel_calls",
    "choices",
    "modalities",
    "verbosity",
    "user",
    "metadata",
    "service_tier",
    "store",
    "cache",
    "cache_key",
)


def _add_extras(body: JsonObject, request: Request, notes: Notes) -> None:
    """Add the request's extras. Options are merged with those that we wrote, and ours win."""
    if not request.extras:
        return
    options = body.get("options")
    add_extras(body, request.extras, NAME, ROOT, notes)
    if options is not None and body["options"] is not options and isinstance(body["options"], dict):
        body["options"] = body["options"] | options


# ---------------------------------------------------------------- tools
#
# Schemas are written unchanged. The server drops keywords that it does not know.


def decode_tool(tool: JsonObject) -> AnyTool:
    function = tool.get("function")
    if (
        type(function) is not dict
        or tool.get("type", "function") != "function"
        or type(function.get("name")) is not str
    ):
        return ServerTool(dialect=NAME, body=tool)
    note_omitted(tool, tool, "type")
    tool.pop("type", None)
    del tool["function"]
    name = function.pop("name")
    try:
        description = take_text_or_none(function, "description")
    except DecodeError as error:
        raise error.under("function") from None
    parameters = function.pop("parameters") if type(function.get("parameters")) is dict else None
    if function:
        tool["function"] = function
    return Tool(name=name, description=description, parameters=parameters, extras=leftovers(tool, NAME))


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    return encode_any_tool(tool, NAME, _encode_function, _encode_freeform, at, notes)


def _encode_function(tool: Tool, at: At, notes: Notes) -> JsonObject:
    function: JsonObject = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict:
        notes.dropped((at, "strict"), "ollama does not hold a model to a tool's schema")
    if tool.cache is not None:
        notes.dropped((at, "cache"), "ollama has no cache marks")
    body: JsonObject = {"type": "function", "function": function}
    if tool.extras:
        add_extras(body, tool.extras, NAME, at, notes)
        if body["function"] is not function:  # keys of the function that only Ollama knows
            body["function"] = function | body["function"]
    return body


def _encode_freeform(tool: CustomTool, at: At, notes: Notes) -> JsonObject:
    return _encode_function(freeform_as_function(tool, NAME, at, notes), at, notes)
