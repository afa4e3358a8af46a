"""Anthropic Messages: the request, both ways. https://docs.anthropic.com/en/api/messages (digest read 2026-11-15)"""

from typing import Any

from dragoman.dialects._settings import encode_tier, note_missing, note_unnamed
from dragoman.dialects._tools import encode_any_tool, encode_each_tool, freeform_as_function, is_plain, note_lost_names
from dragoman.dialects.anthropic.parts import (
    decode_blocks,
    decode_content,
    encode_cache,
    encode_content,
    encode_parts,
    take_cache,
)
from dragoman.dialects.anthropic.words import (
    BETA_HEADER,
    CHOICES,
    DEFAULT_MAX_TOKENS,
    DISPLAY_WORDS,
    DISPLAYS,
    EFFORTS,
    LISTED,
    MODE_WORDS,
    MODES,
    NAME,
    ROLE_WORDS,
    ROLES,
    TIERS,
    VERSION,
    VERSION_HEADER,
)
from dragoman.errors import DecodeError
from dragoman.fields import (
    ValueTypes,
    add_extras,
    checked_leftovers,
    leftovers,
    note_silent,
    note_spelling,
    spelled,
    take_choice,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_number_or_none,
    take_object_or_none,
    take_one,
    take_text,
    take_text_or_none,
    take_texts_or_none,
)
from dragoman.jsontypes import JsonObject
from dragoman.model.effort import lowest_known
from dragoman.model.messages import Message, Text
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

PATH = "/v1/messages"
BETA = f"header:{BETA_HEADER}"  # the key of that header in the request's extras
VERSION_KEY = f"~{VERSION_HEADER}"

# The settings of most requests, beside `system` and `messages`.
FEW = frozenset({"model", "max_tokens", "tools", "stream", "temperature", VERSION_KEY})

# Of keys that stay in the extras, whole or in part.
VALUE_TYPES: ValueTypes = {
    "metadata": (dict,),
    "output_config": (dict,),
    "container": (str, dict),
    "mcp_servers": (list,),
    "context_management": (dict,),
    "compaction": (dict,),
}

# ---------------------------------------------------------------- decode


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    body = wire.body
    messages = decode_turns(body)
    if "max_tokens" not in body:
        note_spelling(body, "max_tokens", "absent")  # count_tokens has no max_tokens
    if "model" not in body:
        note_spelling(body, "model", "absent")  # Vertex has it in the path
    _keep_headers(body, wire.headers)
    if body.keys() <= FEW:  # fast path: few settings
        return Request(
            model=take_text_or_none(body, "model") or "",
            messages=messages,
            tools=take_each(body, "tools", decode_tool) if body.get("tools") is not None else None,
            stream=take_flag_or_none(body, "stream"),
            max_output=take_integer_or_none(body, "max_tokens"),
            temperature=take_number_or_none(body, "temperature"),
            extras={NAME: body} if body else {},
        )
    note_silent(body, "anthropic_version")  # Vertex and Bedrock name the API version in the body
    choice, parallel = _take_tool_choice(body)
    return Request(
        model=take_text_or_none(body, "model") or "",
        messages=messages,
        tools=take_each(body, "tools", decode_tool) if body.get("tools") is not None else None,
        tool_choice=choice,
        parallel_calls=parallel,
        stream=take_flag_or_none(body, "stream"),
        max_output=take_integer_or_none(body, "max_tokens"),
        stop=take_texts_or_none(body, "stop_sequences"),
        reasoning=_take_reasoning(body),
        output=_take_output(body),
        temperature=take_number_or_none(body, "temperature"),
        top_p=take_number_or_none(body, "top_p"),
        top_k=take_integer_or_none(body, "top_k"),
        user=_take_user(body),
        service_tier=take_text_or_none(body, "service_tier"),
        cache=take_cache(body),
        extras=checked_leftovers(body, NAME, VALUE_TYPES),
    )


def decode_turns(body: JsonObject) -> tuple[Message, ...]:
    """Takes the turns of a body, with the instructions that come before them."""
    messages = take_each(body, "messages", decode_message)
    if body.get("system") is not None:
        return (_decode_system(body), *messages)
    if messages and messages[0].role == "system":
        note_spelling(body, "system", "messages")
    return messages


def _keep_headers(body: JsonObject, headers: dict[str, str]) -> None:
    if BETA_HEADER in headers:
        body[BETA] = headers[BETA_HEADER]
    if VERSION_HEADER in headers:
        body[VERSION_KEY] = headers[VERSION_HEADER]


def _decode_system(body: JsonObject) -> Message:
    holder = {"system": body.pop("system")}
    parts = decode_content(holder, "system")
    return Message(role="system", parts=parts, extras=leftovers(holder, NAME))


