"""Gemini generateContent: tools and the choice among them, both ways.

An entry of `tools` can have several function declarations and built-in tools. We keep each as one tool, and remember
the entries as spelling: `[{"functionDeclarations": 2, "googleSearch": 1}, ...]`.
"""

from itertools import islice
from typing import Any

from dragoman.dialects._tools import encode_any_tool, encode_each_tool, freeform_as_function
from dragoman.dialects.gemini.schema import read_schema, write_schema
from dragoman.dialects.gemini.spelling import SNAKE, to_camel, write_extras
from dragoman.dialects.gemini.words import MODE_NUMBERS, MODE_WORDS, MODES, NAME
from dragoman.errors import DecodeError
from dragoman.fields import add_extras, decode_each, leftovers, note_spelling, spelled, take_text
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.request import AnyTool, CustomTool, Request, ServerTool, Tool, ToolChoice
from dragoman.notes import ROOT, At, Notes

FUNCTIONS = "functionDeclarations"
Groups = list[dict[str, int]]

# ---------------------------------------------------------------- decode


def take_tools(body: JsonObject) -> tuple[AnyTool, ...] | None:
    given = body.get("tools")
    if given is None:
        return None
    del body["tools"]
    if type(given) is tuple:
        return given  # they were decoded before (`bodies.load_apart`)
    if type(given) is dict:  # one entry, not in a list (CLIENTS 14)
        note_spelling(body, "tools_form", "object")
        given = [given]
    if type(given) is not list:
        raise DecodeError(f"expected array, found {kind_of(given)}", "tools")
    tools: list[AnyTool] = []
    groups: Groups = []
    for i, entry in enumerate(given):
        if type(entry) is not dict:
            raise DecodeError(f"expected object, found {kind_of(entry)}", "tools", i)
        try:
            groups.append(_decode_entry(entry, tools))
        except DecodeError as error:
            raise error.under("tools", i) from None
    if groups != default_groups(tools):
        note_spelling(body, "tools", groups)
    return tuple(tools)


def has_other_tools(request: Request) -> bool:
    """Whether the request remembers how its list of tools was written."""
    own = request.extras.get(NAME, {})
    return "~tools" in own or "~tools_form" in own


def _decode_entry(entry: JsonObject, tools: list[AnyTool]) -> dict[str, int]:
    group: dict[str, int] = {}
    for key, value in entry.items():
        if SNAKE.get(key, key) == FUNCTIONS and type(value) is list:
            declared = decode_each(value, key, decode_tool)
            tools.extend(declared)
            group[key] = len(declared)
        else:
            tools.append(ServerTool(dialect=NAME, body={key: value}))
            group[key] = 1
    return group


def default_groups(tools: list[AnyTool]) -> Groups:
    """Put all functions into one entry, at the place of the first. Every other tool has its own entry."""
    functions = sum(type(tool) is not ServerTool for tool in tools)
    groups: Groups = []
    for tool in tools:
        if isinstance(tool, ServerTool):
            groups.append(dict.fromkeys(tool.body, 1))
        elif functions:
            groups.append({FUNCTIONS: functions})
            functions = 0
    return groups


def decode_tool(tool: JsonObject) -> Tool:
    if len(tool) == 3:  # fast path: gemini tool
        name, text, schema = tool.get("name"), tool.get("description"), tool.get("parametersJsonSchema")
        if type(name) is str and type(text) is str and type(schema) is dict:
            return Tool(name=name, description=text, parameters=schema)
    to_camel(tool)
    parameters: JsonObject | None = None
    if type(tool.get("parametersJsonSchema")) is dict:
        parameters = tool.pop("parametersJsonSchema")
    elif type(tool.get("parameters")) is dict:
        parameters, spelling = read_schema(tool.pop("parameters"))
        note_spelling(tool, "parameters", spelling)
    description = tool.pop("description") if type(tool.get("description")) is str else None
    name = take_text(tool, "name")
    return Tool(name=name, description=description, parameters=parameters, extras=leftovers(tool, NAME))


def take_choice(body: JsonObject) -> ToolChoice | None:
    """Take `toolConfig.functionCallingConfig`. The rest of toolConfig stays in the request's extras."""
    holder = body.get("toolConfig")
    if type(holder) is not dict:
        return None
    to_camel(holder, body, "toolConfig.")
    config = holder.get("functionCallingConfig")
    if type(config) is not dict:
        return None
    del holder["functionCallingConfig"]
    if not holder:
        del body["toolConfig"]
    to_camel(config, body, "toolConfig.functionCallingConfig.")
    names = config.get("allowedFunctionNames")
    if type(names) is list and all(type(name) is str for name in names):
        del config["allowedFunctionNames"]
        if not names:
            note_spelling(config, "allowedFunctionNames", "empty")  # an empty list forbids nothing
    else:
        names = None
    return ToolChoice(mode=_take_mode(config), names=tuple(names) if names else None, extras=leftovers(config, NAME))


