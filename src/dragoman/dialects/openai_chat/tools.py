"""OpenAI Chat Completions: tools and the choice among them, both ways, `tools` and the older `functions` alike."""

from typing import Any

from msgspec import Raw

from dragoman.dialects._tools import encode_any_tool, encode_each_tool
from dragoman.dialects.openai_chat.parts import add_outer, keep_inner
from dragoman.dialects.openai_chat.words import CHOICES, NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    OMIT,
    add_extras,
    decode_each,
    expected,
    leftovers,
    note_spelling,
    spelled,
    take_flag_or_none,
    take_text,
    take_word,
)
from dragoman.jsontypes import JsonObject, load_json
from dragoman.model.request import AnyTool, CustomTool, Request, ServerTool, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}  # never null, {} or absent (mission B5)

# ---------------------------------------------------------------- decode


def take_tools(body: JsonObject) -> tuple[AnyTool, ...] | None:
    for key, decode in (("tools", decode_tool), ("functions", _decode_function)):
        given = body.get(key)
        if type(given) is tuple:  # decoded before
            del body[key]
            return given
        if type(given) is list:
            del body[key]
            if key == "functions" or not given:
                note_spelling(body, "tools", key if given else f"empty {key}")
            return decode_each(given, key, decode)
        if given is not None:
            raise expected("array", given, key)
    return None


def decode_tool(tool: JsonObject) -> AnyTool:
    kind = tool.get("type")
    if kind == "custom" and type(tool.get("custom")) is dict:
        try:
            return _decode_custom(tool)
        except DecodeError as error:
            raise error.under("custom") from None
    inner = tool.get("function")
    if type(inner) is dict and (kind == "function" or "type" not in tool):
        if kind is None:
            tool[OMIT] = ["type"]  # Mistral's clients
        else:
            del tool["type"]
        del tool["function"]
        try:
            return _decode_inner(tool, inner)
        except DecodeError as error:
            raise error.under("function") from None
    return ServerTool(dialect=NAME, body=tool)


def _decode_function(function: JsonObject) -> Tool:
    return _decode_inner({}, function)


def _decode_inner(tool: JsonObject, inner: JsonObject) -> Tool:
    parameters = inner.get("parameters")
    if type(parameters) is dict:
        del inner["parameters"]
        if not parameters or (parameters.get("type") == "object" and "properties" not in parameters):
            note_spelling(tool, "parameters", "as is")
    else:
        parameters = None
        note_spelling(tool, "parameters", "as is")
    name = take_text(inner, "name")
    description = take_word(inner, "description")
    strict = take_flag_or_none(inner, "strict")
    keep_inner(tool, "function", inner)
    return Tool(name=name, description=description, parameters=parameters, strict=strict, extras=leftovers(tool, NAME))


def _decode_custom(tool: JsonObject) -> CustomTool:
    inner = tool.pop("custom")
    del tool["type"]
    syntax = grammar = None
    form = inner.get("format")
    if form == {"type": "text"}:
        del inner["format"]
        note_spelling(tool, "format", "text")
    elif _is_grammar(form):
        del inner["format"]
        grammar, syntax = form["grammar"]["definition"], form["grammar"]["syntax"]
    name, description = take_text(inner, "name"), take_word(inner, "description")
    keep_inner(tool, "custom", inner)
    return CustomTool(name=name, description=description, syntax=syntax, grammar=grammar, extras=leftovers(tool, NAME))


def _is_grammar(form: Any) -> bool:
    if type(form) is not dict or form.keys() != {"type", "grammar"} or type(form["grammar"]) is not dict:
        return False
    return bool(form["grammar"].keys() == {"definition", "syntax"})


def take_tool_choice(body: JsonObject) -> ToolChoice | None:
    """Take the tool choice. A choice of an unknown form stays in the extras."""
    for key in ("tool_choice", "function_call"):
        given = body.get(key)
        choice = _decode_choice(given) if given is not None else None
        if choice is not None:
            del body[key]
            if key == "function_call":
                note_spelling(body, "tool_choice", key)
            return choice
    return None


def _decode_choice(given: Any) -> ToolChoice | None:
    if type(given) is str:
        mode = CHOICES.get(given)
        if mode is None:
            return None
        return ToolChoice(mode=mode, extras={} if mode == given else {NAME: {"~word": given}})
    if type(given) is not dict:
        return None
    match given.get("type"):
        case "function" | "custom" as kind if _is_named(given, kind):
            names = (given[kind]["name"],)
            return ToolChoice(mode="required", names=names, extras={NAME: {"~type": kind}} if kind == "custom" else {})
        case "allowed_tools":
            return _decode_allowed(given)
        case _ if type(given.get("name")) is str and given.keys() <= {"type", "name"}:
            # `function_call: {name}`. Some clients also send the form of Anthropic or Responses here.
            form: JsonObject = {"~typed": given["type"]} if "type" in given else {"~flat": True}
            return ToolChoice(mode="required", names=(given["name"],), extras={NAME: form})
        case _:
            return None


def _is_named(given: JsonObject, kind: str) -> bool:
    inner = given.get(kind)
    if type(inner) is not dict or type(inner.get("name")) is not str:
        return False
    return given.keys() == {"type", kind} and inner.keys() == {"name"}


def _decode_allowed(given: JsonObject) -> ToolChoice | None:
    inner = given.get("allowed_tools")
    if given.keys() != {"type", "allowed_tools"} or type(inner) is not dict or inner.keys() != {"mode", "tools"}:
        return None
    mode, tools = CHOICES.get(str(inner["mode"])), inner["tools"]
    if mode is None or type(tools) is not list:
        return None
    names = [_name_of(tool) for tool in tools]
    if not all(type(name) is str for name in names):
        return None
    return ToolChoice(mode=mode, names=tuple(str(name) for name in names), extras={NAME: {"~allowed": tools}})