def decode_message(message: JsonObject) -> Message:
    content = message.get("content")
    try:
        role = ROLES[message["role"]]
    except (KeyError, TypeError):  # absent, unknown or not a string
        found = repr(message.get("role"))
        raise DecodeError(f"expected one of {', '.join(ROLES)}, found {found}", "role") from None
    if len(message) == 2 and type(content) is list and content:  # fast path: anthropic turn
        if len(content) == 1:  # fast path: anthropic lone text
            only = content[0]
            if type(only) is dict and len(only) == 2 and only.get("type") == "text":
                text = only.get("text")
                if type(text) is str:
                    return Message(role=role, parts=(Text(text=text),), extras=LISTED)
        parts = decode_blocks(content, "content")
        if len(parts) == 1 and is_plain(parts[0]):
            return Message(role=role, parts=parts, extras=LISTED)
        return Message(role=role, parts=parts)
    del message["role"]
    parts = decode_content(message)
    return Message(role=role, parts=parts, extras={NAME: message}) if message else Message(role=role, parts=parts)


def decode_tool(tool: JsonObject) -> AnyTool:
    kind = tool.get("type")
    if kind is not None and kind != "custom":
        return ServerTool(dialect=NAME, body=tool)
    if kind is not None:
        del tool["type"]
        note_spelling(tool, "type", "custom")
    return Tool(
        name=take_text(tool, "name"),
        description=take_text_or_none(tool, "description"),
        # `true` is a legal schema, but no server accepts it: it stays in the extras
        parameters=tool.pop("input_schema") if type(tool.get("input_schema")) is dict else None,
        strict=take_flag_or_none(tool, "strict"),
        cache=take_cache(tool),
        extras=leftovers(tool, NAME),
    )


def _take_tool_choice(body: JsonObject) -> tuple[ToolChoice | None, bool | None]:
    parallel: bool | None = None

    def decode(choice: JsonObject) -> ToolChoice:
        nonlocal parallel
        disabled = take_flag_or_none(choice, "disable_parallel_tool_use")
        parallel = None if disabled is None else not disabled
        named = choice.get("type") == "tool"
        mode = take_choice(choice, "type", CHOICES)
        return ToolChoice(
            mode=mode, names=(take_text(choice, "name"),) if named else None, extras=leftovers(choice, NAME)
        )

    return take_one(body, "tool_choice", decode), parallel


def _take_reasoning(body: JsonObject) -> ReasoningSetting | None:
    """`thinking` turns thinking on, `output_config.effort` says how much. The rest of output_config stays an extra."""
    config, effort = body.get("output_config"), None
    if type(config) is dict:
        try:
            effort = take_text_or_none(config, "effort")
        except DecodeError as error:
            raise error.under("output_config") from None
        if not config:
            del body["output_config"]
    thinking = take_object_or_none(body, "thinking")
    if thinking is None:
        return None if effort is None else ReasoningSetting(effort=effort)
    try:
        return _decode_thinking(thinking, effort)
    except DecodeError as error:
        raise error.under("thinking") from None


def _decode_thinking(thinking: JsonObject, effort: str | None) -> ReasoningSetting:
    mode = MODES.get(str(thinking.get("type")))
    if mode is not None:
        del thinking["type"]
    show = DISPLAYS.get(str(thinking.get("display")))
    if show is not None:
        del thinking["display"]
    return ReasoningSetting(
        mode=mode,
        effort=effort,
        budget=take_integer_or_none(thinking, "budget_tokens"),
        show=show,
        extras=leftovers(thinking, NAME),
    )


def _take_output(body: JsonObject) -> OutputFormat | None:
    """Take `output_config.format`, or the older top-level `output_format`."""
    holder, key = body.get("output_config"), "format"
    if type(holder) is not dict or type(holder.get("format")) is not dict:
        holder, key = body, "output_format"
    given = holder.get(key)
    if type(given) is not dict or given.get("type") != "json_schema":
        return None
    del holder[key]
    if holder is not body and not holder:
        del body["output_config"]
    del given["type"]
    if key == "output_format":
        note_spelling(given, "place", key)
    try:
        schema = take_object_or_none(given, "schema")
    except DecodeError as error:
        raise error.under(*(("output_config", "format") if holder is not body else ("output_format",))) from None
    return OutputFormat(type="json_schema", schema=schema, extras=leftovers(given, NAME))


def _take_user(body: JsonObject) -> str | None:
    metadata = body.get("metadata")
    if type(metadata) is not dict:
        return None
    try:
        user = take_text_or_none(metadata, "user_id")
    except DecodeError as error:
        raise error.under("metadata") from None
    if user is not None and not metadata:
        del body["metadata"]
    return user