def _take_mode(config: JsonObject) -> Any:
    if "mode" not in config:
        note_spelling(config, "mode", "absent")
        return "auto"
    given = config["mode"]
    word = MODE_NUMBERS.get(given, "") if type(given) is int else str(given).upper()
    if word not in MODES or word == "VALIDATED":
        return "auto"  # the exact word stays an extra and is written back
    del config["mode"]
    if word != given:
        note_spelling(config, "mode", given)
    return MODES[word]


# ---------------------------------------------------------------- encode


def encode_tools(body: JsonObject, request: Request, notes: Notes) -> None:
    if request.tools is None:
        return
    kept = encode_each_tool(request.tools, encode_tool, notes)
    groups = spelled(request.extras, NAME, "~tools")
    entries = _regroup(kept, groups) if groups is not None else None
    if entries is None:
        entries = _group(kept)
    if len(entries) == 1 and spelled(request.extras, NAME, "~tools_form") == "object":
        body["tools"] = entries[0]
    else:
        body["tools"] = entries


def _group(tools: list[tuple[str, Any]]) -> list[JsonObject]:
    entries: list[JsonObject] = []
    functions: list[Any] | None = None
    for key, value in tools:
        if key != FUNCTIONS:
            entries.append(dict(value))
        elif functions is None:
            functions = [value]
            entries.append({FUNCTIONS: functions})
        else:
            functions.append(value)
    return entries


def _regroup(tools: list[tuple[str, Any]], groups: Groups) -> list[JsonObject] | None:
    """The original entries, if the tools are still the same."""
    entries: list[JsonObject] = []
    rest = iter(tools)
    for group in groups:
        entry: JsonObject = {}
        for key, count in group.items():
            taken = list(islice(rest, count))
            functions = SNAKE.get(key, key) == FUNCTIONS and all(tool[0] == FUNCTIONS for tool in taken)
            if len(taken) != count or not (functions or (taken[0][0] == "" and list(taken[0][1]) == [key])):
                return None
            entry[key] = [tool[1] for tool in taken] if functions else taken[0][1][key]
        entries.append(entry)
    return entries if next(rest, None) is None else None


def encode_tool(tool: AnyTool, at: At, notes: Notes) -> tuple[str, JsonObject] | None:
    """Encode a tool, with the key of its list: functions share one list, other tools have their own entry."""
    body = encode_any_tool(tool, NAME, _encode_function, _encode_freeform, at, notes)
    if body is None:
        return None
    return "" if isinstance(tool, ServerTool) else FUNCTIONS, body


def _encode_function(tool: Tool, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    spelling = spelled(tool.extras, NAME, "~parameters") if tool.extras else None
    if tool.parameters is not None:
        schema = write_schema(tool.parameters, spelling)
        if schema is not None:
            body["parameters"] = schema
        elif tool.parameters:
            body["parametersJsonSchema"] = tool.parameters
        else:  # "should be non-empty for OBJECT type": an empty schema is left out (FIELD-CASES 63)
            notes.dropped((at, "parameters"), "gemini has no empty schema: left out")
    if tool.strict:
        notes.dropped((at, "strict"), "gemini has no strict switch for one function")
    if tool.cache is not None:
        notes.dropped((at, "cache"), "gemini has no cache marks")
    if tool.extras:
        write_extras(body, tool.extras, at, notes)
    return body


def _encode_freeform(tool: CustomTool, at: At, notes: Notes) -> JsonObject:
    return _encode_function(freeform_as_function(tool, NAME, at, notes), at, notes)


def encode_choice(body: JsonObject, request: Request, notes: Notes) -> None:
    choice = request.tool_choice
    if request.parallel_calls is False:
        notes.dropped((ROOT, "parallel_calls"), "gemini has no switch for parallel calls")
    if choice is None:
        return
    at: At = (ROOT, "tool_choice")
    own = choice.extras.get(NAME, {})
    config: JsonObject = {"mode": own.get("~mode", MODE_WORDS[choice.mode])}
    if config["mode"] == "absent":
        del config["mode"]
    if own.get("~allowedFunctionNames") == "empty":
        config["allowedFunctionNames"] = []
    if choice.names is not None:
        if choice.mode == "none" and NAME not in choice.extras:
            notes.dropped((at, "names"), "gemini takes no tool names with the choice none")
        else:
            config["allowedFunctionNames"] = list(choice.names)
            if choice.mode == "auto" and NAME not in choice.extras:
                config["mode"] = "VALIDATED"  # AUTO takes no names; VALIDATED does, and may also answer or call
                notes.altered((at, "extras"), "gemini's AUTO takes no names: VALIDATED does")
    if choice.extras:
        add_extras(config, choice.extras, NAME, at, notes)
    body["toolConfig"] = {"functionCallingConfig": config}
