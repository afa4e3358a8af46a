"""JSON-RPC `generate_content`: decodes its parameters into a Request. Only clients use this dialect."""

from dragoman.dialects.jsonrpc.parts import decode_message
from dragoman.dialects.jsonrpc.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    leftovers,
    note_spelling,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_number_or_none,
    take_object_or_none,
    take_text,
    take_text_or_none,
    take_texts_or_none,
)
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Message, Text
from dragoman.model.request import OutputFormat, Request, Tool, ToolChoice
from dragoman.notes import Notes
from dragoman.wire import WireRequest


def decode_request(wire: WireRequest, notes: Notes) -> Request:
    """`wire.body` is the params of the call."""
    params = wire.body
    given = params.get("messages")
    if type(given) is not list or not given:
        raise DecodeError(f"expected a list of messages, found {'none' if given == [] else kind_of(given)}", "messages")
    messages = take_each(params, "messages", decode_message)
    system = take_text_or_none(params, "system")
    if system is not None:
        note_spelling(params, "system", "apart")
        messages = (Message(role="system", parts=(Text(text=system),)), *messages)
    return Request(
        model=take_text(params, "model"),
        messages=messages,
        tools=take_each(params, "tools", _decode_tool) if params.get("tools") is not None else None,
        tool_choice=_take_tool_choice(params),
        stream=take_flag_or_none(params, "stream"),
        max_output=take_integer_or_none(params, "max_output_tokens"),
        stop=_take_stop(params),
        output=_take_output(params),
        temperature=take_number_or_none(params, "temperature"),
        top_p=take_number_or_none(params, "top_p"),
        top_k=take_integer_or_none(params, "top_k"),
        seed=take_integer_or_none(params, "seed"),
        user=take_text_or_none(params, "user"),
        extras=leftovers(params, NAME),
    )


def _take_stop(params: JsonObject) -> tuple[str, ...] | None:
    """Take one stop sequence or a list of them."""
    if type(params.get("stop")) is str:
        return (params.pop("stop"),)
    return take_texts_or_none(params, "stop")


def _decode_tool(tool: JsonObject) -> Tool:
    """Decode `{name, description, parameters}`, or OpenAI's `{"type": "function", "function": {...}}` around it."""
    inner = tool.pop("function", None)
    if type(inner) is dict:
        tool.pop("type", None)
        inner.update(tool)
        tool = inner
    return Tool(
        name=take_text(tool, "name"),
        description=take_text_or_none(tool, "description"),
        parameters=take_object_or_none(tool, "parameters"),
        strict=take_flag_or_none(tool, "strict"),
        extras=leftovers(tool, NAME),
    )


def _take_tool_choice(params: JsonObject) -> ToolChoice | None:
    """Decode `auto`, `none`, `required`, or the name of the one tool to call."""
    match take_text_or_none(params, "tool_choice"):
        case None:
            return None
        case "auto" | "none" | "required" as mode:
            return ToolChoice(mode=mode)
        case name:
            return ToolChoice(mode="required", names=(name,))


def _take_output(params: JsonObject) -> OutputFormat | None:
    schema = take_object_or_none(params, "response_schema")
    return None if schema is None else OutputFormat(type="json_schema", schema=schema)