# ---------------------------------------------------------------- encode


def encode_request(request: Request, notes: Notes) -> WireRequest:
    body: JsonObject = {}
    if request.model or spelled(request.extras, NAME, "~model") is None:
        body["model"] = request.model
    if request.max_output is not None:
        body["max_tokens"] = request.max_output
    elif spelled(request.extras, NAME, "~max_tokens") is None:
        body["max_tokens"] = DEFAULT_MAX_TOKENS
        notes.invented((ROOT, "max_output"), f"anthropic demands a limit: {DEFAULT_MAX_TOKENS}")
    _encode_messages(body, request, notes)
    if request.tools is not None:
        body["tools"] = _encode_tools(request.tools, notes)
    _encode_tool_choice(body, request, notes)
    _encode_parameters(body, request, notes)
    _encode_reasoning(body, request, notes)
    _encode_output(body, request, notes)
    note_missing(request, _NO_SUCH, NAME, notes)
    note_lost_names(request.messages, NAME, notes)
    headers = _add_extras(body, request, notes)
    return WireRequest(path=PATH, body=body, headers=headers)


def _encode_messages(body: JsonObject, request: Request, notes: Notes) -> None:
    """System turns at the start become `system`. Later ones keep their place."""
    messages = request.messages
    lead = 0
    if spelled(request.extras, NAME, "~system") != "messages":
        while lead < len(messages) and messages[lead].role in ("system", "developer"):
            lead += 1
    at: At = (ROOT, "messages")
    if lead:
        body["system"] = _encode_system(messages[:lead], at, notes)
    body["messages"] = [encode_message(messages[i], (at, i), notes) for i in range(lead, len(messages))]


def _encode_system(messages: tuple[Message, ...], at: At, notes: Notes) -> str | list[JsonObject]:
    blocks: list[JsonObject] = []
    for i, message in enumerate(messages):
        _note_developer(message, (at, i), notes)
        content = encode_content(message.parts, message.extras, (at, i), notes)
        aside: JsonObject = {}
        add_extras(aside, message.extras, NAME, (at, i), notes)
        if len(messages) == 1:
            return content
        blocks.extend([{"type": "text", "text": content}] if isinstance(content, str) else content)
    return blocks


def _note_developer(message: Message, at: At, notes: Notes) -> None:
    if message.role == "developer":
        notes.altered((at, "role"), "anthropic does not distinguish developer and system")


def encode_message(message: Message, at: At, notes: Notes) -> JsonObject:
    extras = message.extras
    if message.role == "developer":
        _note_developer(message, at, notes)
    if extras is LISTED:
        return {"role": ROLE_WORDS[message.role], "content": encode_parts(message.parts, (at, "parts"), notes)}
    content = encode_content(message.parts, extras, at, notes)
    turn: JsonObject = {"role": ROLE_WORDS[message.role], "content": content}
    if extras:
        add_extras(turn, extras, NAME, at, notes)
    return turn


def _encode_tools(tools: tuple[AnyTool, ...], notes: Notes) -> list[JsonObject]:
    return encode_each_tool(tools, encode_tool, notes)


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    return encode_any_tool(tool, NAME, _encode_function, _encode_freeform, at, notes)


def _encode_function(tool: Tool, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"name": tool.name}
    if spelled(tool.extras, NAME, "~type") is not None:
        body["type"] = "custom"
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters:
        body["input_schema"] = tool.parameters
    elif "input_schema" not in tool.extras.get(NAME, {}):
        body["input_schema"] = {"type": "object"}  # required, and never {} (mission B5)
        notes.invented((at, "parameters"), "anthropic demands a schema")
    if tool.strict is not None:
        body["strict"] = tool.strict
    if tool.cache is not None:
        body["cache_control"] = encode_cache(tool.cache, (at, "cache"), notes)
    if tool.extras:
        add_extras(body, tool.extras, NAME, at, notes)
    return body


def _encode_freeform(tool: CustomTool, at: At, notes: Notes) -> JsonObject:
    return _encode_function(freeform_as_function(tool, NAME, at, notes), at, notes)


