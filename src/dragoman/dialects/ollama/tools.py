"""Ollama: tools, both ways. Schemas travel as they are; the server's own structs drop what they do not know."""

from dragoman.dialects._tools import encode_any_tool, freeform_as_function
from dragoman.dialects.ollama.words import NAME
from dragoman.fields import add_extras, leftovers, note_omitted, take_text_or_none
from dragoman.jsontypes import JsonObject
from dragoman.model.request import AnyTool, CustomTool, ServerTool, Tool
from dragoman.notes import At, Notes


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
    description = take_text_or_none(function, "description")
    parameters = function.pop("parameters") if type(function.get("parameters")) is dict else None
    if function:
        tool["function"] = function
    return Tool(name=name, description=description, parameters=parameters, extras=leftovers(tool, NAME))


def encode_tools(tools: tuple[AnyTool, ...], at: At, notes: Notes) -> list[JsonObject]:
    encoded = [encode_tool(tool, (at, i), notes) for i, tool in enumerate(tools)]
    return [tool for tool in encoded if tool is not None]


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