def _name_of(tool: Any) -> object:
    if type(tool) is not dict:
        return None
    inner = tool.get(tool.get("type"))
    return inner.get("name") if type(inner) is dict else None


# ---------------------------------------------------------------- encode


def encode_tools(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.tools is None:
        return
    at: At = (ROOT, "tools")
    tools = encode_each_tool(request.tools, encode_tool, notes)
    how = spelled(request.extras, NAME, "~tools")
    functions = _as_functions(tools) if how == "functions" else None
    if how in ("empty tools", "empty functions") and not request.tools:
        body[how.removeprefix("empty ")] = []
    elif functions is not None:
        body["functions"] = functions
    elif tools:
        body["tools"] = tools
    elif request.tools:
        notes.dropped(at, "no tool is left that openai_chat has a form for")
    else:
        notes.altered(at, "openai_chat refuses an empty list of tools: left out")


def _as_functions(tools: list[Any]) -> list[JsonObject] | None:
    """In their older form. None if a tool has none."""
    read = [load_json(tool) if isinstance(tool, Raw) else tool for tool in tools]  # `Raw`: written for another request
    return [tool["function"] for tool in read] if all("function" in tool for tool in read) else None


def has_tools(body: JsonObject) -> bool:
    return "tools" in body or "functions" in body


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> JsonObject | None:
    return encode_any_tool(tool, NAME, _encode_function, _encode_freeform, at, notes)


def _encode_function(tool: Tool, at: At, notes: Notes) -> JsonObject:
    inner: JsonObject = {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    parameters = _encode_parameters(tool, at, notes)
    if parameters is not None:
        inner["parameters"] = parameters
    if tool.strict is not None:
        inner["strict"] = tool.strict
    body: JsonObject = {"type": "function", "function": inner}
    if tool.cache is not None:
        notes.dropped((at, "cache"), "openai_chat has no cache mark on tools")
    if tool.extras:
        add_outer(body, tool.extras, "function", at, notes)
    return body


def _encode_parameters(tool: Tool, at: At, notes: Notes) -> JsonObject | None:
    parameters = tool.parameters
    if tool.extras and spelled(tool.extras, NAME, "~parameters") == "as is":
        return parameters
    if not parameters:
        note = notes.invented if parameters is None else notes.altered
        note((at, "parameters"), "openai_chat demands a schema: an object without properties")
        return NO_PARAMETERS
    if parameters.get("type") == "object" and "properties" not in parameters:
        # "object schema missing properties" (FIELD-CASES 63)
        notes.altered((at, "parameters"), "openai_chat demands the key properties: an empty object")
        return {**parameters, "properties": {}}
    return parameters


def _encode_freeform(tool: CustomTool, at: At, notes: Notes) -> JsonObject:
    inner: JsonObject = {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    if tool.grammar is not None:
        syntax = tool.syntax
        if syntax is None:
            syntax = "lark"
            notes.invented((at, "syntax"), "openai_chat demands one: lark")
        inner["format"] = {"type": "grammar", "grammar": {"definition": tool.grammar, "syntax": syntax}}
    else:
        if tool.syntax is not None:
            notes.dropped((at, "syntax"), "openai_chat has a syntax beside a grammar only")
        if spelled(tool.extras, NAME, "~format") == "text":
            inner["format"] = {"type": "text"}
    body: JsonObject = {"type": "custom", "custom": inner}
    if tool.extras:
        add_outer(body, tool.extras, "custom", at, notes)
    return body


def encode_tool_choice(body: JsonObject, request: Request, notes: Notes) -> None:
    choice = request.tool_choice
    if choice is None:
        return
    at: At = (ROOT, "tool_choice")
    if request.tools and not has_tools(body):
        notes.dropped(at, "openai_chat refuses a choice without tools, and none is left")
        return
    key = "function_call" if spelled(request.extras, NAME, "~tool_choice") == "function_call" else "tool_choice"
    encoded = _encode_choice(choice, request.tools or (), at, notes)
    if choice.extras:
        add_extras(encoded if isinstance(encoded, dict) else {}, choice.extras, NAME, at, notes)
    body[key] = encoded


def _encode_choice(choice: ToolChoice, tools: tuple[AnyTool, ...], at: At, notes: Notes) -> str | JsonObject:
    own, names = choice.extras.get(NAME, {}), choice.names
    if names is None or choice.mode == "none":
        if names is not None:
            notes.dropped((at, "names"), "openai_chat names no tools in the choice none")
        word: str = own.get("~word", choice.mode)
        return word
    if choice.mode == "required" and len(names) == 1 and "~allowed" not in own:
        if "~typed" in own:
            return {"type": own["~typed"], "name": names[0]}
        if "~flat" in own:
            return {"name": names[0]}
        kind = own.get("~type") or _kind_of_tool(names[0], tools)
        return {"type": kind, kind: {"name": names[0]}}
    refs = own.get("~allowed")
    if refs is None:
        kinds = [(_kind_of_tool(name, tools), name) for name in names]
        refs = [{"type": kind, kind: {"name": name}} for kind, name in kinds]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": refs}}


def _kind_of_tool(name: str, tools: tuple[AnyTool, ...]) -> str:
    return "custom" if any(isinstance(tool, CustomTool) and tool.name == name for tool in tools) else "function"