def _encode_tool_choice(body: JsonObject, request: Request, notes: Notes) -> None:
    choice, parallel = request.tool_choice, request.parallel_calls
    at: At = (ROOT, "tool_choice")
    if choice is None:
        if parallel is None or (parallel and not request.tools):
            return
        if not request.tools:
            notes.dropped((ROOT, "parallel_calls"), "anthropic has it in the tool choice, and there are no tools")
            return
        choice = ToolChoice(mode="auto")
    names = choice.names
    encoded: JsonObject
    if choice.mode == "required" and names is not None and len(names) == 1:
        encoded = {"type": "tool", "name": names[0]}
    else:
        encoded = {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}
        if names is not None:
            notes.dropped((at, "names"), "anthropic can name one tool or none")
    if parallel is not None:
        if choice.mode == "none" and parallel:
            pass  # the default: without calls it changes nothing
        elif choice.mode == "none":
            notes.dropped((ROOT, "parallel_calls"), "anthropic has no such flag on the choice none")
        else:
            encoded["disable_parallel_tool_use"] = not parallel
    if choice.extras:
        add_extras(encoded, choice.extras, NAME, at, notes)
    body["tool_choice"] = encoded


def _encode_parameters(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.stream is not None:
        body["stream"] = request.stream
    if request.stop is not None:
        body["stop_sequences"] = list(request.stop)
    if request.temperature is not None:
        body["temperature"] = request.temperature
        if request.temperature > 1:
            body["temperature"] = 1
            notes.altered((ROOT, "temperature"), "anthropic's goes up to 1")
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.top_k is not None:
        body["top_k"] = request.top_k
    if request.user is not None:
        body["metadata"] = {"user_id": request.user}
    if request.service_tier is not None:
        tier = encode_tier(request.service_tier, TIERS, NAME, notes)
        if tier is not None:
            body["service_tier"] = tier
    if request.cache is not None:
        body["cache_control"] = encode_cache(request.cache, (ROOT, "cache"), notes)


def _encode_reasoning(body: JsonObject, request: Request, notes: Notes) -> None:
    setting = request.reasoning
    if setting is None:
        return
    at: At = (ROOT, "reasoning")
    thinking: JsonObject = {}
    if setting.mode is not None:
        thinking["type"] = MODE_WORDS[setting.mode]
        if setting.mode == "on" and setting.budget is None and NAME not in setting.extras:
            thinking["type"] = "adaptive"
            notes.altered((at, "mode"), "anthropic's enabled demands a budget: said as adaptive")
    elif setting.budget is not None:
        thinking["type"] = "enabled"
        notes.invented((at, "mode"), "anthropic demands a type beside a budget")
    if setting.budget is not None:
        thinking["budget_tokens"] = setting.budget
    if setting.show is not None and ("type" in thinking or NAME in setting.extras):
        thinking["display"] = DISPLAY_WORDS[setting.show]
    elif setting.show is not None:
        place: At = at if setting.effort is None else (at, "show")
        notes.dropped(place, "anthropic has it beside the switch for thinking, which is not set")
    if setting.extras:
        add_extras(thinking, setting.extras, NAME, at, notes)
    if thinking:
        body["thinking"] = thinking
    if setting.effort is not None:
        effort = lowest_known(setting.effort, EFFORTS)
        if effort != setting.effort:
            notes.altered((at, "effort"), f"anthropic has no effort {setting.effort}: {effort}")
        body["output_config"] = {"effort": effort}


def _encode_output(body: JsonObject, request: Request, notes: Notes) -> None:
    output = request.output
    if output is None:
        return
    at: At = (ROOT, "output")
    if output.type == "text" and output == OutputFormat(type="text"):
        return
    if output.type != "json_schema":
        notes.dropped(at, f"anthropic has no output format {output.type}")
        return
    note_unnamed(output, NAME, at, notes)
    encoded: JsonObject = {"type": "json_schema"}
    if output.schema is not None:
        encoded["schema"] = output.schema
    add_extras(encoded, output.extras, NAME, at, notes)
    if spelled(output.extras, NAME, "~place") == "output_format":
        body["output_format"] = encoded
    else:
        body.setdefault("output_config", {})["format"] = encoded


_NO_SUCH: tuple[str, ...] = (
    "choices",
    "modalities",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "logprobs",
    "top_logprobs",
    "verbosity",
    "metadata",
    "store",
    "cache_key",
)


def _add_extras(body: JsonObject, request: Request, notes: Notes) -> dict[str, str]:
    """Add the request's extras, and return the headers among them. Objects that we also write are merged."""
    headers = {VERSION_HEADER: spelled(request.extras, NAME, VERSION_KEY) or VERSION}
    if not request.extras:
        return headers
    ours: dict[str, Any] = {key: body[key] for key in ("output_config", "metadata") if key in body}
    add_extras(body, request.extras, NAME, ROOT, notes)
    for key, value in ours.items():
        if body[key] is not value and isinstance(body[key], dict):
            body[key] = body[key] | value
    if BETA in body:
        headers[BETA_HEADER] = body.pop(BETA)
    return headers
